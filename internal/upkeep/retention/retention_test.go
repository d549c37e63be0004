package retention

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/invarianttest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

// fixture is a store with periods of a day, on a database of its own that has periods from 60 days ago on.
type fixture struct {
	*store.Store
	t   testing.TB
	url string
	db  *pgx.Conn // of the test alone
	now time.Time
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{t: t, url: storetest.New(t).URL}
	s, err := store.Open(t.Context(), store.Options{URL: f.url, APIConns: 4, RowSecurity: true, Widths: store.Widths{Tasks: partition.Day}})
	require.NoError(t, err)
	f.Store = s
	f.db = storetest.Must(pgx.Connect(t.Context(), f.url))(t)
	t.Cleanup(func() {
		ctx := context.Background()
		_ = f.db.Close(ctx)
		s.Close(ctx)
		if !t.Failed() {
			require.NoError(t, invarianttest.Check(ctx, f.url))
		}
	})
	f.now = storetest.Must(s.Now(t.Context()))(t)
	return f
}

// parallel is newFixture for a test that runs beside others.
func parallel(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	return newFixture(t)
}

// at is the view of the store for the tasks' owner at an agent.
func (f *fixture) at(agent string) store.View {
	return f.As(task.Caller{Tenant: "tenant", Subject: "o"}, store.Visibility{Agent: agent})
}

func (f *fixture) exec(sql string, args ...any) {
	f.t.Helper()
	storetest.Must(f.db.Exec(f.t.Context(), sql, args...))(f.t, sql)
}

func scan[T any](f *fixture, sql string, args ...any) (v T) {
	f.t.Helper()
	require.NoError(f.t, f.db.QueryRow(f.t.Context(), sql, args...).Scan(&v), sql)
	return v
}

// days makes the partitions of the days of these times.
func (f *fixture) days(moments ...time.Time) {
	f.t.Helper()
	for _, at := range moments {
		for _, family := range partition.Families {
			storetest.Must(partition.Ensure(f.t.Context(), f.db, family, partition.Day, at, at.Add(time.Millisecond)))(f.t)
		}
	}
}

// past is a task that was created a while ago. Its state follows from its age and the calls below.
type past struct {
	agent, owner, name string
	age                time.Duration
	state              task.State
	since              time.Duration // age of its status; default: its age
	chunks             int
	push               bool
}

// make writes a task with its log by SQL, because the store creates no tasks in the past.
func (f *fixture) make(p past) *task.Task {
	f.t.Helper()
	if p.since == 0 {
		p.since = p.age
	}
	created := f.now.Add(-p.age)
	raw := store.NewID()
	first := partition.FirstID(created)
	copy(raw[:6], first[:6])
	id := raw
	f.days(created)
	last := 2 + p.chunks
	status := f.now.Add(-p.since)
	f.exec(`INSERT INTO holdfast.tasks (id, client_id, agent, tenant, owner, context_id, state, last_seq, status_seq, status_at, dialect, attempt, runs, run_ordinal, artifact_bytes, pushes, created_at)
		VALUES ($1, nullif($2::text, ''), $3, 'tenant', $4::text, 'context of ' || $4::text, $5, $6::bigint, $6::bigint, $7, '0.3', 1, 1, $6::bigint - 1, $8, $9, $10)`,
		id.String(), p.name, p.agent, p.owner, int(p.state), last, status, 10*p.chunks, p.push, created)
	f.exec(`INSERT INTO holdfast.task_events (task, seq, kind, state, attempt, artifact_id, append, payload, created_at)
		SELECT $1, s, CASE WHEN s = 1 THEN 1 WHEN s = $2::int THEN 2 ELSE 3 END, CASE WHEN s = $2::int THEN $3::smallint END, CASE s WHEN 1 THEN 0 ELSE 1 END,
		       CASE WHEN s > 1 AND s < $2 THEN 'a' END, s > 2 AND s < $2,
		       CASE WHEN s = 1 THEN '{"id":"m","role":"user","parts":[{"text":"secret"}]}' WHEN s < $2 THEN '{"index":0,"parts":[{"text":"0123456789"}]}' END::json, $4
		  FROM generate_series(1, $2::int) s`, id.String(), last, int(p.state), status)
	if p.name != "" {
		f.exec("INSERT INTO holdfast.task_names (tenant, owner, agent, client_id, task) VALUES ('tenant', $1, $2, $3, $4)", p.owner, p.agent, p.name, id.String())
	}
	if p.push {
		f.exec("INSERT INTO holdfast.push_configs (task, config_id, agent, public_id, dialect, url, schemes) VALUES ($1, 'c', $2, 'x', '0.3', 'http://h', '[]')", id.String(), p.agent)
		f.exec("INSERT INTO holdfast.push_cursors (task, config_id, host, artifacts, next_seq, due_seq) VALUES ($1, 'c', 'h:80', false, $2::bigint + 1, $2::bigint)", id.String(), last)
	}
	h := storetest.Must(f.Header(f.t.Context(), id))(f.t)
	return h
}

