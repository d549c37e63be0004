package invarianttest_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
	"github.com/holdfast-a2a/holdfast/internal/test/invarianttest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

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

func exec(t *testing.T, c *pgx.Conn, sql string, args ...any) {
	t.Helper()
	_, err := c.Exec(t.Context(), sql, args...)
	require.NoError(t, err, sql)
}
