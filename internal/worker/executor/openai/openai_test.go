package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/secrets"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/modeltest"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/executortest"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/openai"
)

// fake is a model's API and the executor's options for it.
type fake struct{ *modeltest.Server }

func newFake(t *testing.T, handlers ...modeltest.Handler) *fake {
	t.Helper()
	return &fake{modeltest.New(t, handlers...)}
}

func (f *fake) agent(t *testing.T, change ...func(*openai.Options)) executor.Executor {
	t.Helper()
	return agent(t, openai.Options{BaseURL: f.Base()}, change...)
}

func agent(t *testing.T, opts openai.Options, change ...func(*openai.Options)) executor.Executor {
	t.Helper()
	opts.Model, opts.APIKey = modeltest.Model, secrets.Text(modeltest.Key)
	for _, c := range change {
		c(&opts)
	}
	e, err := openai.New(opts)
	require.NoError(t, err)
	return e
}

func run(t *testing.T, e executor.Executor, text string) (*executortest.Recorder, error) {
	t.Helper()
	return executortest.Run(t, e, executortest.NewRun(text))
}

// ran is the record of a run that must succeed.
func ran(t *testing.T, e executor.Executor, text string) *executortest.Recorder {
	t.Helper()
	out, err := run(t, e, text)
	require.NoError(t, err)
	return out
}

// api is the API of a model in one of the formats.
type api interface {
	agent(t *testing.T, change ...func(*openai.Options)) executor.Executor
}

func chat(handlers ...modeltest.Handler) func(t *testing.T) api {
	return func(t *testing.T) api {
		t.Helper()
		return newFake(t, handlers...)
	}
}

func responses(events ...string) func(t *testing.T) api {
	return func(t *testing.T) api {
		t.Helper()
		return newNewer(t, modeltest.Script{Events: events})
	}
}

// spent is what the last piece of an answer says of it.
const spent = `{"usage":{"inputTokens":12,"outputTokens":5,"totalTokens":17,"cachedInputTokens":4,"reasoningTokens":2},"model":"small-0611","finishReason":"stop"}`

// last is the metadata of the last piece of an answer.
func last(out *executortest.Recorder) string {
	pieces := artifacts(out.Events())
	return string(pieces[len(pieces)-1].Metadata)
}

func long(n int) string { return strings.Repeat("x", n) }

func TestStreamedAnswerIsOneArtifact(t *testing.T) {
	t.Parallel()
	next := make(chan string)
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request, _ modeltest.Request) {
		modeltest.Write(w, modeltest.Role)
		for c := range next {
			modeltest.Write(w, c)
		}
	})
	out := executortest.NewRecorder()
	agent := f.agent(t, func(o *openai.Options) {
		o.System = "Be brief."
		o.Parameters = map[string]json.RawMessage{"temperature": json.RawMessage("0.2")}
	})
	ended := executortest.Go(t.Context(), agent, executortest.NewRun("hello"), out)
	next <- modeltest.Text("Hi")
	chunks := func(n int) func(e []task.Event) bool {
		return func(e []task.Event) bool { return len(artifacts(e)) >= n }
	}
	out.Until(t, chunks(1)) // before the answer ends
	next <- modeltest.Text(" there")
	out.Until(t, chunks(2))
	next <- modeltest.Stop
	next <- modeltest.Spent
	next <- modeltest.Done
	close(next)
	require.NoError(t, executortest.Wait(t, ended))

	folded := out.Task(t)
	require.Len(t, folded.Artifacts, 1)
	require.Equal(t, "answer-1", folded.Artifacts[0].ID)
	require.Equal(t, []task.Part{task.Text("Hi there")}, folded.Artifacts[0].Parts)
	pieces := artifacts(out.Events())
	require.True(t, pieces[len(pieces)-1].Last)
	require.JSONEq(t, spent, last(out))

	got := f.Calls()[0]
	require.Equal(t, []map[string]any{
		{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"},
	}, got.Messages)
	require.InDelta(t, 0.2, *got.Temperature, 0)
	require.NotEmpty(t, got.Key)
}

