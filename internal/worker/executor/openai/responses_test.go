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
	return agent(t, openai.Options{BaseURL: f.Base() + "?key=in-the-url", Responses: true, Background: true}, change...)
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
			out := ran(t, f.agent(t), "hello")
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
			require.Contains(t, last(out), `"totalTokens":17`)
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
		s.Events, s.Cuts = events, []int{5}
		f := newNewer(t, s)
		out := ran(t, f.agent(t), "hello")
		require.Equal(t, "One fine day.", out.Text(t), name)
		require.Len(t, out.Task(t).Artifacts, 1, name)
		require.Len(t, f.Calls(), 1, name)
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
				out := ran(t, agent, "hello")
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
		require.Empty(t, f.Canceled(), name)
	}
}

func TestWholeResponses(t *testing.T) {
	t.Parallel()
	doc := `{"id":"r","status":"completed","model":"small-0611","error":null,"output":[` + modeltest.Message("Hi") + `],"usage":{"input_tokens":1,"output_tokens":2}}`
	f := newNewer(t, modeltest.Script{Events: []string{doc}})
	out := ran(t, f.agent(t, func(o *openai.Options) { o.Whole = true }), "hello")
	require.Equal(t, "Hi", out.Text(t))
	require.Contains(t, last(out), `"totalTokens":3`)
	require.False(t, f.Calls()[0].Background)
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
			require.Contains(t, last(out), `"totalTokens":34`)
		})
	}
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
	require.Empty(t, f.Canceled())
}
