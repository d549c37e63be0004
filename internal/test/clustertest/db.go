package clustertest

import (
	"context"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/auth"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// DB reads the tables, so that tests can compare answers with stored data.
type DB struct {
	T      testing.TB
	URL    string // of PostgreSQL
	Conn   *pgx.Conn
	Pooler *Pooler // between replicas and PostgreSQL; nil without PoolerEnv
}

// NewDB makes a database for the test, and checks at the end that it is Sound. Replicas may reach it through a pooler
// (PoolerEnv).
func NewDB(t testing.TB) *DB {
	t.Helper()
	db := OpenDB(t, storetest.New(t).URL)
	db.behindPooler()
	t.Cleanup(db.Sound)
	return db
}

// OpenDB connects to a database.
func OpenDB(t testing.TB, url string) *DB {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return &DB{T: t, URL: url, Conn: conn}
}

// Keys makes API keys, one for each subject.
func (d *DB) Keys(of store.APIKey, subjects ...string) (keys []string) {
	d.T.Helper()
	s, err := store.Open(d.T.Context(), store.Options{URL: d.URL})
	require.NoError(d.T, err)
	defer s.Close(context.WithoutCancel(d.T.Context()))
	for _, subject := range subjects {
		key, id, hash := auth.NewAPIKey()
		of.ID, of.Hash, of.Subject = id, hash, subject
		_, err := s.AddAPIKey(d.T.Context(), &of, 0)
		require.NoError(d.T, err)
		keys = append(keys, key)
	}
	return keys
}

// Operate runs a verb that must succeed on the database.
func (d *DB) Operate(args ...string) string {
	d.T.Helper()
	res := Command(d.T, d.T.TempDir(), d.Env(), args...)
	require.Zero(d.T, res.Code, res.Err)
	return res.Out
}

// Env is the environment of a verb on the database.
func (d *DB) Env() []string { return databaseEnv(d.URL) }

// Expire ends the lease of a replica whose process is dead.
func (d *DB) Expire(r *Replica) {
	d.T.Helper()
	d.Exec("UPDATE holdfast.workers SET lease_until = now() - interval '1 min' WHERE name LIKE '%/' || $1::text", strconv.Itoa(r.PID()))
}

// AwaitState waits until a task has a state. It makes no request, which would count against a caller's limits.
func (d *DB) AwaitState(taskID, want string) {
	d.T.Helper()
	waittest.Eventually(d.T, "the task is "+want, func() error {
		now := One[string](d, "SELECT state FROM holdfast.v_tasks WHERE task_id = $1", taskID)
		return waittest.Unless(now == want, "it is %s", now)
	})
}

// Exec executes a statement.
func (d *DB) Exec(sql string, args ...any) {
	d.T.Helper()
	_, err := d.Conn.Exec(context.Background(), sql, args...)
	require.NoError(d.T, err)
}

// One is the only value of a query.
func One[T any](d *DB, sql string, args ...any) T {
	d.T.Helper()
	var v T
	require.NoError(d.T, d.Conn.QueryRow(context.Background(), sql, args...).Scan(&v), sql)
	return v
}

// Column is the column of values of a query.
func Column[T any](d *DB, sql string, args ...any) []T {
	d.T.Helper()
	rows, err := d.Conn.Query(context.Background(), sql, args...)
	require.NoError(d.T, err)
	out, err := pgx.CollectRows(rows, pgx.RowTo[T])
	require.NoError(d.T, err)
	return out
}

// ID is the UUID of a task.
func (d *DB) ID(taskID string) string {
	d.T.Helper()
	return One[string](d, "SELECT id::text FROM holdfast.tasks WHERE coalesce(client_id, id::text) = $1", taskID)
}

// Chunks are the texts of the task's artifact events, in order.
func (d *DB) Chunks(taskID string) []string {
	d.T.Helper()
	return Column[string](d, `SELECT payload->'parts'->0->>'text' FROM holdfast.task_events
		WHERE task = $1 AND kind = 3 ORDER BY seq`, d.ID(taskID))
}

// Seqs are the seqs of the events that clients see.
func (d *DB) Seqs(taskID string) []int64 {
	d.T.Helper()
	return Column[int64](d, `SELECT seq FROM holdfast.task_events
		WHERE task = $1 AND (kind IN (2, 3) OR seq = 1) ORDER BY seq`, d.ID(taskID))
}

// Runs are the outcomes of the attempts with a run note.
func (d *DB) Runs(taskID string) []string {
	d.T.Helper()
	return Column[string](d, `SELECT payload->>'outcome' FROM holdfast.task_events
		WHERE task = $1 AND kind = 4 ORDER BY seq`, d.ID(taskID))
}

// Sound checks every ended task: a log without a gap, one terminal status, only run notes after it, a projection that
// agrees, and no row in the queue.
func (d *DB) Sound() {
	d.T.Helper()
	broken := Column[string](d, `
		SELECT format('%s: state %s, last_seq %s; %s events up to %s, %s terminal', coalesce(t.client_id, t.id::text),
			t.state, t.last_seq, e.n, e.newest, e.terminal)
		FROM holdfast.tasks t
		JOIN (
			SELECT task, count(*) AS n, max(seq) AS newest, count(*) FILTER (WHERE state >= 5) AS terminal,
				max(state) FILTER (WHERE state >= 5) AS ended
			FROM holdfast.task_events GROUP BY task
		) e ON e.task = t.id
		WHERE e.n <> e.newest OR t.last_seq <> e.newest OR e.terminal <> (t.state >= 5)::int
			OR (t.state >= 5 AND e.ended <> t.state)`)
	require.Empty(d.T, broken)
	require.Empty(d.T, Column[string](d, `SELECT q.id::text FROM holdfast.task_queue q JOIN holdfast.tasks t USING (id)
		WHERE t.state >= 3`), "queued although settled")
	require.Empty(d.T, Column[string](d, `SELECT id::text FROM holdfast.tasks WHERE state >= 5 AND worker_id IS NOT NULL`),
		"owned although ended")
}

// Holds checks that events are the last events of a task that clients see, once each and in order, with all of its
// chunks.
func (d *DB) Holds(taskID string, events []*a2atest.Event, chunks int) {
	d.T.Helper()
	stored, seqs := d.Seqs(taskID), a2atest.Seqs(events)
	require.Equal(d.T, stored[max(0, len(stored)-len(seqs)):], seqs, "the client saw every stored event, once and in order")
	require.Equal(d.T, d.Chunks(taskID), a2atest.Chunks(events))
	Indexed(d.T, a2atest.Chunks(events), chunks)
}

// Indexed checks that chunks of the demo agent have every index from 0 on, once each and in order.
func Indexed(t testing.TB, chunks []string, n int) {
	t.Helper()
	var got, want []int
	for _, c := range chunks {
		index, err := strconv.Atoi(c[:min(8, len(c))])
		require.NoError(t, err)
		got = append(got, index)
	}
	for i := range n {
		want = append(want, i)
	}
	require.Empty(t, cmp.Diff(want, got), "indexes of the chunks")
}

// Seq are the numbers 1 to n, the ids of a task's stream from its beginning.
func Seq(n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = int64(i + 1)
	}
	return out
}

// NothingIsDue waits until every delivery of a webhook is made and recorded.
func (d *DB) NothingIsDue() {
	d.T.Helper()
	waittest.Eventually(d.T, "nothing is due", func() error {
		n := One[int](d, "SELECT count(*) FROM holdfast.push_cursors WHERE due_at IS NOT NULL")
		return waittest.Unless(n == 0, "%d", n)
	})
}
