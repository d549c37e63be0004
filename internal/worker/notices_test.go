package worker

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
	"github.com/holdfast-a2a/holdfast/internal/worker/inmemory"
)

// remote is an agent whose work goes on elsewhere.
type remote struct {
	executor.Func
	cancel func(ctx context.Context, c *executor.Cancellation) error

	mu   sync.Mutex
	told []executor.Cancellation
}

func (r *remote) Cancel(ctx context.Context, c *executor.Cancellation) error {
	r.mu.Lock()
	r.told = append(r.told, *c)
	r.mu.Unlock()
	if r.cancel != nil {
		return r.cancel(ctx, c)
	}
	return nil
}

func (r *remote) await(t *testing.T, n int) []executor.Cancellation {
	t.Helper()
	var told []executor.Cancellation
	waittest.Eventually(t, "the agent is told", func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		told = r.told
		return waittest.Unless(len(told) >= n, "not yet")
	})
	return told
}

// shop runs one agent on a store in memory.
type shop struct {
	t     *testing.T
	store *inmemory.Store
	pool  *Pool
	head  task.Task
	stop  func()
}

func newShop(t *testing.T, a Agent) *shop {
	t.Helper()
	s := &shop{t: t}
	self := store.NewID()
	s.store = inmemory.New(inmemory.Listener{
		Committed: func() {}, Ready: func(name string) { s.pool.Wake(name) }, Canceled: func(id task.ID) { s.pool.CancelHint(id) },
	})
	a.Name, a.MaxAttempts = "a", 1
	s.pool = New(Options{Store: s.store, Agents: []Agent{a}, Worker: func() task.ID { return self }})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	s.stop = func() { cancel(); <-ended }
	go func() {
		defer close(ended)
		_ = s.pool.Run(ctx)
	}()
	t.Cleanup(s.stop)
	id := store.NewID()
	s.head = task.Task{ID: id, PublicID: id.String(), Agent: "a", ContextID: "c", Dialect: "1.0"}
	s.store.Create(&s.head, &task.Message{Role: task.RoleUser, Parts: []task.Part{task.Text("go")}}, nil)
	return s
}

func (s *shop) state(want task.State) {
	s.t.Helper()
	waittest.Eventually(s.t, "the task is "+want.String(), func() error {
		have, running := s.store.State(s.head.ID)
		return waittest.Unless(have == want && !running, "not yet")
	})
}

// hangs runs until its context ends, after it has stored something.
func hangs(begun chan struct{}) executor.Func {
	return func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		if _, err := run.Memory.SetState(ctx, executor.OfTask, json.RawMessage(`{"job":"j"}`), 0); err != nil {
			return err
		}
		if err := out.Checkpoint(ctx, json.RawMessage(`3`)); err != nil {
			return err
		}
		if err := out.Committed(ctx); err != nil {
			return err
		}
		close(begun)
		<-ctx.Done()
		return context.Cause(ctx)
	}
}

func TestAgentIsToldOfCancelOfRun(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	a := &remote{Func: hangs(begun), cancel: func(ctx context.Context, c *executor.Cancellation) error {
		s, err := c.Stored(ctx, executor.OfTask)
		if string(s.Value) != `{"job":"j"}` {
			return errors.Join(err, errors.New("no state"))
		}
		return err
	}}
	s := newShop(t, Agent{Executor: a, CancelGrace: time.Minute})
	<-begun
	require.NoError(t, s.store.Cancel(s.head.ID, json.RawMessage(`{"why":"x"}`)))
	told := a.await(t, 1)[0]
	s.state(task.StateCanceled)
	require.Equal(t, executor.ReasonCanceled, told.Reason)
	require.Equal(t, s.head.ID.String()+":1", told.IdempotencyKey())
	require.Equal(t, []int{1, 1, 1}, []int{told.Turn, int(told.Attempt), told.Try})
	require.Equal(t, []string{`{"why":"x"}`, `3`}, []string{string(told.Metadata), string(told.Checkpoint)})
	waittest.Eventually(t, "it is recorded", func() error { return waittest.Unless(s.store.Told(s.head.ID), "not yet") })
	require.NoError(t, s.pool.Notices(t.Context()))
	s.stop()
	require.Len(t, a.told, 1, "once it has accepted the notice, nobody tells it again")
}

