package remote_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-a2a/holdfast/internal/auth"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/invarianttest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/internal/test/workerapitest"
	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
	"github.com/holdfast-a2a/holdfast/internal/worker/remote"
	"github.com/holdfast-a2a/holdfast/internal/worker/runapi"
)

func TestMain(m *testing.M) {
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// world has two replicas without the role worker, which hear of each other's commits.
type world struct {
	t        *testing.T
	url      string
	sql      *pgx.Conn
	replicas []*replica
}

// replica serves the worker API and the run API.
type replica struct {
	w       *world
	store   *store.Store
	pool    *worker.Pool
	api     *remote.API
	watch   *remote.Watch
	server  *httptest.Server
	claims  atomic.Int64 // statements
	held    atomic.Int64 // claims that wait
	healthy atomic.Int64
	self    task.ID
}

// counting counts the claims of a store.
type counting struct {
	*store.Store
	r *replica
}

func (c counting) Claim(ctx context.Context, worker task.ID, want []store.Demand) ([]*store.Claimed, error) {
	c.r.claims.Add(1)
	return c.Store.Claim(ctx, worker, want)
}

type options struct {
	agent  worker.Agent
	auth   *auth.Authenticator
	scheme string
	claims *limit.Places[limit.Holder]
	poll   time.Duration

	gone      time.Duration
	forgiving bool
}

// newWorld makes a world for a test that runs beside others.
func newWorld(t *testing.T, o options) *world {
	t.Helper()
	t.Parallel()
	w := &world{t: t, url: storetest.New(t).URL}
	w.sql = storetest.Connect(t, w.url)
	o.poll = cmp.Or(o.poll, 200*time.Millisecond)
	if o.claims == nil {
		o.claims = limit.NewPlaces[limit.Holder](1000, 1000)
	}
	var open []*store.Store
	var bus signal.Bus // of both replicas, as the hub connects them
	for range 2 {
		s := storetest.Must(store.Open(t.Context(), store.Options{URL: w.url, APIConns: 4, Listener: &bus}))(t)
		open = append(open, s)
	}
	ctx, stop := context.WithCancel(context.Background())
	var ended []chan struct{}
	replicas := make([]*replica, len(open))
	for i, s := range open {
		r := &replica{w: w, store: s, self: store.NewID()}
		replicas[i] = r
		keys := storetest.Must(s.Derive(t.Context(), runapi.Purpose))(t)
		tokens := task.NewTokens(keys)
		require.NoError(t, s.Register(t.Context(), store.Process{ID: r.self, Name: "test"}, time.Hour))
		budgets := limit.NewBudgets(64 << 20)
		var agents []worker.Agent
		for _, name := range []string{"a", "b"} {
			a := o.agent
			a.Name, a.Remote, a.MaxEvent = name, true, 1<<20
			a.CancelGrace, a.MaxAttempts = cmp.Or(a.CancelGrace, time.Hour), cmp.Or(a.MaxAttempts, 5)
			agents = append(agents, a)
		}
		local := worker.Agent{Name: "local", Executor: executor.Func(func(context.Context, *executor.Run, executor.Emitter) error { return nil })}
		r.pool = worker.New(worker.Options{
			Store: s, Agents: append(agents, local), PollInterval: 100 * time.Millisecond, Worker: func() task.ID { return r.self },
			RunAPI: func(id task.ID, run task.Fence) executor.API {
				return executor.API{URL: r.server.URL + runapi.Path, Token: runapi.TokenPrefix + tokens.Make(id, run.ClaimedAt)}
			},
		})
		log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
		runs := runapi.New(runapi.Options{
			Store: s, Pool: r.pool, Tokens: tokens, Memory: budgets, Limits: web.BodyLimits{Size: 2 << 20}, Log: log,
		})
		var schemes []string
		if o.scheme != "" {
			schemes = []string{o.scheme}
		}
		leases := map[string]time.Duration{"a": time.Minute, "b": time.Minute}
		r.api = remote.New(remote.Options{
			Store: counting{s, r}, Pool: r.pool, Leases: leases, History: map[string]wire.History{}, Auth: o.auth, Schemes: schemes,
			Memory: budgets, Limits: web.BodyLimits{Size: 2 << 20}, Claims: o.claims, Poll: o.poll, Replica: fmt.Sprint("replica ", i), Log: log,
			GoneAfter: o.gone, Forgiving: o.forgiving,
			Observer: remote.Observer{Waiting: func(delta int) { r.held.Add(int64(delta)) }},
		})
		r.healthy.Store(int64(time.Hour))
		r.watch = remote.NewWatch(remote.WatchOptions{
			Store: s, Pool: r.pool, Leases: leases, Healthy: func() time.Duration { return time.Duration(r.healthy.Load()) },
			Process: func() task.ID { return r.self }, Expired: func(int) {}, API: r.api,
		})
		r.server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) {
			if strings.HasPrefix(q.URL.Path, runapi.Path) {
				runs.ServeHTTP(rw, q)
				return
			}
			r.api.ServeHTTP(rw, q)
		}))
	}
	w.replicas = replicas
	for _, r := range replicas {
		bus.Queues.Subscribe(r.api.Wake)
		bus.Cancels.Subscribe(r.api.Hint)
	}
	for _, r := range replicas {
		done := make(chan struct{})
		ended = append(ended, done)
		go func() { defer close(done); _ = r.api.Run(ctx) }()
	}
	t.Cleanup(func() {
		for _, r := range replicas {
			r.api.Stop()
			r.server.Close()
		}
		stop()
		for _, done := range ended {
			<-done
		}
		for _, s := range open {
			s.Close(context.Background())
		}
		if !t.Failed() {
			require.NoError(t, invarianttest.Check(context.Background(), w.url))
		}
	})
	return w
}

