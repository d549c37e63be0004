package openai_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/mcptest"
	"github.com/holdfast-a2a/holdfast/internal/test/modeltest"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/openai"
)

// pieceOf is a chunk with entries of tool_calls.
func pieceOf(entries ...string) string {
	return modeltest.Chunk(`{"tool_calls":[`+strings.Join(entries, ",")+`]}`, "null")
}

// whole is an entry of tool_calls with all of a call. before has its other members.
func whole(before, arguments string) string {
	return fmt.Sprintf(`{%s"type":"function","function":{"name":"t__raw","arguments":%q}}`, before, arguments)
}

// rest is an entry with more arguments.
func rest(before, arguments string) string {
	return fmt.Sprintf(`{%s"function":{"arguments":%q}}`, before, arguments)
}

// made are the arguments with which tools were called.
func made(tools *mcptest.Tools) []string {
	var all []string
	for _, line := range tools.Calls() {
		_, line, _ = strings.Cut(line, " ")
		all = append(all, line[:strings.LastIndex(line, " ")])
	}
	return all
}

// Each provider and gateway streams calls in a shape of its own: these are those of their documents and of public reports. A call is
// made once, with what the model wrote.
func TestShapesOfCalls(t *testing.T) {
	t.Parallel()
	one, two := `{"n":1}`, `{"n":1234567890123456789,"x":0.10,"s":"é\u2028"}`
	both := []string{one, two}
	for name, c := range map[string]struct {
		chunks []string
		want   []string
	}{
		"OpenAI": {[]string{
			modeltest.Role, pieceOf(whole(`"index":0,"id":"a",`, "")), pieceOf(rest(`"index":0,`, `{"n"`)), pieceOf(rest(`"index":0,`, `:1}`)),
			pieceOf(whole(`"index":1,"id":"b",`, "")), pieceOf(rest(`"index":1,`, two)),
		}, both},
		"Azure: a chunk without choices first": {[]string{`{"choices":[],"prompt_filter_results":[]}`, pieceOf(whole(`"index":0,"id":"a",`, one))}, both[:1]},
		"Gemini: all have the index 0":         {[]string{pieceOf(whole(`"index":0,"id":"a",`, one)), pieceOf(whole(`"index":0,"id":"b",`, two))}, both},
		"Gemini: in one chunk":                 {[]string{pieceOf(whole(`"index":0,"id":"a",`, one), whole(`"index":0,"id":"b",`, two))}, both},
		"Anthropic: an empty object first":     {[]string{pieceOf(whole(`"index":0,"id":"a",`, "{}")), pieceOf(rest(`"index":0,`, `{"n"`)), pieceOf(rest(`"index":0,`, `:1}`))}, both[:1]},
		"LiteLLM: other output counts":         {[]string{modeltest.Text("So."), pieceOf(whole(`"index":1,"id":"a",`, "")), pieceOf(rest(`"index":1,`, one)), pieceOf(whole(`"index":2,"id":"b",`, two))}, both},
		"vLLM: another id in each piece":       {[]string{pieceOf(whole(`"index":0,"id":"a",`, "")), pieceOf(rest(`"index":0,"id":"a2",`, `{"n"`)), pieceOf(rest(`"index":0,"id":"a3",`, `:1}`))}, both[:1]},
		"SGLang: null and empty members":       {[]string{pieceOf(whole(`"index":0,"id":"a",`, "")), pieceOf(`{"index":0,"id":null,"function":{"name":null,"arguments":"{\"n\":"}}`), pieceOf(`{"index":0,"id":"","function":{"name":"","arguments":"1}"}}`)}, both[:1]},
		"llama.cpp: the name in each piece":    {[]string{pieceOf(whole(`"index":0,"id":"a",`, `{"n"`)), pieceOf(whole(`"index":0,"id":"a",`, `:1}`)), pieceOf(whole(`"index":1,"id":"b",`, two))}, both},
		"Ollama: no index":                     {[]string{pieceOf(whole(`"id":"a",`, one)), pieceOf(whole(`"id":"b",`, two))}, both},
		"Ollama: neither index nor id":         {[]string{pieceOf(whole("", one), whole("", two))}, both},
		"pieces without index and id":          {[]string{pieceOf(whole("", `{"n"`)), pieceOf(rest("", `:1}`)), pieceOf(whole("", two))}, both},
		"OpenRouter: pieces by id":             {[]string{pieceOf(whole(`"id":"a",`, "")), pieceOf(whole(`"id":"b",`, "")), pieceOf(rest(`"id":"a",`, one)), pieceOf(rest(`"id":"b",`, two))}, both},
		"Groq: all calls at once":              {[]string{pieceOf(whole(`"index":0,"id":"a",`, one), whole(`"index":1,"id":"b",`, two))}, both},
		"Mistral: one id for all":              {[]string{pieceOf(whole(`"index":0,"id":"null",`, one)), pieceOf(whole(`"index":1,"id":"null",`, two))}, both},
		"DeepSeek: arguments as an object":     {[]string{pieceOf(`{"index":0,"id":"a","function":{"name":"t__raw","arguments":` + two + `}}`)}, both[1:]},
		"the whole call again at its end":      {[]string{pieceOf(whole(`"index":0,"id":"a",`, `{"n"`)), pieceOf(rest(`"index":0,`, `:1}`)), pieceOf(whole(`"index":0,"id":"a",`, one))}, both[:1]},
		"the same call in another place":       {[]string{pieceOf(whole(`"index":0,"id":"a",`, one)), pieceOf(whole(`"index":7,"id":"a",`, one))}, both[:1]},
		"interleaved":                          {[]string{pieceOf(whole(`"index":0,"id":"a",`, ""), whole(`"index":1,"id":"b",`, "")), pieceOf(rest(`"index":1,`, two), rest(`"index":0,`, one))}, both},
		"no arguments":                         {[]string{pieceOf(`{"index":0,"id":"a","function":{"name":"t__raw"}}`)}, []string{`{}`}},
		"null as arguments":                    {[]string{pieceOf(whole(`"index":0,"id":"a",`, "null"))}, []string{`{}`}},
		"half of an emoji in each piece":       {[]string{pieceOf(whole(`"index":0,"id":"a",`, `{"n":"`)), pieceOf(`{"index":0,"function":{"arguments":"\ud83d"}}`), pieceOf(`{"index":0,"function":{"arguments":"\ude00\"}"}}`)}, []string{`{"n":"😀"}`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tools := mcptest.New(t)
			f := newFake(t, modeltest.Streams(append(c.chunks, modeltest.Chunk(`{}`, `"tool_calls"`), modeltest.Done)...), says("Done."))
			ran(t, f.agent(t, program(tools)), "do it")
			require.Equal(t, c.want, made(tools))
			require.Len(t, results(f), len(c.want))
			replayedOnce(t, f.Calls()[1].Messages)
		})
	}
}

