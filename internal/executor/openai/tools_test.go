package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/executor/executortest"
	"github.com/holdfast-a2a/holdfast/internal/executor/openai"
	"github.com/holdfast-a2a/holdfast/internal/mcptest"
	"github.com/holdfast-a2a/holdfast/internal/modeltest"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

func TestMain(m *testing.M) {
	mcptest.Main()
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("internal/poll.runtime_pollWait")) // idle connections of httptest
}

// program has the model use the tools of a process.
func program(tools *mcptest.Tools, change ...func(*openai.ToolServer)) func(*openai.Options) {
	return func(o *openai.Options) {
		s := openai.ToolServer{Name: "t", Argv: tools.Argv(), Env: tools.Env()}
		for _, c := range change {
			c(&s)
		}
		o.Tools, o.ToolTimeout = append(o.Tools, s), time.Hour // a busy machine starts programs slowly
	}
}

// calls is a stream that asks for calls of tools: names and arguments in turn.
func calls(text string, pairs ...string) modeltest.Handler {
	raw := slices.Clone(pairs)
	for i := 1; i < len(raw); i += 2 {
		raw[i] = fmt.Sprintf(`{"of":%q}`, raw[i])
	}
	return asks(text, raw...)
}

// asks is calls with raw arguments. They come in two pieces.
func asks(text string, pairs ...string) modeltest.Handler {
	chunks := []string{modeltest.Role}
	if text != "" {
		chunks = append(chunks, modeltest.Text(text))
	}
	for i := 0; i < len(pairs); i += 2 {
		name, first, rest := pairs[i], pairs[i+1][:1], pairs[i+1][1:]
		chunks = append(chunks,
			modeltest.Chunk(fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":"id%d","type":"function","function":{"name":%q,"arguments":""}}]}`, i/2, i/2, name), "null"),
			modeltest.Chunk(fmt.Sprintf(`{"tool_calls":[{"index":%d,"function":{"arguments":%q}}]}`, i/2, first), "null"),
			modeltest.Chunk(fmt.Sprintf(`{"tool_calls":[{"index":%d,"function":{"arguments":%q}}]}`, i/2, rest), "null"))
	}
	return modeltest.Streams(append(chunks, modeltest.Chunk(`{}`, `"tool_calls"`), modeltest.Spent, modeltest.Done)...)
}

func says(text string) modeltest.Handler {
	return modeltest.Streams(modeltest.Role, modeltest.Text(text), modeltest.Stop, modeltest.Spent, modeltest.Done)
}

// results are the results that the model got in its last call.
func results(f *fake) []string {
	all := f.Calls()
	var out []string
	for _, m := range all[len(all)-1].Messages {
		if m["role"] == "tool" {
			out = append(out, fmt.Sprint(m["content"]))
		}
	}
	return out
}

func TestToolsAreCalled(t *testing.T) {
	t.Parallel()
	tools := mcptest.New(t)
	remote := mcptest.New(t)
	handler := mcptest.Handler(remote.Dir)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Key") != "s3cret-of-tools" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	f := newFake(t, calls("Let me see.", "t__look", "a", "far__pay", "b"), calls("", "t__fail", "c"), says("Done."))
	out, err := run(t, f.agent(t, program(tools), func(o *openai.Options) {
		o.Tools = append(o.Tools, openai.ToolServer{
			Name: "far", URL: server.URL, Headers: map[string]string{"X-Key": "s3cret-of-tools"}, Allow: []string{"pay"},
		})
	}), "do it")
	require.NoError(t, err)
	require.Equal(t, "Let me see.\n\nDone.", out.Text(t))
	require.Len(t, out.Task(t).Artifacts, 1)
	require.Equal(t, task.StateCompleted, out.Task(t).Status.State)
	require.Equal(t, []string{"done: a", "done: b", "no c"}, results(f))
	key := "01020304-0506-0708-0900-000000000000:1:"
	require.Equal(t, []string{"look a " + key + "0:0", "fail c " + key + "1:0"}, tools.Calls())
	require.Equal(t, []string{"pay b " + key + "0:1"}, remote.Calls())

	got, err := json.Marshal(f.Calls()[1].Messages)
	require.NoError(t, err)
	require.JSONEq(t, `[
		{"role":"user","content":"do it"},
		{"role":"assistant","content":"Let me see.","tool_calls":[
			{"id":"id0","type":"function","function":{"name":"t__look","arguments":"{\"of\":\"a\"}"}},
			{"id":"id1","type":"function","function":{"name":"far__pay","arguments":"{\"of\":\"b\"}"}}]},
		{"role":"tool","tool_call_id":"id0","content":"done: a"},
		{"role":"tool","tool_call_id":"id1","content":"done: b"}]`, string(got))
	var names []string
	for _, tool := range f.Calls()[0].Tools {
		names = append(names, tool["function"].(map[string]any)["name"].(string))
	}
	require.ElementsMatch(t, []string{"t__look", "t__pay", "t__fail", "t__crash", "t__long", "t__environment", "far__pay"}, names)
	require.Contains(t, last(out), `"totalTokens":51`, "of all three calls")
	require.NotEqual(t, f.Calls()[0].Key, f.Calls()[1].Key)
}

// A later run of the turn continues behind the last step: it repeats no finished call, and the model is not asked again.
func TestFinishedCallsAreNotRepeated(t *testing.T) {
	t.Parallel()
	tools := mcptest.New(t)
	f := newFake(t, calls("One.", "t__pay", "a"), modeltest.Cuts(modeltest.Role, modeltest.Text("Tw")), says("Two."))
	agent := f.agent(t, program(tools))
	out := executortest.NewRecorder()
	err := executortest.Wait(t, executortest.Go(t.Context(), agent, executortest.NewRun("do it"), out))
	_, again := executor.IsRetryable(err)
	require.True(t, again, "%v", err)

	second := executortest.NewRun("do it")
	second.Attempt, second.Try, second.Memory = 2, 2, &executortest.Memory{Events: out.Events()}
	require.NoError(t, executortest.Wait(t, executortest.Go(t.Context(), agent, second, out)))
	require.Len(t, tools.Calls(), 1)
	require.Len(t, f.Calls(), 3)
	require.Equal(t, []string{"done: a"}, results(f))
	require.Equal(t, "One.\n\nTwo.", out.Text(t), "nothing lost, nothing doubled")
	require.Contains(t, last(out), `"totalTokens":34`, "with the finished call of the first run")
}

// A call that was under way when its run ended is repeated only if its tool says that this does no harm.
func TestInterruptedCalls(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		made int
		want string
	}{
		"look": {2, "done: a"},
		"pay":  {1, "The call was interrupted. It is not known whether it took effect."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tools := mcptest.New(t)
			tools.Block()
			f := newFake(t, calls("", "t__"+name, "a"), says("Well."))
			agent := f.agent(t, program(tools))
			ctx, cancel := context.WithCancelCause(t.Context())
			out := executortest.NewRecorder()
			ended := executortest.Go(ctx, agent, executortest.NewRun("do it"), out)
			waittest.Eventually(t, "the call", func() error { return waittest.Unless(len(tools.Calls()) == 1, "not yet") })
			cancel(executor.ErrShutdown)
			require.ErrorIs(t, executortest.Wait(t, ended), executor.ErrShutdown)

			tools.Release()
			second := executortest.NewRun("do it")
			second.Attempt, second.Memory = 2, &executortest.Memory{Events: out.Events()}
			require.NoError(t, executortest.Wait(t, executortest.Go(t.Context(), agent, second, out)))
			require.Equal(t, []string{c.want}, results(f))
			made := tools.Calls()
			require.Len(t, made, c.made)
			require.Equal(t, made[0], made[len(made)-1], "with the same idempotency key")
		})
	}
}