// create creates a task for an agent.
func (w *world) create(agent, text string) task.ID {
	w.t.Helper()
	id := store.NewID()
	storetest.Must(w.replicas[0].store.Create(w.t.Context(), &store.NewTask{
		Task:    task.Task{ID: id, PublicID: id.String(), Agent: agent, ContextID: "ctx", Owner: "owner", Dialect: "0.3"},
		Message: &task.Message{ID: "m-" + text, Role: task.RoleUser, Parts: []task.Part{task.Text(text)}},
	}))(w.t)
	return id
}

// reserve takes the place of a claim that waits at the first replica for agent a, once no statement serves it.
func (w *world) reserve() (slot *remote.Slot) {
	w.t.Helper()
	waittest.Eventually(w.t, "the place of a claim", func() error {
		slot = w.replicas[0].api.Reserve("a")
		return waittest.Unless(slot != nil, "none is free")
	})
	return slot
}

// createWith creates a task with a reserved place.
func (w *world) createWith(slot *remote.Slot) *store.Claimed {
	w.t.Helper()
	id := store.NewID()
	n := &store.NewTask{
		Task:    task.Task{ID: id, PublicID: id.String(), Agent: "a", ContextID: "ctx", Owner: "owner", Dialect: "0.3"},
		Message: &task.Message{ID: "m", Role: task.RoleUser, Parts: []task.Part{task.Text("hello")}},
		Slot:    slot.Claimer(),
	}
	ev := storetest.Must(w.replicas[0].store.Create(w.t.Context(), n))(w.t)
	n.Task.Status.State, n.Task.LastSeq, n.Task.CreatedAt = task.StateSubmitted, 1, ev.At
	return &store.Claimed{
		Task: &n.Task, Message: n.Message, MessageSeq: 1, Turn: 1, Try: 1, Fence: store.FirstFence(&n.Task),
	}
}

func (w *world) task(id task.ID) *task.Task {
	w.t.Helper()
	s := w.replicas[0].store
	h := storetest.Must(s.Header(w.t.Context(), id))(w.t)
	got := storetest.Must(s.Snapshot(w.t.Context(), h, true))(w.t)
	return got
}

func (w *world) waiting() (n int64) {
	for _, r := range w.replicas {
		n += r.held.Load()
	}
	return n
}

// look does what the duty does, at all replicas.
func (w *world) look() {
	w.t.Helper()
	for _, r := range w.replicas {
		storetest.Must(r.watch.Run(w.t.Context()))(w.t)
	}
}

// moved lets two hours pass for a column of all rows, and makes all runs due for a look.
func (w *world) moved(table, column string) {
	w.t.Helper()
	w.exec("UPDATE holdfast.task_queue SET look_at = now() WHERE look_at IS NOT NULL")
	w.exec(fmt.Sprintf("UPDATE holdfast.%s SET %[2]s = %[2]s - interval '2 hours' WHERE %[2]s IS NOT NULL", table, column))
}

// lost lets the leases of a worker end, and waits until it has no run any more.
func (w *world) lost(one *workerapitest.Worker) {
	w.t.Helper()
	w.moved("task_queue", "lease_until")
	waittest.Eventually(w.t, "the leases end", func() error {
		w.look()
		lent, err := w.replicas[0].store.Lent(w.t.Context(), task.ID(uuid.MustParse(one.ID())), []string{"a", "b"})
		return waittest.Unless(err == nil && len(lent) == 0, "%v, %v", lent, err)
	})
}

// becomes looks until a task is in a state.
func (w *world) becomes(id task.ID, s task.State) {
	w.t.Helper()
	waittest.Eventually(w.t, "the task is "+s.String(), func() error {
		w.look()
		now := w.task(id).Status.State
		return waittest.Unless(now == s, "it is %s", now)
	})
}

func (w *world) cancel(id task.ID, metadata string) {
	w.t.Helper()
	s := w.replicas[1].store
	h := storetest.Must(s.Header(w.t.Context(), id))(w.t)
	ended := storetest.Must(s.Cancel(w.t.Context(), h, []byte(metadata)))(w.t)
	require.False(w.t, ended)
}

// lock locks rows in another session until the returned function is called.
func (w *world) lock(id task.ID, tables ...string) (release func()) {
	w.t.Helper()
	tx := storetest.Must(storetest.Connect(w.t, w.url).Begin(w.t.Context()))(w.t)
	for _, table := range tables {
		storetest.Must(tx.Exec(w.t.Context(), "SELECT FROM holdfast."+table+" WHERE id = $1 FOR UPDATE", id.String()))(w.t)
	}
	return func() { require.NoError(w.t, tx.Rollback(w.t.Context())) }
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	storetest.Must(w.sql.Exec(w.t.Context(), sql, args...))(w.t)
}

func (w *world) query(sql string, into any, args ...any) {
	w.t.Helper()
	require.NoError(w.t, w.sql.QueryRow(w.t.Context(), sql, args...).Scan(into))
}

// connected are the workers that operators see as connected.
func (w *world) connected() (ids []string) {
	w.t.Helper()
	w.query("SELECT coalesce(array_agg(worker::text), '{}') FROM holdfast.v_remote_workers WHERE connected", &ids)
	return ids
}

func (w *world) worker(replica int) *workerapitest.Worker {
	return workerapitest.New(w.replicas[replica].server.URL)
}