// there reports whether a task and its whole log exist; half a log fails the test.
func (f *fixture) there(h *task.Task) bool {
	f.t.Helper()
	events := scan[int64](f, "SELECT count(*) FROM holdfast.task_events WHERE task = $1", h.ID.String())
	if _, err := f.Header(f.t.Context(), h.ID); err != nil {
		require.ErrorIs(f.t, err, task.NotFound)
		require.Zero(f.t, events, "the log of %s", h.ID)
		require.Zero(f.t, scan[int64](f, "SELECT (SELECT count(*) FROM holdfast.task_names WHERE task = $1) + (SELECT count(*) FROM holdfast.push_configs WHERE task = $1) + (SELECT count(*) FROM holdfast.push_cursors WHERE task = $1)", h.ID.String()))
		return false
	}
	require.EqualValues(f.t, h.LastSeq, events, "the log of %s", h.ID)
	return true
}

const day = 24 * time.Hour

// done does rounds until nothing is left to do.
func done(t testing.TB, do func(context.Context) (bool, error)) {
	t.Helper()
	for {
		more := storetest.Must(do(t.Context()))(t)
		if !more {
			return
		}
	}
}

func TestSweepDropsPeriodAndKeepsTasks(t *testing.T) {
	f := parallel(t)
	r := New(Options{Store: f.Store, Default: Policy{Tasks: 30 * day}})
	old := f.make(past{agent: "a", owner: "o", age: 40 * day, state: task.StateCompleted, chunks: 3, name: "old", push: true})
	late := f.make(past{agent: "a", owner: "o", age: 40 * day, since: 2 * day, state: task.StateFailed, chunks: 3, name: "late", push: true})
	parked := f.make(past{agent: "a", owner: "o", age: 40 * day, state: task.StateInputRequired, chunks: 3, name: "parked", push: true})
	held := f.make(past{agent: "a", owner: "o", age: 40 * day, state: task.StateCanceled, chunks: 3, name: "held", push: true})
	young := f.make(past{agent: "a", owner: "o", age: 20 * day, state: task.StateCompleted, chunks: 3})
	require.NoError(t, f.Hold(t.Context(), held.ID, true))
	was := len(f.partitions())

	plan := storetest.Must(r.Plan(t.Context()))(t)
	require.Len(t, plan, 1)
	require.Equal(t, "drop", plan[0].How)
	require.EqualValues(t, 2, plan[0].Tasks, "the tasks old and held ended before the retention")
	require.EqualValues(t, 1, plan[0].Held)
	require.Positive(t, plan[0].Bytes)

	done(t, r.Sweep)
	require.False(t, f.there(old))
	for _, h := range []*task.Task{late, parked, held, young} {
		require.True(t, f.there(h), "%s", h.PublicID)
	}
	require.Len(t, f.partitions(), was-3, "one period of tasks, logs and artifacts was dropped")

	// A kept task works like any other: its client answers, an agent runs and completes it.
	seq, err := f.AddMessage(t.Context(), &store.NewMessage{
		Task: parked, Message: &task.Message{ID: "m2", Role: task.RoleUser, Parts: []task.Part{task.Text("go on")}}, RequestID: store.NewID(),
	})
	require.NoError(t, err)
	require.Equal(t, parked.LastSeq+2, seq)
	require.True(t, storetest.Must(f.Cancel(t.Context(), parked, nil))(t))
	h := storetest.Must(f.at("a").FindTask(t.Context(), "parked"))(t)
	require.Equal(t, task.StateCanceled, h.Status.State)
	require.True(t, f.there(h))

	// Kept tasks are deleted row by row when their retention is over.
	require.NoError(t, f.Hold(t.Context(), held.ID, false))
	f.exec("UPDATE holdfast.tasks SET status_at = now() - interval '31 days' WHERE state >= 5 AND kept")
	done(t, r.Sweep)
	for _, h := range []*task.Task{late, h, held} {
		require.False(t, f.there(h), "%s", h.PublicID)
	}
	require.True(t, f.there(young))
	// The name of a deleted task is free.
	_, err = f.Create(t.Context(), &store.NewTask{
		Task:     task.Task{ID: store.NewID(), PublicID: "old", Agent: "a", Tenant: "tenant", Owner: "o", ContextID: "c", Dialect: "0.1"},
		ClientID: true, Message: &task.Message{ID: "m", Role: task.RoleUser, Parts: []task.Part{task.Text("again")}},
	})
	require.NoError(t, err)

	// A purge of one task deletes no other of its conversation.
	require.False(t, storetest.Must(r.Erase(t.Context(), young.ID, f.View))(t))
	require.False(t, f.there(young))
}