func TestFaultsOfTools(t *testing.T) {
	t.Parallel()
	tools := mcptest.New(t)
	f := newFake(t,
		calls("", "t__crash", "a", "t__look", "b"), calls("", "t__nothing", "c", "t__long", "d"),
		modeltest.Streams(modeltest.Chunk(`{"tool_calls":[{"index":0,"id":"x","function":{"name":"t__look","arguments":"{\"of\":"}}]}`, `"tool_calls"`), modeltest.Done),
		says("Well."))
	ran(t, f.agent(t, program(tools)), "do it")
	got := results(f)
	require.Equal(t, "The call was interrupted. It is not known whether it took effect.", got[0])
	require.Equal(t, "done: b", got[1], "the server was started again")
	require.Equal(t, `There is no tool "t__nothing".`, got[2])
	require.Len(t, got[3], 256<<10+len("\n[The rest was cut off.]"))
	require.Equal(t, "The arguments are not a JSON object.", got[4])
}

func TestToolTimeout(t *testing.T) {
	t.Parallel()
	tools := mcptest.New(t)
	tools.Block()
	f := newFake(t, calls("", "t__look", "a"), says("Well."))
	agent := f.agent(t, program(tools), func(o *openai.Options) { o.ToolTimeout = time.Hour })
	openai.BoundCalls(agent, time.Millisecond)
	ran(t, agent, "do it")
	require.Equal(t, []string{"The tool did not answer within 1ms. It is not known whether the call took effect."}, results(f))
}