func artifacts(events []task.Event) []task.Event {
	var out []task.Event
	for _, e := range events {
		if e.Kind == task.EventArtifact {
			out = append(out, e)
		}
	}
	return out
}

// A model that sends a token at a time must not make a row of the log for each.
func TestTokensAreCollected(t *testing.T) {
	t.Parallel()
	tokens := []string{modeltest.Role}
	for range 2000 {
		tokens = append(tokens, modeltest.Text("word "))
	}
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request, _ modeltest.Request) {
		var all strings.Builder
		for _, c := range append(tokens, modeltest.Stop, modeltest.Done) {
			all.WriteString("data: " + c + "\n\n")
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(all.String()))
	})
	out := ran(t, f.agent(t), "hello")
	require.Equal(t, strings.Repeat("word ", 2000), out.Text(t))
	require.Less(t, len(artifacts(out.Events())), 1000)
}

func TestWholeAnswers(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"text":           `{"choices":[{"index":0,"message":{"role":"assistant","content":"Hi there","refusal":null,"annotations":[]},"finish_reason":"stop"}]}`,
		"parts":          `{"choices":[{"message":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"Hi there"}]},"finish_reason":"stop"}]}`,
		"two choices":    `{"choices":[{"index":0,"message":{"content":"Hi there"}},{"index":1,"message":{"content":"Ho there"}}]}`,
		"half a pair":    `{"choices":[{"message":{"content":"Hi there"},"finish_reason":"stop"}],"service_tier":"\ud83d"}`,
		"usage is wrong": `{"choices":[{"message":{"content":"Hi there"},"finish_reason":"stop"}],"usage":{"prompt_tokens":-7,"completion_tokens":"many","total_tokens":1e400}}`,
	} {
		out := ran(t, newFake(t, modeltest.Answers(200, body)).agent(t, func(o *openai.Options) { o.Whole = true }), "hello")
		require.Equal(t, "Hi there", out.Text(t), name)
		require.NotContains(t, string(artifacts(out.Events())[0].Metadata), "usage", name)
	}
}

func TestStreamsOfOddServers(t *testing.T) {
	t.Parallel()
	for name, chunks := range map[string][]string{
		"no reason":              {modeltest.Role, modeltest.Text("Hi"), modeltest.Done},
		"no [DONE]":              {modeltest.Role, modeltest.Text("Hi"), modeltest.Stop},
		"the reason with text":   {modeltest.Chunk(`{"content":"Hi"}`, `"stop"`), modeltest.Done},
		"text after the end":     {modeltest.Text("Hi"), modeltest.Stop, modeltest.Text("more"), modeltest.Done},
		"an unknown reason":      {modeltest.Text("Hi"), modeltest.Chunk(`{}`, `"eos_token"`), modeltest.Done},
		"another choice":         {`{"choices":[{"index":1,"delta":{"content":"Ho"}}]}`, modeltest.Text("Hi"), modeltest.Stop, modeltest.Done},
		"a document":             {`{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}`},
		"a cut after the reason": {modeltest.Role, modeltest.Text("Hi"), modeltest.Stop},
		"a prompt filter":        {`{"choices":[],"prompt_filter_results":[{"prompt_index":0}]}`, modeltest.Text("Hi"), modeltest.Stop, modeltest.Done},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handler := modeltest.Streams(chunks...)
			switch name {
			case "a document":
				handler = modeltest.Answers(200, chunks[0])
			case "a cut after the reason": // only the count of tokens is missing
				handler = modeltest.Cuts(chunks...)
			}
			require.Equal(t, "Hi", ran(t, newFake(t, handler).agent(t), "hello").Text(t))
		})
	}
}

