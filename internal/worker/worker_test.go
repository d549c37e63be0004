package worker_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/invarianttest"
	"github.com/holdfast-a2a/holdfast/internal/test/pgproxytest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/internal/worker"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// process is a store with a pool of workers and no hub: commits wake the pool directly.
type process struct {
	t     testing.TB
	url   string
	store *store.Store
	pool  *worker.Pool
	id    atomic.Pointer[task.ID]

	stopOnce sync.Once
	stop     context.CancelFunc
	ended    chan struct{}
}

type setup struct {
	url     string        // of an existing database
	through string        // a proxy
	on      statements    // of the store
	grace   time.Duration // of a stop
	poll    time.Duration // of the queue
	atOnce  bool          // retries are due at once
	deaf    bool          // ignores hints for cancels
	runAPI  func(task.ID, task.Fence) executor.API
	memory  *limit.Runs
}

// options are those of a pool. Agents without a name are a, b, c. Graces are longer than any test.
func (s setup) options(db *store.Store, self func() task.ID, agents []worker.Agent) worker.Options {
	for i := range agents {
		agents[i].Name = cmp.Or(agents[i].Name, string(rune('a'+i)))
		agents[i].CancelGrace = cmp.Or(agents[i].CancelGrace, time.Hour)
	}
	return worker.Options{
		Store: db, Agents: agents, PollInterval: s.poll, StopGrace: cmp.Or(s.grace, time.Hour), Worker: self,
		Memory: s.memory, RunAPI: s.runAPI, ResumeURL: resumeURL,
	}
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
	if s.atOnce {
		storetest.AtOnce(t, storetest.Connect(t, p.url))
	}
	tells := func(name string) bool {
		return slices.ContainsFunc(agents, func(a worker.Agent) bool { _, ok := a.Executor.(executor.Canceler); return ok && a.Name == name })
	}
	var bus signal.Bus
	p.store = storetest.Must(store.Open(t.Context(), store.Options{URL: s.through, APIConns: 3, Listener: &bus, Tells: tells, Tracer: s.on}))(t)
	p.register()
	s.poll = cmp.Or(s.poll, 100*time.Millisecond)
	p.pool = worker.New(s.options(p.store, func() task.ID { return *p.id.Load() }, agents))
	bus.Queues.Subscribe(p.pool.Wake)
	if s.atOnce {
		bus.Events.Subscribe(func(evs []*task.Event) {
			if slices.ContainsFunc(evs, func(e *task.Event) bool { return e.Kind == task.EventRun }) {
				p.pool.Wake("")
			}
		})
	}
	if !s.deaf {
		bus.Cancels.Subscribe(p.pool.CancelHint)
	}
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

// statements has functions that are called before statements of these names are sent. They may block. A statement whose function
// returns false fails as if the database were away.
type statements map[string]func(args []any) bool

// TraceQueryStart implements pgx.QueryTracer.
func (s statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	return s.begins(ctx, q.SQL, q.Args)
}

// TraceQueryEnd implements pgx.QueryTracer.
func (statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements pgx.BatchTracer. The store's batches are settings and one statement, which is the last.
func (s statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, b pgx.TraceBatchStartData) context.Context {
	last := b.Batch.QueuedQueries[b.Batch.Len()-1]
	return s.begins(ctx, last.SQL, last.Arguments)
}

// TraceBatchQuery implements pgx.BatchTracer.
func (statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (s statements) begins(ctx context.Context, sql string, args []any) context.Context {
	name, _, _ := strings.Cut(strings.TrimPrefix(sql, "-- name: "), " ")
	if may := s[name]; may != nil && !may(args) {
		refused, cancel := context.WithCancel(ctx)
		cancel()
		return refused
	}
	return ctx
}

// inBubble runs a test of time, beside others. Its statements take no time.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// startInBubble is start, with retries that are due at once. Only commits wake the pool, unless it polls.
func startInBubble(t testing.TB, s setup, agents ...worker.Agent) *process {
	t.Helper()
	s.atOnce, s.poll = true, cmp.Or(s.poll, 1000*time.Hour)
	return start(t, s, agents...)
}

// is checks the state of a task in a bubble, when all that is due has happened.
func (p *process) is(h *task.Task, s task.State) *task.Task {
	p.t.Helper()
	synctest.Wait()
	now := p.task(h)
	require.Equal(p.t, s, now.Status.State, "%s", now.Status.Message.FirstText())
	return now
}

func (p *process) task(h *task.Task) *task.Task {
	p.t.Helper()
	head := storetest.Must(p.store.Header(p.t.Context(), h.ID))(p.t)
	return storetest.Must(p.store.Snapshot(p.t.Context(), head, true))(p.t)
}

func (p *process) cancel(h *task.Task) {
	p.t.Helper()
	storetest.Must(p.store.Cancel(p.t.Context(), h, nil))(p.t)
}

// lock locks a task, as a session of an operator does. All writes of the task wait.
func (p *process) lock(h *task.Task) (unlock func()) {
	p.t.Helper()
	tx := storetest.Must(storetest.Connect(p.t, p.url).Begin(p.t.Context()))(p.t)
	storetest.Must(tx.Exec(p.t.Context(), "SELECT FROM holdfast.tasks WHERE id = $1 FOR UPDATE", h.ID.String()))(p.t)
	return func() { require.NoError(p.t, tx.Rollback(p.t.Context())) }
}

// notified reports whether nobody has to tell the agent of the task's cancel any more.
func (p *process) notified(h *task.Task) (notified bool) {
	p.t.Helper()
	p.scan(&notified, "SELECT NOT EXISTS (SELECT FROM holdfast.cancel_notices WHERE task = $1 AND ended_at IS NULL)", h.ID.String())
	return notified
}

// delays are those of retries, which are due at once.
func (p *process) delays() []time.Duration {
	p.t.Helper()
	return storetest.Delays(p.t, storetest.Connect(p.t, p.url))
}

// lose declares the process dead. It has one run, which another process then has.
func (p *process) lose() {
	p.t.Helper()
	old := *p.id.Load()
	p.register()
	p.pool.LoseAll()
	require.NoError(p.t, p.store.Unregister(p.t.Context(), old))
	_, runs, err := p.store.Rescue(p.t.Context(), 0, true)
	require.NoError(p.t, err)
	require.Len(p.t, runs, 1)
	p.pool.Wake("")
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
		if p.t.Failed() {
			p.pool.LoseAll() // its runs may wait for the test
		}
		<-p.ended
		p.store.Close(context.Background())
	})
}

func (p *process) create(agent, text string) *task.Task {
	p.t.Helper()
	id := store.NewID()
	n := &store.NewTask{
		Task:    task.Task{ID: id, PublicID: id.String(), Agent: agent, ContextID: "ctx", Dialect: "0.3"},
		Message: asks(text),
	}
	storetest.Must(p.store.Create(p.t.Context(), n))(p.t)
	return &n.Task
}

func (p *process) say(h *task.Task, text string) {
	p.t.Helper()
	storetest.Must(p.store.AddMessage(p.t.Context(), &store.NewMessage{Task: h, Enqueue: true, RequestID: store.NewID(), Message: asks(text)}))(p.t)
}

// become waits until the task is in a state.
func (p *process) become(h *task.Task, s task.State) *task.Task {
	p.t.Helper()
	var now *task.Task
	waittest.Eventually(p.t, "the task is "+s.String(), func() error {
		now = p.task(h)
		if now.Status.State != s && now.Status.State.Terminal() {
			p.t.Fatalf("the task is %s (%q) and will never be %s", now.Status.State, now.Status.Message.FirstText(), s)
		}
		return waittest.Unless(now.Status.State == s, "it is %s", now.Status.State)
	})
	return now
}

func (p *process) log(h *task.Task) []*task.Event {
	p.t.Helper()
	evs := storetest.Must(p.store.EventsAfter(p.t.Context(), h, task.Position{}, 10_000))(p.t)
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
	conn := storetest.Must(pgx.Connect(p.t.Context(), p.url))(p.t)
	defer conn.Close(context.Background()) //nolint:errcheck // nothing to lose
	storetest.Must(conn.Exec(p.t.Context(), sql, args...))(p.t)
}

func (p *process) scan(into any, sql string, args ...any) {
	p.t.Helper()
	conn := storetest.Must(pgx.Connect(p.t.Context(), p.url))(p.t)
	defer conn.Close(context.Background()) //nolint:errcheck // nothing to lose
	require.NoError(p.t, conn.QueryRow(p.t.Context(), sql, args...).Scan(into))
}

type fn func(ctx context.Context, run *executor.Run, out executor.Emitter) error

func (f fn) Execute(ctx context.Context, run *executor.Run, out executor.Emitter) error {
	return f(ctx, run, out)
}

func does(f fn) worker.Agent { return worker.Agent{Executor: f} }

func text(s string) executor.Chunk {
	return executor.Chunk{Artifact: task.Artifact{ID: "out", Parts: []task.Part{task.Text(s)}}, Append: true}
}

// waits waits until its context ends, and reports the cause.
func waits(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
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
	budget := limit.NewRuns(2 << 20)
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
	_, crowded := budget.Messages()
	require.True(t, crowded)
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
	free(t, budget)
}

// A run whose lease is lost without a word of it writes nothing, neither events nor a state.
func TestLostLease(t *testing.T) {
	t.Parallel()
	begun, causes := make(chan struct{}, 1), make(chan error, 1)
	goOn := make(chan struct{})
	attempts := atomic.Int64{}
	a := does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		if attempts.Add(1) > 1 {
			return nil
		}
		begun <- struct{}{}
		<-goOn
		_, err := run.Memory.SetState(context.WithoutCancel(ctx), executor.OfTask, json.RawMessage(`1`), 0)
		require.ErrorIs(t, err, task.LeaseLost)
		for ctx.Err() == nil {
			_ = out.Artifact(ctx, text("zombie"))
		}
		causes <- context.Cause(ctx)
		return nil // even this does not complete the task
	})
	a.Concurrency, a.MaxAttempts = 2, 2
	p := start(t, setup{}, a)
	h := p.create("a", "x")
	waittest.Within(t, "a run begins", begun)
	p.become(h, task.StateWorking)
	old := *p.id.Load()
	p.register()
	require.NoError(t, p.store.Unregister(t.Context(), old))
	_, runs, err := p.store.Rescue(t.Context(), 0, true)
	require.NoError(t, err)
	require.Len(t, runs, 1)
	close(goOn)
	require.ErrorIs(t, waittest.Within(t, "a run ends", causes), executor.ErrLeaseLost)
	p.become(h, task.StateCompleted)
	for _, e := range p.log(h) {
		require.NotEqual(t, task.EventArtifact, e.Kind)
	}
	value, _, err := p.store.AgentState(t.Context(), store.StateOf{Task: h})
	require.NoError(t, err)
	require.Nil(t, value)
}