// partitions lists the partitions of the past and the present.
func (f *fixture) partitions() []partition.Partition {
	f.t.Helper()
	all := storetest.Must(f.Partitions(f.t.Context(), partition.Tasks))(f.t)
	now := storetest.Must(f.Now(f.t.Context()))(f.t)
	return slices.DeleteFunc(all, func(p partition.Partition) bool { return p.From.After(now) })
}

// If another agent has a longer retention, a period stays, and rows are deleted.
func TestRetentionPerAgent(t *testing.T) {
	f := parallel(t)
	r := New(Options{
		Store: f.Store, Default: Policy{Tasks: 30 * day},
		Agents: map[string]Policy{"short": {Tasks: 5 * day}, "forever": {}, "slim": {Tasks: 60 * day, Artifacts: 5 * day}},
	})
	var gone, stay []*task.Task
	for i := range 3 {
		age := time.Duration(i+8) * day
		gone = append(gone, f.make(past{agent: "short", owner: "o", age: age, state: task.StateCompleted, chunks: 2}))
		stay = append(stay, f.make(past{agent: "forever", owner: "o", age: age, state: task.StateCompleted, chunks: 2}),
			f.make(past{agent: "default", owner: "o", age: age, state: task.StateFailed, chunks: 2}))
	}
	slim := f.make(past{agent: "slim", owner: "o", age: 8 * day, state: task.StateCompleted, chunks: 600})
	fresh := f.make(past{agent: "slim", owner: "o", age: 8 * day, since: day, state: task.StateCompleted, chunks: 3})
	alone := f.make(past{agent: "slim", owner: "o", age: 20 * day, state: task.StateCompleted, chunks: 3})
	removed := f.make(past{agent: "no longer configured", owner: "o", age: 45 * day, state: task.StateCompleted})
	done(t, r.Sweep)
	for _, h := range append(gone, removed) {
		require.False(t, f.there(h), "%s", h.Agent)
	}
	for _, h := range append(stay, fresh) {
		require.True(t, f.there(h), "%s", h.Agent)
	}
	// A task without its artifacts keeps the rest, and reads like one that never had any.
	for _, h := range []*task.Task{slim, alone} {
		read := storetest.Must(f.at("slim").ReadTask(t.Context(), h.PublicID, true))(t)
		require.Empty(t, read.Artifacts)
		require.Equal(t, task.StateCompleted, read.Status.State)
		require.Len(t, read.History, 1)
		require.EqualValues(t, 2, scan[int64](f, "SELECT count(*) FROM holdfast.task_events WHERE task = $1", h.ID.String()))
		f.exec("UPDATE holdfast.tasks SET artifact_bytes = 0 WHERE id = $1", h.ID.String())
		f.exec("DELETE FROM holdfast.tasks WHERE id = $1", h.ID.String()) // the invariants at the end do not allow the gap in its log
		f.exec("DELETE FROM holdfast.task_events WHERE task = $1", h.ID.String())
	}
}