func TestRunOfARemoteWorker(t *testing.T) {
	w := newWorld(t, options{})
	one := w.worker(0)
	require.Empty(t, one.Claim(t, 0, workerapitest.Slots("a", 1)).Runs)
	id := w.create("a", "hello")
	got := one.Claim(t, 30, workerapitest.Slots("a", 1))
	require.Len(t, got.Runs, 1)
	run := got.Runs[0]
	require.InDelta(t, 60, run.Lease, 0)
	doc := run.Read(t)
	require.Equal(t, id.String(), doc.Task.ID)
	require.Equal(t, "hello", doc.Message.Parts[0].Text)
	require.Equal(t, task.StateWorking, w.task(id).Status.State, "before the worker has done anything")

	other := w.worker(1)
	other.Info = one.Info
	require.InDelta(t, 60, other.Beat(t, 0, run.ID).Lease, 0, "any replica renews")
	require.True(t, doc.RunAPI.Post(t, 0, `{"type":"text","text":"hi"}`, `{"type":"complete"}`).Ended)
	require.Equal(t, task.StateCompleted, w.task(id).Status.State)
	require.Equal(t, "over", one.Beat(t, 0, run.ID).Runs[0].Stop)
	require.Empty(t, one.Release(t, run.ID).Released)
}

func TestExpiredLeaseIsRescued(t *testing.T) {
	w := newWorld(t, options{})
	one, two := w.worker(0), w.worker(1)
	id := w.create("a", "hello")
	run := one.Claim(t, 30, workerapitest.Slots("a", 1)).Runs[0]
	w.look() // at the living
	w.lost(one)
	again := two.Claim(t, 30, workerapitest.Slots("a", 1)).Runs[0]
	require.NotEqual(t, run.ID, again.ID)
	require.Equal(t, "lost", one.Beat(t, 0, run.ID).Runs[0].Stop)
	late := run.Read(t)
	require.Equal(t, 410, late.RunAPI.Post(t, 0, `{"type":"complete","message":"late"}`).Status)
	now := again.Read(t)
	require.True(t, now.RunAPI.Post(t, 0, `{"type":"complete","message":"second"}`).Ended)
	require.Equal(t, "second", w.task(id).Status.Message.Parts[0].Text)
}

func TestLostAnswersAreRepeated(t *testing.T) {
	w := newWorld(t, options{})
	one := w.worker(0)
	w.create("a", "first")
	w.create("b", "other")
	first := one.Claim(t, 30, workerapitest.Slots("a", 1))
	require.Len(t, first.Runs, 1)
	again := one.Claim(t, 0, workerapitest.Slots("a", 1), workerapitest.Slots("b", 1))
	require.Contains(t, again.IDs(), first.Runs[0].ID, "it does not know the run")
	elsewhere := w.worker(1)
	elsewhere.Info = one.Info
	require.Contains(t, elsewhere.Claim(t, 0, workerapitest.Slots("a", 0)).IDs(), first.Runs[0].ID, "at another replica")
	have := one.Do(t, "/claims", workerapitest.Doc{
		"agents": []workerapitest.Doc{workerapitest.Slots("a", 0), workerapitest.Slots("b", 0)}, "wait": 0, "running": first.IDs(),
	})
	require.NotContains(t, have.IDs(), first.Runs[0].ID)
	stranger := w.worker(0)
	require.Empty(t, stranger.Claim(t, 0, workerapitest.Slots("a", 5)).Runs)
	require.Empty(t, stranger.Release(t, first.Runs[0].ID).Released, "a run of another worker")
	require.Equal(t, "lost", stranger.Beat(t, 0, first.Runs[0].ID).Runs[0].Stop)
}

// send sends a request without waiting for its answer.
func send(t *testing.T, one *workerapitest.Worker, path string, body workerapitest.Doc) <-chan *workerapitest.Answer {
	t.Helper()
	got := make(chan *workerapitest.Answer, 1)
	go func() {
		a, err := one.Try(context.WithoutCancel(t.Context()), path, body)
		if err != nil {
			a = &workerapitest.Answer{Detail: err.Error()}
		}
		got <- a
	}()
	return got
}

// hold starts a claim that waits.
func hold(t *testing.T, w *world, one *workerapitest.Worker, body workerapitest.Doc) <-chan *workerapitest.Answer {
	t.Helper()
	before := w.waiting()
	got := send(t, one, "/claims", body)
	waittest.Eventually(t, "the claim waits", func() error {
		return waittest.Unless(w.waiting() > before, "%d wait", w.waiting())
	})
	return got
}

func claims(wait float64, agents ...workerapitest.Doc) workerapitest.Doc {
	return workerapitest.Doc{"agents": agents, "wait": wait}
}

func next(t *testing.T, answered <-chan *workerapitest.Answer) *workerapitest.Answer {
	t.Helper()
	return waittest.Within(t, "the answer", answered)
}

// A run goes to the claim that waits longest, and each claim gets one before any gets two.
func TestRunsAreShared(t *testing.T) {
	w := newWorld(t, options{poll: time.Hour})
	one := w.worker(0)
	earlier := hold(t, w, one, claims(60, workerapitest.Slots("a", 1)))
	require.Empty(t, one.Claim(t, 0, workerapitest.Slots("a", 1)).Runs)
	require.Empty(t, next(t, earlier).Runs, "a later claim of the worker ends the earlier")
	var waiting []<-chan *workerapitest.Answer
	for range 3 {
		waiting = append(waiting, hold(t, w, w.worker(0), claims(60, workerapitest.Slots("a", 1000))))
	}
	first := w.create("a", "0")
	require.Equal(t, first.String(), next(t, waiting[0]).Runs[0].Read(t).Task.ID)
	second := w.create("a", "1")
	require.Equal(t, second.String(), next(t, waiting[1]).Runs[0].Read(t).Task.ID)
	w.create("a", "2")
	require.Len(t, next(t, waiting[2]).Runs, 1)

	for i := range 10 {
		w.create("a", fmt.Sprint(i))
	}
	many := w.worker(0).Claim(t, 30, workerapitest.Slots("a", 4))
	require.Len(t, many.Runs, 4, "up to the slots")
	require.Len(t, w.worker(1).Claim(t, 30, workerapitest.Slots("a", 100)).Runs, 6)
}

