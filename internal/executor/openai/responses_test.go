package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/executor/executortest"
	"github.com/holdfast-a2a/holdfast/internal/executor/openai"
	"github.com/holdfast-a2a/holdfast/internal/mcptest"
	"github.com/holdfast-a2a/holdfast/internal/modeltest"
	"github.com/holdfast-a2a/holdfast/internal/secret"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// newer is a server of the Responses API and the executor's options for it.
type newer struct{ *modeltest.Responses }

func newNewer(t *testing.T, scripts ...modeltest.Script) *newer {
	t.Helper()
	return &newer{modeltest.NewResponses(t, scripts...)}
}

func (f *newer) agent(t *testing.T, change ...func(*openai.Options)) executor.Executor {
	t.Helper()
	opts := openai.Options{
		BaseURL: f.Base() + "?key=in-the-url", Model: modeltest.Model, APIKey: secret.Text(modeltest.Key), Responses: true, Background: true,
	}
	for _, c := range change {
		c(&opts)
	}
	e, err := openai.New(opts)
	require.NoError(t, err)
	return e
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
	pieces := artifacts(out.Events())
	require.JSONEq(t, `{"usage":{"inputTokens":12,"outputTokens":5,"totalTokens":17,"cachedInputTokens":4,"reasoningTokens":2},
		"model":"small-0611","finishReason":"stop"}`, string(pieces[len(pieces)-1].Metadata))
	require.Equal(t, task.EventRun, out.Events()[0].Kind, "the id is stored before anything is shown")
	require.JSONEq(t, `{"asked":{"id":"resp_1"}}`, string(out.Events()[0].Run.Checkpoint))

	got := f.Calls()[0]
	require.Equal(t, "Be brief.", got.Instructions)
	require.Equal(t, []map[string]any{{"role": "user", "content": "hello"}}, got.Input)
	require.True(t, got.Background)
	require.InDelta(t, 0.2, *got.Temperature, 0)
	require.Empty(t, f.Canceled())
}

// Whatever the place, a cut costs no second answer, no try, and doubles no text.
func TestResponsesAreReadOnAfterCuts(t *testing.T) {
	t.Parallel()
	events := answer("One ", "fine ", "day", ".")
	for after := range len(events) + 1 {
		t.Run(fmt.Sprintf("after %d events", after+1), func(t *testing.T) {
			t.Parallel()
			f := newNewer(t, modeltest.Script{Events: events, Cuts: []int{after + 1, 1, 0}})
			out, err := run(t, f.agent(t), "hello")
			require.NoError(t, err)
			require.Equal(t, "One fine day.", out.Text(t))
			require.Len(t, f.Calls(), 1)
			if after < len(events) {
				require.Equal(t, fmt.Sprintf("key=in-the-url&starting_after=%d&stream=true", after), f.Reads()[0])
			}
			for i, e := range artifacts(out.Events()) {
				require.Equal(t, i > 0, e.Append, "what was written stays")
			}
		})
	}
}

