package store

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

// Each statement of operators reads a bounded part by an index, whatever its filter is.
func TestPlansOfOperators(t *testing.T) {
	f := parallel(t)
	seedAdmin(t, f, 6000)
	defer f.exec("TRUNCATE holdfast.tasks, holdfast.push_configs, holdfast.push_cursors") // they have no logs
	seedPushes(t, f)
	f.exec(`INSERT INTO holdfast.api_keys (key_id, key_hash, name, tenant, subject)
		SELECT 'k' || i, sha256('x'), '', 't', 's' FROM generate_series(1, 3000) i`)
	f.exec(`INSERT INTO holdfast.remote_workers (id, agents, last_seen) SELECT gen_random_uuid(), '{a0}', now() - i * interval '1 s' FROM generate_series(1, 3000) i`)
	f.exec("ANALYZE")
	ended := strings.TrimPrefix(scan[string](f, "SELECT tableoid::regclass::text FROM holdfast.tasks WHERE state = 5 LIMIT 1"), "holdfast.")
	const newest, none, all = "'ffffffff-ffff-ffff-ffff-ffffffffffff'", "'00000000-0000-0000-0000-000000000000'", "'{1,2,3,4,5,6,7,8}'"
	const filters = ", now(), '{a0}', '{a1}', NULL, '{t1}', '{o1,o2}', NULL, false, '{ticket}', '{T-9}', interval '1 s', interval '1 day'"
	nobody := regexp.MustCompile(`Seq Scan on (tasks_2\w+|tasks_open|events_\w+|push_\w+|audit_2\w+|admin_jobs|api_keys|remote_workers)\b`)
	c := f.conn()
	f.ok(c.Exec(t.Context(), "SET enable_seqscan = off; SET jit = off", pgx.QueryExecModeSimpleProtocol))
	texts := statements(t)
	for _, x := range []struct{ name, mode, args, index string }{
		{"AgentWindows", "generic", "'{a0,a1}', now() - interval '1 day', 500", ended + "_agent"},
		{"AgentStats", "generic", "now() - interval '1 day', 60, '{a0,a1}', ARRAY[now() - interval '1 day', now() - interval '1 day'], false, ''", ended + "_agent"},
		{"AgentStats", "generic", "now() - interval '1 day', 60, '{a0,a1}', ARRAY[now() - interval '1 day', now() - interval '1 day'], true, 't1'", ended + "_agent"},
		{"AgentFailed", "generic", "'a0', now() - interval '1 day', false, '', 50", ended + "_agent"},
		{"StatusReasons", "generic", "500, ARRAY[" + newest + "]::uuid[], ARRAY[4::bigint], " + newest + ", " + newest, "_pkey"},
		// Their predicates are known only with the arguments.
		{"PushWindow", "custom", newest + ", '', false, false, 100", "push_cursors_pkey"},
		{"PushWindow", "custom", newest + ", '', true, false, 100", "push_cursors_failing"},
		{"PushWindow", "custom", newest + ", '', false, true, 100", "push_cursors_disabled"},
		{"PushList", "custom", newest + ", " + none + ", '', " + none + ", 'a0', '', false, '', '', false, true, false, 51", "push_cursors_failing"},
		{"PushLags", "generic", "10000", "push_cursors_failing"},
		{"PushLagsOfHosts", "generic", "10000, 10", "push_cursors_failing"},
		{"APIKeysPage", "generic", "now(), 'k7', false, '', 50", "api_keys_listed"},
		{"APIKeyPlace", "generic", "'k7', false, ''", "api_keys_pkey"},
		{"RemoteWorkersOf", "generic", "'a0', false, 50", "remote_workers_seen"},
		{"OldestTask", "generic", "", ended + "_pkey"},
		{"AdminWindow", "generic", "false, " + newest + ", " + none + ", 1::smallint, 8::smallint, 20000", "Backward using " + ended + "_pkey"},
		{"AdminWindow", "generic", "true, " + newest + ", " + none + ", 1::smallint, 8::smallint, 20000", "Scan using " + ended + "_pkey"},
		{"AdminTasks", "generic", "false, " + newest + ", " + none + ", 1::smallint, 8::smallint, " + all + filters + ", 50", "Backward using " + ended + "_pkey"},
		{"AdminTasks", "generic", "true, " + newest + ", " + none + ", 1::smallint, 8::smallint, " + all + filters + ", 50", "Scan using " + ended + "_pkey"},
		{"TaskWords", "generic", "ARRAY[" + newest + "]::uuid[], ARRAY[4::bigint], " + newest + ", " + newest, "_pkey"},
		{"AdminTasksSaying", "generic", "ARRAY[" + newest + "]::uuid[], 500, " + newest + ", " + newest + ", 'x'", "_pkey"},
		// PostgreSQL 18 takes the index of agents and times.
		{"AdminCounts", "generic", "now(), 60, " + newest + ", " + none + ", 1::smallint, 8::smallint, " + all + filters, ended + "_"},
		{"AdminTasksOfContext", "generic", "'ctx7', " + newest + ", " + none + ", 1::smallint, 8::smallint, " + all + filters + ", false, 50", ended + "_context_id"},
		{"AdminCountsOfContext", "generic", "now(), 60, 'ctx7', " + newest + ", " + none + ", 1::smallint, 8::smallint, " + all + filters, ended + "_context_id"},
		{"AdminChanged", "generic", "50, '{a0,a1}', now()", ended + "_agent"},
		{"Jobs", "generic", newest + ", false, '', 50", "admin_jobs_pkey"},
		{"JobsForget", "generic", "interval '1 day'", "admin_jobs_ended"},
		{"JobClaim", "generic", "interval '1 s', NULL", "admin_jobs_open"},
		{"AdminAudit", "generic", "now(), 1::smallint, 1, 50, now() - interval '1 day'", "_pkey"},
		{"AdminStatusLines", "generic", "ARRAY[" + newest + "]::uuid[], " + none + ", " + newest, ended + "_pkey"},
		{"AdminStatusLines", "generic", "ARRAY[" + newest + "]::uuid[], " + none + ", " + newest, "task_queue_pkey"},
		{"AgentHealth", "generic", "'{a0,a1}', true, 't1'", ended + "_agent"},
		{"AdminTasksByID", "generic", "ARRAY[" + newest + "]::uuid[], " + none + ", " + newest, ended + "_pkey"},
	} {
		plan := planOf(t, c, texts[x.name], x.mode, x.args)
		require.Contains(t, plan, x.index, "%s(%s):\n%s", x.name, x.args, plan)
		require.NotRegexp(t, nobody, plan, "%s(%s):\n%s", x.name, x.args, plan)
	}
}