// The statement that creates a task gives it to a claim that waits: no other statement does.
func TestCreatedForAClaimThatWaits(t *testing.T) {
	w := newWorld(t, options{poll: time.Hour})
	require.Nil(t, w.replicas[0].api.Reserve("a"), "nobody waits")
	one := w.worker(0)
	waiting := hold(t, w, one, claims(60, workerapitest.Slots("a", 2)))
	slot := w.reserve()
	before := w.replicas[0].claims.Load()
	created := w.createWith(slot)
	slot.Start(created)
	run := next(t, waiting).Runs[0]
	doc := run.Read(t)
	require.Equal(t, created.Task.PublicID, doc.Task.ID)
	require.Equal(t, before, w.replicas[0].claims.Load(), "statements that claim")
	require.InDelta(t, 60, one.Beat(t, 0, run.ID).Lease, 0)
	require.True(t, doc.RunAPI.Post(t, 0, `{"type":"complete"}`).Ended)
	require.Equal(t, task.StateCompleted, w.task(created.Task.ID).Status.State)

	// It has a lease: when the worker vanishes, another one gets the task.
	waiting = hold(t, w, one, claims(60, workerapitest.Slots("a", 1)))
	slot = w.reserve()
	created = w.createWith(slot)
	slot.Start(created)
	require.Len(t, next(t, waiting).Runs, 1)
	w.lost(one)
	require.Equal(t, created.Task.PublicID, w.worker(1).Claim(t, 30, workerapitest.Slots("a", 1)).Runs[0].Read(t).Task.ID)
}

// A reservation that comes to nothing leaves the claim its place, and a worker that may have got a run looks for it.
func TestReservationsAreReleased(t *testing.T) {
	w := newWorld(t, options{})
	one, two := w.worker(0), w.worker(0)
	waiting := hold(t, w, one, claims(60, workerapitest.Slots("a", 1)))
	slot := w.reserve()
	require.Nil(t, w.replicas[0].api.Reserve("a"), "it has one slot")
	require.Nil(t, w.replicas[0].api.Reserve("b"))
	id := w.create("a", "waits for the place")
	slot.Release(task.Errorf(task.RateLimited, "refused"))
	require.Equal(t, id.String(), next(t, waiting).Runs[0].Read(t).Task.ID)

	waiting = hold(t, w, two, claims(60, workerapitest.Slots("a", 1)))
	slot = w.reserve()
	created := w.createWith(slot)
	slot.Release(task.Errorf(task.Unavailable, "the answer of the database was lost"))
	require.Empty(t, next(t, waiting).Runs)
	require.Equal(t, created.Task.PublicID, two.Claim(t, 30, workerapitest.Slots("a", 1)).Runs[0].Read(t).Task.ID)

	// The claim may be replaced meanwhile. Its worker gets the task with its next claim.
	three := w.worker(0)
	hold(t, w, three, claims(60, workerapitest.Slots("a", 1)))
	slot = w.reserve()
	later := hold(t, w, three, claims(60, workerapitest.Slots("a", 1)))
	created = w.createWith(slot)
	slot.Start(created)
	require.Equal(t, created.Task.PublicID, next(t, later).Runs[0].Read(t).Task.ID)
}

// A queue is worked off without hints and polls, also by one worker with one slot.
func TestBacklogNeedsNoHints(t *testing.T) {
	w := newWorld(t, options{poll: time.Hour})
	for i := range 10 {
		w.create("a", fmt.Sprint(i))
	}
	one := w.worker(0)
	for i := range 10 {
		got := one.Claim(t, 60, workerapitest.Slots("a", 1))
		require.Len(t, got.Runs, 1, "claim %d", i)
		doc := got.Runs[0].Read(t)
		require.Equal(t, fmt.Sprint(i), doc.Message.Parts[0].Text)
		require.True(t, doc.RunAPI.Post(t, 0, `{"type":"complete"}`).Ended)
	}
}

// Idle workers cost the database one statement per poll, however many there are.
func TestIdleClaimsShareStatements(t *testing.T) {
	w := newWorld(t, options{poll: time.Hour})
	for range 20 {
		hold(t, w, w.worker(0), claims(60, workerapitest.Slots("a", 1), workerapitest.Slots("b", 1)))
	}
	before := w.replicas[0].claims.Load()
	require.Less(t, before, int64(10))
	w.replicas[0].api.Wake("a")
	waittest.Eventually(t, "the hint", func() error {
		return waittest.Unless(w.replicas[0].claims.Load() > before, "no statement")
	})
	require.LessOrEqual(t, w.replicas[0].claims.Load(), before+2)
}

func TestCancelReachesTheHeartbeat(t *testing.T) {
	w := newWorld(t, options{})
	one := w.worker(0)
	id := w.create("a", "hello")
	run := one.Claim(t, 30, workerapitest.Slots("a", 1)).Runs[0]
	beat := send(t, one, "/heartbeat", workerapitest.Doc{"runs": []string{run.ID}, "wait": 30})
	w.cancel(id, `{"why":"changed my mind"}`)
	stop := next(t, beat)
	require.Len(t, stop.Runs, 1)
	require.Equal(t, "canceled", stop.Runs[0].Stop)
	require.JSONEq(t, `{"why":"changed my mind"}`, string(stop.Runs[0].Metadata))
	doc := run.Read(t)
	w.look()
	require.Equal(t, 200, doc.RunAPI.Post(t, 0, `{"type":"text","text":"tidying up"}`).Status, "within the grace")
	w.moved("tasks", "cancel_requested_at")
	w.becomes(id, task.StateCanceled)
	require.Equal(t, "over", one.Do(t, "/heartbeat", workerapitest.Doc{"runs": []string{run.ID}, "stopping": []string{run.ID}}).Runs[0].Stop)
	require.Equal(t, 410, doc.RunAPI.Post(t, 1, `{"type":"text","text":"late"}`).Status)
}