// replayedOnce checks that each call goes back to the API with an id of its own and with an object as arguments.
func replayedOnce(t *testing.T, items []map[string]any) {
	t.Helper()
	raw, err := json.Marshal(items)
	require.NoError(t, err)
	ids := map[string]bool{}
	for _, m := range items {
		list, _ := m["tool_calls"].([]any)
		for _, c := range list {
			call := c.(map[string]any)
			require.False(t, ids[call["id"].(string)], "%s", raw)
			ids[call["id"].(string)] = true
			require.NoError(t, json.Unmarshal([]byte(call["function"].(map[string]any)["arguments"].(string)), &map[string]any{}), "%s", raw)
		}
	}
}

func TestArgumentsThatAreNoObjectAreReplacedForTheAPI(t *testing.T) {
	t.Parallel()
	tools := mcptest.New(t)
	var chunks []string
	for n, arguments := range []string{`{"n":`, `[1]`, `{"n":1}{"n":2}`, `"x"`} {
		chunks = append(chunks, pieceOf(whole(fmt.Sprintf(`"index":%d,"id":"id%d",`, n, n), arguments)))
	}
	f := newFake(t, modeltest.Streams(append(chunks, modeltest.Chunk(`{}`, `"tool_calls"`), modeltest.Done)...), says("Done."))
	ran(t, f.agent(t, program(tools)), "do it")
	require.Empty(t, tools.Calls())
	replayedOnce(t, f.Calls()[1].Messages)
	for _, got := range results(f) {
		require.Equal(t, "The arguments are not a JSON object.", got)
	}
}

// The client approves what the tool gets, to the digit.
func TestApprovedArgumentsAreThoseOfTheCall(t *testing.T) {
	t.Parallel()
	tools := mcptest.New(t)
	const arguments = `{"id":1234567890123456789,"price":0.10}`
	f := newFake(t, modeltest.Streams(pieceOf(whole(`"index":0,"id":"a",`, arguments)), modeltest.Chunk(`{}`, `"tool_calls"`), modeltest.Done), says("Done."))
	k := newTalk(t, f.agent(t, program(tools, func(s *openai.ToolServer) { s.Approve = []string{"*"} })))
	require.NoError(t, k.run(1, message(task.Text("buy"))))
	asked := k.out.Task(t).Status.Message
	require.Contains(t, asked.Parts[0].Text, arguments)
	require.JSONEq(t, `{"approvals":[{"id":"a","tool":"t__raw","arguments":{"id":1234567890123456789,"price":0.10}}],
		"requestedSchema":{"type":"object","properties":{"approved":{"type":"boolean","title":"t__raw"}},"required":["approved"]}}`, string(asked.Parts[1].Data))
	require.Contains(t, string(asked.Parts[1].Data), arguments)
	k.turn()
	require.NoError(t, k.run(2, message(data(`{"approved":true}`))))
	require.Equal(t, []string{arguments}, made(tools))
}

