package agent

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/executortest"
)

// A wait or calls end the run.
func TestWaitsAndCalls(t *testing.T) {
	t.Parallel()
	until, child := time.Now().Add(time.Hour), task.ID{1}
	message := func(text string) *task.Message {
		return &task.Message{Role: task.RoleAgent, Parts: []task.Part{task.Text(text)}}
	}
	for name, c := range map[string]struct {
		end  func(ctx context.Context, out Emitter) error
		want task.RunNote
	}{
		"for": {
			func(ctx context.Context, out Emitter) error { return out.Wait(ctx, Wait{For: time.Minute}) },
			task.RunNote{Outcome: task.RunWaits, For: time.Minute},
		},
		"until": {
			func(ctx context.Context, out Emitter) error {
				return out.Wait(ctx, Wait{Until: until, Interruptible: true})
			},
			task.RunNote{Outcome: task.RunWaits, Until: until, Interruptible: true},
		},
		"calls": {
			func(ctx context.Context, out Emitter) error {
				return out.Call(ctx, Call{Agent: "b", ContextID: "c", Message: Say("hi"), Metadata: []byte(`{}`)},
					Call{ID: "x", TaskID: child.String(), Message: Say("so"), Relay: true})
			},
			task.RunNote{Outcome: task.RunCalls, Calls: []task.Call{
				{ID: "1", Agent: "b", ContextID: "c", Message: message("hi"), Metadata: []byte(`{}`)},
				{ID: "x", Task: child, Answers: true, Message: message("so"), Relay: true},
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := adapted(t, executortest.NewRun("hello"), func(ctx context.Context, _ *Run, out Emitter) error {
				require.NoError(t, c.end(ctx, out))
				return out.Working(ctx, Message{})
			})
			require.ErrorIs(t, err, executortest.ErrSettled)
			require.Equal(t, &c.want, out.Events()[0].Run)
		})
	}
}

func TestWrongWaitsAndCalls(t *testing.T) {
	t.Parallel()
	waits := func(w Wait) func(context.Context, Emitter) error {
		return func(ctx context.Context, out Emitter) error { return out.Wait(ctx, w) }
	}
	calls := func(calls ...Call) func(context.Context, Emitter) error {
		return func(ctx context.Context, out Emitter) error { return out.Call(ctx, calls...) }
	}
	for want, end := range map[string]func(context.Context, Emitter) error{
		"wait: needs one of until, for":                                          waits(Wait{}),
		"wait: takes only one of until, for":                                     waits(Wait{Until: time.Now(), For: 1}),
		"for: must be more than 0":                                               waits(Wait{For: -1}),
		"for: must be at most 315360000 seconds (10 years)":                      waits(Wait{For: executor.MaxWait + 1}),
		"until: 9999-01-01T00:00:00Z is more than 10 years ahead":                waits(Wait{Until: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}),
		"until: must not be before the year 1":                                   waits(Wait{Until: time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)}),
		"calls: has no call":                                                     calls(),
		"calls[0]: needs one of agent, task":                                     calls(Call{Message: Say("hi")}),
		"calls[1].message: agent: a message or artifact needs at least one part": calls(Call{Agent: "b", Message: Say("hi")}, Call{Agent: "b"}),
	} {
		out, err := adapted(t, executortest.NewRun("hello"), func(ctx context.Context, _ *Run, out Emitter) error { return end(ctx, out) })
		require.EqualError(t, err, want)
		require.Empty(t, out.Events())
	}
}

func TestRunAfterAWaitOrCalls(t *testing.T) {
	t.Parallel()
	question := Say("?")
	question.Role = Agent
	for _, c := range []struct {
		in   executor.Input
		want Input
	}{
		{
			executor.Input{Source: executor.SourceTimer, Until: time.Unix(1, 0), Interrupted: true},
			Input{Source: Timer, Until: time.Unix(1, 0), Interrupted: true},
		},
		{
			executor.Input{Source: executor.SourceCalls, Results: []executor.Result{
				{ID: "1", Agent: "b", TaskID: "t", State: task.StateInputRequired, Message: &task.Message{Role: task.RoleAgent, Parts: []task.Part{task.Text("?")}}},
				{ID: "2", Agent: "c", State: task.StateRejected, Error: "no"},
				{ID: "3", State: task.StateCompleted, Artifacts: []task.Artifact{{ID: "a", Parts: []task.Part{task.Text("x")}}}, Omitted: 7},
			}},
			Input{Source: Calls, Results: []Result{
				{ID: "1", Agent: "b", TaskID: "t", State: InputRequired, Message: &question},
				{ID: "2", Agent: "c", State: Rejected, Error: "no"},
				{ID: "3", State: Completed, Artifacts: []Artifact{{ID: "a", Parts: []Part{TextPart("x")}}}, Omitted: 7},
			}},
		},
	} {
		run := executortest.NewRun("")
		run.Message, run.Input = &task.Message{}, &c.in
		_, err := adapted(t, run, func(_ context.Context, run *Run, _ Emitter) error {
			require.Equal(t, &c.want, run.Input)
			require.Empty(t, run.Text())
			return nil
		})
		require.NoError(t, err)
	}
}