// A run that is retried after a cut replaces what the first one wrote.
func TestCutStreamIsRetriedAndReplaced(t *testing.T) {
	t.Parallel()
	f := newFake(t, modeltest.Cuts(modeltest.Role, modeltest.Text("One fine "), modeltest.Text("day")), modeltest.Streams(modeltest.Role, modeltest.Text("Another "), modeltest.Text("answer"), modeltest.Stop, modeltest.Done))
	out := executortest.NewRecorder()
	err := executortest.Wait(t, executortest.Go(t.Context(), f.agent(t), executortest.NewRun("hello"), out))
	require.Equal(t, "the model's answer broke off; retry", executortest.Outcome(err))
	require.Contains(t, out.Text(t), "One fine ")

	second := executortest.NewRun("hello")
	second.Attempt, second.Try = 2, 2
	require.NoError(t, executortest.Wait(t, executortest.Go(t.Context(), f.agent(t), second, out)))
	require.Equal(t, "Another answer", out.Text(t))
	require.Len(t, out.Task(t).Artifacts, 1)
}

func TestBrokenAnswersAreRetried(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]modeltest.Handler{
		"no reason, no [DONE]": modeltest.Streams(modeltest.Role, modeltest.Text("Hi")),
		"nothing":              modeltest.Streams(),
		"half a chunk": func(w http.ResponseWriter, _ *http.Request, _ modeltest.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte("data: " + modeltest.Text("Hi")[:40]))
		},
		"half JSON in a chunk":   modeltest.Streams(modeltest.Role, modeltest.Text("Hi")[:40], modeltest.Stop, modeltest.Done),
		"half a document":        modeltest.Answers(200, `{"choices":[{"message":{"cont`),
		"an empty document":      modeltest.Answers(200, ``),
		"an error in the stream": modeltest.Streams(modeltest.Role, modeltest.Text("Hi"), `{"error":{"message":"boom `+modeltest.Key+`","code":500}}`, modeltest.Done),
		"an ending in error":     modeltest.Streams(modeltest.Role, modeltest.Text("Hi"), modeltest.Chunk(`{}`, `"error"`), modeltest.Done),
		"an error with a status": modeltest.Streams(`{"error":{"message":"no","code":"502"}}`),
		"an error as a string":   modeltest.Streams(`{"error":"model runner has crashed"}`),
	} {
		_, err := run(t, newFake(t, handler).agent(t), "hello")
		_, again := executor.IsRetryable(err)
		require.True(t, again, "%v", err)
		require.NotContains(t, err.Error(), modeltest.Key, name)
	}
}