// A run that was killed is continued by the next one, behind the newest bookmark.
func TestResponsesSurviveCrashes(t *testing.T) {
	t.Parallel()
	for name, seen := range map[string]int{"before any text": 1, "in the text": 5} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next := make(chan struct{})
			f := newNewer(t, modeltest.Script{Events: answer("One ", "fine ", "day", "."), Next: next})
			agent := f.agent(t)
			out := executortest.NewRecorder()
			ctx, cancel := context.WithCancelCause(t.Context())
			ended := executortest.Go(ctx, agent, executortest.NewRun("hello"), out)
			for range seen {
				next <- struct{}{}
			}
			want := map[int]string{1: `"id"`, 5: `"next"`}[seen] // the response is known; and its text is up to a bookmark
			out.Until(t, func(events []task.Event) bool {
				return slices.ContainsFunc(events, func(e task.Event) bool { return e.Run != nil && strings.Contains(string(e.Run.Checkpoint), want) })
			})
			cancel(executor.ErrShutdown)
			require.ErrorIs(t, executortest.Wait(t, ended), executor.ErrShutdown)
			require.Empty(t, f.Canceled(), "the next run reads on")

			second := executortest.NewRun("hello")
			second.Attempt, second.Memory = 2, &executortest.Memory{Events: out.Events()}
			ended = executortest.Go(t.Context(), agent, second, out)
			for left := true; left; {
				select {
				case next <- struct{}{}:
				case err := <-ended:
					require.NoError(t, err)
					left = false
				}
			}
			require.Equal(t, "One fine day.", out.Text(t))
			require.Equal(t, task.StateCompleted, out.Task(t).Status.State)
			require.Len(t, f.Calls(), 1, "the model is not asked again")
			query := f.Reads()[0]
			if seen == 1 {
				require.Equal(t, "key=in-the-url&stream=true", query)
			} else {
				require.Regexp(t, `starting_after=[345]&`, query)
			}
			pieces := artifacts(out.Events())
			require.Contains(t, string(pieces[len(pieces)-1].Metadata), `"totalTokens":17`)
		})
	}
}

// Servers whose events cannot be continued by number are read from the beginning, and what they repeat is dropped.
func TestOddNumbersOfEvents(t *testing.T) {
	t.Parallel()
	events := answer("One ", "fine ", "day", ".")
	for name, s := range map[string]modeltest.Script{
		"from the beginning":      {From: func(int) int { return 0 }},
		"one too many":            {From: func(n int) int { return max(n-1, 0) }},
		"all the same":            {Number: func(int) int { return 7 }, From: func(int) int { return 0 }},
		"none":                    {Number: func(int) int { return -1 }, From: func(int) int { return 0 }},
		"falling":                 {Number: func(n int) int { return 100 - n }, From: func(int) int { return 0 }},
		"only the end after that": {From: func(int) int { return len(events) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.Events, s.Cuts = events, []int{5}
			f := newNewer(t, s)
			out, err := run(t, f.agent(t), "hello")
			require.NoError(t, err)
			require.Equal(t, "One fine day.", out.Text(t))
			require.Len(t, out.Task(t).Artifacts, 1)
			require.Len(t, f.Calls(), 1)
		})
	}
}

// An API may refuse background mode, or ignore it. Both times the answer comes, and a crash asks again.
func TestWithoutBackgroundMode(t *testing.T) {
	t.Parallel()
	refuses := func(code int, body string) modeltest.Script {
		return modeltest.Script{Refusals: []http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
			modeltest.Answers(code, body)(w, r, modeltest.Request{})
		}}}
	}
	plain := modeltest.Script{Events: answer("Hi"), Plain: true}
	for name, c := range map[string]struct {
		scripts []modeltest.Script
		calls   int // of two runs
	}{
		"unknown":  {[]modeltest.Script{refuses(400, `{"error":{"message":"Unknown parameter: 'background'.","param":"background","code":"unknown_parameter"}}`), plain}, 3},
		"pydantic": {[]modeltest.Script{refuses(422, `{"detail":[{"type":"extra_forbidden","loc":["body","background"],"msg":"Extra inputs are not permitted"}]}`), plain}, 3},
		"ignored":  {[]modeltest.Script{plain}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newNewer(t, c.scripts...)
			agent := f.agent(t)
			for range 2 {
				out, err := run(t, agent, "hello")
				require.NoError(t, err)
				require.Equal(t, "Hi", out.Text(t))
				for _, e := range out.Events() {
					require.NotEqual(t, task.EventRun, e.Kind, "nothing to continue")
				}
			}
			require.Len(t, f.Calls(), c.calls, "a refusal is remembered")
			require.Equal(t, name == "ignored", f.Calls()[c.calls-1].Background)
		})
	}

	t.Run("cut", func(t *testing.T) {
		t.Parallel()
		cutOff := plain
		cutOff.Cuts = []int{4}
		f := newNewer(t, cutOff, plain)
		out := executortest.NewRecorder()
		n, err := tries(t, f.agent(t), out)
		require.NoError(t, err)
		require.Equal(t, 2, n)
		require.Equal(t, "Hi", out.Text(t))
		require.Empty(t, f.Reads())
	})
	t.Run("a refusal of something else", func(t *testing.T) {
		t.Parallel()
		f := newNewer(t, refuses(400, `{"error":{"message":"no such model","param":"model"}}`))
		_, err := run(t, f.agent(t), "hello")
		require.ErrorContains(t, err, "the model's API answered 400 Bad Request: no such model")
		require.Len(t, f.Calls(), 1)
	})
}

