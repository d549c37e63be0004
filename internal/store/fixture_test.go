package store

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/invarianttest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

func TestMain(m *testing.M) {
	storetest.AtATime(6)
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		_ = checks.Value.Set("50") // sequences on a database; -rapid.checks 1000 looks for rare ones
		_ = flag.Set("rapid.nofailfile", "true")
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// fixture is a store on a database of its own. At the end of the test it closes
// the store and checks the invariants.
type fixture struct {
	*Store
	t   testing.TB
	url string // direct, without a proxy
	ear *ear

	checks sync.Mutex
	admin  *pgx.Conn // for checks; nil: not open
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	return openFixture(t, storetest.New(t).URL, "")
}

// parallel is newFixture for a test that runs beside others.
func parallel(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	return newFixture(t)
}

// unhurried are the patience and the parameters of a URL with which no machine is too slow for a statement. A statement waits
// for a lock as long as in production, and is then retried.
var unhurried = patience{turn: time.Hour, blocked: time.Hour, create: time.Hour}

const unhurriedParams = "statement_timeout=0&idle_in_transaction_session_timeout=0"

// with adds parameters to a URL.
func with(url, params string) string {
	if strings.Contains(url, "?") {
		return url + "&" + params
	}
	return url + "?" + params
}

// ok requires that a call succeeds whose result does not matter.
func (f *fixture) ok(_ any, err error) {
	f.t.Helper()
	require.NoError(f.t, err)
}

// must2 is must for a call with two results.
func must2[T, U any](one T, two U, err error) func(t require.TestingT, message ...any) (T, U) {
	return func(t require.TestingT, message ...any) (T, U) {
		require.NoError(t, err, message...)
		return one, two
	}
}

// errOf returns the error of a call.
func errOf(_ any, err error) error { return err }

// errOf2 is errOf for a call with two results.
func errOf2(_, _ any, err error) error { return err }

// keptBytes is the memory of ended tasks in tests: all reads of tests could be of kept tasks.
const keptBytes = 8 << 20

// openFixture opens the store through another URL than the one for checks.
func openFixture(t testing.TB, url, through string) *fixture {
	t.Helper()
	return openPatient(t, url, through, unhurried)
}

// openPatient is openFixture with another patience.
func openPatient(t testing.TB, url, through string, patience patience) *fixture {
	t.Helper()
	f := &fixture{t: t, url: url, ear: newEar()}
	f.Store = open(t, Options{
		URL: cmp.Or(through, url), APIConns: 4, RowSecurity: true, Listener: f.ear, Tells: func(string) bool { return true },
		Ended: limit.NewBudget(keptBytes), Observer: Observer{Ended: f.ear.logRead, Retried: f.ear.retried, Limited: f.ear.refused},
		patience: patience,
	}, func() {
		if !t.Failed() {
			require.NoError(t, invarianttest.Check(context.Background(), url))
		}
	})
	return f
}

// open opens a store for a test, without a hurry. It is closed at the end of the test, and then is called.
func open(t testing.TB, o Options, then ...func()) *Store {
	t.Helper()
	o.URL, o.APIConns = with(o.URL, unhurriedParams), cmp.Or(o.APIConns, 2)
	if !strings.Contains(o.URL, "connect_timeout=") {
		o.URL = with(o.URL, "connect_timeout=3600")
	}
	if o.patience == (patience{}) {
		o.patience = unhurried
	}
	s := storetest.Must(Open(t.Context(), o))(t)
	for _, p := range s.moves.pools {
		p.bound = context.WithCancel
	}
	t.Cleanup(func() {
		s.Close(context.Background())
		for _, do := range then {
			do()
		}
	})
	return s
}

// bounds are the statements of a store whose time is up when the test says so.
type bounds struct {
	mu  sync.Mutex
	all map[*bound]bool
}

// bound is the context of a statement.
type bound struct {
	context.Context
	done chan struct{}
	once sync.Once
	err  error
}

func (b *bound) Done() <-chan struct{} { return b.done }

func (b *bound) Err() error {
	select {
	case <-b.done:
		return b.err
	default:
		return nil
	}
}

func (b *bound) end(err error) { b.once.Do(func() { b.err = err; close(b.done) }) }

// bounded bounds the statements of some pools, or of all.
func (f *fixture) bounded(pools ...*pool) *bounds {
	all := &bounds{all: map[*bound]bool{}}
	if len(pools) == 0 {
		pools = f.moves.pools
	}
	for _, p := range pools {
		p.bound = func(ctx context.Context) (context.Context, context.CancelFunc) {
			b := &bound{Context: ctx, done: make(chan struct{})}
			stop := context.AfterFunc(ctx, func() { b.end(ctx.Err()) })
			all.mu.Lock()
			all.all[b] = true
			all.mu.Unlock()
			return b, func() {
				stop()
				all.mu.Lock()
				delete(all.all, b)
				all.mu.Unlock()
				b.end(context.Canceled)
			}
		}
	}
	return all
}

// expire gives up all statements that are under way, and returns their number.
func (a *bounds) expire() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for b := range a.all {
		b.end(context.DeadlineExceeded)
	}
	return len(a.all)
}