// planOf is the generic or custom plan of a statement with these arguments.
func planOf(t *testing.T, c *pgx.Conn, text, mode, args string) string {
	t.Helper()
	storetest.Must(c.Exec(t.Context(), "SET plan_cache_mode = force_"+mode+"_plan", pgx.QueryExecModeSimpleProtocol))(t)
	require.NoError(t, c.Deallocate(t.Context(), "explained"))
	storetest.Must(c.Prepare(t.Context(), "explained", text))(t, text)
	execute := "EXPLAIN EXECUTE explained"
	if args != "" {
		execute += "(" + args + ")"
	}
	rows, err := c.Query(t.Context(), execute, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err, text)
	lines := storetest.Must(pgx.CollectRows(rows, pgx.RowTo[string]))(t, text)
	return strings.Join(lines, "\n")
}

// seedPushes gives each ended task of seedAdmin a webhook. One in a thousand fails, and one in two thousand is disabled.
func seedPushes(t *testing.T, f *fixture) {
	t.Helper()
	f.exec(`INSERT INTO holdfast.push_configs (task, config_id, agent, public_id, dialect, url, schemes)
		SELECT id, 'c', agent, id::text, '1.0', 'http://h/' , '[]' FROM holdfast.tasks WHERE state >= 5`)
	f.exec(`INSERT INTO holdfast.push_cursors (task, config_id, host, artifacts, attempts, failing_since, last_error, due_at, due_since, disabled_at)
		SELECT id, 'c', 'h' || n % 3 || ':80', false, CASE WHEN n % 1000 = 0 THEN 2 ELSE 0 END, CASE WHEN n % 1000 = 0 THEN now() END,
		       CASE WHEN n % 1000 = 0 THEN 'refused' END, CASE WHEN n % 1000 = 0 AND n % 2000 <> 0 THEN now() END, CASE WHEN n % 1000 = 0 THEN now() END,
		       CASE WHEN n % 2000 = 0 THEN now() END
		  FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM holdfast.tasks WHERE state >= 5) x`)
}

