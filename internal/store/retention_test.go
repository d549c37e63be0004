package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// A round of retention does not read the tasks of a period that it keeps.
func TestPlansOfRetention(t *testing.T) {
	f := parallel(t)
	seedAdmin(t, f, 6000)
	// With one agent, its name selects nothing.
	f.exec("UPDATE holdfast.tasks SET agent = 'a0'")
	f.exec("VACUUM (ANALYZE) holdfast.tasks")
	defer f.exec("TRUNCATE holdfast.tasks") // they have no logs
	ended := strings.TrimPrefix(scan[string](f, "SELECT tableoid::regclass::text FROM holdfast.tasks WHERE state = 5 LIMIT 1"), "holdfast.")
	now := storetest.Must(f.Now(t.Context()))(t)
	from := partition.Month.Floor(now)
	period := fmt.Sprintf("'%s', '%s'", task.ID(partition.FirstID(from)), task.ID(partition.FirstID(from.AddDate(0, 1, 0))))
	const none = "'00000000-0000-0000-0000-000000000000'"
	c := f.conn()
	f.ok(c.Exec(t.Context(), "SET enable_seqscan = off; SET jit = off", pgx.QueryExecModeSimpleProtocol))
	texts := statements(t)
	for _, x := range []struct{ name, mode, args string }{
		{"EndedAgents", "generic", "false, " + period},
		{"EndedBefore", "generic", "false, " + period + ", 'a0', now() - interval '1 day', '-infinity', " + none + ", 200"},
		{"EndedKeep", "generic", period + ", false, 'a0', now() + interval '1 day', 200"},
		{"ArtifactsUnmoved", "generic", period + ", 'a0', now() + interval '1 day', 200"},
		// For any ids, PostgreSQL would take the primary key.
		{"RetentionCounts", "custom", "false, " + period + ", 'a0', now() - interval '1 day'"},
	} {
		plan := planOf(t, c, texts[x.name], x.mode, x.args)
		require.Contains(t, plan, ended+"_agent_status_at", "%s:\n%s", x.name, plan)
		require.NotContains(t, plan, "Seq Scan on "+ended, "%s:\n%s", x.name, plan)
		if x.name != "EndedKeep" { // it finds by the primary key what its subqueries have selected
			require.NotContains(t, plan, ended+"_pkey", "%s:\n%s", x.name, plan)
		}
	}
}

// Erase deletes what other sessions commit for a task meanwhile.
func TestEraseMissesNothing(t *testing.T) {
	f := parallel(t)
	for i := range 60 {
		p := f.running("a")
		h := p.c.Task
		writes := []func() error{func() error { return f.SetPush(t.Context(), h.ID, hook("late", "receiver"), 20) }}
		if i%2 == 0 {
			p.must(t, status(task.StateInputRequired))
			writes = append(writes, func() error {
				_, err := ownerOf(fresh("a")).of(f.Store).AddMessage(t.Context(), &NewMessage{
					Task: h, Message: user("more"), RequestID: NewID(), Idempotency: Idempotency{Key: h.ID.String(), Hash: []byte("h")},
				})
				return err
			})
		} else {
			writes = append(writes, func() error {
				_, err := p.setState(t.Context(), false, "1", AnyVersion)
				return err
			}, func() error {
				return waittest.Within(t, "the answer", p.write(chunk("x"), status(task.StateCompleted))).err
			})
		}
		var all errgroup.Group
		for _, write := range writes {
			all.Go(func() error {
				if err := write(); err != nil && !errors.Is(err, task.NotFound) && !errors.Is(err, task.LeaseLost) {
					return err
				}
				return nil
			})
		}
		for gone := []task.ID{}; len(gone) == 0; {
			gone = storetest.Must(f.Erase(t.Context(), []task.ID{h.ID}, true, ""))(t)
		}
		require.NoError(t, all.Wait())
	}
	f.ok(f.EraseLogs(t.Context()))
	for _, of := range []string{
		"id FROM holdfast.task_queue", "task FROM holdfast.task_events", "task FROM holdfast.task_states", "task FROM holdfast.push_configs",
		"task FROM holdfast.push_cursors", "task FROM holdfast.idempotency_keys",
	} {
		require.Zero(t, scan[int](f, "SELECT count(*)::int FROM (SELECT DISTINCT "+of+") x"), of)
	}
}