func says500(w http.ResponseWriter, r *http.Request) {
	modeltest.Answers(500, `{"error":{"message":"oops"}}`)(w, r, modeltest.Request{})
}

// The model is asked again if its response is gone, and waited for if it is away.
func TestResponsesThatAreLost(t *testing.T) {
	t.Parallel()
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			modeltest.Answers(code, `{"error":{"message":"`+modeltest.Key+`"}}`, "Retry-After", "3")(w, r, modeltest.Request{})
		}
	}
	good := modeltest.Script{Events: answer("Whole.")}
	begins := modeltest.Script{Events: answer("Half", "."), Cuts: []int{4}}

	t.Run("gone", func(t *testing.T) {
		t.Parallel()
		for _, code := range []int{400, 404, 405, 410, 501} {
			lost := modeltest.Script{Events: answer("Half", "."), Refusals: []http.HandlerFunc{nil, status(code)}}
			f := newNewer(t, lost, good)
			_, err := run(t, f.agent(t), "hello") // the server has the response now
			require.NoError(t, err)
			out := executortest.NewRecorder()
			r := executortest.NewRun("hello")
			r.Attempt, r.Try = 2, 2
			r.Memory = &executortest.Memory{Stored: json.RawMessage(`{"asked":{"id":"resp_1"}}`)}
			require.NoError(t, executortest.Wait(t, executortest.Go(t.Context(), f.agent(t), r, out)), code)
			require.Equal(t, "Whole.", out.Text(t))
			require.Len(t, f.Calls(), 2)
			require.Len(t, f.Reads(), 1)
		}
	})
	t.Run("away", func(t *testing.T) {
		t.Parallel()
		for _, code := range []int{429, 503} {
			s := begins
			s.Refusals = []http.HandlerFunc{status(code)}
			f := newNewer(t, s)
			_, err := run(t, f.agent(t), "hello")
			u, ok := errors.AsType[*executor.Unavailable](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, 3*time.Second, u.RetryAfter)
			require.NotContains(t, err.Error(), modeltest.Key)
		}
	})
	t.Run("failing", func(t *testing.T) {
		t.Parallel()
		s := modeltest.Script{Events: []string{modeltest.Said(0, "Half"), modeltest.Ended("failed", `"error":{"code":"server_error","message":"boom `+modeltest.Key+`"}`)}}
		f := newNewer(t, s, good)
		out := executortest.NewRecorder()
		n, err := tries(t, f.agent(t), out)
		require.NoError(t, err)
		require.Equal(t, 2, n)
		require.Equal(t, "Whole.", out.Text(t))
		require.Empty(t, f.Reads(), "a response that failed is not read again")
		raw, err := json.Marshal(out.Events())
		require.NoError(t, err)
		require.NotContains(t, string(raw), modeltest.Key)
	})
	t.Run("always cut", func(t *testing.T) {
		t.Parallel()
		s := modeltest.Script{Events: answer("Half", "."), Cuts: []int{4, 1, 0, 0, 0, 0, 0}}
		f := newNewer(t, s)
		out := executortest.NewRecorder()
		n, err := tries(t, f.agent(t), out)
		require.NoError(t, err)
		require.Equal(t, 2, n, "a run gives up after five cuts without progress")
		require.Equal(t, "Half.", out.Text(t))
		require.Len(t, f.Calls(), 1)
	})
}

