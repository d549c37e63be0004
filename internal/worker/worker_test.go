package worker_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/executor/wire"
	"github.com/holdfast-a2a/holdfast/internal/memory"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/store/invarianttest"
	"github.com/holdfast-a2a/holdfast/internal/store/pgproxytest"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
	"github.com/holdfast-a2a/holdfast/internal/worker"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

const patience = 60 * time.Second

// process is a store with a pool of workers and no hub: commits wake the pool directly.
type process struct {
	t     testing.TB
	url   string
	store *store.Store
	pool  *worker.Pool
	id    atomic.Pointer[task.ID]
	deaf  atomic.Bool // ignores hints for cancels

	stopOnce sync.Once
	stop     context.CancelFunc
	ended    chan struct{}
}

func (p *process) Committed([]*task.Event)    {}
func (p *process) Advanced(task.ID, task.Seq) {}
func (p *process) Ready(agent string) {
	if p.pool != nil {
		p.pool.Wake(agent)
	}
}

func (p *process) Gone([]task.ID) {}

func (p *process) KeyRevoked(string) {}

func (p *process) PushesDue() {}

func (p *process) CallsDue() {}

func (p *process) CancelWanted(id task.ID) {
	if !p.deaf.Load() {
		p.pool.CancelHint(id)
	}
}

type setup struct {
	url     string                          // of an existing database
	through string                          // a proxy
	wrap    func(*store.Store) worker.Store // replaces the pool's store
	grace   time.Duration                   // of a stop
	poll    time.Duration                   // of the queue
	memory  *memory.Budget
	lines   *memory.Budget
	events  *memory.Budget
}

// start runs agents, named a, b, c unless they have a name.
func start(t testing.TB, s setup, agents ...worker.Agent) *process {
	t.Helper()
	p := &process{t: t, url: s.url, ended: make(chan struct{})}
	if p.url == "" {
		p.url = storetest.New(t).URL
	}
	if s.through == "" {
		s.through = p.url
	}
	for i := range agents {
		if agents[i].Name == "" {
			agents[i].Name = string(rune('a' + i))
		}
		if agents[i].CancelGrace == 0 {
			agents[i].CancelGrace = patience
		}
	}
	tells := func(name string) bool {
		return slices.ContainsFunc(agents, func(a worker.Agent) bool { _, ok := a.Executor.(executor.Canceler); return ok && a.Name == name })
	}
	var err error
	p.store, err = store.Open(t.Context(), store.Options{URL: s.through, APIConns: 3, Listener: p, Tells: tells})
	require.NoError(t, err)
	p.register()
	var seen worker.Store = p.store
	if s.wrap != nil {
		seen = s.wrap(p.store)
	}
	if s.grace == 0 {
		s.grace = patience
	}
	p.pool = worker.New(worker.Options{
		Store: seen, Agents: agents, PollInterval: cmp.Or(s.poll, 100*time.Millisecond), StopGrace: s.grace,
		Worker: func() task.ID { return *p.id.Load() }, Memory: s.memory, Lines: s.lines, Events: s.events, ResumeURL: resumeURL,
	})
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	go func() {
		defer close(p.ended)
		_ = p.pool.Run(ctx)
	}()
	t.Cleanup(func() {
		p.shutdown()
		if !t.Failed() {
			require.NoError(t, invarianttest.Check(context.Background(), p.url))
		}
	})
	return p
}

// resumeURL has no part that differs between two runs of a test.
func resumeURL(_ task.ID, turn int) string {
	return fmt.Sprintf("https://holdfast.example/resume/%d", turn)
}

func (p *process) register() {
	p.t.Helper()
	id := store.NewID()
	require.NoError(p.t, p.store.Register(p.t.Context(), store.Process{ID: id, Name: "test"}, time.Hour))
	p.id.Store(&id)
}

// shutdown stops in the server's order: the pool, then the store.
func (p *process) shutdown() {
	p.stopOnce.Do(func() {
		p.stop()
		<-p.ended
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		p.store.Close(ctx)
	})
}

func (p *process) create(agent, text string) *task.Task {
	p.t.Helper()
	id := store.NewID()
	n := &store.NewTask{
		Task:    task.Task{ID: id, PublicID: id.String(), Agent: agent, ContextID: "ctx", Dialect: "0.3"},
		Message: &task.Message{ID: "m-" + text, Role: task.RoleUser, Parts: []task.Part{task.Text(text)}},
	}
	_, err := p.store.Create(p.t.Context(), n)
	require.NoError(p.t, err)
	return &n.Task
}

func (p *process) say(h *task.Task, text string) {
	p.t.Helper()
	_, err := p.store.AddMessage(p.t.Context(), &store.NewMessage{
		Task: h, Enqueue: true, RequestID: store.NewID(),
		Message: &task.Message{ID: "m-" + text, Role: task.RoleUser, Parts: []task.Part{task.Text(text)}},
	})
	require.NoError(p.t, err)
}

// become waits until the task is in a state.
func (p *process) become(h *task.Task, s task.State) *task.Task {
	p.t.Helper()
	var now *task.Task
	eventually(p.t, fmt.Sprintf("the task is %s", s), func() bool {
		head, err := p.store.Header(p.t.Context(), h.ID)
		require.NoError(p.t, err)
		now, err = p.store.Snapshot(p.t.Context(), head, true)
		require.NoError(p.t, err)
		if now.Status.State != s && now.Status.State.Terminal() {
			p.t.Fatalf("the task is %s (%q) and will never be %s", now.Status.State, now.Status.Message.FirstText(), s)
		}
		return now.Status.State == s
	})
	return now
}

func (p *process) log(h *task.Task) []*task.Event {
	p.t.Helper()
	evs, err := p.store.EventsAfter(p.t.Context(), h, task.Position{}, 10_000)
	require.NoError(p.t, err)
	return evs
}

// errorOf returns what operators read about the last run.
func (p *process) errorOf(h *task.Task) (text string) {
	p.t.Helper()
	p.scan(&text, "SELECT coalesce(error, '') FROM holdfast.v_runs WHERE task = $1 ORDER BY run DESC LIMIT 1", h.ID.String())
	return text
}