// A canceled run ends although its worker is gone, or gives it back.
func TestCanceledRunsNeedNoWorker(t *testing.T) {
	w := newWorld(t, options{})
	one, two := w.worker(0), w.worker(1)
	gone := w.create("a", "gone")
	one.Claim(t, 30, workerapitest.Slots("a", 1))
	w.cancel(gone, "{}")
	w.moved("task_queue", "lease_until")
	w.becomes(gone, task.StateCanceled)
	back := w.create("a", "back")
	run := two.Claim(t, 30, workerapitest.Slots("a", 1)).Runs[0]
	w.cancel(back, "{}")
	require.Equal(t, []string{run.ID}, two.Release(t, run.ID).Released)
	require.Equal(t, task.StateCanceled, w.task(back).Status.State)
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	for name, agent := range map[string]worker.Agent{
		"did not finish within": {RunTimeout: time.Hour},
		"was silent for more":   {InactivityTimeout: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{agent: agent})
			one := w.worker(0)
			id := w.create("a", "hello")
			run := one.Claim(t, 30, workerapitest.Slots("a", 1)).Runs[0]
			var heard, now time.Time
			w.query("SELECT heard_at FROM holdfast.tasks", &heard)
			require.Empty(t, one.Beat(t, 0, run.ID).Runs)
			w.query("SELECT heard_at FROM holdfast.tasks", &now)
			require.Equal(t, heard, now, "a heartbeat of the worker is no sign of life of the agent")
			w.look()
			require.Equal(t, task.StateWorking, w.task(id).Status.State)
			w.moved("tasks", "heard_at")
			w.moved("tasks", "claimed_at")
			w.becomes(id, task.StateFailed)
			require.Contains(t, w.task(id).Status.Message.Parts[0].Text, name)
			w.exec("UPDATE holdfast.tasks SET claimed_at = claimed_at + interval '2 hours'") // which names the run
			require.Equal(t, "over", one.Beat(t, 0, run.ID).Runs[0].Stop)
		})
	}
}

func TestReleasedRunsGoOnElsewhere(t *testing.T) {
	w := newWorld(t, options{agent: worker.Agent{MaxAttempts: 1}})
	one, two := w.worker(0), w.worker(1)
	id := w.create("a", "hello")
	run := one.Claim(t, 30, workerapitest.Slots("a", 1)).Runs[0]
	doc := run.Read(t)
	require.Equal(t, 200, doc.RunAPI.Post(t, 0, `{"type":"text","text":"half"}`, `{"type":"checkpoint","data":7}`).Status)
	waits := hold(t, w, two, claims(60, workerapitest.Slots("a", 1)))
	require.Equal(t, []string{run.ID}, one.Release(t, run.ID).Released)
	again := next(t, waits).Runs[0]
	require.Contains(t, string(again.Doc), `"checkpoint":7`)
	require.Equal(t, 1, again.Read(t).Try, "it cost none")
	now := again.Read(t)
	require.True(t, now.RunAPI.Post(t, 0, `{"type":"complete"}`).Ended)
	require.Equal(t, task.StateCompleted, w.task(id).Status.State)
}

// A worker that vanishes before the first event of its run costs no try, twice.
func TestTriesOfLostWorkers(t *testing.T) {
	w := newWorld(t, options{agent: worker.Agent{MaxAttempts: 2}})
	id := w.create("a", "poison")
	for try := range 4 {
		one := w.worker(0)
		require.Equal(t, try+1, one.Claim(t, 60, workerapitest.Slots("a", 1)).Runs[0].Read(t).Try)
		w.lost(one)
	}
	waittest.Eventually(t, "the task fails", func() error {
		require.Empty(t, w.worker(0).Claim(t, 0, workerapitest.Slots("a", 1)).Runs)
		return waittest.Unless(w.task(id).Status.State == task.StateFailed, "not yet")
	})
	require.Contains(t, w.task(id).Status.Message.Parts[0].Text, "Gave up after 4 attempts, of which 2 count: the worker was lost each time.")
}

// broken claims a run for a worker, and breaks the connection of a request that waits.
func (w *world) broken(path string) (one *workerapitest.Worker, run workerapitest.Run) {
	w.t.Helper()
	one = w.worker(0)
	run = one.Claim(w.t, 60, workerapitest.Slots("a", 1)).Runs[0]
	body := workerapitest.Doc{"runs": []string{run.ID}, "wait": 20}
	if path == "/claims" {
		body = claims(60, workerapitest.Slots("b", 1))
		body["running"] = []string{run.ID}
	}
	w.breaks(one, path, body)
	return one, run
}

func (w *world) breaks(one *workerapitest.Worker, path string, body workerapitest.Doc) {
	w.t.Helper()
	ctx, hangUp := context.WithCancel(w.t.Context())
	api, id, held := w.replicas[0].api, task.ID(uuid.MustParse(one.ID())), w.waiting()
	var lease time.Time
	w.query("SELECT max(lease_until) FROM holdfast.task_queue", &lease)
	ended := make(chan error, 1)
	go func() {
		_, err := one.Try(ctx, path, body)
		ended <- err
	}()
	waittest.Eventually(w.t, "the request waits", func() error {
		return waittest.Unless(w.waiting() > held || api.Renewed(id, lease), "not yet")
	})
	hangUp()
	require.Error(w.t, waittest.Within(w.t, "the request breaks", ended))
	waittest.Eventually(w.t, "the server notices", func() error {
		return waittest.Unless(api.Open(id) == 0, "not yet")
	})
}

// elsewhere looks until another worker has a run of the agent a.
func (w *world) elsewhere(another *workerapitest.Worker) (run *workerapitest.Run) {
	w.t.Helper()
	again := hold(w.t, w, another, claims(60, workerapitest.Slots("a", 1)))
	waittest.Eventually(w.t, "another worker gets the run", func() error {
		w.look()
		select {
		case got := <-again:
			run = &got.Runs[0]
			return nil
		default:
			return errors.New("not yet")
		}
	})
	return run
}

