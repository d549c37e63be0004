package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/internal/worker"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

func TestConcurrencyIsPerAgent(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var running, most [2]atomic.Int64
		gate := make(chan struct{})
		agent := func(i int, n int) worker.Agent {
			a := does(func(context.Context, *executor.Run, executor.Emitter) error {
				most[i].Store(max(most[i].Load(), running[i].Add(1)))
				defer running[i].Add(-1)
				<-gate
				return nil
			})
			a.Concurrency = n
			return a
		}
		p := startInBubble(t, setup{}, agent(0, 3), agent(1, 1))
		var tasks []*task.Task
		for i := range 20 {
			tasks = append(tasks, p.create([]string{"a", "b"}[i%2], "x"))
		}
		waittest.Advance(time.Minute)
		require.Equal(t, []int64{3, 1}, []int64{running[0].Load(), running[1].Load()})
		require.Nil(t, p.pool.Reserve("a"), "no slot is free")
		close(gate)
		for _, h := range tasks {
			p.is(h, task.StateCompleted)
		}
		require.Equal(t, []int64{3, 1}, []int64{most[0].Load(), most[1].Load()})
	})
}

// A retry without a delay of its own waits for the backoff, which doubles up to its limit.
func TestBackoff(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := does(func(_ context.Context, run *executor.Run, _ executor.Emitter) error {
			after := time.Duration(0)
			if run.Try == 1 {
				after = time.Hour
			}
			return executor.Retryable(errors.New("busy"), after)
		})
		a.MaxAttempts, a.Backoff, a.MaxBackoff = 5, time.Second, 5*time.Second
		p := startInBubble(t, setup{}, a)
		p.is(p.create("a", "x"), task.StateFailed)
		delays := p.delays()
		require.Equal(t, time.Hour, delays[0])
		for i, base := range []time.Duration{2 * time.Second, 4 * time.Second, 5 * time.Second} {
			require.GreaterOrEqual(t, delays[i+1], base/2)
			require.Less(t, delays[i+1], base*3/2)
		}
		require.Len(t, delays, 4)
	})
}

func TestCancel(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		deaf, stubborn bool
	}{"cooperative": {}, "without hints": {deaf: true}, "stubborn": {stubborn: true}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				release, causes := make(chan struct{}), make(chan error, 1)
				a := does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
					err := waits(ctx)
					if c.stubborn {
						<-release
						err := out.Artifact(context.WithoutCancel(ctx), text("too late"))
						require.Error(t, err)
					}
					causes <- err
					return err
				})
				a.CancelGrace = time.Minute
				p := startInBubble(t, setup{deaf: c.deaf}, a)
				h := p.create("a", "x")
				p.is(h, task.StateWorking)
				p.cancel(h)
				if c.deaf {
					p.is(h, task.StateWorking)
					require.NoError(t, p.pool.Reconcile(t.Context()))
				}
				if c.stubborn {
					waittest.Advance(time.Minute - 1)
					p.is(h, task.StateWorking)
					waittest.Advance(1)
				}
				p.is(h, task.StateCanceled)
				close(release)
				require.ErrorIs(t, <-causes, executor.ErrCanceled)
				require.Len(t, p.log(h), 3)
			})
		})
	}
}

// Any login of the database can send a hint. It makes the process read the task, and cancels nothing by itself.
func TestForgedCancelHintEndsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		begun, goOn := make(chan []uuid.UUID, 10), make(chan struct{})
		held := func(args []any) bool {
			for _, arg := range args {
				if ids, ok := arg.([]uuid.UUID); ok {
					begun <- ids
				}
			}
			<-goOn
			return true
		}
		a := does(func(ctx context.Context, _ *executor.Run, _ executor.Emitter) error { return waits(ctx) })
		a.Concurrency, a.RunTimeout = 3, time.Hour
		p := startInBubble(t, setup{on: statements{"RunsHeld": held}}, a)
		hs := []*task.Task{p.create("a", "x"), p.create("a", "y"), p.create("a", "z")}
		synctest.Wait()
		p.pool.CancelHint(store.NewID()) // an unknown task causes no read
		p.pool.CancelHint(hs[0].ID)
		synctest.Wait()
		require.Equal(t, []uuid.UUID{uuid.UUID(hs[0].ID)}, <-begun)
		// Hints that arrive during a read share the next one, however many there are.
		p.cancel(hs[2])
		for range 100 {
			p.pool.CancelHint(hs[0].ID)
			p.pool.CancelHint(hs[1].ID)
		}
		goOn <- struct{}{}
		require.ElementsMatch(t, []uuid.UUID{uuid.UUID(hs[0].ID), uuid.UUID(hs[1].ID), uuid.UUID(hs[2].ID)}, <-begun)
		goOn <- struct{}{}
		p.is(hs[2], task.StateCanceled)
		p.is(hs[0], task.StateWorking)
		p.is(hs[1], task.StateWorking)
		require.Empty(t, begun, "two reads in all")
		waittest.Advance(time.Hour)
	})
}

