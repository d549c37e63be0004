package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/internal/worker"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// switchable is an agent that can be away. It records the order of its runs.
type switchable struct {
	away     atomic.Bool
	answered bool

	mu    sync.Mutex
	calls int // while it is away
	order []string
	tries []int
}

func (a *switchable) Execute(_ context.Context, run *executor.Run, _ executor.Emitter) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.away.Load() {
		a.calls++
		return fmt.Errorf("tools: %w", &executor.Unavailable{Err: errors.New("connection refused"), Answered: a.answered})
	}
	a.order, a.tries = append(a.order, run.Message.FirstText()), append(a.tries, run.Try)
	run.Began()
	return nil
}

// Tasks wait for an agent that is away, in their order, and use up no attempts. Probes are rare.
func TestTasksWaitForAgentThatIsAway(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{false, true} {
		t.Run(fmt.Sprintf("answered %t", answered), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				a := &switchable{answered: answered}
				a.away.Store(true)
				p := startInBubble(t, setup{poll: time.Second}, worker.Agent{Executor: a, MaxAttempts: 1})
				var tasks []*task.Task
				var want []string
				for i := range 8 {
					want = append(want, fmt.Sprintf("task %d", i))
					tasks = append(tasks, p.create("a", want[i]))
				}
				waittest.Advance(10 * time.Minute)
				require.Greater(t, a.calls, 10*60/3)
				require.Less(t, a.calls, 10*60*2)
				require.Empty(t, a.order)
				a.away.Store(false)
				waittest.Advance(time.Minute)
				for _, h := range tasks {
					p.is(h, task.StateCompleted)
					notes := 0
					for _, e := range p.log(h) {
						if e.Kind == task.EventRun {
							require.Equal(t, task.RunAway, e.Run.Outcome)
							notes++
						}
					}
					require.LessOrEqual(t, notes, 1, "notes of probes")
				}
				require.Equal(t, slices.Repeat([]int{1}, 8), a.tries)
				require.ElementsMatch(t, want, a.order)
				if !answered { // otherwise probes skip the messages that were refused
					require.Equal(t, want, a.order)
				}
			})
		})
	}
}

// An agent that returns gets few runs at first: twice as many in each round.
func TestReturnIsNoStampede(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := &switchable{}
		a.away.Store(true)
		gate := make(chan struct{})
		var starting atomic.Int64
		slow := executor.Func(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
			if a.away.Load() {
				return a.Execute(ctx, run, out)
			}
			starting.Add(1)
			<-gate
			run.Began()
			return nil
		})
		p := startInBubble(t, setup{}, worker.Agent{Executor: slow, Concurrency: 512})
		for i := range 40 {
			p.create("a", fmt.Sprint(i))
		}
		waittest.Advance(time.Minute)
		a.away.Store(false)
		defer close(gate)
		for starting.Load() == 0 {
			waittest.Advance(10 * time.Millisecond)
		}
		for _, want := range []int64{1, 2, 4, 8, 16, 9} {
			require.Equal(t, want, starting.Load())
			for range starting.Swap(0) {
				gate <- struct{}{}
			}
			synctest.Wait()
		}
		require.Zero(t, starting.Load())
		require.Greater(t, a.calls, 60/3, "one probe at a time")
		require.Less(t, a.calls, 60*2)
	})
}

// A task fails with the cause if its agent is away for too long, whether or not its run was tried. The outage is in the database.
func TestTaskFailsWhenAgentIsAwayForTooLong(t *testing.T) {
	t.Parallel()
	a := &switchable{}
	a.away.Store(true)
	p := start(t, setup{}, worker.Agent{Executor: a, UnreachableFor: time.Hour})
	tasks := []*task.Task{p.create("a", "0"), p.create("a", "1"), p.create("a", "2")}
	outage := func(waiting int, text string) {
		waittest.Eventually(t, "the outage", func() error {
			var have string
			p.scan(&have, "SELECT coalesce(max(waiting || ' ' || error), 'none') FROM holdfast.v_outages")
			return waittest.Unless(have == fmt.Sprint(waiting, " ", text), "%s", have)
		})
	}
	outage(3, "tools: connection refused")
	p.exec(`UPDATE holdfast.task_queue SET available_at = available_at - interval '1 hour', away_since = away_since - interval '1 hour'`)
	p.exec(`UPDATE holdfast.agent_outages SET since = since - interval '1 hour'`)
	for _, h := range tasks {
		require.Equal(t, "The agent could not be reached for 1h0m0s.", p.become(h, task.StateFailed).Status.Message.FirstText())
		require.Equal(t, "tools: connection refused", p.errorOf(h))
	}
	last := p.create("a", "3")
	outage(1, "tools: connection refused")
	a.away.Store(false)
	p.become(last, task.StateCompleted)
	require.NoError(t, p.pool.Reconcile(t.Context()))
	var left int
	p.scan(&left, "SELECT count(*) FROM holdfast.agent_outages")
	require.Zero(t, left, "the outage is over")
}