// A worker whose connection breaks, and that does not come back, has no runs any more, whatever its lease.
func TestBrokenConnectionFreesRuns(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/heartbeat", "/claims"} {
		t.Run(path[1:], func(t *testing.T) {
			w := newWorld(t, options{gone: time.Nanosecond})
			w.create("a", "hello")
			one, run := w.broken(path)
			two := w.worker(1)
			require.Equal(t, 2, w.elsewhere(two).Read(t).Try, "it may have killed the worker")
			require.Equal(t, "lost", one.Beat(t, 0, run.ID).Runs[0].Stop)
			require.NotContains(t, w.connected(), one.ID())
			require.Contains(t, w.connected(), two.ID())
			w.look() // the first one has come back
			require.Contains(t, w.connected(), one.ID())
		})
	}
}

// A worker that goes on at another replica keeps its runs.
func TestBrokenConnectionOfALivingWorker(t *testing.T) {
	w := newWorld(t, options{gone: time.Nanosecond})
	id := w.create("a", "hello")
	one, run := w.broken("/heartbeat")
	elsewhere := *one
	elsewhere.URL = w.replicas[1].server.URL
	require.InDelta(t, 60, elsewhere.Beat(t, 0, run.ID).Lease, 0)
	waittest.Eventually(t, "the replica parts from the worker", func() error {
		w.look()
		return waittest.Unless(w.replicas[0].api.Parted(task.ID(uuid.MustParse(one.ID()))), "not yet")
	})
	require.Empty(t, elsewhere.Beat(t, 0, run.ID).Runs, "it is not lost")
	w.look() // the other replica notices, and says so with the next look
	w.look()
	require.Contains(t, w.connected(), one.ID())
	doc := run.Read(t)
	require.True(t, doc.RunAPI.Post(t, 0, `{"type":"complete"}`).Ended)
	require.Equal(t, task.StateCompleted, w.task(id).Status.State)
}

// With the server of holdfast dev, a process that dies costs no try.
func TestBrokenConnectionInDevelopment(t *testing.T) {
	t.Parallel()
	for name, dies := range map[string]func(*world){
		"with a request": func(w *world) { w.broken("/heartbeat") },
		"between two": func(w *world) {
			w.worker(0).Claim(w.t, 60, workerapitest.Slots("a", 1))
			w.replicas[0].api.Ended()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{forgiving: true, agent: worker.Agent{MaxAttempts: 1}})
			w.create("a", "hello")
			dies(w)
			require.Equal(t, 1, w.elsewhere(w.worker(1)).Read(t).Try)
		})
	}
}

func TestLeavingWorkerIsGone(t *testing.T) {
	w := newWorld(t, options{})
	one := w.worker(0)
	require.Empty(t, one.Claim(t, 0, workerapitest.Slots("a", 1)).Runs)
	w.look()
	require.Contains(t, w.connected(), one.ID())
	w.create("a", "hello")
	run := one.Claim(t, 60, workerapitest.Slots("a", 1)).Runs[0]
	require.Equal(t, []string{run.ID}, one.Do(t, "/release", workerapitest.Doc{"runs": []string{run.ID}, "leaves": true}).Released)
	require.NotContains(t, w.connected(), one.ID())
	w.look()
	require.NotContains(t, w.connected(), one.ID())
	require.Equal(t, 1, w.worker(0).Claim(t, 60, workerapitest.Slots("a", 1)).Runs[0].Read(t).Try)
}

// After an outage of the database, leases are not taken from workers that could not renew them.
func TestOutageFreesNoRuns(t *testing.T) {
	w := newWorld(t, options{})
	one := w.worker(0)
	id := w.create("a", "hello")
	run := one.Claim(t, 30, workerapitest.Slots("a", 1)).Runs[0]
	for _, r := range w.replicas {
		r.healthy.Store(int64(30 * time.Second)) // shorter than a lease
	}
	w.moved("task_queue", "lease_until")
	w.look()
	require.InDelta(t, 60, one.Beat(t, 0, run.ID).Lease, 0, "it is renewed")
	doc := run.Read(t)
	require.True(t, doc.RunAPI.Post(t, 0, `{"type":"complete"}`).Ended)
	require.Equal(t, task.StateCompleted, w.task(id).Status.State)
}

// A heartbeat does not wait for a lock of another session, and does not say that such a run is lost.
func TestLocksOfOtherSessions(t *testing.T) {
	w := newWorld(t, options{})
	one := w.worker(0)
	id := w.create("a", "locked")
	w.create("a", "free")
	got := one.Claim(t, 30, workerapitest.Slots("a", 2))
	for len(got.Runs) < 2 {
		got.Runs = append(got.Runs, one.Do(t, "/claims", workerapitest.Doc{
			"agents": []workerapitest.Doc{workerapitest.Slots("a", 1)}, "wait": 30, "running": got.IDs(),
		}).Runs...)
	}
	release := w.lock(id, "tasks", "task_queue")
	a := one.Beat(t, 0, got.IDs()...)
	require.Equal(t, 200, a.Status)
	require.Empty(t, a.Runs)
	require.InDelta(t, 60, a.Lease, 0, "of the other run")
	release()

	// A release that could not give back all runs is an error. The worker repeats it.
	release = w.lock(id, "tasks")
	locked := got.Runs[0]
	if locked.Read(t).Task.ID != id.String() {
		locked = got.Runs[1]
	}
	a = one.Release(t, locked.ID)
	require.Equal(t, 503, a.Status)
	require.Empty(t, a.Released)
	release()
	require.Equal(t, []string{locked.ID}, one.Release(t, locked.ID).Released)
}