func TestParkedTasksExpire(t *testing.T) {
	f := parallel(t)
	r := New(Options{Store: f.Store, Default: Policy{Parked: 7 * day}, Agents: map[string]Policy{"patient": {}}})
	long := f.make(past{agent: "a", owner: "o", age: 8 * day, state: task.StateInputRequired, push: true})
	auth := f.make(past{agent: "a", owner: "o", age: 8 * day, state: task.StateAuthRequired})
	short := f.make(past{agent: "a", owner: "o", age: 8 * day, since: 6 * day, state: task.StateInputRequired})
	patient := f.make(past{agent: "patient", owner: "o", age: 100 * day, state: task.StateInputRequired})
	held := f.make(past{agent: "a", owner: "o", age: 8 * day, state: task.StateInputRequired})
	require.NoError(t, f.Hold(t.Context(), held.ID, true))
	done(t, r.ExpireParked)
	for _, h := range []*task.Task{long, auth} {
		read := storetest.Must(f.Snapshot(t.Context(), storetest.Must(f.Header(t.Context(), h.ID))(t), true))(t)
		require.Equal(t, task.StateCanceled, read.Status.State)
		require.Equal(t, "The server canceled this task: it waited for its client for more than 7 days.", read.Status.Message.Parts[0].Text)
	}
	for _, h := range []*task.Task{short, patient, held} {
		require.Equal(t, h.Status.State, storetest.Must(f.Header(t.Context(), h.ID))(t).Status.State)
	}
	require.Equal(t, 1, scan[int](f, "SELECT count(*) FROM holdfast.push_cursors WHERE due_at IS NOT NULL AND due_seq = 3"), "the webhook is due")
	require.Equal(t, 2, scan[int](f, "SELECT count(*) FROM holdfast.v_audit WHERE action = 'task.expired'"))
}

func TestPurge(t *testing.T) {
	f := parallel(t)
	dir := t.TempDir()
	r := New(Options{Store: f.Store, Default: Policy{Tasks: 30 * day}, Export: dir})
	exported := []*task.Task{
		f.make(past{agent: "a", owner: "alice", age: 40 * day, state: task.StateCompleted, chunks: 3}),
		f.make(past{agent: "a", owner: "bob", age: 40 * day, state: task.StateCompleted, chunks: 3}),
	}
	done(t, r.Sweep)
	for _, h := range exported {
		require.False(t, f.there(h))
	}
	lines := func() (owners []string) {
		files := storetest.Must(filepath.Glob(filepath.Join(dir, "a", "*.ndjson")))(t)
		require.Len(t, files, 1)
		text := storetest.Must(os.ReadFile(files[0]))(t)
		for line := range strings.Lines(string(text)) {
			var l struct {
				Owner  string
				Events []map[string]any
			}
			require.NoError(t, json.Unmarshal([]byte(line), &l), line)
			require.Len(t, l.Events, 5)
			owners = append(owners, l.Owner)
		}
		return owners
	}
	require.ElementsMatch(t, []string{"alice", "bob"}, lines())

	hers := []*task.Task{
		f.make(past{agent: "a", owner: "alice", age: day, state: task.StateCompleted, chunks: 3, name: "chosen", push: true}),
		f.make(past{agent: "b", owner: "alice", age: day, state: task.StateInputRequired, chunks: 2000}),
	}
	held := f.make(past{agent: "b", owner: "alice", age: day, state: task.StateCompleted})
	require.NoError(t, f.Hold(t.Context(), held.ID, true))
	his := f.make(past{agent: "a", owner: "bob", age: day, state: task.StateCompleted, chunks: 3})
	for _, h := range hers {
		require.False(t, storetest.Must(r.Erase(t.Context(), h.ID, f.View))(t))
		require.False(t, f.there(h))
	}
	require.True(t, storetest.Must(r.Erase(t.Context(), held.ID, f.View))(t))
	require.True(t, f.there(held))
	require.True(t, f.there(his))
	require.Zero(t, scan[int](f, "SELECT count(*) FROM holdfast.erasures"))
	require.Equal(t, 2, scan[int](f, "SELECT count(DISTINCT task) FROM holdfast.v_audit WHERE action = 'task.purged'"))
	require.NotContains(t, scan[string](f, "SELECT string_agg(entries::text, '') FROM holdfast.audit_log"), "secret")
	require.False(t, storetest.Must(r.Erase(t.Context(), hers[0].ID, f.View))(t), "it is gone")

	// The lines of tasks that are gone from the database.
	alice, age := store.Among{Is: []string{"alice"}}, f.now.Add(-39*day)
	purged := func(filter *store.AdminFilter) int {
		return storetest.Must(r.PurgeExports(t.Context(), filter.Matches))(t)
	}
	require.Zero(t, purged(&store.AdminFilter{Owner: alice, Agent: store.Among{Is: []string{"b"}}}))
	require.Equal(t, 1, purged(&store.AdminFilter{Owner: alice, States: []task.State{task.StateCompleted}}))
	require.Equal(t, []string{"bob"}, lines())
	require.Zero(t, purged(&store.AdminFilter{StatusBefore: age.Add(-30 * day)}))
	require.Equal(t, 1, purged(&store.AdminFilter{StatusBefore: age}))
	require.Empty(t, lines())
}

