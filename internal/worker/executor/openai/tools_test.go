package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-a2a/holdfast/internal/secrets"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/mcptest"
	"github.com/holdfast-a2a/holdfast/internal/test/modeltest"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/executortest"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/openai"
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
	require.ElementsMatch(t, []string{"t__look", "t__pay", "t__fail", "t__crash", "t__long", "t__environment", "t__raw", "far__pay"}, names)
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
	f := newFake(t, says("Hi"))
	_, err := run(t, f.agent(t, func(o *openai.Options) {
		o.Tools = []openai.ToolServer{{Name: "far", URL: "http://" + nettest.Reserve(t), Headers: map[string]string{"Authorization": "Bearer tools-s3cret"}}}
	}), "do it")
	_, ok := errors.AsType[*executor.Unavailable](err)
	require.True(t, ok, "%v", err)
	require.ErrorContains(t, err, "tools of far: ")
	require.Empty(t, f.Calls())
}

// A server that refuses will refuse again: nobody waits for it.
func TestToolServerRefuses(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]http.Handler{
		"a wrong credential": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }),
		"a wrong address":    http.NotFoundHandler(),
		"an older protocol":  http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) }),
		"no tools":           mcptest.WithoutTools(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(handler)
			t.Cleanup(server.Close)
			f := newFake(t, says("Hi"))
			_, err := run(t, f.agent(t, func(o *openai.Options) { o.Tools = []openai.ToolServer{{Name: "far", URL: server.URL}} }), "do it")
			failure, ok := errors.AsType[*executor.Failure](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, "the agent's tools could not be listed", failure.Msg)
			require.ErrorContains(t, failure.Cause, "tools of far: ")
		})
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	t.Cleanup(server.Close)
	f := newFake(t, says("Hi"))
	_, err := run(t, f.agent(t, func(o *openai.Options) { o.Tools = []openai.ToolServer{{Name: "far", URL: server.URL}} }), "do it")
	away, ok := errors.AsType[*executor.Unavailable](err)
	require.True(t, ok, "%v", err)
	require.ErrorContains(t, away.Err, "tools of far: ", "what operators read")
}

// A server that has dropped the session has made no call.
func TestToolServerForgetsTheSession(t *testing.T) {
	t.Parallel()
	remote := mcptest.New(t)
	handler := mcptest.Handler(remote.Dir)
	lost := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "tools/call") && !lost {
			lost = true
			end := httptest.NewRequestWithContext(r.Context(), http.MethodDelete, "/", nil)
			end.Header.Set("Mcp-Session-Id", r.Header.Get("Mcp-Session-Id"))
			handler.ServeHTTP(httptest.NewRecorder(), end)
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	f := newFake(t, calls("", "far__pay", "a"), says("Well."))
	ran(t, f.agent(t, func(o *openai.Options) { o.Tools = []openai.ToolServer{{Name: "far", URL: server.URL}} }), "do it")
	require.Equal(t, []string{"done: a"}, results(f))
	require.Len(t, remote.Calls(), 1)
}