// loseClaim takes the database back to before the claim of a task, as a failover to a standby that lags does.
func (p *process) loseClaim(h *task.Task) {
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
		require.Equal(t, task.Attempt(1), waittest.Within(t, "a run begins", begun))
		p.become(h, task.StateWorking)
		if inAnother {
			start(t, setup{url: p.url}, a)
		}
		p.loseClaim(h)
		require.Equal(t, task.Attempt(1), waittest.Within(t, "a run begins", begun))
		if inAnother {
			for range 2 {
				require.NoError(t, p.pool.Reconcile(t.Context()))
			}
		}
		require.ErrorIs(t, waittest.Within(t, "a run ends", causes), executor.ErrLeaseLost)
		close(release)
		p.become(h, task.StateCompleted)
		require.Empty(t, causes)
	}
}

// A stop returns a run without counting it, and its events are there for the next attempt.
func TestStopReturnsRuns(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{})
	artifact := func(id string) fn {
		return chunk(executor.Chunk{Artifact: task.Artifact{ID: id, Parts: []task.Part{task.Text(id)}}, Append: true})
	}
	hangs := func(ctx context.Context, _ *executor.Run, _ executor.Emitter) error {
		close(begun)
		return waits(ctx)
	}
	p := start(t, setup{grace: time.Millisecond}, does(steps(artifact("one"), artifact("two"), checkpoint(`{"at":1.0}`), hangs)))
	h := p.create("a", "x")
	waittest.Within(t, "a run begins", begun)
	p.shutdown()

	type seen struct {
		try        int
		earlier    int
		checkpoint string
	}
	got := make(chan seen, 1)
	q := start(t, setup{url: p.url}, does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		earlier := storetest.Must(run.Memory.Earlier(ctx))(t)
		checkpoint := storetest.Must(run.Memory.Checkpoint(ctx))(t)
		got <- seen{run.Try, len(earlier), string(checkpoint)}
		return steps(artifact("two"), artifact("three"))(ctx, run, out)
	}))
	require.Equal(t, seen{1, 4, `{"at":1.0}`}, waittest.Within(t, "the next run", got), "working, one, two, and the checkpoint")
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
// did not learn the artifacts, or they are too many or too long.
func TestTurnsNumberArtifactsOn(t *testing.T) {
	t.Parallel()
	p := start(t, setup{}, does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		for _, id := range strings.Fields(run.Message.FirstText()) {
			if id == "none" {
				continue
			}
			require.NoError(t, out.Artifact(ctx, executor.Chunk{Artifact: task.Artifact{ID: id, Parts: []task.Part{task.Text(id)}}, Append: true}))
		}
		return out.Status(ctx, task.StateInputRequired, nil)
	}))
	many := make([]string, 100)
	for i := range many {
		many[i] = fmt.Sprint("many-", i)
	}
	long := strings.Repeat("x", 9<<10)
	type turn struct {
		ids    string
		listed int
		want   []string
	}
	for _, turns := range [][]turn{
		{
			{"z b", 2, []string{"z", "b"}},
			{"none", 2, []string{"z", "b"}},
			{"a b", 3, []string{"z", "b", "a"}},
			{strings.Join(many, " "), 3, append([]string{"z", "b", "a"}, many...)},
			{"many-7 c", 3, append(append([]string{"z", "b", "a"}, many...), "c")},
		},
		{
			{"short " + long + " first", 0, []string{"short", long, "first"}},
			{"short " + long + " second", 0, []string{"short", long, "first", "second"}},
		},
	} {
		var h *task.Task
		for i, turn := range turns {
			if i == 0 {
				h = p.create("a", turn.ids)
			} else {
				p.say(h, turn.ids)
			}
			waittest.Eventually(t, "the turn has parked", func() error {
				parks := 0
				for _, e := range p.log(h) {
					if e.State == task.StateInputRequired {
						parks++
					}
				}
				return waittest.Unless(parks == i+1, "%d turns have", parks)
			})
			var got []string
			for n, a := range p.become(h, task.StateInputRequired).Artifacts {
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
			p.scan(&listed, `SELECT coalesce(max(json_array_length(e.payload -> 'artifacts')), 0)
				FROM holdfast.tasks t JOIN holdfast.task_events e ON e.task = t.id AND e.seq = t.artifacts_seq WHERE t.id = $1`, h.ID.String())
			require.Equal(t, turn.listed, listed)
		}
	}
}