func (p *process) exec(sql string, args ...any) {
	p.t.Helper()
	conn, err := pgx.Connect(p.t.Context(), p.url)
	require.NoError(p.t, err)
	defer conn.Close(context.Background()) //nolint:errcheck // nothing to lose
	_, err = conn.Exec(p.t.Context(), sql, args...)
	require.NoError(p.t, err)
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	waittest.Eventually(t, what, func() error { return waittest.Unless(holds(), "not yet") })
}

func await[T any](t testing.TB, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatal("timed out")
		panic("unreachable")
	}
}

type fn = func(ctx context.Context, run *executor.Run, out executor.Emitter) error

func does(f fn) worker.Agent { return worker.Agent{Executor: executor.Func(f)} }

func text(s string) executor.Chunk {
	return executor.Chunk{Artifact: task.Artifact{ID: "out", Parts: []task.Part{task.Text(s)}}, Append: true}
}

// waits waits until its context ends, and reports the cause.
func waits(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestRunCompletes(t *testing.T) {
	t.Parallel()
	p := start(t, setup{}, does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
		_, err := out.Artifact(ctx, text("1"))
		return err
	}))
	got := p.become(p.create("a", "hi"), task.StateCompleted)
	require.Equal(t, "1", got.Artifacts[0].Parts[0].Text)
	log := p.log(got)
	require.Equal(t, task.StateWorking, log[1].State, "working comes first")
	require.Len(t, log, 4)
}

// Large messages are run one at a time if no more of them fit the memory. Small ones do not wait for them, nor they for
// small ones.
func TestSmallMessagesPassLargeOnes(t *testing.T) {
	t.Parallel()
	block := make(chan struct{})
	release := sync.OnceFunc(func() { close(block) })
	defer release()
	passes := func(context.Context, *executor.Run, executor.Emitter) error { return nil }
	holds := does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		if run.Message.FirstText() == "passes" {
			return passes(ctx, run, out)
		}
		<-block
		return nil
	})
	other := does(passes)
	holds.Concurrency, other.Concurrency = 3, 3
	budget := memory.NewBudget(1 << 20)
	idle := does(passes)
	idle.Name = "idle"
	p := start(t, setup{}, idle)
	runs := p.create("a", "a small one that runs")
	large := strings.Repeat("x", 1<<20)
	first, second, third := p.create("a", large), p.create("a", large), p.create("a", large)
	behind := p.create("a", "passes")
	// Without polls, only the claims themselves lead to further ones.
	p = start(t, setup{url: p.url, memory: budget, poll: time.Hour}, holds, other)
	p.become(runs, task.StateWorking)
	p.become(first, task.StateWorking)
	p.become(behind, task.StateCompleted)
	require.True(t, budget.Crowded())
	for range 3 {
		p.become(p.create("a", "passes"), task.StateCompleted)
		p.become(p.create("b", "passes"), task.StateCompleted)
	}
	for _, waits := range []*task.Task{second, third} {
		require.Equal(t, task.StateSubmitted, p.become(waits, task.StateSubmitted).Status.State)
	}
	release()
	for _, waited := range []*task.Task{runs, first, second, third} {
		p.become(waited, task.StateCompleted)
	}
	eventually(t, "the memory", func() bool { return budget.Stat().Used == 0 })
}

func TestConcurrencyIsPerAgent(t *testing.T) {
	t.Parallel()
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
	p := start(t, setup{}, agent(0, 3), agent(1, 1))
	var tasks []*task.Task
	for i := range 20 {
		tasks = append(tasks, p.create([]string{"a", "b"}[i%2], "x"))
	}
	eventually(t, "all slots are taken", func() bool { return running[0].Load() == 3 && running[1].Load() == 1 })
	require.Nil(t, p.pool.Reserve("a"), "no slot is free")
	close(gate)
	for _, h := range tasks {
		p.become(h, task.StateCompleted)
	}
	require.EqualValues(t, 3, most[0].Load())
	require.EqualValues(t, 1, most[1].Load())
}

func TestRetries(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	tries := map[string][]int{}
	a := does(func(_ context.Context, run *executor.Run, _ executor.Emitter) error {
		mu.Lock()
		defer mu.Unlock()
		what := run.Message.FirstText()
		tries[what] = append(tries[what], run.Try)
		if what == "works at last" && run.Try == 3 {
			return nil
		}
		after := time.Millisecond
		if what == "with backoff" {
			after = 0
		}
		return executor.Retryable(&executor.Failure{Msg: "Not now.", Cause: errors.New("the model is loading")}, after)
	})
	a.MaxAttempts, a.Backoff, a.MaxBackoff = 3, time.Millisecond, 2*time.Millisecond
	p := start(t, setup{}, a)
	never, backoff, last := p.create("a", "never"), p.create("a", "with backoff"), p.create("a", "works at last")
	for _, h := range []*task.Task{never, backoff} {
		got := p.become(h, task.StateFailed)
		require.Equal(t, "Not now.", got.Status.Message.FirstText())
		notes := 0
		for _, e := range p.log(h) {
			if e.Kind == task.EventRun && e.Run.Outcome == task.RunRetry {
				notes++
			}
		}
		require.Equal(t, 2, notes)
		require.Equal(t, "Not now.: the model is loading", p.errorOf(h))
	}
	p.become(last, task.StateCompleted)
	mu.Lock()
	defer mu.Unlock()
	for what, got := range tries {
		require.Equal(t, []int{1, 2, 3}, got, what)
	}
}

