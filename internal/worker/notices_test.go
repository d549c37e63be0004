package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/internal/worker"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// remote is an agent whose work goes on elsewhere.
type remote struct {
	executor.Func
	cancel func(ctx context.Context, c *executor.Cancellation) error // nil: accepts
	mu     sync.Mutex
	seen   []executor.Cancellation
}

func (r *remote) notified() []executor.Cancellation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen)
}

func (r *remote) Cancel(ctx context.Context, c *executor.Cancellation) error {
	r.mu.Lock()
	r.seen = append(r.seen, *c)
	r.mu.Unlock()
	if r.cancel == nil {
		return nil
	}
	return r.cancel(ctx, c)
}

// asksOnce parks the task.
func asksOnce(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
	return out.Status(ctx, task.StateInputRequired, says("?"))
}

// hangs runs until its context ends, after it has stored something. Its second attempt completes.
func hangs(ctx context.Context, run *executor.Run, out executor.Emitter) error {
	if run.Attempt > 1 {
		return nil
	}
	_, err := run.Memory.SetState(ctx, executor.OfTask, json.RawMessage(`{"job":"j"}`), 0)
	if err := errors.Join(err, out.Checkpoint(ctx, json.RawMessage(`3`)), out.Committed(ctx)); err != nil {
		return err
	}
	return waits(ctx)
}

// A notice is tried again after an error and after a panic, until the agent accepts or refuses it, or is away for too long.
func TestNoticeIsRetried(t *testing.T) {
	t.Parallel()
	away := errors.New("away")
	for name, c := range map[string]struct {
		last  error
		tries int
		wait  time.Duration // of the agent's tasks
	}{
		"accepted": {nil, 4, time.Hour},
		"refused":  {&executor.Failure{Msg: "no such job"}, 4, time.Hour},
		"given up": {away, 1, time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &remote{Func: asksOnce, cancel: func(_ context.Context, n *executor.Cancellation) error {
				switch n.Try {
				case 1:
					return away
				case 2:
					panic("oops")
				case 3:
					return executor.Retryable(&executor.Failure{Msg: "later"}, time.Minute)
				}
				return c.last
			}}
			p := startInBubble(t, setup{}, worker.Agent{Executor: a, UnreachableFor: c.wait})
			h := p.create("a", "go")
			p.is(h, task.StateInputRequired)
			p.cancel(h)
			for range 10 {
				require.NoError(t, p.pool.Notices(t.Context()))
				synctest.Wait()
			}
			require.True(t, p.notified(h), name)
			require.Len(t, a.notified(), c.tries, name)
			delays := p.delays()
			for i, base := range []time.Duration{time.Second, 2 * time.Second, 2 * time.Minute}[:c.tries-1] {
				require.GreaterOrEqual(t, delays[i], base/2, name)
				require.Less(t, delays[i], base*3/2, name)
			}
		})
	}
}

// The worker that knows why a run has ended says so once.
func TestAgentIsToldWhyRunEnded(t *testing.T) {
	t.Parallel()
	for want, c := range map[executor.Reason]struct {
		agent worker.Agent
		end   func(p *process, h *task.Task)
		state task.State
		text  string
	}{
		executor.ReasonTimedOut: {
			worker.Agent{RunTimeout: time.Minute}, func(*process, *task.Task) { waittest.Advance(time.Minute) }, task.StateFailed, "The agent did not finish within 1m0s.",
		},
		executor.ReasonInactive: {
			worker.Agent{InactivityTimeout: time.Minute},
			func(*process, *task.Task) { waittest.Advance(75 * time.Second) }, task.StateFailed,
			"The agent was silent for more than 1m0s.",
		},
		executor.ReasonCanceled:  {worker.Agent{}, func(p *process, h *task.Task) { p.cancel(h) }, task.StateCanceled, ""},
		executor.ReasonLeaseLost: {worker.Agent{}, func(p *process, _ *task.Task) { p.lose() }, task.StateCompleted, ""},
		executor.ReasonStopping:  {worker.Agent{}, func(p *process, _ *task.Task) { p.stop(); <-p.ended }, task.StateWorking, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &remote{Func: hangs}
			c.agent.Executor, c.agent.MaxAttempts, c.agent.Concurrency = a, 2, 2
			p := startInBubble(t, setup{grace: time.Minute}, c.agent)
			h := p.create("a", "go")
			waittest.Advance(time.Minute - 1)
			p.is(h, task.StateWorking)
			require.Empty(t, a.notified())
			c.end(p, h)
			require.Equal(t, c.text, p.is(h, c.state).Status.Message.FirstText())
			require.Len(t, a.notified(), 1)
			notified := a.notified()[0]
			require.Equal(t, want, notified.Reason)
			require.Equal(t, []int{1, 1, 1}, []int{notified.Turn, int(notified.Attempt), notified.Try})
			require.True(t, want != executor.ReasonCanceled || p.notified(h), "it is recorded, and nobody tells it again")
			require.Equal(t, c.state == task.StateFailed || c.state == task.StateCanceled, want.Ended())
		})
	}
}

// A stop does not wait for an agent that does not answer a notice. Another process tells it.
func TestStopEndsNotices(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := &remote{Func: asksOnce, cancel: func(ctx context.Context, _ *executor.Cancellation) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		p := startInBubble(t, setup{grace: time.Second}, worker.Agent{Executor: a})
		h := p.create("a", "go")
		p.is(h, task.StateInputRequired)
		p.cancel(h)
		require.NoError(t, p.pool.Notices(t.Context()))
		synctest.Wait()
		require.Len(t, a.notified(), 1)
		began := time.Now()
		p.stop()
		<-p.ended
		require.Equal(t, time.Second, waittest.Elapsed(began))
		require.False(t, p.notified(h))
	})
}
