package store

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

func TestFiguresOfTheDatabase(t *testing.T) {
	f := parallel(t)
	f.create(fresh("a"))
	f.ok(f.EnsurePartitions(t.Context()))
	f.exec("SELECT holdfast.partition_add('audit_20200101', '2020-01-01 00:00:00+00', '2020-02-01 00:00:00+00')")
	f.exec("CREATE TABLE holdfast.events_20190101 (LIKE holdfast.task_events)") // as a detach leaves one
	for id, times := range map[string][2]string{
		"active": {"-1 day", "60 days"}, "expiring": {"-60 days", "6 days"}, "short": {"-8 days", "6 days"}, "expired": {"-60 days", "-1 day"},
	} {
		f.exec(`INSERT INTO holdfast.api_keys (key_id, key_hash, name, tenant, subject, created_at, expires_at)
			VALUES ($1, sha256('x'), '', '', 's', now() + $2::text::interval, now() + $3::text::interval)`, id, times[0], times[1])
	}
	f.exec("INSERT INTO holdfast.api_keys (key_id, key_hash, name, tenant, subject, revoked_at) VALUES ('revoked', sha256('x'), '', '', 's', now())")
	f.exec("ANALYZE")

	got := storetest.Must(f.Figures(t.Context()))(t)
	require.Greater(t, got.Bytes, int64(1<<20))
	require.EqualValues(t, 2, got.Keys.Active)
	require.EqualValues(t, 1, got.Keys.Expiring)
	require.EqualValues(t, 1, got.Keys.Expired)
	require.EqualValues(t, 1, got.Keys.Revoked)

	sizes := map[string]int64{}
	for _, table := range got.Tables {
		sizes[table.Name] = table.Bytes
	}
	var files map[string]int64 // what the files have
	require.NoError(t, f.api.QueryRow(t.Context(), `SELECT json_object_agg(name, bytes) FROM (
		SELECT CASE WHEN c.relname ~ '_[0-9]{8}' THEN coalesce(p.relname, 'detached') ELSE c.relname END AS name, sum(pg_total_relation_size(c.oid)) AS bytes
		  FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid LEFT JOIN pg_class p ON p.oid = i.inhparent
		 WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind = 'r' GROUP BY 1) t`).Scan(&files))
	require.Len(t, sizes, len(files))
	for name, bytes := range files {
		if partitioned := []string{"tasks_dated", "events_log", "events_artifacts", "idempotency_keys", "push_attempts", "audit_log", "detached"}; slices.Contains(partitioned, name) {
			require.InEpsilon(t, bytes, sizes[name], 0.5, "%s: analyze counts whole pages of tables, and fewer of empty indexes", name)
		} else {
			require.Equal(t, bytes, sizes[name], name)
		}
	}
	for name := range sizes {
		require.NotRegexp(t, "_[0-9]{8}", name, "a table for each partition would be a series without end")
	}

	now := storetest.Must(f.Now(t.Context()))(t)
	require.Len(t, got.Partitions, len(partition.Families))
	for _, p := range got.Partitions {
		require.Greater(t, p.End.Sub(now), p.Ahead*2/3-time.Minute, p.Family)
		require.Positive(t, p.Attached, p.Family)
		require.Zero(t, p.Detaching, p.Family)
		switch p.Family {
		case "audit":
			require.Equal(t, 2020, p.Begin.Year(), "the gap after the oldest partition does not count")
		case "tasks":
			require.Equal(t, 1, p.Detached)
		default:
			require.Zero(t, p.Detached, p.Family)
		}
	}
}

// The replica that writes the end counts it, whichever asked for the cancel, and by the database's clock.
func TestCancelIsTimedToItsEnd(t *testing.T) {
	f := parallel(t)
	told := make(chan time.Duration, 10)
	f.observe.Canceled = func(agent string, took time.Duration) {
		require.Equal(t, "a", agent)
		told <- took
	}
	other := openFixture(t, f.url, "")
	cancel := func(p *pen) {
		t.Helper()
		require.False(t, other.cancel(p.c.Task, ""))
		f.exec("UPDATE holdfast.tasks SET cancel_requested_at = cancel_requested_at - interval '1 minute' WHERE id = $1", [16]byte(p.c.Task.ID))
	}
	for _, end := range []task.State{task.StateCanceled, task.StateCompleted, task.StateInputRequired} {
		p := f.running("a")
		p.must(t, status(task.StateWorking))
		cancel(p)
		p.must(t, chunk("it goes on"))
		require.Empty(t, told, "it has not ended")
		p.must(t, status(end))
		require.InDelta(t, time.Minute, waittest.Within(t, "the answer", told), float64(30*time.Second), end)
	}
	p := f.running("a")
	p.must(t, status(task.StateCompleted))
	require.Empty(t, told, "nobody canceled it")

	// The run is given back, and the client asks again.
	p = f.running("a")
	cancel(p)
	f.exec("UPDATE holdfast.tasks SET worker_id = NULL, attempt = attempt + 1 WHERE id = $1", [16]byte(p.c.Task.ID))
	f.exec("UPDATE holdfast.task_queue SET worker_id = NULL WHERE id = $1", [16]byte(p.c.Task.ID))
	require.True(t, f.cancel(p.c.Task, ""))
	require.InDelta(t, time.Minute, waittest.Within(t, "the answer", told), float64(30*time.Second))

	n := fresh("a")
	f.create(n)
	require.True(t, f.cancel(&n.Task, ""))
	require.Empty(t, told, "the cancel itself has ended it")
}