func TestCrashesAreContained(t *testing.T) {
	t.Parallel()
	p := start(t, setup{},
		does(func(context.Context, *executor.Run, executor.Emitter) error { panic("secret") }),
		does(func(context.Context, *executor.Run, executor.Emitter) error { runtime.Goexit(); return nil }),
		does(func(context.Context, *executor.Run, executor.Emitter) error { return errors.New("secret") }),
		does(func(context.Context, *executor.Run, executor.Emitter) error { return nil }),
	)
	for agent, want := range map[string]string{"a": "The agent crashed.", "b": "The agent crashed.", "c": "The agent failed."} {
		h := p.create(agent, "x")
		got := p.become(h, task.StateFailed)
		require.Equal(t, want, got.Status.Message.FirstText())
		require.Contains(t, p.errorOf(h), map[string]string{"a": "panic: secret", "b": "Goexit", "c": "secret"}[agent], "operators read the cause")
	}
	p.become(p.create("d", "x"), task.StateCompleted)
}

func TestDeadlines(t *testing.T) {
	t.Parallel()
	slow := does(func(ctx context.Context, _ *executor.Run, _ executor.Emitter) error { return waits(ctx) })
	slow.RunTimeout = 20 * time.Millisecond
	silent := does(func(ctx context.Context, _ *executor.Run, _ executor.Emitter) error { return waits(ctx) })
	silent.InactivityTimeout = 20 * time.Millisecond
	p := start(t, setup{}, slow, silent)
	require.Contains(t, p.become(p.create("a", "x"), task.StateFailed).Status.Message.FirstText(), "did not finish within 20ms")
	require.Contains(t, p.become(p.create("b", "x"), task.StateFailed).Status.Message.FirstText(), "silent for more than 20ms")
}

func TestCancel(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 2)
	causes := make(chan error, 2)
	release := make(chan struct{})
	late := make(chan error, 1)
	cooperative := does(func(ctx context.Context, _ *executor.Run, _ executor.Emitter) error {
		begun <- struct{}{}
		err := waits(ctx)
		causes <- err
		return err
	})
	stubborn := does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
		begun <- struct{}{}
		<-release
		_, err := out.Artifact(context.WithoutCancel(ctx), text("too late"))
		late <- err
		return nil
	})
	stubborn.CancelGrace = 10 * time.Millisecond
	p := start(t, setup{}, cooperative, stubborn)
	for _, agent := range []string{"a", "b"} {
		h := p.create(agent, "x")
		await(t, begun)
		ended, err := p.store.Cancel(t.Context(), h, nil)
		require.NoError(t, err)
		require.False(t, ended)
		p.become(h, task.StateCanceled)
		if agent == "a" {
			require.ErrorIs(t, await(t, causes), executor.ErrCanceled)
			continue
		}
		close(release)
		require.Error(t, await(t, late))
		require.Len(t, p.log(h), 3)
	}
	// A process without hints finds the cancel when it compares its runs with the database.
	p.deaf.Store(true)
	h := p.create("a", "x")
	await(t, begun)
	_, err := p.store.Cancel(t.Context(), h, nil)
	require.NoError(t, err)
	require.NoError(t, p.pool.Reconcile(t.Context()))
	p.become(h, task.StateCanceled)
	require.ErrorIs(t, await(t, causes), executor.ErrCanceled)
}

// asked counts the reads of canceled runs, and delays them.
type asked struct {
	*store.Store
	begun chan []task.ID
	goOn  chan struct{}
}

func (a *asked) Held(ctx context.Context, w task.ID, ids []task.ID) ([]store.Owned, error) {
	a.begun <- ids
	<-a.goOn
	return a.Store.Held(ctx, w, ids)
}

// Any login of the database can send a hint. It makes the process read the task, and cancels nothing by itself.
func TestForgedCancelHintEndsNothing(t *testing.T) {
	t.Parallel()
	db := &asked{begun: make(chan []task.ID, 10), goOn: make(chan struct{}, 10)}
	begun, causes, release := make(chan struct{}, 3), make(chan error, 3), make(chan struct{})
	a := does(func(ctx context.Context, _ *executor.Run, _ executor.Emitter) error {
		begun <- struct{}{}
		select {
		case <-ctx.Done():
			causes <- context.Cause(ctx)
			return context.Cause(ctx)
		case <-release:
			return nil
		}
	})
	a.Concurrency = 3
	p := start(t, setup{wrap: func(s *store.Store) worker.Store { db.Store = s; return db }}, a)
	hs := []*task.Task{p.create("a", "x"), p.create("a", "y"), p.create("a", "z")}
	for range hs {
		await(t, begun)
	}
	p.pool.CancelHint(store.NewID()) // an unknown task causes no read
	p.pool.CancelHint(hs[0].ID)
	require.Equal(t, []task.ID{hs[0].ID}, await(t, db.begun))
	// Hints that arrive during a read share the next one, however many there are.
	ended, err := p.store.Cancel(t.Context(), hs[2], nil)
	require.NoError(t, err)
	require.False(t, ended)
	for range 100 {
		p.pool.CancelHint(hs[0].ID)
		p.pool.CancelHint(hs[1].ID)
	}
	db.goOn <- struct{}{}
	require.ElementsMatch(t, []task.ID{hs[0].ID, hs[1].ID, hs[2].ID}, await(t, db.begun))
	db.goOn <- struct{}{}
	p.become(hs[2], task.StateCanceled)
	require.ErrorIs(t, await(t, causes), executor.ErrCanceled)
	require.Empty(t, causes, "the other tasks were read before it, or with it")
	close(release)
	p.become(hs[0], task.StateCompleted)
	p.become(hs[1], task.StateCompleted)
	require.Empty(t, db.begun, "two reads in all")
}

func TestLostLease(t *testing.T) {
	t.Parallel()
	begun, causes := make(chan struct{}, 1), make(chan error, 1)
	goOn := make(chan struct{})
	attempts := atomic.Int64{}
	a := does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
		if attempts.Add(1) > 1 {
			return nil
		}
		begun <- struct{}{}
		<-goOn
		for ctx.Err() == nil {
			_, _ = out.Artifact(ctx, text("zombie"))
		}
		causes <- context.Cause(ctx)
		return nil // even this does not complete the task
	})
	a.Concurrency, a.MaxAttempts = 2, 2
	p := start(t, setup{}, a)
	h := p.create("a", "x")
	await(t, begun)
	eventually(t, "working is written", func() bool { return len(p.log(h)) == 2 })
	old := *p.id.Load()
	p.register()
	require.NoError(t, p.store.Unregister(t.Context(), old))
	_, runs, err := p.store.Rescue(t.Context(), 0, true)
	require.NoError(t, err)
	require.Len(t, runs, 1)
	close(goOn)
	require.ErrorIs(t, await(t, causes), executor.ErrLeaseLost)
	p.become(h, task.StateCompleted)
	for _, e := range p.log(h) {
		require.NotEqual(t, task.EventArtifact, e.Kind)
	}
}