func TestEndsOfResponses(t *testing.T) {
	t.Parallel()
	const filtered = "The content filter of the model's provider stopped the answer."
	refusal := `{"type":"message","content":[{"type":"refusal","refusal":"I can't do that."}]}`
	for name, c := range map[string]struct {
		events []string
		text   string
		finish string
		reject string
	}{
		"all at the end":     {[]string{modeltest.Ended("completed", "", modeltest.Message("Hi"), modeltest.Message("there"))}, "Hi\n\nthere", "stop", ""},
		"two items":          {[]string{modeltest.Said(0, "Hi"), modeltest.Said(2, "there"), modeltest.Ended("completed", "", modeltest.Message("Hi"), `{"type":"web_search_call"}`, modeltest.Message("there"))}, "Hi\n\nthere", "stop", ""},
		"no output":          {[]string{modeltest.Said(0, "Hi"), modeltest.Ended("completed", "")}, "Hi", "stop", ""},
		"another text":       {[]string{modeltest.Said(0, "Hi"), modeltest.Ended("completed", "", modeltest.Message("Ho"))}, "Hi", "stop", ""},
		"unknown events":     {[]string{`{"type":"response.new_thing","x":[1]}`, modeltest.Said(0, "Hi"), modeltest.Ended("completed", "")}, "Hi", "stop", ""},
		"[DONE] behind it":   {[]string{modeltest.Said(0, "Hi"), modeltest.Ended("completed", ""), "[DONE]"}, "Hi", "stop", ""},
		"too long":           {[]string{modeltest.Said(0, "Hi"), modeltest.Ended("incomplete", `"incomplete_details":{"reason":"max_output_tokens"}`)}, "Hi", "length", ""},
		"a filter":           {[]string{modeltest.Said(0, "Hi"), modeltest.Ended("incomplete", `"incomplete_details":{"reason":"content_filter"}`)}, "Hi", "", filtered},
		"a filter as error":  {[]string{`{"type":"error","code":"content_filter","message":"x"}`}, "", "", filtered},
		"an image is unsafe": {[]string{modeltest.Ended("failed", `"error":{"code":"image_content_policy_violation","message":"x"}`)}, "", "", filtered},
		"a refusal":          {[]string{`{"type":"response.refusal.delta","delta":"I can't "}`, `{"type":"response.refusal.delta","delta":"do that."}`, modeltest.Ended("completed", "", refusal)}, "", "", "I can't do that."},
		"a whole refusal":    {[]string{modeltest.Ended("completed", "", refusal)}, "", "", "I can't do that."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newNewer(t, modeltest.Script{Events: c.events})
			out, err := run(t, f.agent(t), "hello")
			require.NoError(t, err)
			folded := out.Task(t)
			if c.reject != "" {
				require.Equal(t, task.StateRejected, folded.Status.State)
				require.Equal(t, c.reject, folded.Status.Message.FirstText())
			} else {
				require.Equal(t, c.text, out.Text(t))
				pieces := artifacts(out.Events())
				require.Contains(t, string(pieces[len(pieces)-1].Metadata), `"finishReason":"`+c.finish+`"`)
				require.Contains(t, string(pieces[len(pieces)-1].Metadata), `"totalTokens":17`)
			}
			require.Empty(t, f.Canceled())
		})
	}
}