// Programs print banners before they speak the protocol.
func TestLinesThatAreNoMessages(t *testing.T) {
	t.Parallel()
	tools := mcptest.New(t)
	f := newFake(t, calls("", "t__look", "a"), says("Well."))
	ran(t, f.agent(t, program(tools, func(s *openai.ToolServer) {
		s.Argv = []string{"sh", "-c", `echo "Server starts"; echo; echo "[INFO] ready"; exec "$0"`, s.Argv[0]}
	})), "do it")
	require.Equal(t, []string{"done: a"}, results(f))
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
		"text in data": {message(data(`{"approved":"yes"}`)), []string{"done: a", "done: b", "done: c"}},
		"data":         {message(data(`{"approved":true}`)), []string{"done: a", "done: b", "done: c"}},
		"one of them":  {message(data(`{"id0":true,"id1":{"approved":true}}`)), []string{"done: a", "done: b", no}},
		"all but one":  {message(task.Text("ok"), data(`{"id0":false}`)), []string{no, "done: b", "done: c"}},
		"no":           {message(task.Text("no, take the cheap one")), []string{no, "done: b", no}},
		"both":         {message(task.Text("no"), data(`{"approved":true}`)), []string{no, "done: b", no}},
		"nonsense":     {message(data(`{"approved":1}`), data(`{"id0":["yes"]}`)), []string{no, "done: b", no}},
		"two texts":    {message(task.Text("no"), task.Text("yes")), []string{no, "done: b", no}},
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
			require.JSONEq(t, `{"approvals":[{"id":"id0","tool":"t__pay","arguments":{"of":"a"}},{"id":"id2","tool":"t__pay","arguments":{"of":"c"}}],
				"requestedSchema":{"type":"object","required":["id0","id2"],
					"properties":{"id0":{"type":"boolean","title":"t__pay"},"id2":{"type":"boolean","title":"t__pay"}}}}`,
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

// A run that ended between the state and the question asks again, and a run that ended behind an approved call does not repeat it.
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

func agentTools(names ...string) func(*openai.Options) {
	return func(o *openai.Options) {
		for _, name := range names {
			o.Agents = append(o.Agents, openai.AgentTool{Name: name, Description: "Knows " + name + ".", Relay: name == "hotels"})
		}
	}
}

// talk is a task with several turns.
type talk struct {
	t        *testing.T
	agent    executor.Executor
	memory   *executortest.Memory
	out      *executortest.Recorder
	attempts int
}

func newTalk(t *testing.T, e executor.Executor) *talk {
	t.Helper()
	return &talk{t: t, agent: e, memory: &executortest.Memory{}}
}

// run is a run of a turn. A nil message and no results are a retry of a turn after calls.
func (k *talk) run(turn int, m *task.Message, results ...executor.Result) error {
	k.t.Helper()
	k.attempts++
	r := executortest.NewRun("")
	r.Message, r.Turn, r.Attempt, r.Memory = m, turn, task.Attempt(k.attempts), k.memory
	if m == nil {
		r.Message, r.Input = &task.Message{}, &executor.Input{Source: executor.SourceCalls, Results: results}
	}
	k.out = executortest.NewRecorder()
	err := executortest.Wait(k.t, executortest.Go(k.t.Context(), k.agent, r, k.out))
	k.memory.Events = append(k.memory.Events, k.out.Events()...)
	return err
}

// turn begins the next turn.
func (k *talk) turn() { k.memory.Events = nil }

// made are the calls of the newest run, or nil.
func (k *talk) made() []task.Call {
	events := k.out.Events()
	if len(events) == 0 || events[len(events)-1].Run == nil {
		return nil
	}
	return events[len(events)-1].Run.Calls
}

func completed(id, text string) executor.Result {
	return executor.Result{ID: id, State: task.StateCompleted, TaskID: task.ID{7}.String(), Artifacts: []task.Artifact{{ID: "x", Parts: []task.Part{task.Text(text)}}}}
}

func TestModelCallsAgents(t *testing.T) {
	t.Parallel()
	tools := mcptest.New(t)
	f := newFake(t,
		asks("I'll ask.", "agent__flights", `{"message":"to Oslo"}`, "t__look", `{"of":"a"}`, "agent__hotels", `{"message":"in Oslo"}`),
		asks("", "agent__hotels", fmt.Sprintf(`{"message":"the center","task":%q}`, task.ID{7})),
		says("Booked."))
	k := newTalk(t, f.agent(t, program(tools), agentTools("flights", "hotels")))
	require.NoError(t, k.run(1, message(task.Text("book a trip"))))
	require.Equal(t, "I'll ask.\n\n", k.out.Text(t))
	require.Len(t, tools.Calls(), 1, "tools are called before agents")
	made := k.made()
	require.Len(t, made, 2)
	require.Equal(t, []string{"0.0", "flights", "to Oslo", "0.2", "hotels", "in Oslo"}, []string{
		made[0].ID, made[0].Agent, made[0].Message.FirstText(), made[1].ID, made[1].Agent, made[1].Message.FirstText(),
	})
	require.Equal(t, []bool{false, true}, []bool{made[0].Relay, made[1].Relay})

	k.turn()
	k.memory.Said = []executor.Said{
		{Message: message(task.Text("book a trip"))}, {Artifact: &task.Artifact{ID: "answer-1", Name: "answer", Parts: []task.Part{task.Text("I'll ask.")}}},
	}
	question := executor.Result{ID: "0.2", State: task.StateInputRequired, TaskID: task.ID{7}.String(), Message: message(task.Text("Where?"))}
	require.NoError(t, k.run(2, nil, completed("0.0", "DY 1303"), question))
	asked := "Where?\n\nThe agent waits for an answer (input-required). To give one, call this tool with the task " + task.ID{7}.String() + "."
	require.Equal(t, []string{"DY 1303", "done: a", asked}, results(f))
	got, err := json.Marshal(f.Calls()[1].Messages[:2])
	require.NoError(t, err)
	require.JSONEq(t, `[{"role":"user","content":"book a trip"},{"role":"assistant","content":"I'll ask.","tool_calls":[
		{"id":"id0","type":"function","function":{"name":"agent__flights","arguments":"{\"message\":\"to Oslo\"}"}},
		{"id":"id1","type":"function","function":{"name":"t__look","arguments":"{\"of\":\"a\"}"}},
		{"id":"id2","type":"function","function":{"name":"agent__hotels","arguments":"{\"message\":\"in Oslo\"}"}}]}]`, string(got))
	made = k.made()
	require.Len(t, made, 1)
	require.Equal(t, []any{"1.0", task.ID{7}, true, "the center"}, []any{made[0].ID, made[0].Task, made[0].Answers, made[0].Message.FirstText()})

	k.turn()
	require.NoError(t, k.run(3, nil, completed("1.0", "Hotel Bristol")))
	require.Equal(t, []string{"DY 1303", "done: a", asked, "Hotel Bristol"}, results(f))
	require.Equal(t, "Booked.", k.out.Text(t))
	require.Equal(t, task.StateCompleted, k.out.Task(t).Status.State)
	require.Contains(t, last(k.out), `"totalTokens":51`, "of all three turns")
	require.Len(t, tools.Calls(), 1)
	var about []string
	for _, tool := range f.Calls()[0].Tools {
		if fn := tool["function"].(map[string]any); fn["description"] == "Knows hotels." {
			about = append(about, fn["name"].(string))
		}
	}
	require.Equal(t, []string{"agent__hotels"}, about)
}

// A run that dies between its state and the call calls again; one that dies after the results does not ask the model again.
func TestCallsOfAgentsSurviveCrashes(t *testing.T) {
	t.Parallel()
	f := newFake(t, asks("", "agent__b", `{"message":"x"}`), modeltest.Cuts(modeltest.Role), asks("", "agent__b", `{"message":"y"}`), says("Done."))
	k := newTalk(t, f.agent(t, agentTools("b")))
	require.NoError(t, k.run(1, message(task.Text("go"))))
	require.NoError(t, k.run(1, message(task.Text("go"))))
	require.Len(t, f.Calls(), 1)
	require.Equal(t, "x", k.made()[0].Message.FirstText())
	k.turn()
	require.Error(t, k.run(2, nil, completed("0.0", "X")))
	require.NoError(t, k.run(2, nil, completed("0.0", "X")))
	require.Equal(t, []string{"X"}, results(f))
	require.NoError(t, k.run(2, nil, completed("0.0", "X")))
	require.Len(t, f.Calls(), 3)
	require.Equal(t, "1.0", k.made()[0].ID)
	k.turn()
	require.NoError(t, k.run(3, nil, completed("1.0", "Y")))
	require.Equal(t, []string{"X", "Y"}, results(f))
}

func TestResultsOfAgents(t *testing.T) {
	t.Parallel()
	image := task.Part{Kind: task.PartRaw, Raw: []byte("x"), Filename: "a.png", MediaType: "image/png"}
	for name, c := range map[string]struct {
		result executor.Result
		want   string
	}{
		"refused":  {executor.Result{State: task.StateRejected, Error: `there is no agent "b"`}, "State of the task: rejected\n\nthere is no agent \"b\""},
		"failed":   {executor.Result{State: task.StateFailed, Message: message(task.Text("no"))}, "State of the task: failed\n\nno"},
		"nothing":  {executor.Result{State: task.StateCompleted}, "The agent has completed the task without an answer."},
		"too long": {executor.Result{State: task.StateCompleted, Omitted: 9}, "[9 bytes are left out here]"},
		"parts": {
			executor.Result{State: task.StateCompleted, Message: message(data(`{"a":1}`)), Artifacts: []task.Artifact{{Parts: []task.Part{image}}}},
			"[a.png, image/png]\n\n{\"a\":1}",
		},
	} {
		f := newFake(t, asks("", "agent__b", `{"message":"x"}`), says("Done."))
		k := newTalk(t, f.agent(t, agentTools("b")))
		require.NoError(t, k.run(1, message(task.Text("go"))), name)
		k.turn()
		c.result.ID = "0.0"
		require.NoError(t, k.run(2, nil, c.result), name)
		require.Equal(t, []string{c.want}, results(f), name)
	}
}

func TestWrongCallsOfAgents(t *testing.T) {
	t.Parallel()
	f := newFake(t, asks("", "agent__b", `{`, "agent__b", `{"message":" "}`, "agent__b", `{"message":"x","task":"the first"}`), says("Done."))
	out := ran(t, f.agent(t, agentTools("b")), "go")
	const wrong = "The arguments need a message, which is text. The agent was not called."
	require.Equal(t, []string{wrong, wrong, "There is no such task. Leave it out to begin a new one. The agent was not called."}, results(f))
	require.Equal(t, task.StateCompleted, out.Task(t).Status.State)
}

// The limit holds over the turns that one message began.
func TestCallsOfAgentsAreCounted(t *testing.T) {
	t.Parallel()
	f := newFake(t, asks("", "agent__b", `{"message":"x"}`))
	k := newTalk(t, f.agent(t, agentTools("b"), func(o *openai.Options) { o.MaxToolCalls = 2 }))
	require.NoError(t, k.run(1, message(task.Text("go"))))
	k.turn()
	require.NoError(t, k.run(2, nil, completed("0.0", "X")))
	k.turn()
	require.ErrorContains(t, k.run(3, nil, completed("1.0", "X")), "more than 2 times")
}

func TestCallOfAnAgentWaitsForApproval(t *testing.T) {
	t.Parallel()
	f := newFake(t, asks("", "agent__b", `{"message":"x"}`, "agent__c", `{"message":"y"}`), says("Done."))
	k := newTalk(t, f.agent(t, agentTools("b", "c"), func(o *openai.Options) { o.Agents[0].Approve, o.Agents[1].Approve = true, true }))
	require.NoError(t, k.run(1, message(task.Text("go"))))
	require.Equal(t, task.StateInputRequired, k.out.Task(t).Status.State)
	require.Contains(t, k.out.Task(t).Status.Message.FirstText(), `agent__b {"message":"x"}`)
	k.turn()
	require.NoError(t, k.run(2, message(data(`{"id0":true}`))))
	require.Len(t, k.made(), 1)
	require.Equal(t, "b", k.made()[0].Agent)
	k.turn()
	require.NoError(t, k.run(3, nil, completed("0.0", "X")))
	require.Equal(t, []string{"X", "The user did not approve this call. It was not made."}, results(f))
	require.Equal(t, task.StateCompleted, k.out.Task(t).Status.State)
}

// An API that repeats all the secrets that it gets, wherever it can, has them in no error.
func TestSecretsAreInNoError(t *testing.T) {
	t.Parallel()
	const header, query, password = "header-s3cret", "query-s3cret", "password-s3cret"
	all := "key " + modeltest.Key + " " + header + " " + query + " " + password
	for name, handler := range map[string]http.HandlerFunc{
		"refused":      func(w http.ResponseWriter, _ *http.Request) { http.Error(w, all, http.StatusBadRequest) },
		"unauthorized": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, all, http.StatusUnauthorized) },
		"redirected": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/?"+all, http.StatusTemporaryRedirect)
		},
		"half JSON": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"error": "`+all)
		},
		"half JSON in a stream": func(w http.ResponseWriter, _ *http.Request) { modeltest.Write(w, `{"error": "`+all) },
		"an odd content type": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", all)
			w.WriteHeader(http.StatusOK)
		},
		"an error in a stream": func(w http.ResponseWriter, _ *http.Request) {
			modeltest.Write(w, `{"type":"error","message":"`+all+`","error":{"message":"`+all+`"}}`)
		},
		"a cut": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		for _, responses := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				server := httptest.NewServer(handler)
				t.Cleanup(server.Close)
				agent, err := openai.New(openai.Options{
					BaseURL: "http://user:" + password + "@" + server.Listener.Addr().String() + "/v1?key=" + query, Model: "x",
					APIKey: secrets.Text(modeltest.Key), Headers: map[string]string{"X-Key": header}, Responses: responses,
				})
				require.NoError(t, err)
				_, err = run(t, agent, "hello")
				require.Error(t, err)
				for _, secret := range []string{modeltest.Key, header, query, password} {
					require.NotContains(t, err.Error(), secret)
				}
			})
		}
	}
}