func TestToolsAreBounded(t *testing.T) {
	t.Parallel()
	tools := mcptest.New(t)
	f := newFake(t, calls("", "t__look", "a"))
	_, err := run(t, f.agent(t, program(tools), func(o *openai.Options) { o.MaxToolCalls = 3 }), "do it")
	failure, ok := errors.AsType[*executor.Failure](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, "the model called tools more than 3 times in one turn", failure.Msg)
	require.Len(t, tools.Calls(), 3)
}

func TestToolServerAway(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	f := newFake(t, says("Hi"))
	_, err := run(t, f.agent(t, func(o *openai.Options) {
		o.Tools = []openai.ToolServer{{Name: "far", URL: gone.URL, Headers: map[string]string{"Authorization": "Bearer tools-s3cret"}}}
	}), "do it")
	_, ok := errors.AsType[*executor.Unavailable](err)
	require.True(t, ok, "%v", err)
	require.ErrorContains(t, err, "tools of far: ")
	require.Empty(t, f.Calls())
}

// The process of a tool server gets only the environment that is listed, and ends with the run.
func TestToolServerProcess(t *testing.T) {
	t.Parallel()
	tools := mcptest.New(t)
	f := newFake(t, calls("", "t__environment", "a"), says("Hi"))
	ran(t, f.agent(t, program(tools, func(s *openai.ToolServer) { s.Env["MODE"] = "test" })), "do it")
	got := results(f)[0]
	require.Contains(t, got, "MODE=test")
	for line := range strings.Lines(got) {
		name, _, _ := strings.Cut(line, "=")
		require.Contains(t, []string{"PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "MODE", mcptest.Variable}, name)
	}
}

// approvals runs turns of a task whose tool pay needs approval. Each message is a turn.
func approvals(t *testing.T, f *fake, tools *mcptest.Tools, messages ...*task.Message) *executortest.Recorder {
	t.Helper()
	k := newTalk(t, f.agent(t, program(tools, func(s *openai.ToolServer) { s.Approve = []string{"pay"} })))
	for i, m := range messages {
		k.turn()
		require.NoError(t, k.run(i+1, m))
	}
	return k.out
}

func message(parts ...task.Part) *task.Message {
	return &task.Message{Role: task.RoleUser, Parts: parts}
}

func data(s string) task.Part { return task.Part{Kind: task.PartData, Data: json.RawMessage(s)} }

func TestCallsWaitForApproval(t *testing.T) {
	t.Parallel()
	const no = "The user did not approve this call. It was not made."
	for name, c := range map[string]struct {
		answer *task.Message
		want   []string
	}{
		"yes":          {message(task.Text(" Yes!\n")), []string{"done: a", "done: b", "done: c"}},
		"data":         {message(data(`{"approve":true}`)), []string{"done: a", "done: b", "done: c"}},
		"one of them":  {message(data(`{"approve":{"id0":true,"id1":true}}`)), []string{"done: a", "done: b", no}},
		"all but one":  {message(task.Text("ok"), data(`{"approve":{"id0":false}}`)), []string{no, "done: b", "done: c"}},
		"no":           {message(task.Text("no, take the cheap one")), []string{no, "done: b", no}},
		"both":         {message(task.Text("no"), data(`{"approve":true}`)), []string{no, "done: b", no}},
		"nonsense":     {message(data(`{"approve":"true"}`), data(`{"approve":{"id0":"yes"}}`)), []string{no, "done: b", no}},
		"another word": {message(task.Text("yes and no")), []string{no, "done: b", no}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tools := mcptest.New(t)
			f := newFake(t, calls("I'll buy it.", "t__pay", "a", "t__look", "b", "t__pay", "c"), says("Well."))
			out := approvals(t, f, tools, message(task.Text("buy")))
			folded := out.Task(t)
			require.Equal(t, task.StateInputRequired, folded.Status.State)
			require.Equal(t, "The agent asks for your approval of:\n- t__pay {\"of\":\"a\"}\n- t__pay {\"of\":\"c\"}\nAnswer yes or no.",
				folded.Status.Message.Parts[0].Text)
			require.JSONEq(t, `{"approvals":[{"id":"id0","tool":"t__pay","arguments":{"of":"a"}},{"id":"id2","tool":"t__pay","arguments":{"of":"c"}}]}`,
				string(folded.Status.Message.Parts[1].Data))
			require.Contains(t, string(folded.Status.Message.Metadata), `"totalTokens":17`)
			require.Len(t, tools.Calls(), 1, "only the one that needs no approval")

			tools = mcptest.New(t)
			f = newFake(t, calls("I'll buy it.", "t__pay", "a", "t__look", "b", "t__pay", "c"), says("Well."))
			out = approvals(t, f, tools, message(task.Text("buy")), c.answer)
			require.Equal(t, c.want, results(f))
			require.Equal(t, task.StateCompleted, out.Task(t).Status.State)
			require.Equal(t, "Well.", out.Text(t), "the first turn has shown the rest")
			require.Contains(t, last(out), `"totalTokens":17`, "of this turn alone")
		})
	}
}

// The model asks for another call after the first one was approved: it needs its own approval.
func TestEachCallNeedsItsApproval(t *testing.T) {
	t.Parallel()
	tools := mcptest.New(t)
	f := newFake(t, calls("", "t__pay", "a"), calls("", "t__pay", "b"), says("Done."))
	out := approvals(t, f, tools, message(task.Text("buy")), message(task.Text("yes")))
	require.Equal(t, task.StateInputRequired, out.Task(t).Status.State)
	require.Len(t, tools.Calls(), 1)

	tools = mcptest.New(t)
	f = newFake(t, calls("", "t__pay", "a"), calls("", "t__pay", "b"), says("Done."))
	out = approvals(t, f, tools, message(task.Text("buy")), message(task.Text("yes")), message(task.Text("yes")))
	require.Equal(t, task.StateCompleted, out.Task(t).Status.State)
	require.Equal(t, []string{"done: a", "done: b"}, results(f))
	require.Len(t, tools.Calls(), 2)
}

// A run that ended between the state and the question asks again, and a run that ended behind an approved call does not
// repeat it.
func TestApprovalsSurviveCrashes(t *testing.T) {
	t.Parallel()
	tools := mcptest.New(t)
	f := newFake(t, calls("Buy?", "t__pay", "a"), modeltest.Cuts(modeltest.Role), says("Done."))
	k := newTalk(t, f.agent(t, program(tools, func(s *openai.ToolServer) { s.Approve = []string{"*"} })))
	for range 2 { // the second time as if the first run had been killed before the question
		require.NoError(t, k.run(1, message(task.Text("buy"))))
	}
	require.Equal(t, task.StateInputRequired, k.out.Task(t).Status.State)
	require.Equal(t, "Buy?\n\n", k.out.Text(t))
	require.Len(t, f.Calls(), 1)
	require.Empty(t, tools.Calls())

	k.turn()
	require.Error(t, k.run(2, message(task.Text("yes"))))
	require.NoError(t, k.run(2, message(task.Text("yes"))))
	require.Equal(t, "Done.", k.out.Text(t))
	require.Len(t, tools.Calls(), 1)
	require.Equal(t, []string{"done: a"}, results(f))
}