func TestWholeResponses(t *testing.T) {
	t.Parallel()
	doc := `{"id":"r","status":"completed","model":"small-0611","error":null,"output":[` + modeltest.Message("Hi") + `],"usage":{"input_tokens":1,"output_tokens":2}}`
	f := newNewer(t, modeltest.Script{Events: []string{doc}})
	out, err := run(t, f.agent(t, func(o *openai.Options) { o.Whole = true }), "hello")
	require.NoError(t, err)
	require.Equal(t, "Hi", out.Text(t))
	pieces := artifacts(out.Events())
	require.Contains(t, string(pieces[len(pieces)-1].Metadata), `"totalTokens":3`)
	require.False(t, f.Calls()[0].Background)
}

func TestInvalidResponsesFail(t *testing.T) {
	t.Parallel()
	var many []string
	for range 30 {
		many = append(many, modeltest.Said(0, long(100)))
	}
	deep := strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200)
	const nope = "the model's answer is not understood: "
	for name, c := range map[string]struct {
		script modeltest.Script
		want   string
	}{
		"no type":           {modeltest.Script{Events: []string{`{"choices":[]}`}}, nope + "line 5: type: is missing"},
		"an end of nothing": {modeltest.Script{Events: []string{`{"type":"response.completed"}`}}, nope + "line 5: response: is missing"},
		"wrong types":       {modeltest.Script{Events: []string{`{"type":"response.completed","response":[]}`}}, nope + "line 5: response: must be an object, not an array"},
		"nested":            {modeltest.Script{Events: []string{`{"type":"x","x":` + deep + `}`}}, nope + "line 5: nests deeper than 100 levels"},
		"a path as an id":   {modeltest.Script{ID: "../../v1/admin", Events: answer("Hi")}, nope + "response.id: is missing or has characters that an id cannot have"},
		"a query as an id":  {modeltest.Script{ID: "a?b=c", Events: answer("Hi")}, nope + "response.id: is missing or has characters that an id cannot have"},
		"endless text":      {modeltest.Script{Events: many}, "the model's answer is longer than 2000 bytes"},
		"endless refusal": {
			modeltest.Script{Events: []string{`{"type":"response.refusal.delta","delta":"` + long(1200) + `"}`, `{"type":"response.refusal.delta","delta":"` + long(1200) + `"}`}},
			"the model's answer is longer than 2000 bytes",
		},
		"a large event": {modeltest.Script{Events: []string{modeltest.Said(0, long(3000))}}, "the agent's answer is not understood: line 5: is longer than the 2000 bytes that an event may have"},
		"a bad prompt":  {modeltest.Script{Events: []string{modeltest.Ended("failed", `"error":{"code":"invalid_prompt","message":"odd"}`)}}, "the model's API reported an error: odd"},
		"a tool that is not there": {
			modeltest.Script{Events: []string{modeltest.Item(-1, modeltest.FunctionCall("z", "rm", "{}")), modeltest.Item(9000000, modeltest.FunctionCall("a", "rm", "{}")), modeltest.Ended("completed", "")}},
			`the model called the tool "rm", but it has no tools`,
		},
		"only reasoning": {
			modeltest.Script{Events: []string{modeltest.Ended("incomplete", `"incomplete_details":{"reason":"max_output_tokens"}`, `{"type":"reasoning","summary":[]}`)}},
			"the model reached its limit of tokens before it said anything; raise max_tokens",
		},
		"a bad image": {
			modeltest.Script{Events: []string{modeltest.Item(0, `{"type":"image_generation_call","result":"#"}`)}},
			nope + "images: is not a data URL in base64",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newNewer(t, c.script)
			_, err := run(t, f.agent(t, func(o *openai.Options) { o.MaxEvent = 2000 }), "hello")
			require.Equal(t, c.want, executortest.Outcome(err))
		})
	}
}

