package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker"
)

// switchable is an agent that can be away. It records the order and the concurrency of its runs.
type switchable struct {
	away     atomic.Bool
	answered bool
	hold     chan struct{} // if set, a run ends when it is closed

	mu     sync.Mutex
	calls  int
	order  []string
	tries  []int
	inside int
	most   int // concurrent calls while away
}

func (a *switchable) Execute(_ context.Context, run *executor.Run, _ executor.Emitter) error {
	a.mu.Lock()
	a.calls++
	a.inside++
	away := a.away.Load()
	if away {
		a.most = max(a.most, a.inside)
	} else {
		a.order = append(a.order, run.Message.FirstText())
		a.tries = append(a.tries, run.Try)
	}
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		a.inside--
		a.mu.Unlock()
	}()
	if away {
		return &executor.Unavailable{Err: errors.New("connection refused"), Answered: a.answered}
	}
	run.Began()
	if a.hold != nil {
		<-a.hold
	}
	return nil
}

func (a *switchable) called() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.calls
}

func (p *process) scan(into any, sql string, args ...any) {
	p.t.Helper()
	conn, err := pgx.Connect(p.t.Context(), p.url)
	require.NoError(p.t, err)
	defer conn.Close(context.Background()) //nolint:errcheck // nothing to lose
	require.NoError(p.t, conn.QueryRow(p.t.Context(), sql, args...).Scan(into))
}

// Tasks wait for an agent that is away, in their order, and use up no attempts.
func TestTasksWaitForAgentThatIsAway(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{false, true} {
		t.Run(fmt.Sprintf("answered %t", answered), func(t *testing.T) {
			t.Parallel()
			a := &switchable{answered: answered}
			a.away.Store(true)
			p := start(t, setup{}, worker.Agent{Executor: a, Concurrency: 1, MaxAttempts: 1})
			var tasks []*task.Task
			var want []string
			for i := range 8 {
				want = append(want, fmt.Sprintf("task %d", i))
				tasks = append(tasks, p.create("a", want[i]))
			}
			eventually(t, "the agent is probed again and again", func() bool { return a.called() > 4 })
			require.Equal(t, 1, a.most, "probes at a time")
			var waiting int
			var text string
			p.scan(&waiting, "SELECT waiting FROM holdfast.v_outages WHERE agent = 'a'")
			require.GreaterOrEqual(t, waiting, 7)
			p.scan(&text, "SELECT error FROM holdfast.v_outages WHERE agent = 'a'")
			require.Equal(t, "connection refused", text)
			a.away.Store(false)
			for _, h := range tasks {
				p.become(h, task.StateCompleted)
				notes := 0
				for _, e := range p.log(h) {
					if e.Kind == task.EventRun {
						require.Equal(t, task.RunAway, e.Run.Outcome)
						notes++
					}
				}
				require.LessOrEqual(t, notes, 1, "notes of probes")
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			require.Equal(t, slices.Repeat([]int{1}, 8), a.tries)
			if !answered {
				require.Equal(t, want, a.order)
			}
			require.NoError(t, p.pool.Reconcile(t.Context()))
			p.scan(&waiting, "SELECT count(*) FROM holdfast.agent_outages")
			require.Zero(t, waiting, "the outage is over")
		})
	}
}

// An agent that returns gets few runs at first.
func TestReturnIsNoStampede(t *testing.T) {
	t.Parallel()
	a := &switchable{}
	a.away.Store(true)
	var starting, most atomic.Int64
	slow := executor.Func(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		if a.away.Load() {
			return a.Execute(ctx, run, out)
		}
		most.Store(max(most.Load(), starting.Add(1)))
		for range 100 { // a run that begins after the others have had time to start
			if starting.Load() > 1 {
				break
			}
			time.Sleep(100 * time.Microsecond)
		}
		starting.Add(-1)
		run.Began()
		return nil
	})
	p := start(t, setup{}, worker.Agent{Executor: slow, Concurrency: 512})
	var tasks []*task.Task
	for i := range 30 {
		tasks = append(tasks, p.create("a", fmt.Sprint(i)))
	}
	eventually(t, "the agent is known to be away", func() bool { return a.called() > 3 })
	a.away.Store(false)
	for _, h := range tasks {
		p.become(h, task.StateCompleted)
	}
	require.LessOrEqual(t, most.Load(), int64(20), "runs that were starting at the same time")
}

// A task fails with the cause if its agent is away for too long, whether or not its run was tried.
func TestTaskFailsWhenAgentIsAwayForTooLong(t *testing.T) {
	t.Parallel()
	a := &switchable{}
	a.away.Store(true)
	p := start(t, setup{}, worker.Agent{Executor: a, UnreachableFor: time.Second})
	for i := range 3 {
		h := p.create("a", fmt.Sprint(i))
		require.Equal(t, "The agent could not be reached for 1s.", p.become(h, task.StateFailed).Status.Message.FirstText())
		require.Equal(t, "connection refused", p.errorOf(h))
	}
}

// A message that the agent refuses does not hold up the others, even if it is the oldest.
func TestRefusedMessageDelaysNoOther(t *testing.T) {
	t.Parallel()
	refusing := does(func(_ context.Context, run *executor.Run, _ executor.Emitter) error {
		if run.Message.FirstText() == "poison" {
			return &executor.Unavailable{Err: executor.Retryable(errors.New("502"), time.Millisecond), Answered: true}
		}
		return nil
	})
	refusing.Concurrency, refusing.MaxAttempts = 1, 2
	p := start(t, setup{}, refusing)
	p.create("a", "poison")
	for i := range 3 {
		p.become(p.create("a", fmt.Sprint(i)), task.StateCompleted)
	}
}

// A run that emitted something has begun: it counts as a try.
func TestRunThatBeganCountsAsTry(t *testing.T) {
	t.Parallel()
	a := does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
		if _, err := out.Artifact(ctx, text("x")); err != nil {
			return err
		}
		return &executor.Unavailable{Err: errors.New("gone")}
	})
	a.MaxAttempts, a.Backoff = 2, time.Millisecond
	p := start(t, setup{}, a)
	h := p.create("a", "x")
	p.become(h, task.StateFailed)
	require.Equal(t, "gone", p.errorOf(h))
}

// crash claims all due tasks for a process and declares it dead.
func (p *process) crash(agent string, slots int) (claimed []string) {
	p.t.Helper()
	won, err := p.store.Claim(p.t.Context(), store.NewID(), []store.Demand{{Agent: agent, Slots: slots}})
	require.NoError(p.t, err)
	for _, c := range won {
		claimed = append(claimed, c.Message.FirstText())
	}
	_, _, err = p.store.Rescue(p.t.Context(), 0, true)
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
	require.Contains(t, q.become(poison, task.StateFailed).Status.Message.FirstText(), "Gave up after 3 attempts")
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
func TestSuspectIsAcquitted(t *testing.T) {
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
	eventually(t, "both are acquitted", func() bool {
		var n int
		q.scan(&n, "SELECT count(*) FROM holdfast.task_queue WHERE suspect")
		return n == 0
	})
	close(release)
	for _, h := range tasks {
		q.become(h, task.StateCompleted)
	}
}
