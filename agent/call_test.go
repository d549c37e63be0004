package agent

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/executor/executortest"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func TestCall(t *testing.T) {
	t.Parallel()
	child := task.ID{1}
	out, err := adapted(t, executortest.NewRun("hello"), func(ctx context.Context, _ *Run, out Emitter) error {
		require.NoError(t, out.Call(ctx, Call{Agent: "b", ContextID: "c", Message: Say("hi"), Metadata: []byte(`{}`)}, Call{ID: "x", TaskID: child.String(), Message: Say("so"), Relay: true}))
		return out.Working(ctx, Message{})
	})
	require.ErrorIs(t, err, executortest.ErrSettled)
	note := out.Events()[0].Run
	require.Equal(t, task.RunCalls, note.Outcome)
	require.Equal(t, []any{"1", "b", "c", "hi", `{}`}, []any{note.Calls[0].ID, note.Calls[0].Agent, note.Calls[0].ContextID, note.Calls[0].Message.FirstText(), string(note.Calls[0].Metadata)})
	require.Equal(t, []any{"x", child, true, true}, []any{note.Calls[1].ID, note.Calls[1].Task, note.Calls[1].Answers, note.Calls[1].Relay})
	require.False(t, note.Calls[0].Relay)
}

func TestWrongCalls(t *testing.T) {
	t.Parallel()
	for want, calls := range map[string][]Call{
		"calls: has no call":                 nil,
		"calls[0]: needs one of agent, task": {{Message: Say("hi")}},
		"calls[1].message: agent: a message or artifact needs at least one part": {{Agent: "b", Message: Say("hi")}, {Agent: "b"}},
	} {
		out, err := adapted(t, executortest.NewRun("hello"), func(ctx context.Context, _ *Run, out Emitter) error { return out.Call(ctx, calls...) })
		require.EqualError(t, err, want)
		require.Empty(t, out.Events())
	}
}

func TestRunAfterCalls(t *testing.T) {
	t.Parallel()
	run := executortest.NewRun("")
	run.Message = &task.Message{}
	run.Input = &executor.Input{Source: executor.SourceCalls, Results: []executor.Result{
		{ID: "1", Agent: "b", TaskID: "t", State: task.StateInputRequired, Message: &task.Message{Role: task.RoleAgent, Parts: []task.Part{task.Text("?")}}},
		{ID: "2", Agent: "c", State: task.StateRejected, Error: "no"},
		{ID: "3", State: task.StateCompleted, Artifacts: []task.Artifact{{ID: "a", Parts: []task.Part{task.Text("x")}}}, Omitted: 7},
	}}
	_, err := adapted(t, run, func(_ context.Context, run *Run, _ Emitter) error {
		question := Say("?")
		question.Role = Agent
		require.Equal(t, &Input{Source: Calls, Results: []Result{
			{ID: "1", Agent: "b", TaskID: "t", State: InputRequired, Message: &question},
			{ID: "2", Agent: "c", State: Rejected, Error: "no"},
			{ID: "3", State: Completed, Artifacts: []Artifact{{ID: "a", Parts: []Part{TextPart("x")}}}, Omitted: 7},
		}}, run.Input)
		return nil
	})
	require.NoError(t, err)
}