// Nobody pays for an answer that nobody will read.
func TestResponsesAreCanceled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cause    error
		canceled bool
	}{
		"canceled":      {executor.ErrCanceled, true},
		"out of time":   {executor.ErrTimeout, true},
		"shutdown":      {executor.ErrShutdown, false},
		"the lease":     {executor.ErrLeaseLost, false},
		"a refused row": {task.LeaseLost, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next := make(chan struct{})
			f := newNewer(t, modeltest.Script{Events: answer("Hi"), Next: next})
			ctx, cancel := context.WithCancelCause(t.Context())
			out := executortest.NewRecorder()
			ended := executortest.Go(ctx, f.agent(t), executortest.NewRun("hello"), out)
			out.Until(t, func(e []task.Event) bool { return len(e) >= 1 })
			cancel(c.cause)
			require.ErrorIs(t, executortest.Wait(t, ended), c.cause)
			if c.canceled {
				require.Equal(t, []string{"resp_1"}, f.Canceled())
			} else {
				require.Empty(t, f.Canceled())
			}
		})
	}
	t.Run("not understood", func(t *testing.T) {
		t.Parallel()
		f := newNewer(t, modeltest.Script{Events: []string{modeltest.Said(0, "Hi"), `{"type":1}`}})
		_, err := run(t, f.agent(t), "hello")
		require.Error(t, err)
		require.Equal(t, []string{"resp_1"}, f.Canceled())
	})
}

func TestReasoningAndImagesOfResponses(t *testing.T) {
	t.Parallel()
	picture := `{"type":"image_generation_call","id":"ig","status":"completed","output_format":"webp","result":"aGVsbG8="}`
	thoughts := `{"type":"reasoning","summary":[{"type":"summary_text","text":"Hm."},{"type":"summary_text","text":"Aha."}]}`
	script := modeltest.Script{Events: []string{
		`{"type":"response.reasoning_summary_part.added","output_index":0,"summary_index":0,"part":{"type":"summary_text","text":""}}`,
		`{"type":"response.reasoning_summary_text.delta","delta":"Hm."}`,
		`{"type":"response.reasoning_summary_part.added","output_index":0,"summary_index":1,"part":{"type":"summary_text","text":""}}`,
		`{"type":"response.reasoning_text.delta","delta":"Aha."}`,
		modeltest.Said(1, "Here:"), modeltest.Item(2, picture),
		modeltest.Ended("completed", "", thoughts, modeltest.Message("Here:"), picture),
	}}
	f := newNewer(t, script)
	out, err := run(t, f.agent(t, func(o *openai.Options) {
		o.Reasoning = true
		o.Parameters = map[string]json.RawMessage{"tools": json.RawMessage(`[{"type":"image_generation"}]`)}
	}), "draw")
	require.NoError(t, err)
	got := map[string][]task.Part{}
	for _, a := range out.Task(t).Artifacts {
		got[a.ID] = a.Parts
	}
	require.Equal(t, map[string][]task.Part{
		"reasoning-1": {task.Text("Hm.\n\nAha.")},
		"answer-1":    {task.Text("Here:")},
		"image-1-1":   {{Kind: task.PartRaw, Raw: []byte("hello"), MediaType: "image/webp"}},
	}, got)
	require.Equal(t, map[string]any{"summary": "auto"}, f.Calls()[0].Reasoning)
	require.Equal(t, []map[string]any{{"type": "image_generation"}}, f.Calls()[0].Tools)

	out, err = run(t, f.agent(t), "draw")
	require.NoError(t, err)
	for _, a := range out.Task(t).Artifacts {
		require.NotEqual(t, "reasoning-1", a.ID, "off by default")
	}
	require.Nil(t, f.Calls()[1].Reasoning)
}

