package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-a2a/holdfast/internal/identity"
	"github.com/holdfast-a2a/holdfast/internal/memory"
	"github.com/holdfast-a2a/holdfast/internal/store/invarianttest"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

func TestMain(m *testing.M) {
	storetest.AtATime(6)
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// patience bounds every wait; reaching it is a failure and never the normal case.
const patience = 60 * time.Second

// fixture is a store on a database of its own. At the end of the test it closes
// the store and checks the invariants.
type fixture struct {
	*Store
	t   testing.TB
	url string // direct, without a proxy
	ear *ear
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	return openFixture(t, storetest.New(t).URL, "")
}

// keptBytes is the memory of ended tasks in tests: all reads of tests could be of kept tasks.
const keptBytes = 8 << 20

// statementKinds are the values of Store.whole: tests of fences run with the lean statements for what is ordinary, and with those that
// can do everything.
var statementKinds = map[string]bool{"lean": false, "whole": true}

// openFixture opens the store through another URL than the one for checks.
func openFixture(t testing.TB, url, through string) *fixture {
	t.Helper()
	return openPatient(t, url, through, 0)
}

// openPatient is openFixture with a time for which statements wait for a lock, unless they have a shorter one.
func openPatient(t testing.TB, url, through string, lockTimeout time.Duration) *fixture {
	t.Helper()
	f := &fixture{t: t, url: url, ear: newEar()}
	if through == "" {
		through = url
	}
	s, err := Open(t.Context(), Options{URL: through, APIConns: 4, RowSecurity: true, Listener: f.ear, Tells: func(string) bool { return true }, Ended: memory.NewBudget(keptBytes), Observer: Observer{Ended: f.ear.logRead, Retried: f.ear.retried, Limited: f.ear.refused}, lockTimeout: lockTimeout, turnPatience: patience})
	require.NoError(t, err)
	f.Store = s
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		s.Close(ctx)
		if !t.Failed() {
			require.NoError(t, invarianttest.Check(context.Background(), url)) // as long as it takes: -plan.tasks
		}
	})
	return f
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
	return s.As(identity.Caller{Tenant: a.Tenant, Subject: a.Subject}, Visibility{Agent: a.Agent, TenantWide: a.TenantWide})
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
	_, err := ownerOf(n).bare(f.Store).Create(f.t.Context(), n)
	require.NoError(f.t, err)
	h, err := f.Header(f.t.Context(), n.Task.ID)
	require.NoError(f.t, err)
	return h
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
	won, err := f.Claim(f.t.Context(), worker, []Demand{{Agent: agent, Slots: n}})
	require.NoError(f.t, err)
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
		Task: p.c.Task.ID, Agent: p.c.Task.Agent, Fence: p.c.Fence, Ordinal: p.ordinal, Events: evs,
		Done: func(requeued bool, err error) { done <- answer{requeued, err} },
	}
	p.ordinal += int64(len(evs))
	return a
}

func (p *pen) must(t testing.TB, evs ...*task.Event) answer {
	t.Helper()
	a := await(t, p.write(evs...))
	require.NoError(t, a.err)
	return a
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

// eventually waits until a condition on the database holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	waittest.Eventually(t, what, func() error { return waittest.Unless(holds(), "not yet") })
}

// patiently repeats what meets locks of others: on a busy machine they may last longer than the store waits for one.
func patiently(do func() error) error {
	for deadline := time.Now().Add(patience); ; {
		if err := do(); !errors.Is(err, task.Unavailable) || time.Now().After(deadline) {
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
	evs, err := f.EventsAfter(f.t.Context(), &task.Task{ID: id}, task.Position{}, 100_000)
	require.NoError(f.t, err)
	return evs
}

func (f *fixture) state(id task.ID) task.State {
	f.t.Helper()
	h, err := f.Header(f.t.Context(), id)
	require.NoError(f.t, err)
	return h.Status.State
}

// conn is a connection for checks and for damage.
func (f *fixture) conn() *pgx.Conn {
	f.t.Helper()
	c, err := pgx.Connect(f.t.Context(), f.url)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// once uses a connection of its own, and closes it at once: a test has hundreds of statements, and the server a limit.
func (f *fixture) once(do func(*pgx.Conn) error) {
	f.t.Helper()
	c, err := pgx.Connect(f.t.Context(), f.url)
	require.NoError(f.t, err)
	defer func() { _ = c.Close(context.Background()) }()
	require.NoError(f.t, do(c))
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
	tx, err := f.conn().Begin(f.t.Context())
	require.NoError(f.t, err)
	tag, err := tx.Exec(f.t.Context(), sql, uuid.UUID(id))
	require.NoError(f.t, err)
	require.NotZero(f.t, tag.RowsAffected())
	return func() { require.NoError(f.t, tx.Rollback(context.Background())) }
}

// written writes the events of a run in a transaction that stays open until the returned function
// commits it.
func (f *fixture) written(p *pen, evs ...*task.Event) (commit func()) {
	f.t.Helper()
	tx, err := f.hot.Begin(f.t.Context())
	require.NoError(f.t, err)
	a := p.item(nil, evs...)
	for _, e := range evs {
		a.payloads = append(a.payloads, EncodePayload(e))
	}
	groups, _ := groupAppends([]*Append{a})
	rows, err := f.appending(groups)(f.t.Context(), tx)
	require.NoError(f.t, err)
	require.Len(f.t, rows, 1)
	return func() { require.NoError(f.t, tx.Commit(context.Background())) }
}

// retries waits until the store has retried a statement of this kind.
func (f *fixture) retries(kind string) {
	f.t.Helper()
	eventually(f.t, "a retry of "+kind, func() bool {
		f.ear.mu.Lock()
		defer f.ear.mu.Unlock()
		return f.ear.repeated[kind] > 0
	})
}

// blocked waits until n statements wait for a lock.
func (f *fixture) blocked(n int) {
	f.t.Helper()
	c := f.conn()
	eventually(f.t, fmt.Sprintf("%d statements are blocked", n), func() bool {
		var have int
		require.NoError(f.t, c.QueryRow(f.t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&have))
		return have >= n
	})
}

// bound bounds each statement by this process's clock.
func (f *fixture) bound(d time.Duration) {
	for _, p := range f.moves.pools {
		p.within = d
	}
}