// A stop lets runs end within the grace, and gives back the others. It gives up those that it cannot give back.
func TestStop(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ends  bool          // within the grace
		stuck bool          // another session has locked the task
		took  time.Duration // the stop
		state task.State
		owned bool
	}{
		"in time":  {ends: true, took: time.Minute - 1, state: task.StateCompleted},
		"too late": {took: time.Minute, state: task.StateWorking},
		// The grace of a stop, that of a cancel, and ten seconds.
		"not at all": {stuck: true, took: time.Minute + 5*time.Second + 10*time.Second, state: task.StateWorking, owned: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				goOn, unlock := make(chan struct{}), func() {}
				a := does(func(ctx context.Context, _ *executor.Run, _ executor.Emitter) error {
					select {
					case <-goOn:
						return nil
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				})
				a.CancelGrace = 5 * time.Second
				p := startInBubble(t, setup{grace: time.Minute}, a)
				defer close(goOn)
				h := p.create("a", "x")
				p.is(h, task.StateWorking)
				if c.stuck {
					unlock = p.lock(h)
				}
				began := time.Now()
				p.stop()
				waittest.Advance(time.Minute - 1)
				if c.ends {
					goOn <- struct{}{}
				}
				<-p.ended
				require.Equal(t, c.took, waittest.Elapsed(began))
				p.is(h, c.state)
				held := storetest.Must(p.store.Owned(t.Context(), *p.id.Load()))(t)
				require.Equal(t, c.owned, len(held) > 0)
				unlock()
				waittest.Advance(time.Minute) // the run is given back at last
			})
		})
	}
}

func TestReservedSlots(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := startInBubble(t, setup{}, does(func(context.Context, *executor.Run, executor.Emitter) error { return nil }))
		synctest.Wait() // the queue is known to be empty
		require.Nil(t, p.pool.Reserve("unknown"))
		slot := p.pool.Reserve("a")
		require.Nil(t, p.pool.Reserve("a"), "one at a time")
		slot.Release(task.RateLimited)
		slot = p.pool.Reserve("a")
		require.Equal(t, store.Slot{Worker: *p.id.Load()}, slot.Claimer())
		h := p.create("a", "x")
		waittest.Advance(time.Hour)
		p.is(h, task.StateSubmitted)
		p.stop()
		waittest.Advance(time.Second)
		select {
		case <-p.ended:
			require.Fail(t, "the pool ended before its slot was used")
		default:
		}
		won := storetest.Must(p.store.Claim(t.Context(), *p.id.Load(), []store.Demand{{Agent: "a", Slots: 1}}))(t)
		slot.Start(won[0])
		<-p.ended
		p.is(h, task.StateCompleted)
	})
}

// emits emits an artifact event of so many bytes n times, once begin is closed, and counts those that the window has taken.
func emits(n, size int, begin <-chan struct{}) (a worker.Agent, emitted *atomic.Int64) {
	emitted = &atomic.Int64{}
	return does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
		<-begin
		for range n {
			if err := out.Artifact(ctx, text(strings.Repeat("x", size))); err != nil {
				return err
			}
			emitted.Add(1)
		}
		return nil
	}), emitted
}

// An agent that waits for the window is not inactive, however long that takes.
func TestWindowBoundsUnstoredEvents(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const chunk, chunks, window = 64 << 10, 64, 1 << 20
		begin := make(chan struct{})
		a, emitted := emits(chunks, chunk, begin)
		a.InactivityTimeout = time.Second
		p := startInBubble(t, setup{}, a)
		x := p.create("a", "x")
		p.is(x, task.StateWorking)
		unlock := p.lock(x)
		close(begin)
		waittest.Advance(5 * time.Second)
		require.EqualValues(t, window/chunk, emitted.Load())
		require.Empty(t, p.is(x, task.StateWorking).Artifacts)
		unlock()
		waittest.Advance(time.Second)
		p.is(x, task.StateCompleted)
		require.EqualValues(t, chunks, emitted.Load())
	})
}

// Committed returns when the events before it are in the log, and not earlier.
func TestCommittedWaitsForTheCommit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		begin := make(chan struct{})
		returned, read := false, []json.RawMessage(nil)
		a := does(func(ctx context.Context, run *executor.Run, out executor.Emitter) (err error) {
			if run.Attempt > 1 {
				read, err = run.Memory.Checkpoints(ctx)
				return err
			}
			<-begin
			require.NoError(t, out.Checkpoint(ctx, json.RawMessage(`1`)))
			err = out.Artifact(ctx, text("x"))
			require.NoError(t, err)
			require.NoError(t, out.Checkpoint(ctx, json.RawMessage(`2`)))
			gone, cancel := context.WithCancel(ctx)
			cancel()
			require.ErrorIs(t, out.Committed(gone), context.Canceled)
			require.NoError(t, out.Committed(ctx))
			returned = true
			return waits(ctx)
		})
		a.Concurrency, a.MaxAttempts = 2, 2
		p := startInBubble(t, setup{}, a)
		h := p.create("a", "x")
		p.is(h, task.StateWorking)
		unlock := p.lock(h)
		close(begin)
		waittest.Advance(5 * time.Second)
		require.False(t, returned)
		unlock()
		waittest.Advance(time.Second)
		require.True(t, returned)
		p.lose()
		p.is(h, task.StateCompleted)
		require.Equal(t, []json.RawMessage{json.RawMessage(`1`), json.RawMessage(`2`)}, read)
	})
}