func TestLoseAll(t *testing.T) {
	t.Parallel()
	begun, causes := make(chan struct{}, 1), make(chan error, 1)
	p := start(t, setup{}, does(func(ctx context.Context, _ *executor.Run, _ executor.Emitter) error {
		begun <- struct{}{}
		err := waits(ctx)
		causes <- err
		return err
	}))
	h := p.create("a", "x")
	await(t, begun)
	eventually(t, "working is written", func() bool { return len(p.log(h)) == 2 })
	p.pool.LoseAll()
	require.ErrorIs(t, await(t, causes), executor.ErrLeaseLost)
	require.Len(t, p.log(h), 2, "nothing is written")
}

// lose takes the database back to before the claim of a task, as a failover to a standby that lags does.
func (p *process) lose(h *task.Task) {
	p.t.Helper()
	p.exec(`WITH log AS (DELETE FROM holdfast.task_events WHERE task = $1 AND seq > 1),
		queue AS (UPDATE holdfast.task_queue SET worker_id = NULL, tries = 0 WHERE id = $1)
		UPDATE holdfast.tasks SET state = 1, last_seq = 1, status_seq = 1, attempt = 0, runs = 0, run_ordinal = 0, worker_id = NULL, claimed_at = NULL
		 WHERE id = $1`, h.ID.String())
}

// The next claim draws the attempt of the lost one, in this process or in another.
func TestARunWhoseClaimWasLostEnds(t *testing.T) {
	t.Parallel()
	for _, inAnother := range []bool{false, true} {
		begun, causes, release := make(chan task.Attempt, 2), make(chan error, 2), make(chan struct{})
		a := does(func(ctx context.Context, run *executor.Run, _ executor.Emitter) error {
			begun <- run.Attempt
			select {
			case <-ctx.Done():
				causes <- context.Cause(ctx)
				return context.Cause(ctx)
			case <-release:
				return nil
			}
		})
		a.Concurrency = 2
		if inAnother {
			a.Concurrency = 1
		}
		p := start(t, setup{}, a)
		h := p.create("a", "x")
		require.Equal(t, task.Attempt(1), await(t, begun))
		eventually(t, "working is written", func() bool { return len(p.log(h)) == 2 })
		if inAnother {
			start(t, setup{url: p.url}, a)
		}
		p.lose(h)
		require.Equal(t, task.Attempt(1), await(t, begun))
		if inAnother {
			for range 2 {
				require.NoError(t, p.pool.Reconcile(t.Context()))
			}
		}
		require.ErrorIs(t, await(t, causes), executor.ErrLeaseLost)
		close(release)
		p.become(h, task.StateCompleted)
		require.Empty(t, causes)
	}
}

func TestLostRunsFailTaskAfterMaxAttempts(t *testing.T) {
	t.Parallel()
	a := does(func(context.Context, *executor.Run, executor.Emitter) error { return nil })
	a.MaxAttempts = 2
	p := start(t, setup{}, worker.Agent{Name: "other"})
	h := p.create("a", "x")
	for range 2 {
		dead := store.NewID() // never registered
		won, err := p.store.Claim(t.Context(), dead, []store.Demand{{Agent: "a", Slots: 1}})
		require.NoError(t, err)
		require.Len(t, won, 1)
		_, _, err = p.store.Rescue(t.Context(), 0, true)
		require.NoError(t, err)
	}
	q := start(t, setup{url: p.url}, a)
	require.Contains(t, q.become(h, task.StateFailed).Status.Message.FirstText(), "Gave up after 2 attempts")
}

// A stop returns a run without counting it, and its events are there for the next attempt.
func TestStopReturnsRuns(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	first := does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
		for _, id := range []string{"one", "two"} {
			_, err := out.Artifact(ctx, executor.Chunk{Artifact: task.Artifact{ID: id, Parts: []task.Part{task.Text(id)}}})
			require.NoError(t, err)
		}
		require.NoError(t, out.Checkpoint(ctx, json.RawMessage(`{"at":1.0}`)))
		close(begun)
		return waits(ctx)
	})
	p := start(t, setup{grace: time.Millisecond}, first)
	h := p.create("a", "x")
	await(t, begun)
	p.shutdown()

	type seen struct {
		try        int
		earlier    int
		checkpoint string
	}
	got := make(chan seen, 1)
	q := start(t, setup{url: p.url}, does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		earlier, err := run.Memory.Earlier(ctx)
		require.NoError(t, err)
		checkpoint, err := run.Memory.Checkpoint(ctx)
		require.NoError(t, err)
		got <- seen{run.Try, len(earlier), string(checkpoint)}
		for _, id := range []string{"two", "three"} {
			_, err := out.Artifact(ctx, executor.Chunk{Artifact: task.Artifact{ID: id, Parts: []task.Part{task.Text(id)}}, Append: true})
			require.NoError(t, err)
		}
		return nil
	}))
	require.Equal(t, seen{1, 4, `{"at":1.0}`}, await(t, got), "working, one, two, and the checkpoint")
	done := q.become(h, task.StateCompleted)
	require.Len(t, done.Artifacts, 3)
	for i, id := range []string{"one", "two", "three"} {
		require.Equal(t, id, done.Artifacts[i].ID)
		require.Equal(t, i, done.Artifacts[i].Index)
	}
	for _, e := range q.log(h) {
		if e.Kind == task.EventArtifact && e.Artifact.ID == "two" {
			require.Equal(t, 1, e.Artifact.Index, "in each chunk")
		}
	}
}