func TestSweepDeletesRecords(t *testing.T) {
	f := parallel(t)
	f.days(f.now.Add(-9*day), f.now.Add(-3*day), f.now.Add(-40*day))
	for _, age := range []int{9, 3, 0} {
		f.exec("INSERT INTO holdfast.push_attempts (task, config_id, started_at, from_seq, to_seq, attempt, delivery_id, class) VALUES (gen_random_uuid(), 'c', now() - $1::int * interval '1 day', 1, 1, 1, '', 'server')", age)
		f.exec("INSERT INTO holdfast.idempotency_keys (day, tenant, owner, key, request_hash, task, created_at) VALUES (((now() - $1::int * interval '1 day') AT TIME ZONE 'UTC')::date, 't', 'o', 'k' || $1::int, '', gen_random_uuid(), now() - $1::int * interval '1 day')", age)
		f.exec("INSERT INTO holdfast.processes (id, name, version, started_at) VALUES (gen_random_uuid(), 'p' || $1::int, 'v', now() - $1::int * interval '1 day')", age)
	}
	r := New(Options{Store: f.Store, Keys: 5 * day, Attempts: 5 * day, Processes: 5 * day})
	done(t, r.Records)
	require.Equal(t, 2, scan[int](f, "SELECT count(*) FROM holdfast.push_attempts"))
	require.Equal(t, "{k0,k3}", scan[string](f, "SELECT array_agg(key ORDER BY key)::text FROM holdfast.idempotency_keys"))
	require.Equal(t, "{p0,p3}", scan[string](f, "SELECT array_agg(name ORDER BY name)::text FROM holdfast.processes"))
	r.Keys = time.Minute
	done(t, r.Records)
	require.Equal(t, "{k0}", scan[string](f, "SELECT array_agg(key ORDER BY key)::text FROM holdfast.idempotency_keys"), "also with a retention shorter than a day")
}

// The audit log is deleted from its beginning, and the rest can still be verified.
func TestSweepDeletesAuditLog(t *testing.T) {
	f := parallel(t)
	for i := range 5 {
		require.NoError(t, f.Hold(t.Context(), f.make(past{agent: "a", owner: "o", age: day, state: task.StateCompleted, name: fmt.Sprint("t", i)}).ID, true))
	}
	// A partition of old entries, which the clock of the sweep finds a second later.
	name := scan[string](f, "SELECT tableoid::regclass::text FROM holdfast.audit_log LIMIT 1")
	from := scan[string](f, `SELECT (regexp_match(pg_get_expr(relpartbound, oid), 'FROM (.+) TO')) [1] FROM pg_class WHERE oid = $1::regclass`, name)
	f.exec("ALTER TABLE holdfast.audit_log DETACH PARTITION " + name)
	ends := storetest.Must(f.Now(t.Context()))(t)
	f.exec("ALTER TABLE holdfast.audit_log ATTACH PARTITION " + name + " FOR VALUES FROM " + from + " TO ('" +
		ends.UTC().Format("2006-01-02 15:04:05.999999+00") + "')")
	r := New(Options{Store: f.Store, Audit: time.Millisecond})
	r.now = func(context.Context) (time.Time, error) { return ends.Add(time.Second), nil }
	done(t, r.Records)
	require.Zero(t, scan[int](f, "SELECT count(*) FROM holdfast.audit_log"))
	require.NoError(t, f.Hold(t.Context(), f.make(past{agent: "a", owner: "o", age: day, state: task.StateCompleted}).ID, true))
	chains := storetest.Must(f.VerifyAudit(t.Context(), nil))(t)
	removed := int64(0)
	for _, c := range chains {
		require.Empty(t, c.Problem, "chain %d", c.Chain)
		removed += c.Removed
	}
	require.EqualValues(t, 5, removed)
	require.Equal(t, 1, scan[int](f, "SELECT count(*) FROM holdfast.audit_log"))
}