func TestShapesOfResponses(t *testing.T) {
	t.Parallel()
	one, two := `{"n":1}`, `{"n":1234567890123456789}`
	call := func(id, arguments string) string { return modeltest.FunctionCall(id, "t__raw", arguments) }
	unplaced := func(it string) string { return fmt.Sprintf(`{"type":"response.output_item.done","item":%s}`, it) }
	text := modeltest.Message("So.")
	for name, c := range map[string]struct {
		events []string
		whole  []string
		want   []string
	}{
		"another place in the whole answer":                {[]string{modeltest.Item(0, call("a", one))}, []string{text, call("a", one)}, []string{one}},
		"no places":                                        {[]string{unplaced(call("a", one)), unplaced(call("b", two))}, []string{call("a", one), call("b", two)}, []string{one, two}},
		"one place for all":                                {[]string{modeltest.Item(0, call("a", one)), modeltest.Item(0, call("b", two))}, nil, []string{one, two}},
		"one place, and the whole answer":                  {[]string{modeltest.Item(0, call("a", one)), modeltest.Item(0, call("b", two))}, []string{call("a", one), call("b", two)}, []string{one, two}},
		"other ids in the whole answer":                    {[]string{modeltest.Item(0, call("a", one)), modeltest.Item(1, call("b", one))}, []string{call("x", one), call("y", one)}, []string{one, one}},
		"only in the whole answer":                         {nil, []string{call("a", one), call("b", one)}, []string{one, one}},
		"text in the stream, the call in the whole answer": {[]string{modeltest.Item(0, text)}, []string{text, call("a", one)}, []string{one}},
		"the same item twice":                              {[]string{modeltest.Item(0, call("a", one)), modeltest.Item(3, call("a", one))}, nil, []string{one}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tools := mcptest.New(t)
			f := newNewer(t, modeltest.Script{Events: append(c.events, modeltest.Ended("completed", "", c.whole...))}, modeltest.Script{Events: answer("Done.")})
			ran(t, f.agent(t, program(tools)), "do it")
			require.ElementsMatch(t, c.want, made(tools))
			ids := map[string]bool{}
			for _, it := range f.Calls()[1].Input {
				if it["type"] == "function_call" {
					require.False(t, ids[it["call_id"].(string)])
					ids[it["call_id"].(string)] = true
				}
			}
			require.Len(t, ids, len(c.want))
		})
	}
}

func TestShapesOfText(t *testing.T) {
	t.Parallel()
	for name, events := range map[string][]string{
		"half of an emoji in each piece": {`{"type":"response.output_text.delta","output_index":0,"delta":"Hi \ud83d"}`, `{"type":"response.output_text.delta","output_index":0,"delta":"\ude00"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, "Hi 😀", ran(t, newNewer(t, modeltest.Script{Events: append(events, modeltest.Ended("completed", ""))}).agent(t), "hello").Text(t))
		})
	}
	stream := strings.Join([]string{"data: " + modeltest.Role, "data: " + modeltest.Chunk(`{"content":"Hi \ud83d"}`, "null"), "data: " + modeltest.Chunk(`{"content":"\ude00"}`, "null"), "data: " + modeltest.Stop, "data: [DONE]"}, "\n\n") + "\n\n"
	document := `{"choices":[{"index":0,"message":{"role":"assistant","content":"Hi 😀"},"finish_reason":"stop"}]}`
	for name, c := range map[string]struct{ kind, body string }{
		"a stream without a type":      {"", stream},
		"a stream as JSON":             {"application/json", stream},
		"a stream as text":             {"text/plain; charset=utf-8", stream},
		"a stream that begins quietly": {"application/octet-stream", ": ping\n\n" + stream},
		"a document as a stream":       {"text/event-stream", "\n " + document},
		"a document as text":           {"text/plain", document},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, func(w http.ResponseWriter, _ *http.Request, _ modeltest.Request) {
				w.Header()["Content-Type"] = []string{c.kind}
				if c.kind == "" {
					w.Header()["Content-Type"] = nil
				}
				_, _ = w.Write([]byte(c.body))
			})
			require.Equal(t, "Hi 😀", ran(t, f.agent(t), "hello").Text(t))
		})
	}
}