// Each turn numbers artifacts after those of all turns before it, of which it reads only a listing: unless the run before
// did not learn the artifacts, or they are too many.
func TestTurnsNumberArtifactsOn(t *testing.T) {
	t.Parallel()
	p := start(t, setup{}, does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		for _, id := range strings.Fields(run.Message.FirstText()) {
			if id == "none" {
				continue
			}
			_, err := out.Artifact(ctx, executor.Chunk{Artifact: task.Artifact{ID: id, Parts: []task.Part{task.Text(id)}}, Append: true})
			require.NoError(t, err)
		}
		return out.Status(ctx, task.StateInputRequired, nil)
	}))
	many := make([]string, 100)
	for i := range many {
		many[i] = fmt.Sprint("many-", i)
	}
	var h *task.Task
	for i, turn := range []struct {
		ids    string
		listed int
		want   []string
	}{
		{"z b", 2, []string{"z", "b"}},
		{"none", 2, []string{"z", "b"}},
		{"a b", 3, []string{"z", "b", "a"}},
		{strings.Join(many, " "), 3, append([]string{"z", "b", "a"}, many...)},
		{"many-7 c", 3, append(append([]string{"z", "b", "a"}, many...), "c")},
	} {
		if i == 0 {
			h = p.create("a", turn.ids)
		} else {
			p.say(h, turn.ids)
		}
		var now *task.Task
		eventually(t, "the turn has parked", func() bool {
			now = p.become(h, task.StateInputRequired)
			parks := 0
			for _, e := range p.log(h) {
				if e.State == task.StateInputRequired {
					parks++
				}
			}
			return parks == i+1
		})
		var got []string
		for n, a := range now.Artifacts {
			require.Equal(t, n, a.Index)
			got = append(got, a.ID)
		}
		require.Equal(t, turn.want, got)
		for _, e := range p.log(h) {
			if e.Kind == task.EventArtifact {
				require.Equal(t, e.Artifact.ID, turn.want[e.Artifact.Index], "in each chunk")
			}
		}
		var listed int
		p.scan(&listed, `SELECT json_array_length(e.payload -> 'artifacts') FROM holdfast.tasks t JOIN holdfast.task_events e ON e.task = t.id AND e.seq = t.artifacts_seq
			WHERE t.id = $1`, h.ID.String())
		require.Equal(t, turn.listed, listed)
	}
}

// Ids of more than the bytes of a listing are read from the chunks.
func TestLongArtifactIDsAreNotListed(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 9<<10)
	p := start(t, setup{}, does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		for _, id := range []string{"short", long, run.Message.FirstText()} {
			_, err := out.Artifact(ctx, executor.Chunk{Artifact: task.Artifact{ID: id, Parts: []task.Part{task.Text("x")}}, Append: true})
			require.NoError(t, err)
		}
		if run.Message.FirstText() == "end" {
			return nil
		}
		return out.Status(ctx, task.StateAuthRequired, nil)
	}))
	h := p.create("a", "begin")
	p.become(h, task.StateAuthRequired)
	var listed bool
	p.scan(&listed, "SELECT artifacts_seq IS NOT NULL FROM holdfast.tasks WHERE id = $1", h.ID.String())
	require.False(t, listed)
	p.say(h, "end")
	for i, a := range p.become(h, task.StateCompleted).Artifacts {
		require.Equal(t, i, a.Index)
		require.Equal(t, []string{"short", long, "begin", "end"}[i], a.ID)
	}
}

func TestStopLetsRunsFinish(t *testing.T) {
	t.Parallel()
	begun, goOn := make(chan struct{}), make(chan struct{})
	p := start(t, setup{}, does(func(context.Context, *executor.Run, executor.Emitter) error {
		close(begun)
		<-goOn
		return nil
	}))
	h := p.create("a", "x")
	await(t, begun)
	p.stop()
	close(goOn)
	<-p.ended
	p.become(h, task.StateCompleted)
}

// held delays the answers to appends.
type held struct {
	*store.Store
	mu       sync.Mutex
	bytes    int // emitted and not answered
	most     int
	answers  []func()
	released bool
}

func (s *held) Append(a *store.Append) {
	n := 0
	for _, e := range a.Events {
		if e.Artifact != nil {
			n += len(e.Artifact.Parts[0].Text)
		}
	}
	done := a.Done
	a.Done = func(again bool, err error) {
		answer := func() {
			s.mu.Lock()
			s.bytes -= n
			s.mu.Unlock()
			done(again, err)
		}
		s.mu.Lock()
		keep := !s.released && n > 0
		if keep {
			s.answers = append(s.answers, answer)
		}
		s.mu.Unlock()
		if !keep {
			answer()
		}
	}
	s.mu.Lock()
	s.bytes += n
	s.most = max(s.most, s.bytes)
	s.mu.Unlock()
	s.Store.Append(a)
}

func TestWindowBoundsUnstoredEvents(t *testing.T) {
	t.Parallel()
	const chunk, chunks = 64 << 10, 64
	var h *held
	emitted := atomic.Int64{}
	p := start(t, setup{wrap: func(s *store.Store) worker.Store { h = &held{Store: s}; return h }},
		does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
			for range chunks {
				if _, err := out.Artifact(ctx, text(strings.Repeat("x", chunk))); err != nil {
					return err
				}
				emitted.Add(1)
			}
			return nil
		}))
	x := p.create("a", "x")
	eventually(t, "the window is full", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.answers) == 1<<20/chunk
	})
	require.LessOrEqual(t, emitted.Load(), int64(1<<20/chunk))
	h.mu.Lock()
	h.released = true
	answers := h.answers
	h.mu.Unlock()
	for _, answer := range answers {
		answer()
	}
	p.become(x, task.StateCompleted)
	h.mu.Lock()
	defer h.mu.Unlock()
	require.LessOrEqual(t, h.most, 1<<20)
	require.EqualValues(t, chunks, emitted.Load())
}