func TestInvalidAnswersFail(t *testing.T) {
	t.Parallel()
	small := func(o *openai.Options) { o.MaxEvent = 2000 }
	deep := strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200)
	var many []string
	for range 30 {
		many = append(many, modeltest.Text(long(100)))
	}
	const nope, endless = "the model's answer is not understood: ", "the model's answer is longer than 2000 bytes"
	var saids []string
	for range 30 {
		saids = append(saids, modeltest.Said(0, long(100)))
	}
	refusal := `{"type":"response.refusal.delta","delta":"` + long(1200) + `"}`
	for name, c := range map[string]struct {
		of   func(*testing.T) api
		want string
	}{
		"a web page": {chat(func(w http.ResponseWriter, _ *http.Request, _ modeltest.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write([]byte("<p>"))
		}), `the model's API answered with the content type "text/html" instead of text/event-stream or application/json; is base_url right?`},
		"no choices":      {chat(modeltest.Answers(200, `{"object":"list"}`)), nope + "choices: is missing or empty"},
		"wrong choices":   {chat(modeltest.Answers(200, `{"choices":"none"}`)), nope + "choices: must be an array, not a string"},
		"a wrong refusal": {chat(modeltest.Streams(modeltest.Role, `{"choices":[{"delta":{"refusal":7}}]}`)), nope + "line 3: choices[0].delta.refusal: must be a string, not a number"},
		"a long document": {chat(modeltest.Answers(200, `{"choices":[{"message":{"content":"`+long(3000)+`"}}]}`)), endless},
		"a long chunk":    {chat(modeltest.Streams(modeltest.Text(long(3000)))), "the agent's answer is not understood: line 1: is longer than the 2000 bytes that an event may have"},
		"endless text":    {chat(modeltest.Streams(many...)), endless},
		"nested":          {chat(modeltest.Streams(`{"choices":[],"x":` + deep + `}`)), nope + "line 1: nests deeper than 100 levels"},
		"a call of a tool": {
			chat(modeltest.Streams(modeltest.Chunk(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"rm","arguments":"{}"}}]}`, `"tool_calls"`), modeltest.Done)),
			`the model called the tool "rm", but it has no tools`,
		},
		"nothing but reasoning": {
			chat(modeltest.Streams(modeltest.Chunk(`{"reasoning_content":"hm"}`, `"length"`), modeltest.Done)),
			"the model reached its limit of tokens before it said anything; raise max_tokens",
		},
		"a bad image": {chat(modeltest.Streams(modeltest.Chunk(`{"images":[{"image_url":{"url":"data:image/png;base64,#"}}]}`, "null"))), nope + "images: is not a data URL in base64"},

		"no type":                    {responses(`{"choices":[]}`), nope + "line 5: type: is missing"},
		"an end of nothing":          {responses(`{"type":"response.completed"}`), nope + "line 5: response: is missing"},
		"wrong types":                {responses(`{"type":"response.completed","response":[]}`), nope + "line 5: response: must be an object, not an array"},
		"a nested response":          {responses(`{"type":"x","x":` + deep + `}`), nope + "line 5: nests deeper than 100 levels"},
		"endless text of a response": {responses(saids...), endless},
		"an endless refusal":         {responses(refusal, refusal), endless},
		"a large event":              {responses(modeltest.Said(0, long(3000))), "the agent's answer is not understood: line 5: is longer than the 2000 bytes that an event may have"},
		"a bad prompt":               {responses(modeltest.Ended("failed", `"error":{"code":"invalid_prompt","message":"odd"}`)), "the model's API reported an error: odd"},
		"a bad image of a response":  {responses(modeltest.Item(0, `{"type":"image_generation_call","result":"#"}`)), nope + "images: is not a data URL in base64"},
		"a response's call of a tool": {
			responses(modeltest.Item(-1, modeltest.FunctionCall("z", "rm", "{}")), modeltest.Item(9000000, modeltest.FunctionCall("a", "rm", "{}")), modeltest.Ended("completed", "")),
			`the model called the tool "rm", but it has no tools`,
		},
		"a response of reasoning alone": {
			responses(modeltest.Ended("incomplete", `"incomplete_details":{"reason":"max_output_tokens"}`, `{"type":"reasoning","summary":[]}`)),
			"the model reached its limit of tokens before it said anything; raise max_tokens",
		},
	} {
		_, err := run(t, c.of(t).agent(t, small), "hello")
		require.Equal(t, c.want, executortest.Outcome(err), name)
	}
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	const api = "the model's API answered "
	for name, c := range map[string]struct {
		code             int
		body, retryAfter string
		want, cause      string
	}{
		"bad request": {
			code: 400, body: `{"error":{"message":"too many tokens","type":"invalid_request_error","code":"context_length_exceeded"}}`,
			want: api + "400 Bad Request: too many tokens",
		},
		"the key is repeated": {
			code: 401, body: `{"error":{"message":"Incorrect API key provided: ` + modeltest.Key + `","code":"invalid_api_key"}}`,
			want: api + "401 Unauthorized", cause: "Incorrect API key provided: [redacted]",
		},
		"no such model": {404, `{"detail":"no model small"}`, "", api + "404 Not Found", "no model small"},
		"redirect":      {302, ``, "", api + "302 Found; redirects are not followed", ""},
		"too many":      {429, `{"error":{"message":"slow down"}}`, "7", api + "429 Too Many Requests; away for 7s", "slow down"},
		"overloaded":    {529, `{"error":{"type":"overloaded_error","message":"busy"}}`, "", api + "529 ; away", "busy"},
		"bad gateway":   {502, `<html>`, "", api + "502 Bad Gateway; away; retry", "<html>"},
		"server error":  {500, `{"error":{"message":"oops","code":null}}`, "2", api + "500 Internal Server Error; retry for 2s", "oops"},
		"a long body": {
			code: 400, body: `{"error":{"message":"` + long(70<<10) + `"}}`, want: api + "400 Bad Request: " + (`{"error":{"message":"` + long(600))[:512],
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			header := []string{"Location", "http://127.0.0.1:1/"}
			if c.retryAfter != "" {
				header = append(header, "Retry-After", c.retryAfter)
			}
			out, err := run(t, newFake(t, modeltest.Answers(c.code, c.body, header...)).agent(t), "hello")
			require.Equal(t, c.want, executortest.Outcome(err))
			failure, ok := errors.AsType[*executor.Failure](err)
			require.True(t, ok, "%v", err)
			cause := ""
			if failure.Cause != nil {
				cause = failure.Cause.Error()
			}
			require.Equal(t, c.cause, cause)
			require.Empty(t, out.Events())
		})
	}
}

