package workerapi_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-a2a/holdfast/internal/auth"
	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/executor/wire"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/memory"
	"github.com/holdfast-a2a/holdfast/internal/rpc/body"
	"github.com/holdfast-a2a/holdfast/internal/runapi"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/store/invarianttest"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/token"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
	"github.com/holdfast-a2a/holdfast/internal/worker"
	"github.com/holdfast-a2a/holdfast/internal/workerapi"
	"github.com/holdfast-a2a/holdfast/internal/workerapi/workerapitest"
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

const patience = 60 * time.Second

// world has two replicas without the role worker, which hear of each other's commits.
type world struct {
	t        *testing.T
	url      string
	replicas []*replica
}

// replica serves the worker API and the run API.
type replica struct {
	w       *world
	store   *store.Store
	pool    *worker.Pool
	api     *workerapi.API
	watch   *workerapi.Watch
	server  *httptest.Server
	claims  atomic.Int64 // statements
	healthy atomic.Int64
	self    task.ID
}

// listener passes the announcements of a store on to all replicas, as the hub does.
type listener struct{ w *world }

func (l listener) Committed([]*task.Event)    {}
func (l listener) Advanced(task.ID, task.Seq) {}
func (l listener) PushesDue()                 {}
func (l listener) CallsDue()                  {}
func (l listener) Gone([]task.ID)             {}
func (l listener) KeyRevoked(string)          {}
func (l listener) Ready(agent string) {
	for _, r := range l.w.replicas {
		r.api.Wake(agent)
	}
}

func (l listener) CancelWanted(id task.ID) {
	for _, r := range l.w.replicas {
		r.api.Hint(id)
	}
}

// counting counts the claims of a store.
type counting struct {
	*store.Store
	r *replica
}

func (c counting) ClaimRemote(ctx context.Context, want []store.RemoteDemand, most int64, alone bool) ([]store.Remote, error) {
	c.r.claims.Add(1)
	return c.Store.ClaimRemote(ctx, want, most, alone)
}

type options struct {
	agent  worker.Agent
	lease  time.Duration
	auth   *auth.Authenticator
	scheme string
	claims *limit.Places
	poll   time.Duration
}

func newWorld(t *testing.T, o options) *world {
	t.Helper()
	w := &world{t: t, url: storetest.New(t).URL}
	if o.lease == 0 {
		o.lease = time.Minute
	}
	if o.poll == 0 {
		o.poll = 200 * time.Millisecond
	}
	if o.claims == nil {
		o.claims = limit.NewPlaces(1000, 1000)
	}
	var open []*store.Store
	for range 2 {
		s, err := store.Open(t.Context(), store.Options{URL: w.url, APIConns: 4, Listener: listener{w}})
		require.NoError(t, err)
		open = append(open, s)
	}
	ctx, stop := context.WithCancel(context.Background())
	var ended []chan struct{}
	replicas := make([]*replica, len(open))
	for i, s := range open {
		r := &replica{w: w, store: s, self: store.NewID()}
		replicas[i] = r
		keys, err := s.Derive(t.Context(), runapi.Purpose)
		require.NoError(t, err)
		tokens := token.New(keys)
		require.NoError(t, s.Register(t.Context(), store.Process{ID: r.self, Name: "test"}, time.Hour))
		budgets := memory.New(64 << 20)
		var agents []worker.Agent
		for _, name := range []string{"a", "b"} {
			a := o.agent
			a.Name, a.Remote = name, true
			if a.CancelGrace == 0 {
				a.CancelGrace = patience
			}
			if a.MaxAttempts == 0 {
				a.MaxAttempts = 5
			}
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
			Store: s, Pool: r.pool, Tokens: tokens, Memory: budgets, Limits: body.Limits{Size: 2 << 20}, Log: log,
			Agents: map[string]runapi.Agent{"a": {MaxEvent: 1 << 20}, "b": {MaxEvent: 1 << 20}},
		})
		var schemes []string
		if o.scheme != "" {
			schemes = []string{o.scheme}
		}
		leases := map[string]time.Duration{"a": o.lease, "b": o.lease}
		r.api = workerapi.New(workerapi.Options{
			Store: counting{s, r}, Pool: r.pool, Leases: leases, History: map[string]wire.History{}, Auth: o.auth, Schemes: schemes,
			Memory: budgets, Limits: body.Limits{Size: 2 << 20}, Claims: o.claims, Poll: o.poll, Replica: fmt.Sprint("replica ", i), Log: log,
		})
		r.healthy.Store(int64(time.Hour))
		r.watch = workerapi.NewWatch(workerapi.WatchOptions{
			Store: s, Pool: r.pool, Leases: leases, Healthy: func() time.Duration { return time.Duration(r.healthy.Load()) },
			Process: func() task.ID { return r.self }, Expired: func(int) {}, API: r.api,
		})
		r.server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) {
			if runs.Serves(q) {
				runs.ServeHTTP(rw, q)
				return
			}
			r.api.ServeHTTP(rw, q)
		}))
	}
	w.replicas = replicas
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
	_, err := w.replicas[0].store.Create(w.t.Context(), &store.NewTask{
		Task:    task.Task{ID: id, PublicID: id.String(), Agent: agent, ContextID: "ctx", Owner: "owner", Dialect: "0.3"},
		Message: &task.Message{ID: "m-" + text, Role: task.RoleUser, Parts: []task.Part{task.Text(text)}},
	})
	require.NoError(w.t, err)
	return id
}

func (w *world) task(id task.ID) *task.Task {
	w.t.Helper()
	s := w.replicas[0].store
	h, err := s.Header(w.t.Context(), id)
	require.NoError(w.t, err)
	got, err := s.Snapshot(w.t.Context(), h, true)
	require.NoError(w.t, err)
	return got
}

func (w *world) becomes(id task.ID, s task.State) *task.Task {
	w.t.Helper()
	waittest.Eventually(w.t, "the task is "+s.String(), func() error {
		return waittest.Unless(w.task(id).Status.State == s, "it is %s", w.task(id).Status.State)
	})
	return w.task(id)
}

// look does what the duty does, at all replicas.
func (w *world) look() {
	w.t.Helper()
	for _, r := range w.replicas {
		_, err := r.watch.Run(w.t.Context())
		require.NoError(w.t, err)
	}
}

// lost waits until a worker has no run any more.
func (w *world) lost(one *workerapitest.Worker) {
	w.t.Helper()
	waittest.Eventually(w.t, "the leases end", func() error {
		w.look()
		lent, err := w.replicas[0].store.Lent(w.t.Context(), task.ID(uuid.MustParse(one.ID())), []string{"a", "b"})
		return waittest.Unless(err == nil && len(lent) == 0, "%v, %v", lent, err)
	})
}

func (w *world) worker(replica int) *workerapitest.Worker {
	return workerapitest.New(w.replicas[replica].server.URL)
}

func TestRunOfARemoteWorker(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{})
	one := w.worker(0)
	require.Empty(t, one.Claim(t, 0, workerapitest.Slots("a", 1)).Runs)
	id := w.create("a", "hello")
	got := one.Claim(t, 30, workerapitest.Slots("a", 1))
	require.Len(t, got.Runs, 1)
	run := got.Runs[0]
	require.Equal(t, 60.0, run.Lease)
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
	t.Parallel()
	w := newWorld(t, options{lease: 300 * time.Millisecond})
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
