package integration

import (
	"context"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
)

// ledger looks at the tables: what the protocol says is compared with what is stored.
type ledger struct {
	t    testing.TB
	url  string
	conn *pgx.Conn
}

// newDB makes a database for the test.
func newDB(t testing.TB) *ledger {
	t.Helper()
	return openLedger(t, storetest.New(t).URL)
}

func openLedger(t testing.TB, url string) *ledger {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return &ledger{t, url, conn}
}

func (l *ledger) exec(sql string, args ...any) {
	l.t.Helper()
	_, err := l.conn.Exec(context.Background(), sql, args...)
	require.NoError(l.t, err)
}

func one[T any](l *ledger, sql string, args ...any) T {
	l.t.Helper()
	var v T
	require.NoError(l.t, l.conn.QueryRow(context.Background(), sql, args...).Scan(&v), sql)
	return v
}

func column[T any](l *ledger, sql string, args ...any) []T {
	l.t.Helper()
	rows, err := l.conn.Query(context.Background(), sql, args...)
	require.NoError(l.t, err)
	out, err := pgx.CollectRows(rows, pgx.RowTo[T])
	require.NoError(l.t, err)
	return out
}

// id is the internal id of a task.
func (l *ledger) id(taskID string) string {
	l.t.Helper()
	return one[string](l, "SELECT id::text FROM holdfast.tasks WHERE coalesce(client_id, id::text) = $1", taskID)
}

// chunks are the texts of the task's artifact events, in order.
func (l *ledger) chunks(taskID string) []string {
	l.t.Helper()
	return column[string](l, `SELECT payload->'parts'->0->>'text' FROM holdfast.task_events
		WHERE task = $1 AND kind = 3 ORDER BY seq`, l.id(taskID))
}

// seqs are the numbers of the events that clients see.
func (l *ledger) seqs(taskID string) []int64 {
	l.t.Helper()
	return column[int64](l, `SELECT seq FROM holdfast.task_events
		WHERE task = $1 AND (kind IN (2, 3) OR seq = 1) ORDER BY seq`, l.id(taskID))
}

// runs are the outcomes of the attempts that left a note.
func (l *ledger) runs(taskID string) []string {
	l.t.Helper()
	return column[string](l, `SELECT payload->>'outcome' FROM holdfast.task_events
		WHERE task = $1 AND kind = 4 ORDER BY seq`, l.id(taskID))
}

// sound checks what must hold for every task that has ended: a log without a gap, one terminal status which is its last
// event but for notes, a projection that agrees, and no trace in the queue.
func (l *ledger) sound() {
	l.t.Helper()
	broken := column[string](l, `
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
	require.Empty(l.t, broken)
	require.Empty(l.t, column[string](l, `SELECT q.id::text FROM holdfast.task_queue q JOIN holdfast.tasks t USING (id)
		WHERE t.state >= 3`), "queued although settled")
	require.Empty(l.t, column[string](l, `SELECT id::text FROM holdfast.tasks WHERE state >= 5 AND worker_id IS NOT NULL`),
		"owned although ended")
}

// indexed checks that chunks of the demo agent have every index from 0 on, once each and in order.
func indexed(t testing.TB, chunks []string, n int) {
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

// ids are 1..n, those of a task's stream from its beginning.
func ids(n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = int64(i + 1)
	}
	return out
}

func seqsOf(events []*event) []int64 {
	var out []int64
	for _, e := range events {
		if e.seq != 0 {
			out = append(out, e.seq)
		}
	}
	return out
}
