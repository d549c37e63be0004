package openai_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/mcptest"
	"github.com/holdfast-a2a/holdfast/internal/test/modeltest"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/executortest"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/openai"
)

// newer is a server of the Responses API and the executor's options for it.
type newer struct{ *modeltest.Responses }

func newNewer(t *testing.T, scripts ...modeltest.Script) *newer {
	t.Helper()
	return &newer{modeltest.NewResponses(t, scripts...)}
}

func (f *newer) agent(t *testing.T, change ...func(*openai.Options)) executor.Executor {
	t.Helper()
	return agent(t, openai.Options{BaseURL: f.Base() + "?key=in-the-url", Responses: true}, change...)
}

// answer is the events of an answer in pieces.
func answer(pieces ...string) []string {
	events := []string{
		`{"type":"response.in_progress","response":{}}`,
		`{"type":"response.output_item.added","output_index":0,"item":{"type":"message","status":"in_progress","content":[],"role":"assistant"}}`,
	}
	for _, p := range pieces {
		events = append(events, modeltest.Said(0, p))
	}
	whole := modeltest.Message(strings.Join(pieces, ""))
	return append(events, modeltest.Item(0, whole), modeltest.Ended("completed", "", whole))
}

// tries runs an agent until it ends without an error that is retried, as a server does, and returns how often it ran.
func tries(t *testing.T, e executor.Executor, out *executortest.Recorder) (int, error) {
	t.Helper()
	for n := 1; ; n++ {
		r := executortest.NewRun("hello")
		r.Attempt, r.Try, r.Memory = task.Attempt(n), n, &executortest.Memory{Events: out.Events()}
		err := executortest.Wait(t, executortest.Go(t.Context(), e, r, out))
		if _, again := executor.IsRetryable(err); !again || n == 20 {
			return n, err
		}
	}
}

func TestResponsesAreStreamed(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	f := newNewer(t, modeltest.Script{Events: answer("Hi", " there"), Next: next})
	out := executortest.NewRecorder()
	agent := f.agent(t, func(o *openai.Options) {
		o.System = "Be brief."
		o.Parameters = map[string]json.RawMessage{"temperature": json.RawMessage("0.2")}
	})
	ended := executortest.Go(t.Context(), agent, executortest.NewRun("hello"), out)
	for range 3 {
		next <- struct{}{}
	}
	out.Until(t, func(e []task.Event) bool { return len(artifacts(e)) == 1 }) // before the answer ends
	close(next)
	require.NoError(t, executortest.Wait(t, ended))
	folded := out.Task(t)
	require.Len(t, folded.Artifacts, 1)
	require.Equal(t, []task.Part{task.Text("Hi there")}, folded.Artifacts[0].Parts)
	require.Equal(t, task.StateCompleted, folded.Status.State)
	require.JSONEq(t, spent, last(out))

	got := f.Calls()[0]
	require.Equal(t, "Be brief.", got.Instructions)
	require.Equal(t, []map[string]any{{"role": "user", "content": "hello"}}, got.Input)
	require.InDelta(t, 0.2, *got.Temperature, 0)
}

func says500(w http.ResponseWriter, r *http.Request) {
	modeltest.Answers(500, `{"error":{"message":"oops"}}`)(w, r, modeltest.Request{})
}

// The model is asked again if its answer breaks off or fails, and waited for if it is away.
func TestResponsesThatAreLost(t *testing.T) {
	t.Parallel()
	good := modeltest.Script{Events: answer("Whole.")}
	for name, lost := range map[string]modeltest.Script{
		"cut":     {Events: answer("Half", "."), Cut: 4},
		"failing": {Events: []string{modeltest.Said(0, "Half"), modeltest.Ended("failed", `"error":{"code":"server_error","message":"boom `+modeltest.Key+`"}`)}},
		"refused": {Refuse: says500},
	} {
		f := newNewer(t, lost, good)
		out := executortest.NewRecorder()
		n, err := tries(t, f.agent(t), out)
		require.NoError(t, err, name)
		require.Equal(t, 2, n, name)
		require.Equal(t, "Whole.", out.Text(t), name)
		raw, err := json.Marshal(out.Events())
		require.NoError(t, err)
		require.NotContains(t, string(raw), modeltest.Key, name)
	}
	f := newNewer(t, modeltest.Script{Refuse: func(w http.ResponseWriter, r *http.Request) {
		modeltest.Answers(503, `{"error":{"message":"`+modeltest.Key+`"}}`, "Retry-After", "3")(w, r, modeltest.Request{})
	}})
	_, err := run(t, f.agent(t), "hello")
	u, ok := errors.AsType[*executor.Unavailable](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, 3*time.Second, u.RetryAfter)
	require.NotContains(t, err.Error(), modeltest.Key)
}