func TestDrainAndRetire(t *testing.T) {
	w := newWorld(t, options{})
	one, two := w.worker(0), w.worker(0)
	w.create("a", "hello")
	run := two.Claim(t, 30, workerapitest.Slots("a", 1)).Runs[0]
	retires, stays := hold(t, w, one, claims(60, workerapitest.Slots("a", 1))), hold(t, w, two, workerapitest.Doc{
		"agents": []workerapitest.Doc{workerapitest.Slots("a", 1)}, "wait": 60, "running": []string{run.ID},
	})
	w.look()
	known := storetest.Must(w.replicas[1].store.RemoteWorkersOf(t.Context(), "", false, 10))(t)
	require.Len(t, known, 2)
	require.NoError(t, w.replicas[1].store.RetireRemote(t.Context(), task.ID(uuid.MustParse(one.ID()))))
	w.look()
	require.Equal(t, "worker", next(t, retires).Drain)
	require.Equal(t, "worker", one.Claim(t, 60, workerapitest.Slots("a", 1)).Drain, "each time")

	beat := send(t, two, "/heartbeat", workerapitest.Doc{"runs": []string{run.ID}, "wait": 20})
	w.replicas[0].api.Stop()
	require.Equal(t, "replica", next(t, stays).Drain)
	require.Equal(t, "replica", next(t, beat).Drain)
	doc := run.Read(t)
	require.True(t, doc.RunAPI.Post(t, 0, `{"type":"complete"}`).Ended, "runs are still served")

	require.ErrorIs(t, w.replicas[1].store.RetireRemote(t.Context(), task.ID{}), task.NotFound)

	// Old workers are forgotten.
	w.exec("UPDATE holdfast.remote_workers SET last_seen = now() - interval '8 days'")
	storetest.Must(w.replicas[0].store.SeenRemote(t.Context(), "r", []store.RemoteWorker{{ID: store.NewID(), Name: "new"}}))(t)
	storetest.Must(w.replicas[1].store.ForgetRemote(t.Context(), 7*24*time.Hour))(t)
	left := storetest.Must(w.replicas[1].store.RemoteWorkersOf(t.Context(), "", false, 10))(t)
	require.Len(t, left, 1)
	require.Equal(t, "new", left[0].Name)
}

// Tasks of an agent without workers wait, and the agent shows as away. Those that wait too long fail.
func TestNoWorker(t *testing.T) {
	w := newWorld(t, options{agent: worker.Agent{UnreachableFor: time.Hour}})
	id := w.create("a", "hello")
	suspect := w.create("a", "poison")
	w.exec("UPDATE holdfast.task_queue SET suspect = true WHERE id = $1", suspect.String())
	s, r := w.replicas[0].store, w.replicas[0]
	gone := storetest.Must(s.AbsentRemote(t.Context(), r.self, []string{"a", "b"}))(t)
	require.Len(t, gone, 1)
	require.Contains(t, gone, "a")
	var waiting int
	w.query("SELECT waiting FROM holdfast.v_outages WHERE agent = 'a'", &waiting)
	require.Equal(t, 2, waiting)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.pool.Run(ctx) }()
	defer func() { stop(); <-ended }()
	young := w.create("a", "young")
	w.exec("UPDATE holdfast.task_queue SET available_at = available_at - interval '2 hours' WHERE id <> $1", young.String())
	require.Equal(t, task.StateSubmitted, w.task(id).Status.State, "the pool leaves it alone")
	for _, id := range []task.ID{id, suspect} {
		waittest.Eventually(t, "it has waited long enough", func() error {
			r.pool.Expire("a")
			return waittest.Unless(w.task(id).Status.State == task.StateFailed, "%s", w.task(id).Status.State)
		})
	}
	require.Contains(t, w.task(id).Status.Message.Parts[0].Text, "could not be reached")
	require.Equal(t, task.StateSubmitted, w.task(young).Status.State)

	one := w.worker(0)
	require.Equal(t, young.String(), one.Claim(t, 30, workerapitest.Slots("a", 1)).Runs[0].Read(t).Task.ID)
	w.look()
	w.create("a", "again")
	gone = storetest.Must(s.AbsentRemote(t.Context(), r.self, []string{"a", "b"}))(t)
	require.Empty(t, gone, "a worker was seen")
}

// A busy worker sends heartbeats alone, maybe to a replica that knows none of its claims. Its agents stay served.
func TestHeartbeatsKeepTheAgentsOfAWorker(t *testing.T) {
	w := newWorld(t, options{})
	w.create("a", "hello")
	one := w.worker(0)
	run := one.Claim(t, 30, workerapitest.Slots("a", 1)).Runs[0]
	w.look()
	w.create("a", "waits")
	one.URL = w.replicas[1].server.URL
	require.Empty(t, one.Beat(t, 0, run.ID).Runs)
	w.look()
	gone := storetest.Must(w.replicas[0].store.AbsentRemote(t.Context(), w.replicas[0].self, []string{"a"}))(t)
	require.Empty(t, gone)
}

// The runs of an agent that has another kind now, or is not configured any more, are freed when their leases end.
func TestRunsOfFormerAgentsAreFreed(t *testing.T) {
	w := newWorld(t, options{})
	w.create("a", "lent")
	run := w.worker(0).Claim(t, 30, workerapitest.Slots("a", 1)).Runs[0]
	canceled := w.create("a", "canceled")
	w.worker(0).Claim(t, 30, workerapitest.Slots("a", 1))
	require.NotEmpty(t, run.ID)
	w.exec("UPDATE holdfast.tasks SET cancel_requested = true, cancel_requested_at = now() WHERE id = $1", canceled.String())
	lent := func() (n int) {
		w.query("SELECT count(*)::int FROM holdfast.task_queue WHERE worker_id IS NOT NULL", &n)
		return n
	}
	w.moved("task_queue", "lease_until")
	r := w.replicas[0]
	healthy := time.Minute
	watch := remote.NewWatch(remote.WatchOptions{
		Store: r.store, Pool: worker.New(worker.Options{Store: r.store, Worker: func() task.ID { return r.self }}),
		Healthy: func() time.Duration { return healthy }, Process: func() task.ID { return r.self }, Expired: func(int) {},
	})
	storetest.Must(watch.Run(t.Context()))(t)
	require.Equal(t, 2, lent(), "their workers may renew them")
	healthy = time.Hour
	waittest.Eventually(t, "they are freed", func() error {
		_, err := watch.Run(t.Context())
		return waittest.Unless(err == nil && lent() == 0, "%v", err)
	})
}

