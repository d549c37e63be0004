package openai_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/executor/executortest"
	"github.com/holdfast-a2a/holdfast/internal/executor/openai"
	"github.com/holdfast-a2a/holdfast/internal/mcptest"
	"github.com/holdfast-a2a/holdfast/internal/modeltest"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, asks("", "agent__b", `{"message":"x"}`), says("Done."))
			k := newTalk(t, f.agent(t, agentTools("b")))
			require.NoError(t, k.run(1, message(task.Text("go"))))
			k.turn()
			c.result.ID = "0.0"
			require.NoError(t, k.run(2, nil, c.result))
			require.Equal(t, []string{c.want}, results(f))
		})
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
	require.NoError(t, k.run(2, message(data(`{"approve":{"id0":true}}`))))
	require.Len(t, k.made(), 1)
	require.Equal(t, "b", k.made()[0].Agent)
	k.turn()
	require.NoError(t, k.run(3, nil, completed("0.0", "X")))
	require.Equal(t, []string{"X", "The user did not approve this call. It was not made."}, results(f))
	require.Equal(t, task.StateCompleted, k.out.Task(t).Status.State)
}