// A server of tools that repeats its credentials gives them neither to the model nor to the log.
func TestSecretsOfToolsStayThere(t *testing.T) {
	t.Parallel()
	const secret = "s3cret-of-tools"
	tools := mcptest.New(t)
	handler := mcptest.Handler(tools.Dir)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	f := newFake(t, calls("", "t__look", secret, "t__fail", secret), says("Well."))
	_, err := run(t, f.agent(t, func(o *openai.Options) {
		o.Tools = []openai.ToolServer{{Name: "t", URL: server.URL + "?key=" + secret, Headers: map[string]string{"Authorization": "Bearer " + secret}}}
	}), "do it")
	require.NoError(t, err)
	require.Equal(t, []string{"done: [redacted]", "no [redacted]"}, results(f))

	_, err = run(t, f.agent(t, func(o *openai.Options) {
		o.Tools = []openai.ToolServer{{Name: "t", URL: "http://" + nettest.Reserve(t) + "?key=" + secret}}
	}), "do it")
	require.Error(t, err)
	require.NotContains(t, err.Error(), secret)
}

// Servers of tools that are silent, babble, or hang at the end, cost a bounded time and a bounded memory.
func TestHostileServersOfTools(t *testing.T) {
	t.Parallel()
	away := func(t *testing.T, s openai.ToolServer) {
		t.Helper()
		f := newFake(t, says("Hi"))
		_, err := run(t, f.agent(t, func(o *openai.Options) {
			o.Tools, o.ToolTimeout = []openai.ToolServer{s}, 200*time.Millisecond
		}), "do it")
		_, ok := errors.AsType[*executor.Unavailable](err)
		require.True(t, ok, "%v", err)
		require.Empty(t, f.Calls())
	}
	t.Run("a silent program", func(t *testing.T) {
		t.Parallel()
		away(t, openai.ToolServer{Name: "t", Argv: []string{"sleep", "600"}})
	})
	t.Run("an endless line", func(t *testing.T) {
		t.Parallel()
		f := newFake(t, says("Hi"))
		_, err := run(t, f.agent(t, func(o *openai.Options) {
			o.Tools = []openai.ToolServer{{Name: "t", Argv: []string{"sh", "-c", `printf '"'; exec tr '\0' x </dev/zero`}}}
		}), "do it")
		_, ok := errors.AsType[*executor.Unavailable](err)
		require.True(t, ok, "%v", err)
	})
	t.Run("a silent address", func(t *testing.T) {
		t.Parallel()
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then does the server see that the client is gone
			<-r.Context().Done()
		}))
		t.Cleanup(server.Close)
		away(t, openai.ToolServer{Name: "t", URL: server.URL})
	})
	t.Run("an address that hangs at the end", func(t *testing.T) {
		t.Parallel()
		tools := mcptest.New(t)
		handler := mcptest.Handler(tools.Dir)
		gone := make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete {
				handler.ServeHTTP(httptest.NewRecorder(), r)
				<-gone
				return
			}
			handler.ServeHTTP(w, r)
		}))
		t.Cleanup(server.Close)
		t.Cleanup(func() { close(gone) })
		f := newFake(t, calls("", "t__look", "a"), says("Done."))
		agent := f.agent(t, func(o *openai.Options) {
			o.Tools, o.ToolTimeout = []openai.ToolServer{{Name: "t", URL: server.URL}}, 100*time.Millisecond
		})
		openai.BoundListing(agent, time.Hour)
		openai.BoundCalls(agent, time.Hour)
		openai.WrapTools(agent, func(limited http.RoundTripper) http.RoundTripper { return onlyAtTheEnd{limited} })
		require.Equal(t, "Done.", ran(t, agent, "do it").Text(t))
	})
}

// onlyAtTheEnd has the limits of a transport when a session ends.
type onlyAtTheEnd struct{ http.RoundTripper }

func (r onlyAtTheEnd) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodDelete {
		return r.RoundTripper.RoundTrip(request)
	}
	return http.DefaultTransport.RoundTrip(request)
}