func TestRejections(t *testing.T) {
	t.Parallel()
	const filtered = "The content filter of the model's provider stopped the answer."
	refusal := `{"type":"message","content":[{"type":"refusal","refusal":"I can't do that."}]}`
	pieces := []string{`{"type":"response.refusal.delta","delta":"I can't "}`, `{"type":"response.refusal.delta","delta":"do that."}`}
	for name, c := range map[string]struct {
		of   func(*testing.T) api
		want string
	}{
		"a refusal":       {chat(modeltest.Streams(modeltest.Chunk(`{"refusal":"I can't "}`, "null"), modeltest.Chunk(`{"refusal":"do that."}`, "null"), modeltest.Stop, modeltest.Spent, modeltest.Done)), "I can't do that."},
		"a filter":        {chat(modeltest.Streams(modeltest.Text("Well"), modeltest.Chunk(`{}`, `"content_filter"`), modeltest.Spent, modeltest.Done)), filtered},
		"Azure":           {chat(modeltest.Answers(400, `{"error":{"code":"content_filter","message":"The response was filtered","status":400}}`)), filtered},
		"in the stream":   {chat(modeltest.Streams(modeltest.Role, `{"error":{"code":"content_filter","message":"filtered"}}`)), filtered},
		"a whole refusal": {chat(modeltest.Answers(200, `{"choices":[{"message":{"content":null,"refusal":"I can't do that."},"finish_reason":"stop"}]}`)), "I can't do that."},

		"a response's filter":        {responses(modeltest.Said(0, "Hi"), modeltest.Ended("incomplete", `"incomplete_details":{"reason":"content_filter"}`)), filtered},
		"a filter as error":          {responses(`{"type":"error","code":"content_filter","message":"x"}`), filtered},
		"an image is unsafe":         {responses(modeltest.Ended("failed", `"error":{"code":"image_content_policy_violation","message":"x"}`)), filtered},
		"a response's refusal":       {responses(append(pieces, modeltest.Ended("completed", "", refusal))...), "I can't do that."},
		"a response's whole refusal": {responses(modeltest.Ended("completed", "", refusal)), "I can't do that."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status := ran(t, c.of(t).agent(t), "hello").Task(t).Status
			require.Equal(t, task.StateRejected, status.State)
			require.Equal(t, c.want, status.Message.FirstText())
			if name == "a refusal" {
				require.Contains(t, string(status.Message.Metadata), `"totalTokens":17`)
			}
		})
	}
}