// A page of webhooks passes over a bounded number of them, and its next one goes on where it has stopped.
func TestListedPushes(t *testing.T) {
	f := parallel(t)
	f.windowPushes = 1000
	seedAdmin(t, f, 5500) // more than a page passes over
	defer f.exec("TRUNCATE holdfast.tasks, holdfast.push_configs, holdfast.push_cursors")
	// The ids of seedAdmin share a millisecond, which a window never divides. These have one each.
	f.exec(`UPDATE holdfast.tasks t SET id = x.id FROM (
		SELECT t.id AS old, (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint - row_number() OVER ()), 12, '0') || substr(replace(t.id::text, '-', ''), 13))::uuid AS id
		  FROM holdfast.tasks t WHERE t.state >= 5) x WHERE t.id = x.old AND t.state >= 5`)
	seedPushes(t, f)
	all := func(op *Operator, filter PushFilter) (n, pages int) {
		filter.Limit = 20
		var last task.ID
		for {
			page := storetest.Must(op.ListedPushes(t.Context(), filter))(t)
			require.LessOrEqual(t, len(page.Pushes), filter.Limit)
			for i := range page.Pushes {
				if !last.IsZero() {
					require.Negative(t, strings.Compare(page.Pushes[i].Task.String(), last.String()), "the newest first, and none twice")
				}
				last = page.Pushes[i].Task
			}
			n, pages = n+len(page.Pushes), pages+1
			if page.NextTask.IsZero() {
				return n, pages
			}
			filter.BeforeTask, filter.BeforeID = page.NextTask, page.NextID
		}
	}
	op := f.Operator(task.Caller{}, false)
	n, pages := all(op, PushFilter{Failing: true})
	require.Equal(t, 5, n)
	require.LessOrEqual(t, pages, 3, "an index finds the rare ones")
	n, _ = all(op, PushFilter{Disabled: true})
	require.Equal(t, 2, n)
	n, pages = all(op, PushFilter{Due: true, Owner: "o99"})
	require.Zero(t, n)
	require.Equal(t, 2, pages, "a page stops after %d webhooks", windows*f.windowPushes)
	n, _ = all(op, PushFilter{Due: true})
	require.Equal(t, 3, n)
	own := f.Operator(task.Caller{Tenant: "t1", Subject: "op"}, true)
	expected := scan[int](f, "SELECT count(*) FROM holdfast.push_cursors k JOIN holdfast.tasks t ON t.id = k.task WHERE t.tenant = 't1' AND k.attempts > 0")
	n, _ = all(own, PushFilter{Failing: true})
	require.Equal(t, expected, n)

	lags := storetest.Must(f.PushLags(t.Context()))(t)
	require.Equal(t, []int64{3, 3, 2}, []int64{lags.Due, lags.Failing, lags.Disabled})
	require.Len(t, lags.Hosts, 3)
	require.Equal(t, "refused", lags.Hosts[0].Error)
}