// ear is a Listener that records signals.
type ear struct {
	mu        sync.Mutex
	committed map[task.ID][]*task.Event
	advanced  map[task.ID]task.Seq
	ready     map[string]int
	cancels   []task.ID
	gone      []task.ID
	kept      [2]int // logs that were read from the database, and from memory
	pushes    atomic.Int32
	calls     atomic.Int32
	repeated  map[string]int // retried statements, by kind
	onRetry   func(kind string)
	limited   []string // refusals, by agent and limit
}

func newEar() *ear {
	return &ear{committed: map[task.ID][]*task.Event{}, advanced: map[task.ID]task.Seq{}, ready: map[string]int{}, repeated: map[string]int{}}
}

func (e *ear) Committed(evs []*task.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range evs {
		e.committed[ev.Task] = append(e.committed[ev.Task], ev)
	}
}

func (e *ear) Advanced(id task.ID, seq task.Seq) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.advanced[id] = max(e.advanced[id], seq)
}

func (e *ear) Ready(agent string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ready[agent]++
}

// hints counts the hints about due tasks of an agent.
func (e *ear) hints(agent string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ready[agent]
}

func (e *ear) retried(kind string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.repeated[kind]++
	if e.onRetry != nil {
		e.onRetry(kind)
	}
}

func (e *ear) logRead(hit bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if hit {
		e.kept[1]++
	} else {
		e.kept[0]++
	}
}

func (e *ear) refused(agent, limit string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.limited = append(e.limited, agent+" "+limit)
}

func (e *ear) KeyRevoked(string) {}

func (e *ear) Gone(ids []task.ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.gone = append(e.gone, ids...)
}

func (e *ear) PushesDue() { e.pushes.Add(1) }

func (e *ear) CallsDue() { e.calls.Add(1) }

func (e *ear) CancelWanted(id task.ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cancels = append(e.cancels, id)
}

func user(text string) *task.Message {
	return &task.Message{ID: "m-" + text, Role: task.RoleUser, Parts: []task.Part{task.Text(text)}}
}

// fresh is a task to create.
func fresh(agent string) *NewTask {
	id := NewID()
	return &NewTask{
		Task: task.Task{
			ID: id, PublicID: id.String(), Agent: agent, Tenant: "tenant", Owner: "owner", ContextID: "context", Dialect: "0.3",
		},
		Message: user("hello"),
	}
}

// asker is a caller, with its agent and its visibility.
type asker struct {
	Tenant, Subject, Agent string
	TenantWide             bool
}