func TestPartsForResponses(t *testing.T) {
	t.Parallel()
	f := newNewer(t, modeltest.Script{Events: answer("ok")})
	r := executortest.NewRun("and this?")
	r.Turn = 2
	r.Message.Parts = append(
		r.Message.Parts,
		task.Part{Kind: task.PartRaw, Raw: []byte{1, 2}, MediaType: "image/png"},
		task.Part{Kind: task.PartRaw, Raw: []byte("%PDF-1.4"), Filename: "a.pdf"},
		task.Part{Kind: task.PartRaw, Raw: []byte{3}, MediaType: "audio/mpeg"},
		task.Part{Kind: task.PartURL, URL: "https://x.test/cat.jpg?size=1"},
		task.Part{Kind: task.PartURL, URL: "https://x.test/a.pdf"},
		task.Part{Kind: task.PartURL, URL: "https://x.test/page"},
	)
	r.Memory = &executortest.Memory{Said: []executor.Said{
		{Message: &task.Message{Role: task.RoleUser, Parts: []task.Part{task.Text("first")}}},
		{Artifact: &task.Artifact{ID: "answer-1", Name: "answer", Parts: []task.Part{task.Text("yes"), {Kind: task.PartURL, URL: "https://x.test/b.pdf"}}}},
	}}
	require.NoError(t, executortest.Wait(t, executortest.Go(t.Context(), f.agent(t), r, executortest.NewRecorder())))
	got, err := json.Marshal(f.Calls()[0].Input)
	require.NoError(t, err)
	require.JSONEq(t, `[
		{"role":"user","content":"first"},
		{"role":"assistant","content":"yes\n\nhttps://x.test/b.pdf"},
		{"role":"user","content":[
			{"type":"input_text","text":"and this?"},
			{"type":"input_image","image_url":"data:image/png;base64,AQI="},
			{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,JVBERi0xLjQ="},
			{"type":"input_audio","input_audio":{"data":"Aw==","format":"mp3"}},
			{"type":"input_image","image_url":"https://x.test/cat.jpg?size=1"},
			{"type":"input_file","file_url":"https://x.test/a.pdf"},
			{"type":"input_text","text":"https://x.test/page"}
		]}]`, string(got))
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

// The tools work as with Chat Completions: what is finished stays, over cuts at every event and crashes.
func TestToolsOfResponses(t *testing.T) {
	t.Parallel()
	for after := range 8 {
		t.Run(fmt.Sprintf("cut after %d events", after+1), func(t *testing.T) {
			t.Parallel()
			tools := mcptest.New(t)
			first := wants("Let me see.", "t__look", "a", "t__pay", "b")
			first.Cuts = []int{after + 1}
			second := modeltest.Script{Events: answer("Done."), Refusals: []http.HandlerFunc{says500}}
			f := newNewer(t, first, second, modeltest.Script{Events: answer("Done.")})
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
			pieces := artifacts(out.Events())
			require.Contains(t, string(pieces[len(pieces)-1].Metadata), `"totalTokens":34`)
		})
	}
}

func TestCallsOfResponsesWaitForApproval(t *testing.T) {
	t.Parallel()
	tools := mcptest.New(t)
	f := newNewer(t, wants("I'll buy it.", "t__pay", "a"), modeltest.Script{Events: answer("Well.")})
	agent := f.agent(t, program(tools, func(s *openai.ToolServer) { s.Approve = []string{"pay"} }))
	memory := &executortest.Memory{}
	var out *executortest.Recorder
	for turn, text := range []string{"buy", "yes"} {
		out = executortest.NewRecorder()
		r := executortest.NewRun(text)
		r.Turn, r.Attempt, r.Memory = turn+1, task.Attempt(turn+1), memory
		require.NoError(t, executortest.Wait(t, executortest.Go(t.Context(), agent, r, out)))
		if turn == 0 {
			require.Equal(t, task.StateInputRequired, out.Task(t).Status.State)
			require.Empty(t, tools.Calls())
		}
	}
	require.Equal(t, task.StateCompleted, out.Task(t).Status.State)
	require.Equal(t, "Well.", out.Text(t))
	require.Len(t, tools.Calls(), 1)
	items := f.Calls()[1].Input
	require.Equal(t, "done: a", items[len(items)-1]["output"])
	require.Empty(t, f.Canceled())
}
