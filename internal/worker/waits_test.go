package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker"
)

// passes lets the time of the task's wait pass, once it waits.
func (p *process) passes(h *task.Task) {
	p.t.Helper()
	eventually(p.t, "the agent waits", func() bool {
		var n int
		p.scan(&n, "SELECT count(*)::int FROM holdfast.v_queue WHERE task = $1 AND phase = 'timer'", h.ID.String())
		return n == 1
	})
	p.exec("UPDATE holdfast.tasks SET wakes_at = now() WHERE id = $1", h.ID)
	p.exec("UPDATE holdfast.task_queue SET wakes_at = now(), available_at = now() WHERE id = $1", h.ID)
	_, err := p.store.FireTimers(p.t.Context())
	require.NoError(p.t, err)
}

func TestTurnAfterAWait(t *testing.T) {
	t.Parallel()
	runs := make(chan *executor.Run, 10)
	p := start(t, setup{}, does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		runs <- run
		if run.Input == nil {
			require.NoError(t, out.Checkpoint(ctx, []byte(`"of the first turn"`)))
			_, err := out.Artifact(ctx, text("1"))
			require.NoError(t, err)
			require.NoError(t, out.Wait(ctx, executor.Wait{For: time.Hour}))
			require.ErrorContains(t, out.Status(ctx, task.StateWorking, nil), "settled")
			return errors.New("nobody reads this") // the run has ended
		}
		stored, err := run.Memory.Checkpoint(ctx)
		require.NoError(t, err)
		require.Nil(t, stored, "a checkpoint belongs to its turn")
		history, err := run.Memory.History(ctx)
		require.NoError(t, err)
		require.Len(t, history, 1)
		_, err = out.Artifact(ctx, text("2"))
		return err
	}))
	h := p.create("a", "hi")
	p.passes(h)
	done := p.become(h, task.StateCompleted)
	require.Equal(t, "12", done.Artifacts[0].Parts[0].Text)
	first, second := await(t, runs), await(t, runs)
	require.Equal(t, []int{1, 1, 2, 1}, []int{first.Turn, first.Try, second.Turn, second.Try})
	require.NotEqual(t, first.IdempotencyKey(), second.IdempotencyKey())
	require.Equal(t, executor.SourceTimer, second.Input.Source)
	require.WithinDuration(t, time.Now().Add(time.Hour), second.Input.Until, 10*time.Minute)
	require.Empty(t, second.Message.Parts)
}

// A retry of the turn that a timer began is told the same, and has its own tries.
func TestRetryOfATurnAfterAWait(t *testing.T) {
	t.Parallel()
	a := does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		switch {
		case run.Input == nil && run.Try == 1:
			return executor.Retryable(errors.New("once"), time.Millisecond)
		case run.Input == nil:
			return out.Wait(ctx, executor.Wait{For: time.Hour})
		case run.Try == 1:
			require.NoError(t, out.Checkpoint(ctx, []byte(`"of the second turn"`)))
			return executor.Retryable(errors.New("again"), time.Millisecond)
		}
		stored, err := run.Memory.Checkpoint(ctx)
		require.NoError(t, err)
		return out.Status(ctx, task.StateCompleted, &task.Message{Parts: []task.Part{task.Text(string(stored))}})
	})
	a.MaxAttempts = 2
	p := start(t, setup{}, a)
	h := p.create("a", "hi")
	p.passes(h)
	require.Equal(t, `"of the second turn"`, p.become(h, task.StateCompleted).Status.Message.FirstText())
}

func TestMessageThatEndsAWait(t *testing.T) {
	t.Parallel()
	p := start(t, setup{}, does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		if run.Input == nil {
			return out.Wait(ctx, executor.Wait{For: time.Hour, Interruptible: true})
		}
		require.True(t, run.Input.Interrupted)
		return out.Status(ctx, task.StateCompleted, run.Message)
	}))
	h := p.create("a", "hi")
	eventually(t, "the agent waits", func() bool {
		head, err := p.store.Header(t.Context(), h.ID)
		require.NoError(t, err)
		now, err := p.store.Snapshot(t.Context(), head, false)
		require.NoError(t, err)
		return now.Wait != nil
	})
	p.say(h, "now")
	require.Equal(t, "now", p.become(h, task.StateCompleted).Status.Message.FirstText())
}

// An agent that may answer with a bare message works before it waits, so that its task is one.
func TestWaitOfAnAgentWithDirectReplies(t *testing.T) {
	t.Parallel()
	p := start(t, setup{}, worker.Agent{DirectReplies: true, Executor: executor.Func(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		if run.Input == nil {
			return out.Wait(ctx, executor.Wait{For: time.Hour})
		}
		return out.Reply(ctx, &task.Message{Parts: []task.Part{task.Text("too late")}})
	})})
	h := p.create("a", "hi")
	p.passes(h)
	require.Contains(t, p.become(h, task.StateFailed).Status.Message.FirstText(), "A bare reply must be the first event")
}