func (a asker) of(s *Store) View {
	return s.As(task.Caller{Tenant: a.Tenant, Subject: a.Subject}, Visibility{Agent: a.Agent, TenantWide: a.TenantWide})
}

// bare is a view without row-level security: only the predicates hide the tasks of others.
func (a asker) bare(s *Store) View {
	v := a.of(s)
	v.db = s.api
	return v
}

func ownerOf(n *NewTask) asker {
	return asker{Tenant: n.Task.Tenant, Subject: n.Task.Owner, Agent: n.Task.Agent}
}

func (f *fixture) create(n *NewTask) *task.Task {
	f.t.Helper()
	storetest.Must(ownerOf(n).bare(f.Store).Create(f.t.Context(), n))(f.t)
	return storetest.Must(f.Header(f.t.Context(), n.Task.ID))(f.t)
}

// worker registers a process.
func (f *fixture) worker(ttl time.Duration) task.ID {
	f.t.Helper()
	id := NewID()
	require.NoError(f.t, f.Register(f.t.Context(), Process{ID: id, Name: "test", Version: "1", Roles: "worker"}, ttl))
	return id
}

// claim wins exactly n runs of an agent.
func (f *fixture) claim(worker task.ID, agent string, n int) []*Claimed {
	f.t.Helper()
	won := storetest.Must(f.Claim(f.t.Context(), worker, []Demand{{Agent: agent, Slots: n}}))(f.t)
	require.Len(f.t, won, n)
	return won
}

// running is a task with a run.
func (f *fixture) running(agent string) *pen {
	f.t.Helper()
	n := fresh(agent)
	f.create(n)
	c := f.claim(f.worker(time.Hour), agent, 1)[0]
	require.Equal(f.t, n.Task.ID, c.Task.ID)
	return &pen{s: f.Store, c: c}
}

// pen writes for a run, and counts ordinals as its worker would.
type pen struct {
	s       *Store
	c       *Claimed
	ordinal int64
	posted  bool // to the run API
}

type answer struct {
	requeued bool
	err      error
}

func (p *pen) write(evs ...*task.Event) <-chan answer {
	done := make(chan answer, 1)
	p.s.Append(p.item(done, evs...))
	return done
}

func (p *pen) item(done chan answer, evs ...*task.Event) *Append {
	a := &Append{
		Task: p.c.Task.ID, Agent: p.c.Task.Agent, Fence: p.c.Fence, Ordinal: p.ordinal, Posted: p.posted, After: p.ordinal + int64(len(evs)), Events: evs,
		Done: func(requeued bool, err error) { done <- answer{requeued, err} },
	}
	p.ordinal += int64(len(evs))
	return a
}

func (p *pen) must(t testing.TB, evs ...*task.Event) answer {
	t.Helper()
	a := waittest.Within(t, "the answer", p.write(evs...))
	require.NoError(t, a.err)
	return a
}

// patiently repeats what meets locks of others, which may last longer than the store waits for one.
func patiently(do func() error) error {
	for {
		if err := do(); !errors.Is(err, task.Unavailable) {
			return err
		}
	}
}

func status(s task.State) *task.Event { return &task.Event{Kind: task.EventStatus, State: s} }

func chunk(text string) *task.Event {
	return &task.Event{Kind: task.EventArtifact, Append: true, Artifact: &task.Artifact{ID: "a", Parts: []task.Part{task.Text(text)}}}
}

func (f *fixture) log(id task.ID) []*task.Event {
	f.t.Helper()
	return storetest.Must(f.EventsAfter(f.t.Context(), &task.Task{ID: id}, task.Position{}, 100_000))(f.t)
}

func (f *fixture) state(id task.ID) task.State {
	f.t.Helper()
	h := storetest.Must(f.Header(f.t.Context(), id))(f.t)
	return h.Status.State
}