func TestCallsEndWithTheirCaller(t *testing.T) {
	f := parallel(t)
	r := New(Options{Store: f.Store, Default: Policy{Tasks: 30 * day}})
	old := f.make(past{agent: "a", owner: "o", age: 40 * day, state: task.StateCompleted, chunks: 1})
	kept := f.make(past{agent: "a", owner: "o", age: 3 * day, state: task.StateCompleted, chunks: 1})
	for _, h := range []*task.Task{old, kept} {
		f.exec(`INSERT INTO holdfast.task_calls (parent, seq, nth, call_id, agent, child, answers, root, callers, started_at, settled_at, state, child_seq)
			VALUES ($1, 2, 1, '1', 'b', gen_random_uuid(), false, $1, '{a}', now(), now(), 5, 4)`, h.ID)
	}
	done(t, r.Sweep)
	require.False(t, f.there(old))
	require.Equal(t, kept.ID.String(), scan[string](f, "SELECT string_agg(parent::text, ' ') FROM holdfast.task_calls"))
	f.exec("DELETE FROM holdfast.task_calls") // it has no run note
}

// A task may wait longer than its period lasts. Its timer fires, and the turn knows of the wait.
func TestWaitOutlivesItsPeriod(t *testing.T) {
	f := parallel(t)
	ctx := t.Context()
	r := New(Options{Store: f.Store, Default: Policy{Tasks: 30 * day}})
	old := f.make(past{agent: "a", owner: "o", age: 40 * day, state: task.StateInputRequired, chunks: 1})
	_, err := f.AddMessage(ctx, &store.NewMessage{
		Task: old, Message: &task.Message{ID: "m2", Role: task.RoleUser, Parts: []task.Part{task.Text("wait")}}, RequestID: store.NewID(),
	})
	require.NoError(t, err)
	worker := store.NewID()
	require.NoError(t, f.Register(ctx, store.Process{ID: worker, Name: "test"}, time.Hour))
	claim := func() *store.Claimed {
		t.Helper()
		won := storetest.Must(f.Claim(ctx, worker, []store.Demand{{Agent: "a", Slots: 1}}))(t)
		require.Len(t, won, 1)
		return won[0]
	}
	c := claim()
	done1 := make(chan error, 1)
	f.Append(&store.Append{
		Task: old.ID, Agent: "a", Fence: c.Fence, Done: func(_ bool, err error) { done1 <- err },
		Events: []*task.Event{
			{Kind: task.EventStatus, State: task.StateWorking},
			{Kind: task.EventRun, Run: &task.RunNote{Outcome: task.RunWaits, For: time.Hour}},
		},
	})
	require.NoError(t, <-done1)

	done(t, r.Sweep)
	f.exec("UPDATE holdfast.tasks SET wakes_at = now()")
	f.exec("UPDATE holdfast.task_queue SET wakes_at = now(), available_at = now()")
	storetest.Must(f.FireTimers(ctx))(t)
	c = claim()
	require.Equal(t, old.ID, c.Task.ID)
	require.NotNil(t, c.Wait)
	require.False(t, c.Wait.Until.IsZero())
	require.True(t, f.there(storetest.Must(f.Header(ctx, old.ID))(t)))
}