func TestReasoningAndImages(t *testing.T) {
	t.Parallel()
	picture := `{"type":"image_generation_call","id":"ig","status":"completed","output_format":"webp","result":"aGVsbG8="}`
	thoughts := `{"type":"reasoning","summary":[{"type":"summary_text","text":"Hm."},{"type":"summary_text","text":"Aha."}]}`
	asked := newNewer(t, modeltest.Script{Events: []string{
		`{"type":"response.reasoning_summary_part.added","output_index":0,"summary_index":0,"part":{"type":"summary_text","text":""}}`,
		`{"type":"response.reasoning_summary_text.delta","delta":"Hm."}`,
		`{"type":"response.reasoning_summary_part.added","output_index":0,"summary_index":1,"part":{"type":"summary_text","text":""}}`,
		`{"type":"response.reasoning_text.delta","delta":"Aha."}`,
		modeltest.Said(1, "Here:"), modeltest.Item(2, picture),
		modeltest.Ended("completed", "", thoughts, modeltest.Message("Here:"), picture),
	}})
	for _, c := range []struct {
		of   api
		want map[string][]task.Part
	}{
		{
			newFake(t, modeltest.Streams(modeltest.Role, modeltest.Chunk(`{"reasoning_content":"Let me "}`, "null"), modeltest.Chunk(`{"reasoning":"think."}`, "null"),
				modeltest.Text("Here:"), modeltest.Chunk(`{"images":[{"type":"image_url","image_url":{"url":"data:image/png;base64,aGVsbG8="}},{"image_url":{"url":"https://x.test/y.png"}}]}`, "null"),
				modeltest.Stop, modeltest.Done)),
			map[string][]task.Part{
				"reasoning-1": {task.Text("Let me think.")},
				"answer-1":    {task.Text("Here:")},
				"image-1-1":   {{Kind: task.PartRaw, Raw: []byte("hello"), MediaType: "image/png"}},
				"image-1-2":   {{Kind: task.PartURL, URL: "https://x.test/y.png"}},
			},
		},
		{asked, map[string][]task.Part{
			"reasoning-1": {task.Text("Hm.\n\nAha.")},
			"answer-1":    {task.Text("Here:")},
			"image-1-1":   {{Kind: task.PartRaw, Raw: []byte("hello"), MediaType: "image/webp"}},
		}},
	} {
		shown := func(change ...func(*openai.Options)) map[string][]task.Part {
			got := map[string][]task.Part{}
			for _, a := range ran(t, c.of.agent(t, change...), "draw").Task(t).Artifacts {
				got[a.ID] = a.Parts
			}
			return got
		}
		require.Equal(t, c.want, shown(func(o *openai.Options) {
			o.Reasoning = true
			if o.Responses {
				o.Parameters = map[string]json.RawMessage{"tools": json.RawMessage(`[{"type":"image_generation"}]`)}
			}
		}))
		require.NotContains(t, shown(), "reasoning-1", "off by default")
	}
	require.Equal(t, map[string]any{"summary": "auto"}, asked.Calls()[0].Reasoning)
	require.Equal(t, []map[string]any{{"type": "image_generation"}}, asked.Calls()[0].Tools)
	require.Nil(t, asked.Calls()[1].Reasoning)
}