// Statistics have each task that ended in the interval of its end, and say how far back they go.
func TestAgentStats(t *testing.T) {
	f := parallel(t)
	f.ok(f.EnsurePartitions(t.Context()))
	defer f.exec("TRUNCATE holdfast.tasks") // they have no logs
	now := storetest.Must(f.Now(t.Context()))(t)
	since := now.Truncate(time.Minute).Add(-9 * time.Minute)
	// Each minute: two completed tasks of tenant a that ran for 1 and 3 seconds, and a failed one of b. Created a minute before.
	f.exec(fmt.Sprintf(`INSERT INTO holdfast.tasks (id, agent, tenant, owner, context_id, state, last_seq, status_seq, dialect, created_at, claimed_at, status_at)
		SELECT `+presentID+`, 'x', CASE WHEN n = 3 THEN 'b' ELSE 'a' END, 'o', 'c', CASE WHEN n = 3 THEN 6 ELSE 5 END, 4, 4, '1.0',
		       e - interval '1 minute', e - (CASE n WHEN 1 THEN 1 WHEN 2 THEN 3 ELSE 10 END) * interval '1 s', e
		  FROM generate_series(0, 8) m, generate_series(1, 3) n, LATERAL (SELECT 10 * m + n AS i, '%s'::timestamptz + m * interval '1 minute' + interval '5 s' AS e) x`,
		since.Format(time.RFC3339Nano)))
	stats := func(op *Operator) *AgentStats {
		got := storetest.Must(op.AgentStats(t.Context(), []string{"x", "y"}, since, time.Minute))(t)
		return got
	}
	got := stats(f.Operator(task.Caller{}, false))
	require.Empty(t, got.Since)
	require.Len(t, got.Stats, 9)
	seen := map[int]bool{}
	for _, s := range got.Stats {
		require.Equal(t, []int64{3, 1, 0, 0, 3}, []int64{s.Ended, s.Failed, s.Canceled, s.Rejected, s.Timed})
		require.InDelta(t, 3, s.RunP50, 0.001)
		require.InDelta(t, 60, s.TookP95, 0.001)
		seen[s.Bucket] = true
	}
	require.Len(t, seen, 9)
	own := stats(f.Operator(task.Caller{Tenant: "a", Subject: "op"}, true))
	require.Len(t, own.Stats, 9)
	for _, s := range own.Stats {
		require.Equal(t, []int64{2, 0, 2}, []int64{s.Ended, s.Failed, s.Timed})
		require.InDelta(t, 2, s.RunP50, 0.001)
	}
}

// With more tasks than statistics read, the newest ones count, from the beginning of an interval on.
func TestAgentStatsAreBounded(t *testing.T) {
	f := parallel(t)
	f.ok(f.EnsurePartitions(t.Context()))
	defer f.exec("TRUNCATE holdfast.tasks")
	now := storetest.Must(f.Now(t.Context()))(t)
	since := now.Truncate(time.Hour).Add(-9 * time.Hour)
	f.statTasks = 2000
	f.exec(fmt.Sprintf(`INSERT INTO holdfast.tasks (id, agent, tenant, owner, context_id, state, last_seq, status_seq, dialect, status_at)
		SELECT `+presentID+`, 'x', '', '', 'c', 6, 4, 4, '1.0', '%s'::timestamptz + i * interval '10 s' FROM generate_series(1, 3000) i`, since.Format(time.RFC3339Nano)))
	op := f.Operator(task.Caller{}, false)
	got := storetest.Must(op.AgentStats(t.Context(), []string{"x"}, since, time.Hour))(t)
	from := got.Since["x"]
	require.Equal(t, from, from.Truncate(time.Hour), "the beginning of an interval")
	total := int64(0)
	for _, s := range got.Stats {
		require.False(t, since.Add(time.Duration(s.Bucket)*time.Hour).Before(from))
		total += s.Ended
	}
	require.LessOrEqual(t, total, int64(f.statTasks))
	require.Greater(t, total, int64(f.statTasks-2*360))

	failed, looked := must2(op.Failures(t.Context(), "x", since, 50))(t)
	require.Len(t, failed, 50)
	require.True(t, looked.After(since))
}