func TestUnstorableOutputFailsTask(t *testing.T) {
	t.Parallel()
	settled := does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
		_ = out.Artifact(ctx, text("poison"))
		return out.Status(ctx, task.StateCompleted, nil)
	})
	p := start(t, setup{},
		does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
			for _, s := range []string{"good", "poison", "lost"} {
				_ = out.Artifact(ctx, text(s))
			}
			return nil
		}), settled,
		does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
			_ = out.Artifact(ctx, text("poison"))
			return executor.Retryable(errors.New("again"), 0)
		}))
	p.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN IF NEW.payload::text LIKE '%poison%' THEN RAISE 'refused'; END IF; RETURN NEW; END $$`)
	p.exec("CREATE TRIGGER refuse BEFORE INSERT ON holdfast.task_events FOR EACH ROW EXECUTE FUNCTION refuse()")
	for _, agent := range []string{"a", "b", "c"} {
		h := p.create(agent, "x")
		require.Equal(t, "The agent's output could not be stored.", p.become(h, task.StateFailed).Status.Message.FirstText())
		require.Contains(t, p.errorOf(h), "refused", "operators read the cause")
	}
}

// Operators read what the agent's code has raised, with its line breaks and without the credentials that it has.
func TestCausesOfFailures(t *testing.T) {
	t.Parallel()
	const token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhZGEifQ.c2lnbmF0dXJl"
	p := start(t, setup{}, does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
		return out.StatusAbout(ctx, task.StateFailed, &task.Message{Parts: []task.Part{task.Text("Sorry.")}}, executor.About{
			Cause: "KeyError at shop.py:41: 'o-7'\n  in pay\n  with hfk_abcdefghij_0123456789 hfrun_AZRcPo9afD6dUjwfDzsqEQ and " + token,
		})
	}), does(func(context.Context, *executor.Run, executor.Emitter) error { panic("oh") }))
	h := p.create("a", "x")
	require.Equal(t, "Sorry.", p.become(h, task.StateFailed).Status.Message.FirstText())
	require.Equal(t, "KeyError at shop.py:41: 'o-7'\n  in pay\n  with [removed] [removed] and [removed]", p.errorOf(h))
	h = p.create("b", "x")
	require.Equal(t, "The agent crashed.", p.become(h, task.StateFailed).Status.Message.FirstText())
	require.Regexp(t, `(?s)^The agent crashed.: panic: oh\n.*worker_test\.go:\d+`, p.errorOf(h))
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
		err := out.Artifact(ctx, executor.Chunk{})
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
			err := out.Artifact(ctx, c)
			require.ErrorContains(t, err, "not valid JSON", name)
		}
		deep := json.RawMessage(strings.Repeat("[", 31) + strings.Repeat("]", 31))
		require.ErrorContains(t, out.Artifact(ctx, part(task.Part{Kind: task.PartData, Data: deep})), "parts[0].data: nests deeper than 30 levels")
		require.ErrorContains(t, out.Checkpoint(ctx, nil), "not valid JSON")
		require.ErrorContains(t, out.Checkpoint(ctx, json.RawMessage(`{]`)), "not valid JSON")
		parts := []task.Part{
			{Kind: task.PartText, Text: "a\x00b", Filename: "f\x00"},
			{Kind: task.PartData, Data: json.RawMessage("{\"k\\u0000\":\"\\\\u0000 \\u0000\",\r\n  \"n\": 1.0}")}, // over two lines
			{Kind: task.PartRaw, Raw: []byte("raw")},
		}
		require.NoError(t, out.Artifact(ctx, executor.Chunk{Artifact: task.Artifact{Name: "n\x00", Parts: parts}}))
		require.Equal(t, "a\x00b", parts[0].Text, "the executor's parts stay unchanged")
		parts[0].Text = "used again"
		copy(parts[2].Raw, "XXX")
		require.NoError(t, out.Checkpoint(ctx, json.RawMessage(`["\\u0000 \u0000"]`)))
		require.NoError(t, out.Status(ctx, task.StateRejected, &task.Message{Parts: []task.Part{task.Text("no\x00")}}))
		err = out.Artifact(ctx, text("x"))
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
	log := p.log(h)
	require.Equal(t, `["\\u0000 \ufffd"]`, string(log[len(log)-2].Run.Checkpoint))
}

func TestClaimWithLostAnswerIsReturned(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	proxy := pgproxytest.New(t, url)
	lost := proxy.Lose("QueueClaim", pgproxytest.Answer, 1)
	p := start(t, setup{url: url, through: proxy.URL}, does(func(context.Context, *executor.Run, executor.Emitter) error { return nil }))
	waittest.Within(t, "an answer is lost", lost)
	lost = proxy.Lose("QueueClaim", pgproxytest.Answer, 1)
	h := p.create("a", "x")
	waittest.Within(t, "an answer is lost", lost)
	waittest.Eventually(t, "it runs", func() error {
		require.NoError(t, p.pool.Reconcile(t.Context()))
		head := storetest.Must(p.store.Header(t.Context(), h.ID))(t)
		return waittest.Unless(head.Status.State == task.StateCompleted, "it is %s", head.Status.State)
	})
}

func TestUnreadableMessageFailsTask(t *testing.T) {
	t.Parallel()
	p := start(t, setup{}, worker.Agent{Name: "other"})
	h := p.create("a", "x")
	p.exec(`UPDATE holdfast.task_events SET payload = '{"parts":7}'`)
	q := start(t, setup{url: p.url}, does(func(context.Context, *executor.Run, executor.Emitter) error { return nil }))
	waittest.Eventually(t, "it fails", func() error { // its log cannot be read
		head := storetest.Must(q.store.Header(t.Context(), h.ID))(t)
		return waittest.Unless(head.Status.State == task.StateFailed, "it is %s", head.Status.State)
	})
}

// Large events make the pages of a log short. A run reads on behind them.
func TestRunReadsALargeLog(t *testing.T) {
	t.Parallel()
	const pieces = 5
	text := strings.Repeat("x", 700<<10)
	type seen struct {
		earlier    int
		checkpoint string
		size       int
		said       string
	}
	got := make(chan seen, 1)
	a := does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		if run.Try == 1 {
			empty := storetest.Must(run.Memory.Task(ctx))(t)
			require.Empty(t, empty.Artifacts)
			require.NoError(t, out.Status(ctx, task.StateWorking, &task.Message{ID: "m-1", Parts: []task.Part{task.Text("at work")}}))
			for range pieces {
				err := out.Artifact(ctx, executor.Chunk{Artifact: task.Artifact{ID: "a", Parts: []task.Part{task.Text(text)}}, Append: true})
				require.NoError(t, err)
			}
			require.NoError(t, out.Checkpoint(ctx, json.RawMessage(`7`)))
			return executor.Retryable(errors.New("again"), 1)
		}
		earlier := storetest.Must(run.Memory.Earlier(ctx))(t)
		checkpoint := storetest.Must(run.Memory.Checkpoint(ctx))(t)
		whole := storetest.Must(run.Memory.Task(ctx))(t)
		artifacts := 0
		for _, e := range earlier {
			if e.Artifact != nil {
				artifacts++
			}
		}
		got <- seen{artifacts, string(checkpoint), len(whole.Artifacts[0].Parts[0].Text), whole.Status.Message.ID}
		return nil
	})
	a.MaxAttempts = 2
	p := start(t, setup{}, a)
	p.become(p.create("a", "x"), task.StateCompleted)
	require.Equal(t, seen{pieces, "7", pieces * len(text), "m-1"}, waittest.Within(t, "the second try", got))
}