func TestPartsOfTheConversation(t *testing.T) {
	t.Parallel()
	said := func(role task.Role, parts ...task.Part) executor.Said {
		return executor.Said{Message: &task.Message{Role: role, Parts: parts}}
	}
	image := task.Part{Kind: task.PartRaw, Raw: []byte{1}, Filename: "z.png", MediaType: "image/png"}
	r := executortest.NewRun("and this?")
	r.Turn = 2
	r.Message.Parts = append(
		r.Message.Parts,
		task.Part{Kind: task.PartRaw, Raw: []byte{1, 2}, MediaType: "image/png"},
		task.Part{Kind: task.PartRaw, Raw: []byte("%PDF-1.4"), Filename: "a.pdf"},
		task.Part{Kind: task.PartRaw, Raw: []byte("a,b"), Filename: "t.csv", MediaType: "text/csv; charset=utf-8"},
		task.Part{Kind: task.PartRaw, Raw: []byte{3}, MediaType: "audio/mpeg"},
		task.Part{Kind: task.PartURL, URL: "https://x.test/cat.jpg?size=1"},
		task.Part{Kind: task.PartURL, URL: "https://x.test/a.pdf"},
		task.Part{Kind: task.PartURL, URL: "https://x.test/report"},
		task.Part{Kind: task.PartData, Data: json.RawMessage(`{"n":1}`)},
	)
	r.Memory = &executortest.Memory{
		Before: []executor.Said{said(task.RoleUser, task.Text("zeroth"))},
		Said: []executor.Said{
			said(task.RoleUser, task.Text("first")), said(task.RoleUser, task.Text("second")),
			{Artifact: &task.Artifact{ID: "reasoning-1", Name: "reasoning", Parts: []task.Part{task.Text("hm")}}},
			{Artifact: &task.Artifact{ID: "answer-1", Name: "answer", Parts: []task.Part{task.Text("yes"), image, {Kind: task.PartURL, URL: "https://x.test/b.pdf"}}}},
			{Artifact: &task.Artifact{ID: "film"}, Left: 9_000_000},
			said(task.RoleAgent),
		},
	}
	old, young := newFake(t, modeltest.Streams(modeltest.Text("ok"), modeltest.Stop, modeltest.Done)), newNewer(t, modeltest.Script{Events: answer("ok")})
	for _, f := range []api{old, young} {
		agent := f.agent(t, func(o *openai.Options) { o.History.Of = executor.OfContext })
		require.NoError(t, executortest.Wait(t, executortest.Go(t.Context(), agent, r, executortest.NewRecorder())))
	}
	const before = `{"role":"user","content":"zeroth\n\nfirst\n\nsecond"},
		{"role":"assistant","content":"yes\n\n[z.png, image/png]\n\nhttps://x.test/b.pdf\n\n[9000000 bytes are left out here]"}`
	got, err := json.Marshal(old.Calls()[0].Messages)
	require.NoError(t, err)
	require.JSONEq(t, `[`+before+`,
		{"role":"user","content":[
			{"type":"text","text":"and this?"},
			{"type":"image_url","image_url":{"url":"data:image/png;base64,AQI="}},
			{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,JVBERi0xLjQ="}},
			{"type":"text","text":"t.csv:\na,b"},
			{"type":"input_audio","input_audio":{"data":"Aw==","format":"mp3"}},
			{"type":"image_url","image_url":{"url":"https://x.test/cat.jpg?size=1"}},
			{"type":"text","text":"https://x.test/a.pdf"},
			{"type":"text","text":"https://x.test/report"},
			{"type":"text","text":"{\"n\":1}"}
		]}]`, string(got))
	got, err = json.Marshal(young.Calls()[0].Input)
	require.NoError(t, err)
	require.JSONEq(t, `[`+before+`,
		{"role":"user","content":[
			{"type":"input_text","text":"and this?"},
			{"type":"input_image","image_url":"data:image/png;base64,AQI="},
			{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,JVBERi0xLjQ="},
			{"type":"input_text","text":"t.csv:\na,b"},
			{"type":"input_audio","input_audio":{"data":"Aw==","format":"mp3"}},
			{"type":"input_image","image_url":"https://x.test/cat.jpg?size=1"},
			{"type":"input_file","file_url":"https://x.test/a.pdf"},
			{"type":"input_text","text":"https://x.test/report"},
			{"type":"input_text","text":"{\"n\":1}"}
		]}]`, string(got))
}