func TestUnstorableOutputFailsTask(t *testing.T) {
	t.Parallel()
	settled := does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
		_, _ = out.Artifact(ctx, text("poison"))
		return out.Status(ctx, task.StateCompleted, nil)
	})
	p := start(t, setup{},
		does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
			for _, s := range []string{"good", "poison", "lost"} {
				_, _ = out.Artifact(ctx, text(s))
			}
			return nil
		}), settled,
		does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
			_, _ = out.Artifact(ctx, text("poison"))
			return executor.Retryable(errors.New("again"), 0)
		}))
	p.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN IF NEW.payload::text LIKE '%poison%' THEN RAISE 'refused'; END IF; RETURN NEW; END $$`)
	p.exec("CREATE TRIGGER refuse BEFORE INSERT ON holdfast.task_events FOR EACH ROW EXECUTE FUNCTION refuse()")
	for _, agent := range []string{"a", "b", "c"} {
		got := p.become(p.create(agent, "x"), task.StateFailed)
		require.Equal(t, "The agent's output could not be stored.", got.Status.Message.FirstText())
	}
}

// Executors often begin with a working status, which Holdfast has written already, and repeat it to show progress.
// Subscribers get one change.
func TestWorkingIsEmittedOnce(t *testing.T) {
	t.Parallel()
	p := start(t, setup{}, does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
		for _, message := range []string{"", "", "half way", "half way", "", ""} {
			var m *task.Message
			if message != "" {
				m = &task.Message{Parts: []task.Part{task.Text(message)}}
			}
			require.NoError(t, out.Status(ctx, task.StateWorking, m))
		}
		return nil
	}))
	var said []string
	for _, e := range p.log(p.become(p.create("a", "x"), task.StateCompleted)) {
		switch {
		case e.Kind != task.EventStatus:
		case e.Message != nil:
			said = append(said, e.Message.FirstText())
		default:
			said = append(said, e.State.String())
		}
	}
	require.Equal(t, []string{"working", "half way", "half way", "working", "completed"}, said)
}

func TestEmissionRules(t *testing.T) {
	t.Parallel()
	direct := does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		reply := &task.Message{Parts: []task.Part{task.Text("bare")}}
		if run.Message.FirstText() == "late" {
			require.NoError(t, out.Status(ctx, task.StateWorking, nil))
			require.Error(t, out.Reply(ctx, reply))
			return nil
		}
		require.Error(t, out.Reply(ctx, nil))
		require.NoError(t, out.Reply(ctx, reply))
		require.Error(t, out.Reply(ctx, reply))
		require.Empty(t, reply.ID, "the executor's message stays unchanged")
		return nil
	})
	direct.DirectReplies = true
	rules := does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
		require.Error(t, out.Reply(ctx, &task.Message{}), "the agent is not configured for it")
		for _, s := range []task.State{task.StateSubmitted, task.StateCanceled, task.StateUnspecified} {
			require.Error(t, out.Status(ctx, s, nil))
		}
		_, err := out.Artifact(ctx, executor.Chunk{})
		require.ErrorContains(t, err, "artifact.parts")
		part := func(p task.Part) executor.Chunk {
			return executor.Chunk{Artifact: task.Artifact{Parts: []task.Part{p}}}
		}
		for name, c := range map[string]executor.Chunk{
			"data":          part(task.Part{Kind: task.PartData, Data: json.RawMessage(`{`)}),
			"part metadata": part(task.Part{Kind: task.PartText, Metadata: json.RawMessage(`x`)}),
			"metadata":      {Artifact: task.Artifact{Parts: []task.Part{task.Text("x")}, Metadata: json.RawMessage(`[`)}},
			"event":         {Artifact: task.Artifact{Parts: []task.Part{task.Text("x")}}, Metadata: json.RawMessage(`"`)},
		} {
			_, err := out.Artifact(ctx, c)
			require.ErrorContains(t, err, "not valid JSON", name)
		}
		require.ErrorContains(t, out.Checkpoint(ctx, nil), "not valid JSON")
		require.ErrorContains(t, out.Checkpoint(ctx, json.RawMessage(`{]`)), "not valid JSON")
		parts := []task.Part{
			{Kind: task.PartText, Text: "a\x00b", Filename: "f\x00"},
			{Kind: task.PartData, Data: json.RawMessage("{\"k\\u0000\":\"\\\\u0000 \\u0000\",\r\n  \"n\": 1.0}")}, // over two lines
			{Kind: task.PartRaw, Raw: []byte("raw")},
		}
		id, err := out.Artifact(ctx, executor.Chunk{Artifact: task.Artifact{Name: "n\x00", Parts: parts}})
		require.NoError(t, err)
		require.NotEmpty(t, id)
		require.Equal(t, "a\x00b", parts[0].Text, "the executor's parts stay unchanged")
		parts[0].Text = "used again"
		copy(parts[2].Raw, "XXX")
		require.NoError(t, out.Status(ctx, task.StateRejected, &task.Message{Parts: []task.Part{task.Text("no\x00")}}))
		_, err = out.Artifact(ctx, text("x"))
		require.Error(t, err)
		require.Error(t, out.Status(ctx, task.StateWorking, nil))
		require.Error(t, out.Checkpoint(ctx, json.RawMessage(`1`)))
		return errors.New("changes nothing any more")
	})
	p := start(t, setup{}, direct, rules)

	h := p.become(p.create("a", "x"), task.StateCompleted)
	require.True(t, h.Direct)
	require.Len(t, p.log(h), 2, "no working before a bare reply")
	require.Equal(t, "bare", h.Status.Message.FirstText())
	require.NotEmpty(t, h.Status.Message.ID)
	require.Equal(t, task.RoleAgent, h.Status.Message.Role)
	require.False(t, p.become(p.create("a", "late"), task.StateCompleted).Direct)

	h = p.become(p.create("b", "x"), task.StateRejected)
	require.Equal(t, "no\uFFFD", h.Status.Message.FirstText())
	got := h.Artifacts[0]
	require.Equal(t, "n\uFFFD", got.Name)
	require.Equal(t, "a\uFFFDb", got.Parts[0].Text)
	require.Equal(t, "f\uFFFD", got.Parts[0].Filename)
	require.Equal(t, `{"k\ufffd":"\\u0000 \ufffd","n":1.0}`, string(got.Parts[1].Data)) //nolint:testifylint // to the byte
	require.Equal(t, "raw", string(got.Parts[2].Raw))
}