func TestEndsOfResponses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		events []string
		text   string
		finish string
	}{
		"all at the end":   {[]string{modeltest.Ended("completed", "", modeltest.Message("Hi"), modeltest.Message("there"))}, "Hi\n\nthere", "stop"},
		"two items":        {[]string{modeltest.Said(0, "Hi"), modeltest.Said(2, "there"), modeltest.Ended("completed", "", modeltest.Message("Hi"), `{"type":"web_search_call"}`, modeltest.Message("there"))}, "Hi\n\nthere", "stop"},
		"no output":        {[]string{modeltest.Said(0, "Hi"), modeltest.Ended("completed", "")}, "Hi", "stop"},
		"another text":     {[]string{modeltest.Said(0, "Hi"), modeltest.Ended("completed", "", modeltest.Message("Ho"))}, "Hi", "stop"},
		"unknown events":   {[]string{`{"type":"response.new_thing","x":[1]}`, modeltest.Said(0, "Hi"), modeltest.Ended("completed", "")}, "Hi", "stop"},
		"[DONE] behind it": {[]string{modeltest.Said(0, "Hi"), modeltest.Ended("completed", ""), "[DONE]"}, "Hi", "stop"},
		"too long":         {[]string{modeltest.Said(0, "Hi"), modeltest.Ended("incomplete", `"incomplete_details":{"reason":"max_output_tokens"}`)}, "Hi", "length"},
	} {
		f := newNewer(t, modeltest.Script{Events: c.events})
		out := ran(t, f.agent(t), "hello")
		require.Equal(t, c.text, out.Text(t), name)
		require.Contains(t, last(out), `"finishReason":"`+c.finish+`"`, name)
		require.Contains(t, last(out), `"totalTokens":17`, name)
	}
}

func TestWholeResponses(t *testing.T) {
	t.Parallel()
	doc := `{"id":"r","status":"completed","model":"small-0611","error":null,"output":[` + modeltest.Message("Hi") + `],"usage":{"input_tokens":1,"output_tokens":2}}`
	f := newNewer(t, modeltest.Script{Events: []string{doc}})
	out := ran(t, f.agent(t, func(o *openai.Options) { o.Whole = true }), "hello")
	require.Equal(t, "Hi", out.Text(t))
	require.Contains(t, last(out), `"totalTokens":3`)
}

// wants is an answer of the Responses API that calls tools: names and arguments in turn.
func wants(text string, pairs ...string) modeltest.Script {
	output := []string{`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"c2VjcmV0"}`, modeltest.Message(text)}
	events := []string{modeltest.Item(0, output[0]), modeltest.Said(1, text)}
	for i := 0; i < len(pairs); i += 2 {
		c := modeltest.FunctionCall(fmt.Sprintf("id%d", i/2), pairs[i], fmt.Sprintf(`{"of":%q}`, pairs[i+1]))
		output = append(output, c)
		events = append(events, `{"type":"response.function_call_arguments.delta","output_index":2,"delta":"{"}`, modeltest.Item(len(output)-1, c))
	}
	return modeltest.Script{Events: append(events, modeltest.Ended("completed", "", output...))}
}

// The tools work as with Chat Completions: what is finished stays, over crashes.
func TestToolsOfResponses(t *testing.T) {
	t.Parallel()
	tools := mcptest.New(t)
	f := newNewer(t, wants("Let me see.", "t__look", "a", "t__pay", "b"), modeltest.Script{Refuse: says500}, modeltest.Script{Events: answer("Done.")})
	out := executortest.NewRecorder()
	n, err := tries(t, f.agent(t, program(tools)), out)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, "Let me see.\n\nDone.", out.Text(t))
	require.Len(t, tools.Calls(), 2)
	require.Len(t, f.Calls(), 3)
	got, err := json.Marshal(f.Calls()[2].Input)
	require.NoError(t, err)
	require.JSONEq(t, `[
				{"role":"user","content":"hello"},
				{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"c2VjcmV0"},
				{"role":"assistant","content":"Let me see."},
				{"type":"function_call","call_id":"id0","name":"t__look","arguments":"{\"of\":\"a\"}"},
				{"type":"function_call","call_id":"id1","name":"t__pay","arguments":"{\"of\":\"b\"}"},
				{"type":"function_call_output","call_id":"id0","output":"done: a"},
				{"type":"function_call_output","call_id":"id1","output":"done: b"}]`, string(got))
	require.Contains(t, last(out), `"totalTokens":34`)
}

// The second turn does without the model's encrypted reasoning.
func TestCallsOfResponsesWaitForApproval(t *testing.T) {
	t.Parallel()
	tools := mcptest.New(t)
	f := newNewer(t, wants("I'll buy it.", "t__pay", "a"), modeltest.Script{Events: answer("Well.")})
	k := newTalk(t, f.agent(t, program(tools, func(s *openai.ToolServer) { s.Approve = []string{"pay"} })))
	require.NoError(t, k.run(1, message(task.Text("buy"))))
	require.Empty(t, tools.Calls())
	k.turn()
	require.NoError(t, k.run(2, message(task.Text("yes"))))
	require.Equal(t, "Well.", k.out.Text(t))
	items, err := json.Marshal(f.Calls()[1].Input)
	require.NoError(t, err)
	require.Contains(t, string(items), `"done: a"`)
	require.NotContains(t, string(items), "encrypted_content")
}