// Failures have the cause that the client does not see, or the text of the status, and only those of the operator's tenant.
func TestFailures(t *testing.T) {
	f := parallel(t)
	f.ok(f.EnsurePartitions(t.Context()))
	defer f.exec("TRUNCATE holdfast.tasks, holdfast.task_events")
	for i, x := range []struct{ tenant, payload string }{
		{"a", `{"cause":"exit status 1"}`},
		{"a", `{"message":{"parts":[{"text":"one"},{"text":"two"}]}}`},
		{"b", `{"cause":"secret of b"}`},
	} {
		id := uuid.UUID(NewID())
		f.exec(fmt.Sprintf(`INSERT INTO holdfast.tasks (id, agent, tenant, owner, context_id, state, last_seq, status_seq, dialect, status_at)
			VALUES ('%s', 'x', '%s', 'o', 'c', 6, 4, 4, '1.0', now() - %d * interval '1 s')`, id, x.tenant, i))
		f.exec(fmt.Sprintf(`INSERT INTO holdfast.task_events (task, seq, kind, state, attempt, payload) VALUES ('%s', 4, 2, 6, 1, '%s')`, id, x.payload))
	}
	reasons := func(op *Operator) (out []string) {
		failed, _ := must2(op.Failures(t.Context(), "x", time.Now().Add(-time.Hour), 10))(t)
		for _, f := range failed {
			out = append(out, f.Reason)
		}
		return out
	}
	require.Equal(t, []string{"exit status 1", "one\ntwo", "secret of b"}, reasons(f.Operator(task.Caller{}, false)))
	require.Equal(t, []string{"exit status 1", "one\ntwo"}, reasons(f.Operator(task.Caller{Tenant: "a", Subject: "op"}, true)))
}

// An operator of one tenant lists and revokes the keys of its tenant only.
func TestKeysOfOperators(t *testing.T) {
	f := parallel(t)
	by := task.Caller{Tenant: "a", Subject: "op", Method: task.MethodOperator, Reason: "because"}
	own, all := f.Operator(by, true), f.Operator(by, false)
	for i := range 7 {
		tenant := []string{"a", "b"}[i%2]
		f.ok(all.AddAPIKey(t.Context(), &APIKey{ID: fmt.Sprint("k", i), Hash: make([]byte, 32), Tenant: tenant, Subject: "s"}, 0))
	}
	ids := func(op *Operator, limit int) (out []string) {
		for before := ""; ; {
			page := storetest.Must(op.ListAPIKeys(t.Context(), before, limit))(t)
			if len(page) == 0 {
				return out
			}
			for _, k := range page {
				out = append(out, k.ID)
			}
			before = out[len(out)-1]
		}
	}
	require.Equal(t, []string{"k6", "k5", "k4", "k3", "k2", "k1", "k0"}, ids(all, 3))
	require.Equal(t, []string{"k6", "k4", "k2", "k0"}, ids(own, 3))
	require.ErrorIs(t, errOf(own.ListAPIKeys(t.Context(), "k1", 3)), task.NotFound)
	k := storetest.Must(own.RevokeAPIKey(t.Context(), "k1"))(t)
	require.Nil(t, k, "another tenant's")
	require.Equal(t, 0, scan[int](f, "SELECT count(*) FROM holdfast.api_keys WHERE revoked_at IS NOT NULL"))
	k = storetest.Must(own.RevokeAPIKey(t.Context(), "k2"))(t)
	require.False(t, k.RevokedAt.IsZero())
	require.Equal(t, "because", scan[string](f, "SELECT reason FROM holdfast.v_audit WHERE action = 'key.revoked' AND object = 'k2' AND subject = 'op'"))
}

// The sizes and the duties are those of the catalog.
func TestDatabaseFacts(t *testing.T) {
	f := parallel(t)
	facts := storetest.Must(f.Database(t.Context()))(t)
	require.True(t, facts.Oldest.IsZero())
	h := f.create(fresh("a"))
	facts = storetest.Must(f.Database(t.Context()))(t)
	require.True(t, facts.Oldest.Equal(partition.TimeOf(h.ID)), "%s: %s", h.ID, facts.Oldest)
	require.Positive(t, facts.Bytes)
	require.Positive(t, facts.MaxConnections)
	sizes := storetest.Must(f.TableSizes(t.Context()))(t)
	names := map[string]bool{}
	for _, s := range sizes {
		names[s.Name] = s.Bytes > 0
	}
	require.True(t, names["tasks_open"])
	require.True(t, names["task_queue"])
	require.True(t, storetest.Must(f.Lead(context.WithoutCancel(t.Context()), "partitions", NewID(), time.Hour))(t))
	duties := storetest.Must(f.Duties(t.Context()))(t)
	require.Len(t, duties, 1)
	require.True(t, duties[0].Held)
}