func TestInvalidRequests(t *testing.T) {
	w := newWorld(t, options{})
	one := w.worker(0)
	me := fmt.Sprintf(`"worker":{"id":%q}`, one.ID())
	for _, tt := range []struct{ path, body, field, text string }{
		{"/claims", `{`, "", "not valid JSON"},
		{"/claims", `[]`, "", "an object"},
		{"/claims", `{"worker":{"id":"x"},"agents":[{"name":"a","slots":1}]}`, "worker.id", "UUID"},
		{"/claims", `{"agents":[{"name":"a","slots":1}]}`, "worker", "missing"},
		{"/claims", `{` + me + `}`, "agents", "missing"},
		{"/claims", `{` + me + `,"agents":[]}`, "agents", "1 to 100"},
		{"/claims", `{` + me + `,"agents":[1]}`, "agents[0]", "object"},
		{"/claims", `{` + me + `,"agents":[{"name":"a"}]}`, "agents[0].slots", "missing"},
		{"/claims", `{` + me + `,"agents":[{"name":"a","slots":1001}]}`, "agents[0].slots", "0 to 1000"},
		{"/claims", `{` + me + `,"agents":[{"name":"a","slots":1.5}]}`, "agents[0].slots", "whole number"},
		{"/claims", `{` + me + `,"agents":[{"name":"a","slots":1},{"name":"a","slots":1}]}`, "agents[1].name", "second time"},
		{"/claims", `{` + me + `,"agents":[{"name":"a","slots":1}],"wait":61}`, "wait", "0 to 60"},
		{"/claims", `{` + me + `,"agents":[{"name":"a","slots":1}],"running":["x"]}`, "running[0]", "not the id of a run"},
		{"/claims", `{"worker":{"id":"` + one.ID() + `","name":"a\nb"},"agents":[{"name":"a","slots":1}]}`, "worker.name", "control"},
		{"/heartbeat", `{` + me + `}`, "runs", "missing"},
		{"/heartbeat", `{` + me + `,"runs":[],"wait":31}`, "wait", "0 to 30"},
		{"/heartbeat", `{` + me + `,"runs":[7]}`, "runs[0]", "must be a string"},
		{"/release", `{` + me + `,"runs":[],"leaves":1}`, "leaves", "true or false"},
	} {
		a := storetest.Must(one.Raw(t.Context(), "POST", workerapitest.Path+tt.path, []byte(tt.body)))(t, tt.body)
		require.Equal(t, 400, a.Status, "%s: %s", tt.body, a.Body)
		require.Equal(t, tt.field, a.Field, "%s: %s", tt.body, a.Body)
		require.Contains(t, a.Detail, tt.text, tt.body)
	}
	for _, agent := range []string{"local", "unknown"} {
		a := one.Claim(t, 0, workerapitest.Slots(agent, 1))
		require.Equal(t, 404, a.Status)
		require.Equal(t, "not_found", a.Reason)
		require.Equal(t, "agents[0].name", a.Field)
	}
	for _, tt := range []struct {
		method, path string
		status       int
		reason       string
		headers      []string
	}{
		{"POST", "/worker/v2/claims", 404, "version", nil},
		{"GET", "/worker/v9", 404, "version", nil},
		{"POST", "/worker/v1/nothing", 404, "not_found", nil},
		{"GET", "/worker/v1/claims", 405, "method", nil},
		{"POST", "/worker/v1/claims?x=1", 400, "invalid", nil},
		{"POST", "/worker/v1/claims", 415, "invalid", []string{"Content-Type", "text/plain"}},
		{"POST", "/worker/v1/claims", 403, "forbidden", []string{"Origin", "https://evil.example"}},
	} {
		a := storetest.Must(one.Raw(t.Context(), tt.method, tt.path, []byte(`{}`), tt.headers...))(t, tt.path)
		require.Equal(t, tt.status, a.Status, "%s %s: %s", tt.method, tt.path, a.Body)
		require.Equal(t, tt.reason, a.Reason, tt.path)
		if tt.reason == "version" {
			require.Equal(t, []string{"1"}, a.Versions)
		}
	}
	large := []byte(`{` + me + `,"runs":["` + strings.Repeat("x", 3<<20) + `"]}`)
	a := storetest.Must(one.Raw(t.Context(), "POST", workerapitest.Path+"/heartbeat", large))(t)
	require.Equal(t, 413, a.Status)
}

func TestClaimsAreLimited(t *testing.T) {
	w := newWorld(t, options{claims: limit.NewPlaces[limit.Holder](2, 2)})
	id := w.create("a", "hello")
	busy := w.worker(0)
	run := busy.Claim(t, 30, workerapitest.Slots("a", 1)).Runs[0]
	require.Equal(t, id.String(), run.Read(t).Task.ID)
	for range 2 {
		hold(t, w, w.worker(0), claims(60, workerapitest.Slots("a", 1)))
	}
	a := w.worker(0).Claim(t, 60, workerapitest.Slots("a", 1))
	require.Equal(t, 429, a.Status)
	require.Equal(t, "busy", a.Reason)
	require.Equal(t, "5", a.Header.Get("Retry-After"))
	beat := send(t, busy, "/heartbeat", workerapitest.Doc{"runs": []string{run.ID}, "wait": 30})
	w.cancel(id, "{}")
	require.Equal(t, 200, next(t, beat).Status, "heartbeats wait")
}