// Agents in other processes send NUL characters as escapes, anywhere.
func TestNULCharactersOfAgentsAreReplaced(t *testing.T) {
	t.Parallel()
	a := does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		player := wire.NewPlayer(run, out)
		if run.Try > 1 {
			return player.PlayLine(ctx, 1, []byte(`{"type":"complete","message":"\\u0000 \u0000"}`))
		}
		for i, line := range []string{
			`{"type":"artifact","artifact":{"name":"a\u0000","parts":[{"text":"\\u0000 \u0000 \\\u0000"},{"data":{"k\u0000":"\\u0000\u0000"}}]}}`,
			`{"type":"checkpoint","data":["\u0000"]}`,
			`{"type":"retry","reason":"\u0000","after":0.001}`,
		} {
			if err := player.PlayLine(ctx, i+1, []byte(line)); err != nil {
				return err
			}
		}
		return nil
	})
	a.MaxAttempts = 2
	p := start(t, setup{}, a)
	h := p.become(p.create("a", "x"), task.StateCompleted)
	require.Equal(t, "\\u0000 \uFFFD", h.Status.Message.FirstText())
	got := h.Artifacts[0]
	require.Equal(t, "a\uFFFD", got.Name)
	require.Equal(t, "\\u0000 \uFFFD \\\uFFFD", got.Parts[0].Text)
	require.Equal(t, `{"k\ufffd":"\\u0000\ufffd"}`, string(got.Parts[1].Data)) //nolint:testifylint // to the byte
	notes := 0
	for _, e := range p.log(h) {
		switch {
		case e.Kind != task.EventRun:
		case e.Run.Outcome == task.RunCheckpoint:
			require.Equal(t, `["\ufffd"]`, string(e.Run.Checkpoint))
			notes++
		case e.Run.Outcome == task.RunRetry:
			require.Equal(t, "the agent asked for another attempt: \uFFFD", e.Run.Error)
			notes++
		}
	}
	require.Equal(t, 2, notes)
}

// The message of turn 2 arrives while turn 1 runs: later events of turn 1 are not an earlier attempt of turn 2.
func TestMemory(t *testing.T) {
	t.Parallel()
	type seen struct {
		turn, try  int
		history    []string
		earlier    []string
		checkpoint string
	}
	got := make(chan seen, 10)
	begun, goOn := make(chan struct{}, 1), make(chan struct{})
	a := does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		s := seen{turn: run.Turn, try: run.Try}
		history, err := run.Memory.History(ctx)
		require.NoError(t, err)
		for _, m := range history {
			s.history = append(s.history, m.FirstText())
		}
		earlier, err := run.Memory.Earlier(ctx)
		require.NoError(t, err)
		for _, e := range earlier {
			if e.Kind == task.EventArtifact {
				s.earlier = append(s.earlier, e.Artifact.Parts[0].Text)
			}
		}
		checkpoint, err := run.Memory.Checkpoint(ctx)
		require.NoError(t, err)
		s.checkpoint = string(checkpoint)
		got <- s
		if run.Turn == 1 {
			begun <- struct{}{}
			<-goOn
		}
		mark := fmt.Sprintf("%d.%d", run.Turn, run.Try)
		require.NoError(t, out.Checkpoint(ctx, json.RawMessage(`"`+mark+`"`)))
		_, err = out.Artifact(ctx, text(mark))
		require.NoError(t, err)
		if run.Turn > 1 && run.Try == 1 {
			return executor.Retryable(errors.New("again"), time.Millisecond)
		}
		return out.Status(ctx, task.StateInputRequired, &task.Message{Parts: []task.Part{task.Text("more after " + mark + "?")}})
	})
	a.MaxAttempts = 2
	p := start(t, setup{}, a)
	h := p.create("a", "first")
	await(t, begun)
	p.say(h, "second")
	close(goOn)
	require.Equal(t, seen{turn: 1, try: 1}, await(t, got))
	require.Equal(t, seen{turn: 2, try: 1, history: []string{"first", "more after 1.1?"}}, await(t, got))
	require.Equal(t, seen{2, 2, []string{"first", "more after 1.1?"}, []string{"2.1"}, `"2.1"`}, await(t, got))
	p.become(h, task.StateInputRequired)
	p.say(h, "third")
	history := []string{"first", "second", "more after 1.1?", "more after 2.2?"}
	require.Equal(t, seen{turn: 3, try: 1, history: history}, await(t, got))
	require.Equal(t, seen{3, 2, history, []string{"3.1"}, `"3.1"`}, await(t, got))
	p.become(h, task.StateInputRequired)
}

func TestClaimWithLostAnswerIsReturned(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	proxy := pgproxytest.New(t, url)
	lost := proxy.Lose("QueueClaim", pgproxytest.Answer, 1)
	p := start(t, setup{url: url, through: proxy.URL}, does(func(context.Context, *executor.Run, executor.Emitter) error { return nil }))
	await(t, lost)
	lost = proxy.Lose("QueueClaim", pgproxytest.Answer, 1)
	h := p.create("a", "x")
	await(t, lost)
	eventually(t, "it runs", func() bool {
		require.NoError(t, p.pool.Reconcile(t.Context()))
		head, err := p.store.Header(t.Context(), h.ID)
		require.NoError(t, err)
		return head.Status.State == task.StateCompleted
	})
}

func TestUnreadableMessageFailsTask(t *testing.T) {
	t.Parallel()
	p := start(t, setup{}, worker.Agent{Name: "other"})
	h := p.create("a", "x")
	p.exec(`UPDATE holdfast.task_events SET payload = '{"parts":7}'`)
	q := start(t, setup{url: p.url}, does(func(context.Context, *executor.Run, executor.Emitter) error { return nil }))
	eventually(t, "it fails", func() bool {
		head, err := q.store.Header(t.Context(), h.ID)
		require.NoError(t, err)
		return head.Status.State == task.StateFailed
	})
}