// conn is a connection for checks and for damage.
func (f *fixture) conn() *pgx.Conn {
	f.t.Helper()
	c := storetest.Must(pgx.Connect(f.t.Context(), f.url))(f.t)
	f.t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// once uses the connection for checks, or one of its own if that is in use. It keeps no statement prepared.
func (f *fixture) once(do func(*pgx.Conn) error) {
	f.t.Helper()
	if !f.checks.TryLock() {
		require.NoError(f.t, do(f.conn()))
		return
	}
	defer f.checks.Unlock()
	fresh := f.admin == nil
	if fresh {
		f.admin = f.adminConn()
	}
	err := do(f.admin)
	if err != nil && !fresh && f.admin.IsClosed() { // the server was restarted
		f.admin = f.adminConn()
		err = do(f.admin)
	}
	require.NoError(f.t, err)
}

func (f *fixture) adminConn() *pgx.Conn {
	f.t.Helper()
	cfg := storetest.Must(pgx.ParseConfig(f.url))(f.t)
	cfg.DefaultQueryExecMode = pgx.QueryExecModeDescribeExec
	c := storetest.Must(pgx.ConnectConfig(f.t.Context(), cfg))(f.t)
	f.t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func (f *fixture) exec(sql string, args ...any) {
	f.t.Helper()
	f.once(func(c *pgx.Conn) error {
		_, err := c.Exec(f.t.Context(), sql, args...)
		return err
	})
}

func scan[T any](f *fixture, sql string, args ...any) T {
	f.t.Helper()
	var v T
	f.once(func(c *pgx.Conn) error { return c.QueryRow(f.t.Context(), sql, args...).Scan(&v) })
	return v
}

// lock locks a row of tasks until the returned function is called.
func (f *fixture) lock(id task.ID) (release func()) {
	f.t.Helper()
	return f.lockRows("SELECT FROM holdfast.tasks WHERE id = $1 FOR UPDATE", id)
}

// lockRows locks what a statement locks, for the task $1, until the returned function is called.
func (f *fixture) lockRows(sql string, id task.ID) (release func()) {
	f.t.Helper()
	tx := storetest.Must(f.conn().Begin(f.t.Context()))(f.t)
	tag := storetest.Must(tx.Exec(f.t.Context(), sql, uuid.UUID(id)))(f.t)
	require.NotZero(f.t, tag.RowsAffected())
	return func() { require.NoError(f.t, tx.Rollback(context.Background())) }
}

// written writes the events of a run in a transaction that stays open until the returned function
// commits it.
func (f *fixture) written(p *pen, evs ...*task.Event) (commit func()) {
	f.t.Helper()
	tx := storetest.Must(f.hot.Begin(f.t.Context()))(f.t)
	a := p.item(nil, evs...)
	for _, e := range evs {
		a.payloads = append(a.payloads, EncodePayload(e))
	}
	groups, _ := groupAppends([]*Append{a})
	require.Len(f.t, storetest.Must(f.q.EventsAppend(f.t.Context(), tx, appendParams(groups)))(f.t), 1)
	next, wait := turns(groups)
	storetest.Must(f.q.TurnsNext(f.t.Context(), tx, next))(f.t)
	storetest.Must(f.q.TurnsWait(f.t.Context(), tx, wait))(f.t)
	return func() { require.NoError(f.t, tx.Commit(context.Background())) }
}

// retries waits until the store has retried a statement of this kind.
func (f *fixture) retries(kind string) {
	f.t.Helper()
	waittest.Eventually(f.t, "a retry of "+kind, func() error {
		f.ear.mu.Lock()
		defer f.ear.mu.Unlock()
		return waittest.Unless(f.ear.repeated[kind] > 0, "none")
	})
}

// blocked waits until n statements wait for a lock.
func (f *fixture) blocked(n int) {
	f.t.Helper()
	waittest.Eventually(f.t, fmt.Sprintf("%d statements are blocked", n), func() error {
		have := scan[int](f, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
		return waittest.Unless(have >= n, "%d are", have)
	})
}