// An answer that stalls is given up. Comments, which servers send while a model thinks, are signs of life.
func TestModelsThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		says []string
		opts openai.Options
		want string
	}{
		"it stalls":  {[]string{modeltest.Role, modeltest.Text("Hi")}, openai.Options{IdleTimeout: 50 * time.Millisecond}, "broke off: nothing came for 50ms; the model's answer broke off; retry"},
		"it is slow": {nil, openai.Options{HeaderTimeout: 50 * time.Millisecond}, "; away; retry"},
		"it is gone": {nil, openai.Options{}, "; away; not reached"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, func(w http.ResponseWriter, r *http.Request, _ modeltest.Request) {
				if c.says != nil {
					modeltest.Write(w, c.says...)
				}
				<-r.Context().Done()
			})
			agent := f.agent(t, func(o *openai.Options) {
				o.IdleTimeout, o.HeaderTimeout = c.opts.IdleTimeout, c.opts.HeaderTimeout
				if name == "it is gone" {
					o.BaseURL = "http://" + nettest.Reserve(t) + "/v1"
				}
			})
			_, err := run(t, agent, "hello")
			require.Contains(t, err.Error()+"; "+executortest.Outcome(err), c.want)
			require.NotContains(t, err.Error(), "/v1")
		})
	}
}

func TestCancelClosesTheRequest(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	f := newFake(t, func(w http.ResponseWriter, r *http.Request, _ modeltest.Request) {
		modeltest.Write(w, modeltest.Role, modeltest.Text("Hi"))
		<-r.Context().Done()
		close(closed)
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	out := executortest.NewRecorder()
	ended := executortest.Go(ctx, f.agent(t), executortest.NewRun("hello"), out)
	out.Until(t, func(e []task.Event) bool { return len(artifacts(e)) > 0 })
	cancel(executor.ErrCanceled)
	require.ErrorIs(t, executortest.Wait(t, ended), executor.ErrCanceled)
	<-closed
}

// A lost lease ends the run, and with it the request.
func TestRefusedEventEndsTheRun(t *testing.T) {
	t.Parallel()
	f := newFake(t, modeltest.Streams(modeltest.Role, modeltest.Text("Hi"), modeltest.Stop, modeltest.Done))
	out := executortest.NewRecorder()
	out.Refuse(task.LeaseLost)
	require.ErrorIs(t, executortest.Wait(t, executortest.Go(t.Context(), f.agent(t), executortest.NewRun("hello"), out)), task.LeaseLost)
}

// A key in a file may be replaced while the server runs.
func TestKeyInAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(file, []byte("old-key\n"), 0o600))
	f := newFake(t, modeltest.Streams(modeltest.Text("Hi"), modeltest.Stop, modeltest.Done))
	agent := f.agent(t, func(o *openai.Options) { o.APIKey = secrets.File(file) })
	require.NoError(t, os.WriteFile(file, []byte(modeltest.Key+"\n"), 0o600))
	ran(t, agent, "hello")

	require.NoError(t, os.Remove(file))
	_, err := run(t, agent, "hello")
	_, ok := errors.AsType[*executor.Unavailable](err)
	require.True(t, ok, "%v", err)
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	_, err := openai.New(openai.Options{
		BaseURL: "api.test/v1", APIKey: secrets.Text("a\nb"), Headers: map[string]string{"Content-Type": "x", "a b": ""},
		Parameters: map[string]json.RawMessage{"messages": json.RawMessage("[]"), "seed": json.RawMessage("{")},
	})
	for _, want := range []string{
		"openai: base_url: must begin with http:// or https://",
		"openai: api_key: the value has more than a credential; write it on one line",
		"openai: headers.Content-Type: is set by Holdfast; remove it",
		"openai: headers.a b: is not the name of an HTTP header",
		"openai: parameters.messages: is set by Holdfast; remove it",
		"openai: parameters.seed: is not JSON",
	} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, err.Error(), "a\nb")
}