// reserve waits until the queue is known to be empty.
func (p *process) reserve() (slot *worker.Slot) {
	p.t.Helper()
	eventually(p.t, "a slot is free", func() bool {
		slot = p.pool.Reserve("a")
		return slot != nil
	})
	return slot
}

func TestReservedSlots(t *testing.T) {
	t.Parallel()
	p := start(t, setup{}, does(func(context.Context, *executor.Run, executor.Emitter) error { return nil }))
	require.Nil(t, p.pool.Reserve("unknown"))
	slot := p.reserve()
	require.Nil(t, p.pool.Reserve("a"), "one at a time")
	slot.Release(task.RateLimited)
	slot = p.reserve()
	id := store.NewID()
	n := &store.NewTask{
		Task: task.Task{ID: id, PublicID: id.String(), Agent: "a", ContextID: "c"}, Message: &task.Message{ID: "m"}, Seat: slot.Seat(),
	}
	created, err := p.store.Create(t.Context(), n)
	require.NoError(t, err)
	n.Task.CreatedAt = created.At
	// The pool waits until the reserved slot is used.
	p.stop()
	select {
	case <-p.ended:
		t.Fatal("the pool ended before its slot was used")
	case <-time.After(20 * time.Millisecond):
	}
	slot.Start(&store.Claimed{Task: &n.Task, Message: n.Message, MessageSeq: 1, Fence: store.FirstFence(&n.Task), Turn: 1, Try: 1})
	<-p.ended
	p.become(&n.Task, task.StateCompleted)
}

// An agent that waits for the window is not inactive, however long that takes.
func TestWaitForDatabaseIsNotInactivity(t *testing.T) {
	t.Parallel()
	var h *held
	a := does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
		for range 2 {
			if _, err := out.Artifact(ctx, text(strings.Repeat("x", 1<<20))); err != nil {
				return err
			}
		}
		return nil
	})
	a.InactivityTimeout = 5 * time.Second
	p := start(t, setup{wrap: func(s *store.Store) worker.Store { h = &held{Store: s}; return h }}, a)
	x := p.create("a", "x")
	eventually(t, "the window is full", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.answers) == 1
	})
	<-time.After(a.InactivityTimeout) // starts when the agent is silent already
	h.mu.Lock()
	h.released = true
	answer := h.answers[0]
	h.mu.Unlock()
	answer()
	p.become(x, task.StateCompleted)
}

// slowReads is a database that answers reads only after a while.
type slowReads struct {
	*store.Store
	refuse atomic.Int64
}

func (a *slowReads) read() error {
	if a.refuse.Add(-1) >= 0 {
		return &task.Error{Kind: task.Unavailable, Msg: "the database is not reachable"}
	}
	return nil
}

func (a *slowReads) ArtifactIDs(ctx context.Context, id task.ID) ([]string, error) {
	if err := a.read(); err != nil {
		return nil, err
	}
	return a.Store.ArtifactIDs(ctx, id)
}

func (a *slowReads) Snapshot(ctx context.Context, h *task.Task, withArtifacts bool) (*task.Task, error) {
	if err := a.read(); err != nil {
		return nil, err
	}
	return a.Store.Snapshot(ctx, h, withArtifacts)
}

func (a *slowReads) EventsAfter(ctx context.Context, owner *task.Task, after task.Position, limit int) ([]*task.Event, error) {
	if err := a.read(); err != nil {
		return nil, err
	}
	return a.Store.EventsAfter(ctx, owner, after, limit)
}

// Reads of a run wait for the database like its writes, and that is not inactivity.
func TestReadsOfRunWaitForDatabase(t *testing.T) {
	t.Parallel()
	db := &slowReads{}
	a := does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		if run.Turn == 1 {
			return out.Status(ctx, task.StateInputRequired, nil)
		}
		for _, read := range []func() error{
			func() error { _, err := run.Memory.History(ctx); return err },
			func() error { _, err := run.Memory.Checkpoint(ctx); return err },
			func() error { _, err := out.Artifact(ctx, text("x")); return err },
		} {
			db.refuse.Store(16) // 4 s of pauses
			if err := read(); err != nil {
				return err
			}
		}
		return nil
	})
	a.InactivityTimeout = 3500 * time.Millisecond
	p := start(t, setup{wrap: func(s *store.Store) worker.Store { db.Store = s; return db }}, a)
	h := p.create("a", "x")
	p.become(h, task.StateInputRequired)
	p.say(h, "y")
	p.become(h, task.StateCompleted)
}

func (a *slowReads) SetAgentState(ctx context.Context, n store.NewState) (int64, error) {
	if err := a.read(); err != nil {
		return 0, err
	}
	return a.Store.SetAgentState(ctx, n)
}

// An agent that waits for the database with a time limit of its own has not failed: its run is tried again.
func TestAgentsGiveUpOnTheDatabase(t *testing.T) {
	t.Parallel()
	db := &slowReads{}
	a := does(func(ctx context.Context, run *executor.Run, _ executor.Emitter) error {
		if run.Attempt == 1 {
			db.refuse.Store(1000)
			limited, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			ctx = limited
		}
		_, err := run.Memory.SetState(ctx, executor.OfTask, json.RawMessage(`1`), executor.AnyVersion)
		db.refuse.Store(0)
		return err
	})
	a.MaxAttempts, a.Backoff = 2, time.Millisecond
	p := start(t, setup{wrap: func(s *store.Store) worker.Store { db.Store = s; return db }}, a)
	p.become(p.create("a", "x"), task.StateCompleted)
}

// A process that was declared dead and cannot register again claims nothing.
func TestPoolWithoutLeaseClaimsNothing(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	p := worker.New(worker.Options{
		Agents: []worker.Agent{{Name: "a"}}, PollInterval: time.Minute,
		Worker: func() task.ID {
			asked.Add(1)
			time.AfterFunc(100*time.Millisecond, stop)
			return task.ID{}
		},
	})
	require.NoError(t, p.Run(ctx))
	require.Equal(t, int64(1), asked.Load())
}