// A message that the agent refuses does not hold up the others, even if it is the oldest.
func TestRefusedMessageDelaysNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		refusing := does(func(_ context.Context, run *executor.Run, _ executor.Emitter) error {
			if run.Message.FirstText() == "poison" {
				return &executor.Unavailable{Err: executor.Retryable(errors.New("502"), time.Millisecond), Answered: true}
			}
			return nil
		})
		refusing.MaxAttempts = 2
		p := startInBubble(t, setup{}, refusing)
		p.create("a", "poison")
		for range 3 {
			h := p.create("a", "x")
			waittest.Advance(4 * time.Second)
			p.is(h, task.StateCompleted)
		}
	})
}

// crash claims all due tasks for a process and declares it dead.
func (p *process) crash(agent string, slots int) (claimed []string) {
	p.t.Helper()
	won := storetest.Must(p.store.Claim(p.t.Context(), store.NewID(), []store.Demand{{Agent: agent, Slots: slots}}))(p.t)
	for _, c := range won {
		claimed = append(claimed, c.Message.FirstText())
	}
	_, _, err := p.store.Rescue(p.t.Context(), 0, true)
	require.NoError(p.t, err)
	return claimed
}

// A message that kills its process is tried alone from then on, and takes no bystander along.
func TestCrashTakesNoBystanderAlong(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	ran := map[string]int{}
	a := does(func(_ context.Context, run *executor.Run, _ executor.Emitter) error {
		mu.Lock()
		defer mu.Unlock()
		ran[run.Message.FirstText()]++
		return nil
	})
	a.MaxAttempts = 3
	p := start(t, setup{}, worker.Agent{Name: "other"})
	poison := p.create("a", "poison")
	var others []*task.Task
	for i := range 20 {
		others = append(others, p.create("a", fmt.Sprint(i)))
	}
	for range 2 {
		require.Len(t, p.crash("a", 100), 21, "after one crash, all start at once")
	}
	for range 3 {
		require.Equal(t, []string{"poison"}, p.crash("a", 100), "suspects start one at a time")
		p.exec("UPDATE holdfast.task_queue SET available_at = now() - interval '1 hour' WHERE id = $1", poison.ID.String())
	}
	q := start(t, setup{url: p.url}, a)
	require.Contains(t, q.become(poison, task.StateFailed).Status.Message.FirstText(), "Gave up after 5 attempts, of which 3 count")
	for _, h := range others {
		q.become(h, task.StateCompleted)
	}
	mu.Lock()
	defer mu.Unlock()
	require.Zero(t, ran["poison"])
	require.Len(t, ran, 20)
}

// An agent with one attempt gets no second one, with or without bystanders.
func TestOneAttemptIsNotSpared(t *testing.T) {
	t.Parallel()
	p := start(t, setup{}, worker.Agent{Name: "other"})
	tasks := []*task.Task{p.create("a", "x"), p.create("a", "y")}
	require.Len(t, p.crash("a", 2), 2)
	a := does(func(context.Context, *executor.Run, executor.Emitter) error { t.Error("it ran again"); return nil })
	a.MaxAttempts = 1
	q := start(t, setup{url: p.url}, a)
	for _, h := range tasks {
		require.Contains(t, q.become(h, task.StateFailed).Status.Message.FirstText(), "Gave up after 1 attempts")
	}
}

// A suspect that does not end its process lets the next one start, and is no suspect any more.
func TestSuspectIsCleared(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	a := does(func(ctx context.Context, _ *executor.Run, _ executor.Emitter) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	a.MaxAttempts, a.Concurrency = 3, 2
	p := start(t, setup{}, worker.Agent{Name: "other"})
	tasks := []*task.Task{p.create("a", "x"), p.create("a", "y")}
	for range 2 {
		require.Len(t, p.crash("a", 2), 2)
	}
	q := start(t, setup{url: p.url}, a)
	for _, h := range tasks {
		q.become(h, task.StateWorking)
	}
	waittest.Eventually(t, "both are cleared", func() error {
		var n int
		q.scan(&n, "SELECT count(*) FROM holdfast.task_queue WHERE suspect")
		return waittest.Unless(n == 0, "%d are suspects", n)
	})
	close(release)
	for _, h := range tasks {
		q.become(h, task.StateCompleted)
	}
}
