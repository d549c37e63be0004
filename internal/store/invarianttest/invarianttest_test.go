package invarianttest_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store/invarianttest"
	"github.com/holdfast-a2a/holdfast/internal/store/partition"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// The tasks of a partition are invisible from the moment at which its detach begins, even if the detach is interrupted.
// Their events are then those of a period that is going, as they are after the detach. All others still need their tasks.
func TestEventsOfAnInterruptedDetachAreNoOrphans(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	going, staying := time.Date(2020, 1, 10, 0, 0, 0, 0, time.UTC), time.Date(2020, 2, 10, 0, 0, 0, 0, time.UTC)
	look, reader, detacher := storetest.Connect(t, db.URL), storetest.Connect(t, db.URL), storetest.Connect(t, db.URL)
	for _, at := range []time.Time{going, staying} {
		require.NoError(t, storetest.Partitions(t.Context(), db.URL, at, at.Add(time.Hour)))
		id := partition.FirstID(at)
		exec(t, look, `INSERT INTO holdfast.tasks (id, agent, context_id, state, last_seq, status_seq, attempt, run_ordinal, turns, dialect)
			VALUES ($1, 'a', 'c', 5, 2, 2, 1, 1, 1, '1.0')`, id)
		exec(t, look, `INSERT INTO holdfast.task_events (task, seq, kind, state, attempt) VALUES ($1, 1, 1, NULL, 0), ($1, 2, 2, 5, 1)`, id)
	}
	require.NoError(t, invarianttest.Check(t.Context(), db.URL))

	exec(t, reader, "BEGIN")
	exec(t, reader, "SELECT FROM holdfast.tasks_dated")
	detached := make(chan error, 1)
	p := first(t, look)
	go func() { detached <- partition.Detach(context.Background(), detacher, p) }()
	waittest.Eventually(t, "the detach waits for the reader", func() error {
		return waittest.Unless(scan[bool](t, look, "SELECT count(*) > 0 FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'", detacher.PgConn().PID()), "no lock")
	})
	require.NoError(t, invarianttest.Check(t.Context(), db.URL), "during the detach")
	require.True(t, scan[bool](t, look, "SELECT pg_terminate_backend($1)", detacher.PgConn().PID()))
	require.Error(t, waittest.Within(t, "the detach", detached))
	require.True(t, first(t, look).Detaching)
	require.Zero(t, scan[int](t, look, "SELECT count(*) FROM holdfast.tasks WHERE id = $1", partition.FirstID(going)), "its task is invisible")
	require.NoError(t, invarianttest.Check(t.Context(), db.URL), "after the interruption")

	tx, err := look.Begin(t.Context()) // never committed
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "DELETE FROM holdfast.tasks WHERE id = $1", partition.FirstID(staying))
	require.NoError(t, err)
	require.ErrorContains(t, invarianttest.CheckIn(t.Context(), tx), "every event has its task")
	require.NoError(t, tx.Rollback(t.Context()))

	exec(t, reader, "COMMIT")
	require.NoError(t, partition.Detach(t.Context(), look, first(t, look)))
	require.NoError(t, invarianttest.Check(t.Context(), db.URL), "after the detach")
}

// Before a period goes, retention deletes all calls of its tasks. A status that was relayed from one of them stays for that long.
func TestRelayedStatusesOutliveTheirCalls(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	c, at := storetest.Connect(t, db.URL), time.Date(2020, 1, 10, 0, 0, 0, 0, time.UTC)
	require.NoError(t, storetest.Partitions(t.Context(), db.URL, at, at.Add(time.Hour)))
	id, child := partition.FirstID(at), partition.FirstID(at.Add(time.Minute))
	exec(t, c, `INSERT INTO holdfast.tasks (id, agent, context_id, state, last_seq, status_seq, attempt, run_ordinal, turns, dialect)
		VALUES ($1, 'a', 'c', 5, 4, 4, 1, 2, 2, '1.0')`, id)
	exec(t, c, `INSERT INTO holdfast.task_events (task, seq, kind, state, attempt, payload) VALUES
		($1, 1, 1, NULL, 0, '{}'), ($1, 2, 4, NULL, 1, json_build_object('outcome', 'calls', 'calls', json_build_array(json_build_object('task', $2::uuid)))),
		($1, 3, 2, 2, 0, '{"metadata":{"call":{"id":"other"}}}'), ($1, 4, 2, 5, 1, NULL)`, id, child)
	require.NoError(t, invarianttest.Check(t.Context(), db.URL))
	exec(t, c, `INSERT INTO holdfast.task_calls (parent, seq, nth, call_id, agent, child, answers, root, callers, settled_at, state, relay)
		VALUES ($1, 2, 1, 'one', 'b', $2, false, $1, '{a}', now(), 8, true)`, id, child)
	require.ErrorContains(t, invarianttest.Check(t.Context(), db.URL), "a relayed status is one of a called task")
}

// first is the oldest partition of ended tasks.
func first(t *testing.T, c *pgx.Conn) partition.Partition {
	t.Helper()
	all, err := partition.List(t.Context(), c, partition.Tasks)
	require.NoError(t, err)
	for _, p := range all {
		if p.Parent == "tasks_dated" {
			return p
		}
	}
	require.FailNow(t, "no partition")
	return partition.Partition{}
}

func exec(t *testing.T, c *pgx.Conn, sql string, args ...any) {
	t.Helper()
	_, err := c.Exec(t.Context(), sql, args...)
	require.NoError(t, err, sql)
}

func scan[T any](t *testing.T, c *pgx.Conn, sql string, args ...any) (v T) {
	t.Helper()
	require.NoError(t, c.QueryRow(t.Context(), sql, args...).Scan(&v), sql)
	return v
}