// away refuses so many of the statements that runs wait for.
func away(refuse *atomic.Int64) statements {
	on := statements{}
	for _, name := range []string{"ArtifactIDs", "EventsAfter", "EventsOf", "TaskStateSet"} {
		on[name] = func([]any) bool { return refuse.Add(-1) < 0 }
	}
	return on
}

// Reads of a run wait for the database like its writes, and that is not inactivity.
func TestReadsOfRunWaitForDatabase(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var refuse atomic.Int64
		a := does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
			if run.Turn == 1 {
				return out.Status(ctx, task.StateInputRequired, nil)
			}
			for _, read := range []func() error{
				func() error { _, err := run.Memory.History(ctx); return err },
				func() error { _, err := run.Memory.Checkpoint(ctx); return err },
				func() error { err := out.Artifact(ctx, text("x")); return err },
			} {
				refuse.Store(100) // 25 s of pauses
				if err := read(); err != nil {
					return err
				}
			}
			return nil
		})
		a.InactivityTimeout = 20 * time.Second
		p := startInBubble(t, setup{on: away(&refuse)}, a)
		h := p.create("a", "x")
		p.is(h, task.StateInputRequired)
		p.say(h, "y")
		waittest.Advance(3*25*time.Second - 1)
		p.is(h, task.StateWorking)
		waittest.Advance(1)
		p.is(h, task.StateCompleted)
	})
}

// An agent that waits for the database with a time limit of its own has not failed: its run is tried again.
func TestAgentsGiveUpOnTheDatabase(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var refuse atomic.Int64
		var giveUp context.CancelFunc
		a := does(func(ctx context.Context, run *executor.Run, _ executor.Emitter) error {
			if run.Attempt == 1 {
				refuse.Store(1000)
				ctx, giveUp = context.WithCancel(ctx)
			}
			_, err := run.Memory.SetState(ctx, executor.OfTask, json.RawMessage(`1`), executor.AnyVersion)
			refuse.Store(0)
			return err
		})
		a.MaxAttempts = 2
		p := startInBubble(t, setup{on: away(&refuse)}, a)
		h := p.create("a", "x")
		waittest.Advance(time.Minute)
		require.Equal(t, task.StateWorking, storetest.Must(p.store.Header(t.Context(), h.ID))(t).Status.State)
		giveUp()
		p.is(h, task.StateCompleted)
	})
}

// Calls of the run API are signs of life. While the database does not know of any, an agent is not silent.
func TestCallsOfTheRunAPIAreSignsOfLife(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var last atomic.Pointer[func() bool] // what a look does before it reads when the agent has called last
		look := func([]any) bool {
			before := last.Load()
			return before == nil || (*before)()
		}
		a := does(func(ctx context.Context, _ *executor.Run, _ executor.Emitter) error { return waits(ctx) })
		a.InactivityTimeout = time.Minute
		p := startInBubble(t, setup{
			on:     statements{"RunSilence": look},
			runAPI: func(task.ID, task.Fence) executor.API { return executor.API{} },
		}, a)
		h := p.create("a", "x")
		waittest.Advance(75 * time.Second) // it looks four times a minute
		p.is(h, task.StateFailed)
		h = p.create("a", "x")
		called := func(ago time.Duration, known bool) {
			before := func() bool {
				p.exec("UPDATE holdfast.tasks SET heard_at = now() - $2::interval WHERE id = $1", h.ID.String(), ago)
				return known
			}
			last.Store(&before)
		}
		called(20*time.Second, true)
		waittest.Advance(5 * time.Minute)
		p.is(h, task.StateWorking)
		called(time.Hour, false)
		waittest.Advance(5 * time.Minute)
		p.is(h, task.StateWorking)
		called(time.Hour, true)
		waittest.Advance(15 * time.Second)
		require.Contains(t, p.is(h, task.StateFailed).Status.Message.FirstText(), "silent for more than 1m0s")
	})
}

// A process that was declared dead and cannot register again claims nothing.
func TestPoolWithoutLeaseClaimsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		asked := 0
		ctx, stop := context.WithCancel(t.Context())
		p := worker.New(worker.Options{
			Agents: []worker.Agent{{Name: "a"}}, PollInterval: time.Minute,
			Worker: func() task.ID { asked++; return task.ID{} },
		})
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		waittest.Advance(time.Hour)
		stop()
		require.NoError(t, <-ended)
		require.Greater(t, asked, 30)
	})
}
