package retention

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

func TestCallsEndWithTheirCaller(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := New(Options{Store: f.Store, Default: Policy{Tasks: 30 * day}})
	old := f.make(past{agent: "a", owner: "o", age: 40 * day, state: task.StateCompleted, chunks: 1})
	kept := f.make(past{agent: "a", owner: "o", age: 3 * day, state: task.StateCompleted, chunks: 1})
	for _, h := range []*task.Task{old, kept} {
		f.exec(`INSERT INTO holdfast.task_calls (parent, seq, nth, call_id, agent, child, answers, root, callers, started_at, settled_at, state, child_seq)
			VALUES ($1, 2, 1, '1', 'b', gen_random_uuid(), false, $1, '{a}', now(), now(), 5, 4)`, h.ID)
	}
	done(t, r.Sweep)
	require.False(t, f.there(old))
	var left int
	require.NoError(t, f.conn().QueryRow(t.Context(), "SELECT count(*)::int FROM holdfast.task_calls WHERE parent = $1", old.ID).Scan(&left))
	require.Zero(t, left)
	require.NoError(t, f.conn().QueryRow(t.Context(), "SELECT count(*)::int FROM holdfast.task_calls WHERE parent = $1", kept.ID).Scan(&left))
	require.Equal(t, 1, left)
	f.exec("DELETE FROM holdfast.task_calls") // it has no run note
}