// A notice is tried again after an error and after a panic, until the agent accepts or refuses it.
func TestNoticeIsRetried(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]error{"accepted": nil, "refused": &executor.Failure{Msg: "no such job"}} {
		a := &remote{Func: func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
			return out.Status(ctx, task.StateInputRequired, &task.Message{Parts: []task.Part{task.Text("?")}})
		}}
		a.cancel = func(_ context.Context, c *executor.Cancellation) error {
			switch c.Try {
			case 1:
				return errors.New("away")
			case 2:
				panic("oops")
			case 3:
				return executor.Retryable(&executor.Failure{Msg: "later"}, time.Second)
			}
			return last
		}
		s := newShop(t, Agent{Executor: a})
		s.state(task.StateInputRequired)
		require.NoError(t, s.store.Cancel(s.head.ID, nil))
		waittest.Eventually(t, name, func() error {
			return errors.Join(s.pool.Notices(t.Context()), waittest.Unless(s.store.Told(s.head.ID), "not yet"))
		})
		require.Len(t, a.await(t, 4), 4)
	}
}

func TestNoticeIsGivenUp(t *testing.T) {
	t.Parallel()
	a := &remote{
		Func: func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
			return out.Status(ctx, task.StateInputRequired, &task.Message{Parts: []task.Part{task.Text("?")}})
		},
		cancel: func(context.Context, *executor.Cancellation) error { return errors.New("away") },
	}
	s := newShop(t, Agent{Executor: a, UnreachableFor: time.Millisecond})
	s.state(task.StateInputRequired)
	require.NoError(t, s.store.Cancel(s.head.ID, nil))
	waittest.Eventually(t, "it is given up", func() error {
		return errors.Join(s.pool.Notices(t.Context()), waittest.Unless(s.store.Told(s.head.ID), "not yet"))
	})
	s.stop()
	require.Len(t, a.told, 1)
}

// The worker that knows why a run has ended says so once.
func TestAgentIsToldWhyRunEnded(t *testing.T) {
	t.Parallel()
	for want, c := range map[executor.Reason]struct {
		agent Agent
		end   func(s *shop)
	}{
		executor.ReasonTimedOut:  {Agent{RunTimeout: 50 * time.Millisecond}, nil},
		executor.ReasonInactive:  {Agent{InactivityTimeout: 50 * time.Millisecond}, nil},
		executor.ReasonLeaseLost: {Agent{}, func(s *shop) { s.store.Rescue(s.pool.LoseAll) }},
		executor.ReasonStopping:  {Agent{}, func(s *shop) { s.stop() }},
	} {
		begun := make(chan struct{})
		a := &remote{Func: hangs(begun)}
		if want == executor.ReasonLeaseLost {
			a.Func = func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
				if run.Attempt > 1 {
					return nil
				}
				return hangs(begun)(ctx, run, out)
			}
		}
		c.agent.Executor, c.agent.CancelGrace = a, time.Minute
		s := newShop(t, c.agent)
		if c.end != nil {
			<-begun
			c.end(s)
		}
		told := a.await(t, 1)[0]
		require.Equal(t, want, told.Reason)
		require.Equal(t, []int{1, 1, 1}, []int{told.Turn, int(told.Attempt), told.Try})
		require.Equal(t, want != executor.ReasonLeaseLost && want != executor.ReasonStopping, want.Ended())
	}
}

// A stop does not wait for an agent that does not answer a notice.
func TestStopEndsNotices(t *testing.T) {
	t.Parallel()
	calling := make(chan struct{})
	a := &remote{
		Func: func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
			return out.Status(ctx, task.StateInputRequired, &task.Message{Parts: []task.Part{task.Text("?")}})
		},
		cancel: func(ctx context.Context, _ *executor.Cancellation) error {
			close(calling)
			<-ctx.Done()
			return ctx.Err()
		},
	}
	s := newShop(t, Agent{Executor: a})
	s.state(task.StateInputRequired)
	require.NoError(t, s.store.Cancel(s.head.ID, nil))
	require.NoError(t, s.pool.Notices(t.Context()))
	<-calling
	s.stop()
	require.False(t, s.store.Told(s.head.ID), "another process tells it")
}
