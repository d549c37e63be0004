package store

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/invarianttest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

func TestStatesInDatabase(t *testing.T) {
	f := parallel(t)
	const bounds = "SELECT string_agg(pg_get_expr(relpartbound, oid), '' ORDER BY relpartbound::text) FROM pg_class WHERE relname ~ "
	check := scan[string](f, bounds+"'^tasks_(open|ended)$'")
	var want []string
	for _, s := range task.States {
		want = append(want, strconv.Itoa(int(s)))
	}
	require.ElementsMatch(t, want, regexp.MustCompile(`\d+`).FindAllString(check, -1), check)
	comment := scan[string](f, "SELECT col_description('holdfast.tasks'::regclass, attnum) FROM pg_attribute WHERE attrelid = 'holdfast.tasks'::regclass AND attname = 'state'")
	for _, s := range task.States {
		require.Contains(t, comment, fmt.Sprintf("%d %s", s, s))
	}
	kinds := scan[string](f, bounds+"'^events_(log|artifacts)$'")
	require.ElementsMatch(t, []string{"1", "2", "3", "4"}, regexp.MustCompile(`\d+`).FindAllString(kinds, -1))
}

// webhook is SQL that adds a webhook with the given cursor.
func webhook(columns, values string) string {
	return `INSERT INTO holdfast.push_configs (task, config_id, agent, public_id, dialect, url, schemes) SELECT id, 'c', 'a', id::text, '1.0', 'http://h', '[]' FROM holdfast.tasks;
		UPDATE holdfast.tasks SET pushes = true;
		INSERT INTO holdfast.push_cursors (task, config_id, host, artifacts, next_seq, due_seq` + columns + `)
		SELECT id, 'c', 'h:80', false, ` + values + ` FROM holdfast.tasks;`
}

// A check that never fails proves nothing.
func TestInvariantsFindDamage(t *testing.T) {
	f := parallel(t)
	f.running("a").must(t, status(task.StateWorking), chunk("1"), chunk("2"), chunk("3"), status(task.StateCompleted))
	for name, damage := range map[string]string{
		"an event removed from the middle": "DELETE FROM holdfast.task_events WHERE seq = 3",
		"the last event removed":           "DELETE FROM holdfast.task_events WHERE seq = 6",
		"an event doubled": `INSERT INTO holdfast.task_events SELECT task, 7, kind, kept, state, attempt, append, last, artifact_id, payload
			FROM holdfast.task_events WHERE seq = 4`,
		"an event doubled and counted": `UPDATE holdfast.task_events SET seq = seq + 101 WHERE seq >= 5;
			UPDATE holdfast.task_events SET seq = seq - 100 WHERE seq > 100;
			INSERT INTO holdfast.task_events SELECT task, 5, kind, kept, state, attempt, append, last, artifact_id, payload
			FROM holdfast.task_events WHERE seq = 4;
			UPDATE holdfast.tasks SET last_seq = 7, status_seq = 7`,
		"the end before a chunk": `UPDATE holdfast.task_events SET seq = CASE seq WHEN 5 THEN 106 ELSE 105 END WHERE seq IN (5, 6);
			UPDATE holdfast.task_events SET seq = seq - 100 WHERE seq > 100`,
		"the message behind the status": `UPDATE holdfast.task_events SET seq = CASE seq WHEN 1 THEN 102 ELSE 101 END WHERE seq IN (1, 2);
			UPDATE holdfast.task_events SET seq = seq - 100 WHERE seq > 100`,
		"two ends": `INSERT INTO holdfast.task_events (task, seq, kind, state, attempt) SELECT id, 7, 2, 6, 1 FROM holdfast.tasks;
			UPDATE holdfast.tasks SET last_seq = 7, status_seq = 7, state = 6, run_ordinal = 6`,
		"another state than the log's":     "UPDATE holdfast.tasks SET state = 6",
		"a queue row of a task that ended": "INSERT INTO holdfast.task_queue (id, agent, message_seq) SELECT id, agent, 1 FROM holdfast.tasks",
		"an impossible step":               "UPDATE holdfast.task_events SET state = 3 WHERE seq = 2",
		"a log without a task":             "DELETE FROM holdfast.tasks",
		"a seq that names no listing":      "UPDATE holdfast.tasks SET artifacts_seq = 6",
		"a listing without an artifact":    `UPDATE holdfast.task_events SET payload = '{"artifacts":["b"]}' WHERE seq = 6; UPDATE holdfast.tasks SET artifacts_seq = 6`,
		"a webhook without a mark":         webhook("", "1, 0"),
		"a webhook past the log":           webhook("", "8, 0"),
		"a mark past the log":              webhook(", due_at, due_since", "7, 7, now(), now()"),
		"a webhook without a due time":     webhook(", due_since", "1, 6, now()"),
		"a webhook that is due for naught": webhook(", due_at, due_since", "7, 6, now(), now()"),
		"a disabled webhook that is due":   webhook(", due_at, due_since, disabled_at, disabled_for", "1, 6, now(), now(), now(), 'x'"),
		"a webhook disabled without why":   webhook(", disabled_at", "7, 6, now()"),
		"a claim that never ends":          webhook(", due_at, due_since, claim, worker_id, locked_until", "1, 6, now() + interval '1 day', now(), id, id, now()"),
		"a configuration without a cursor": webhook("", "7, 6") + "DELETE FROM holdfast.push_cursors",
		"a webhook that its task forgot":   webhook("", "7, 6") + "UPDATE holdfast.tasks SET pushes = false",
		"an attempt past the log": webhook("", "7, 6") + `INSERT INTO holdfast.push_attempts (task, config_id, from_seq, to_seq, attempt, delivery_id, class)
			SELECT id, 'c', 7, 7, 1, 'j', 'delivered' FROM holdfast.tasks`,
	} {
		f.damages(name, damage, "")
	}
}

// damages checks that the invariants find damage, in a transaction that is never committed.
func (f *fixture) damages(name, damage, says string) {
	f.t.Helper()
	tx := storetest.Must(f.conn().Begin(f.t.Context()))(f.t)
	defer func() { require.NoError(f.t, tx.Rollback(context.Background())) }()
	storetest.Must(tx.Conn().PgConn().Exec(f.t.Context(), damage).ReadAll())(f.t, name)
	require.ErrorContains(f.t, invarianttest.CheckIn(f.t.Context(), tx), says, name)
}

// statements reads the text of every query that sqlc generated.
func statements(t *testing.T) map[string]string {
	t.Helper()
	files := storetest.Must(filepath.Glob("internal/dbsqlc/*.sql.go"))(t)
	out := map[string]string{}
	for _, name := range files {
		file := storetest.Must(parser.ParseFile(token.NewFileSet(), name, nil, 0))(t)
		ast.Inspect(file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if ok && lit.Kind == token.STRING {
				text, _ := strconv.Unquote(lit.Value)
				if rest, ok := strings.CutPrefix(text, "-- name: "); ok {
					query, _, _ := strings.Cut(rest, " ")
					out[query] = text
				}
			}
			return true
		})
	}
	require.NotEmpty(t, out)
	return out
}

// Rare queries that may read a whole (small) table or index.
var cold = map[string]string{
	"QueueDepth":   "aggregates the queue, which has only queued and running tasks",
	"PushList":     "an operator's question",
	"PushSecrets":  "an operator's act, on all of them",
	"TurnsSealed":  "an operator's act, on the whole queue",
	"AdminChanged": "a live list that continues after a cut; each part stops at the limit",
	// It counts the runs of an agent for a task that waits for a place.
	"AdminStatusLines": "a page of an operator: tasks by their ids, and the agents of those in the queue",
}

// ofSystem are the statements of the pages about the system, which read the newest rows up to a limit: a replica executes them once
// in some seconds, however many operators look. TestPlansOfOperators has their plans.
var ofSystem = []string{"OldestTask", "AgentHealth", "AgentWindows", "AgentStats", "AgentFailed", "PushLags"}

// background are the statements of retention: one process executes them in batches, and they may read all partitions.
func background(t *testing.T) map[string]bool {
	t.Helper()
	text := storetest.Must(os.ReadFile("../../queries/retention.sql"))(t)
	out := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^-- name: (\w+)`).FindAllStringSubmatch(string(text), -1) {
		out[m[1]] = true
	}
	require.NotEmpty(t, out)
	return out
}

// explain shows the plan of a statement with unknown parameters, as if all of them were NULL.
func explain(t testing.TB, c *pgx.Conn, name, text string) []string {
	t.Helper()
	d := storetest.Must(c.Prepare(t.Context(), "p_"+name, text))(t, name)
	call := `EXPLAIN EXECUTE "p_` + name + `"`
	if n := len(d.ParamOIDs); n > 0 {
		call += "(" + strings.TrimSuffix(strings.Repeat("NULL,", n), ",") + ")"
	}
	rows, err := c.Query(t.Context(), call, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err, name)
	lines := storetest.Must(pgx.CollectRows(rows, pgx.RowTo[string]))(t, name)
	require.NoError(t, c.Deallocate(t.Context(), "p_"+name))
	return lines
}

var (
	planTasks  = flag.Int("plan.tasks", 15_000, "tasks behind the plans of the hot queries")
	planMonths = flag.Int("plan.months", 1, "months over which these tasks are spread")
)

func TestPlansOfHotQueries(t *testing.T) {
	f := parallel(t)
	f.ok(f.EnsurePartitions(t.Context()))
	now := storetest.Must(f.Now(t.Context()))(t)
	month := partition.Month.Floor(now)
	if *planMonths > 1 {
		require.NoError(t, storetest.Partitions(t.Context(), f.url, month.AddDate(0, 1-*planMonths, 0), month))
	}
	var filled strings.Builder
	for i := range *planMonths {
		filled.WriteString(`|(tasks|events|artifacts)_` + month.AddDate(0, -i, 0).Format("20060102"))
	}
	c := f.conn()
	_, err := c.PgConn().Exec(t.Context(), fmt.Sprintf("SET seed.tasks = %d; SET seed.months = %d;", *planTasks, *planMonths)+`
		-- The newest tasks are of the present, the others of all months in turn.
		CREATE TEMP TABLE seed AS SELECT (lpad(to_hex((extract(epoch FROM now() - make_interval(months => CASE WHEN i > n - 3000 THEN 0 ELSE i % m END)) * 1000)::bigint), 12, '0')
		       || '7' || substr(md5(i::text), 1, 19))::uuid AS id, i
		  FROM (SELECT current_setting('seed.tasks')::integer AS n, current_setting('seed.months')::integer AS m) x, generate_series(1, n) i;
		INSERT INTO holdfast.tasks (id, client_id, agent, tenant, owner, context_id, state, last_seq, status_seq, dialect)
		SELECT id, CASE WHEN i % 10 = 0 THEN 'c' || i END, 'agent' || i % 5, 't', 'o' || i % 100, 'ctx' || i % 5000, 5, 4, 4, '0.3' FROM seed;
		INSERT INTO holdfast.task_events (task, seq, kind, state, attempt, artifact_id, payload)
		SELECT id, s, CASE s WHEN 1 THEN 1 WHEN 3 THEN 3 ELSE 2 END, CASE s WHEN 2 THEN 2 WHEN 4 THEN 5 END, 1,
		       CASE s WHEN 3 THEN 'a' END, '{"parts":[]}' FROM seed, generate_series(1, 4) s;
		INSERT INTO holdfast.idempotency_keys SELECT (now() AT TIME ZONE 'UTC')::date, 't', 'o' || i % 100, 'k' || i, '', id FROM seed WHERE i % 5 = 0;
		WITH open AS (UPDATE holdfast.tasks SET state = 1, last_seq = 1, status_seq = 1
			WHERE id IN (SELECT id FROM seed WHERE i > current_setting('seed.tasks')::integer - 3000) RETURNING id, agent)
		, gone AS (DELETE FROM holdfast.task_events e USING open WHERE e.task = open.id AND e.seq > 1)
		INSERT INTO holdfast.task_queue (id, agent, message_seq) SELECT id, agent, 1 FROM open;
		UPDATE holdfast.tasks SET worker_id = md5((status_at, id)::text)::uuid WHERE id IN (SELECT id FROM seed WHERE i > current_setting('seed.tasks')::integer - 100);
		UPDATE holdfast.task_queue q SET worker_id = t.worker_id FROM holdfast.tasks t WHERE t.id = q.id;
		UPDATE holdfast.tasks SET attempt = 1 WHERE state = 5;
		UPDATE holdfast.tasks SET run_ordinal = 4 WHERE state = 5;
		UPDATE holdfast.task_events SET attempt = 0 WHERE seq = 1;
		UPDATE holdfast.tasks SET run_ordinal = 3 WHERE state = 5;
		INSERT INTO holdfast.push_configs (task, config_id, agent, public_id, dialect, url, schemes) SELECT id, 'c', 'a', id::text, '0.3', 'http://h', '[]' FROM seed WHERE i <= 8000;
		INSERT INTO holdfast.push_cursors (task, config_id, host, artifacts, next_seq, due_seq, due_at, due_since)
		SELECT id, 'c', 'h' || i % 50, false, CASE WHEN i <= 2000 THEN 4 ELSE 5 END, 4, CASE WHEN i <= 2000 THEN now() END, CASE WHEN i <= 2000 THEN now() END
		  FROM seed WHERE i <= 8000;
		UPDATE holdfast.push_cursors SET disabled_at = now(), disabled_for = 'test', due_at = NULL WHERE host = 'h7';
		UPDATE holdfast.tasks SET pushes = true WHERE id IN (SELECT task FROM holdfast.push_configs);
		INSERT INTO holdfast.push_attempts (task, config_id, from_seq, to_seq, attempt, delivery_id, class)
		SELECT id, 'c', 2, 2, 1, 'j', 'delivered' FROM seed WHERE i <= 8000;
		ANALYZE`).ReadAll()
	require.NoError(t, err)
	for setting, tables := range map[string]string{
		"SET enable_seqscan = off": `tasks|task_queue|task_events\w*|idempotency_keys|push_\w+`, // like the store
		// With sequential scans enabled, only partitions that ANALYZE saw empty may be scanned, and those of a day.
		"SET enable_seqscan = on": `tasks|task_queue|idempotency_keys|push_\w+` + filled.String(),
	} {
		seq := regexp.MustCompile(`Seq Scan on (` + tables + `)\b`)
		f.ok(c.Exec(t.Context(), setting+"; SET plan_cache_mode = force_generic_plan; SET jit = off", pgx.QueryExecModeSimpleProtocol))
		for name, text := range statements(t) {
			plan := strings.Join(explain(t, c, name, text), "\n")
			if cold[name] == "" {
				require.NotRegexp(t, seq, plan, "%s: %s", setting, name)
			}
			switch name {
			case "EventsAppend", "TurnsNext", "TurnsWait", "QueueClaim", "QueueHurry", "RunRequeue", "RunsOwned", "RunsHeld", "RunsRescue", "RunHandOver", "RunBeat", "RunSilence", "MessageAppend", "TaskResume", "TaskCancel":
				require.Contains(t, plan, "on tasks_open", name)
				require.NotRegexp(t, ` tasks_(ended|kept|dated|\d+)`, plan, "%s: ended tasks are in no plan", name)
			case "RemoteExpire", "RemoteLook":
				require.Contains(t, plan, "task_queue_leases", name)
			case "TimersFire":
				require.Contains(t, plan, "task_queue_timers")
			case "PushLanes":
				require.NotContains(t, plan, "push_cursors_due")
				require.Contains(t, plan, "push_cursors_lanes")
			case "PushClaim", "PushNext", "PushCounts":
				require.Contains(t, plan, "push_cursors_due", "delivered events are not read: %s", name)
			}
		}
	}
}

// presentID is SQL for the id of a present task, by its number i.
const presentID = `(lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint), 12, '0') || '7' || substr(md5(i::text), 1, 19))::uuid`

// A limit counts rows up to the limit only, however many there are.
func TestLimitsReadOnlyWhatTheyCount(t *testing.T) {
	t.Parallel()
	c := storetest.Must(pgx.Connect(t.Context(), storetest.New(t).URL))(t)
	defer func() { _ = c.Close(t.Context()) }()
	_, err := c.PgConn().Exec(t.Context(), `
		INSERT INTO holdfast.tasks (id, agent, tenant, owner, context_id, state, last_seq, status_seq, dialect)
		SELECT `+presentID+`, 'a', 't', 'o' || i % 10, 'c', CASE WHEN i % 50 = 1 THEN 2 ELSE 5 END, 4, 4, '0.3' FROM generate_series(1, 6000) i;
		INSERT INTO holdfast.task_queue (id, agent, message_seq) SELECT id, 'a', 1 FROM holdfast.tasks;
		INSERT INTO holdfast.task_queue (id, agent, message_seq, wakes_at)
		SELECT gen_random_uuid(), 'w', 1, CASE WHEN i > 5 THEN now() + interval '1 h' END FROM generate_series(1, 6000) i;
		SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET jit = off`).ReadAll()
	require.NoError(t, err)
	for call, want := range map[string]int{
		"live_tasks(0, 't', 'o1', 'a', 20)": 20, "live_tasks(0, 't', 'o2', 'a', 20)": 0, "live_tasks(0, 't', 'o1', 'a', 1000)": 120,
		"waiting_tasks(0, 'a', 20)": 20, "waiting_tasks(0, 'b', 20)": 0, "waiting_tasks(0, 'w', 20)": 5,
	} {
		var n int
		require.NoError(t, c.QueryRow(t.Context(), "SELECT holdfast."+call).Scan(&n))
		require.Equal(t, want, n, call)
		require.LessOrEqual(t, pagesOf(t, c, "SELECT holdfast."+call), 30+want, call)
	}
}

// A plan that is made for an empty queue scans neither the whole queue nor all open tasks when there are many.
func TestPlansForEmptyQueue(t *testing.T) {
	f := parallel(t)
	for range 50 {
		require.True(t, storetest.Must(f.Cancel(t.Context(), f.create(fresh("a")), nil))(t))
	}
	f.worker(time.Hour)
	c := f.conn()
	f.ok(c.Exec(t.Context(), "ANALYZE; SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off", pgx.QueryExecModeSimpleProtocol))
	node := regexp.MustCompile(`(?:Seq Scan|Index (?:Only )?Scan using (\w+)) on (tasks_\w+|task_queue|push_configs|push_cursors)\b`)
	rare := []string{
		"RunsRescue", // once a lease it reads all processes
		"RunsOwned", "IdempotencyForget", "QueueHurry",
		"PushCounts", // reads all rows that are due, or disabled
	}
	within := []string{
		"MessageFind", "PushConfigs", "RelaysAppend", // one task
		"TurnsNext", "TurnsWait", // at most a batch of runs, looked up by their ids
	}
	behind := background(t)
	for name, text := range statements(t) {
		if cold[name] != "" || behind[name] || slices.Contains(ofSystem, name) {
			continue
		}
		lines := explain(t, c, name, text)
		for i, l := range lines {
			if strings.Contains(l, "Join Filter") && !slices.Contains(within, name) {
				// Processes and signing keys are few. At most a thousand runs are freed at once, and at most a batch
				// of runs claimed or written, of slots for runs, or of webhooks claimed or recorded.
				// The filter on the ordinal comes after a join by task and attempt.
				assert.Regexp(t, `Join Filter: \((\(r\.ordinal = '-1'::integer\) OR .*|w\.id = q\.worker_id|mine\.id = queued\.id|t\.id = q\.id|t_2\.id = (mine|mine_1|e)\.id|(mine_\d|q_\d|e)\.id = t_2\.id|q_2\.id = e_1\.id|e_1\.id = q_2\.id|`+
					`(slot|o|q_\d)\.agent = (a_\d|q_\d)\.agent|\(row_number\(\) OVER (?:w\d|\(\?\))\) = slot\.nth|slot\.nth = \(row_number\(\) OVER (?:w\d|\(\?\))\)|later\.active_at > k\.active_at|\((many|k_\d|e)\.task = (many|k_\d|e)\.task\) AND \(\w+\.config_id = \w+\.config_id\))\)`, l, "%s: %s", name, strings.Join(lines, "\n"))
			}
			if m := node.FindStringSubmatch(l); m != nil && !slices.Contains(rare, name) {
				sought := i+1 < len(lines) && strings.Contains(lines[i+1], "Index Cond")
				assert.True(t, sought && (m[1] != "tasks_open_parked" || name == "TasksParked"), "%s: %s", name, strings.Join(lines, "\n"))
			}
		}
	}
}

// Beside an old snapshot PostgreSQL takes the scan of an index for cheap. No plan looks for a row by the last column of one.
func TestPlansForDeadRows(t *testing.T) {
	f := parallel(t)
	f.endedBesideASnapshot(8000)
	c := f.conn()
	f.ok(c.Exec(t.Context(), "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET jit = off", pgx.QueryExecModeSimpleProtocol))
	scan := regexp.MustCompile(`Index (?:Only )?Scan (?:Backward )?(?:using|on) (\w+)`)
	leads := map[string]string{
		"tasks_open_pkey": "id", "task_queue_pkey": "id", "push_cursors_pkey": "task", "task_queue_owned": "worker_id", "task_queue_ready": "agent",
		"tasks_open_tenant_owner_agent_direct_state_status_at_id_idx": "tenant", "tasks_open_context_id_tenant_owner_agent_direct_state_statu_idx": "context_id",
	}
	behind := background(t)
	seen := map[string]bool{}
	for live := range 3 {
		if live > 0 {
			f.create(fresh("a"))
		}
		f.exec("VACUUM (ANALYZE) holdfast.tasks_open, holdfast.task_queue, holdfast.push_cursors")
		for name, text := range statements(t) {
			if cold[name] != "" || behind[name] || slices.Contains(ofSystem, name) { // operators' questions
				continue
			}
			lines := explain(t, c, name, text)
			for i, l := range lines[:len(lines)-1] {
				m := scan.FindStringSubmatch(l)
				if m == nil || leads[m[1]] == "" {
					continue
				}
				seen[m[1]] = true
				assert.Regexp(t, `Index Cond: \(+(ROW\()?(\w+\.)?`+leads[m[1]]+`[ ,]`, lines[i+1], "%d live rows: %s:\n%s", live, name, l)
			}
		}
	}
	for _, name := range []string{"tasks_open_pkey", "task_queue_pkey", "task_queue_ready", "push_cursors_pkey"} {
		require.True(t, seen[name], name)
	}
}

// A year of history is 12 partitions. A statement that opens each of them pays for it every time.
func TestStatementsOpenOnlyTheirPartitions(t *testing.T) {
	f := parallel(t)
	c := f.conn()
	require.NoError(t, storetest.Partitions(t.Context(), f.url, time.Date(2022, 6, 1, 0, 0, 0, 0, time.UTC), time.Date(2023, 5, 1, 0, 0, 0, 0, time.UTC)))
	f.ok(c.Exec(t.Context(), "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off", pgx.QueryExecModeSimpleProtocol))
	old := regexp.MustCompile(`(tasks|events|artifacts)_202[23]\d{4}`)
	behind := background(t)
	for name, text := range statements(t) {
		// Operators' acts: PostgreSQL opens all partitions for an update of one row, and the tasks that have ended lately may be old.
		// A page of tasks has one for each partition of the events of their statuses, of which it reads that of the task.
		if behind[name] || name == "NoteReseal" || name == "AdminChanged" || name == "AdminStatusLines" || name == "TaskRetried" || slices.Contains(ofSystem, name) {
			continue
		}
		// The executor opens the partitions in the plan after pruning by the parameters. NULL is in no partition.
		assert.NotRegexp(t, old, strings.Join(explain(t, c, name, text), "\n"), name)
	}
}

// Rows that stay as long as their tasks: no statement of a duty or a run passes over those of tasks that have ended.
func TestPlansOfRowsThatStay(t *testing.T) {
	f := parallel(t)
	for _, fill := range []string{
		`task_calls (parent, seq, nth, call_id, agent, child, answers, root, callers, relay, started_at, settled_at, state)
			SELECT gen_random_uuid(), 2, 1, '1', 'b', gen_random_uuid(), false, gen_random_uuid(), '{a}', i % 2 = 0, now(), now(), 5`,
		`cancel_notices (task, agent, reason, ended_at, delivered) SELECT gen_random_uuid(), 'a', 'canceled', now(), true`,
		`context_states (tenant, owner, agent, context_id, task, version, value, request_id)
			SELECT 'tenant', 'owner', 'a', 'c' || i, gen_random_uuid(), 1, '1', gen_random_uuid()`,
		`task_states (task, version, value, request_id) SELECT gen_random_uuid(), 1, '1', gen_random_uuid()`,
	} {
		f.exec("INSERT INTO holdfast." + fill + " FROM generate_series(1, 8000) i")
	}
	defer f.exec("TRUNCATE holdfast.task_calls, holdfast.cancel_notices, holdfast.context_states, holdfast.task_states") // they have no tasks
	f.exec("ANALYZE holdfast.task_calls, holdfast.task_settled, holdfast.cancel_notices, holdfast.context_states, holdfast.task_states")
	c := f.conn()
	f.ok(c.Exec(t.Context(), "SET plan_cache_mode = force_generic_plan"))
	named := statements(t)
	for table, x := range map[string]struct{ index, statements string }{
		"task_calls": {"task_calls_", `CallsNew CallKnown CallRefuse CallAnswered CallersLock CallsVoid CallsUnended CallsErase CallResults CallsOf CallsGone
			RelaysDue RelaysAppend`},
		"cancel_notices":                  {"cancel_notices_", "NoticesClaim NoticeRecord NoticeDrop NoticesGone TasksErase"},
		"(task_states|context_states)\\b": {"_states_", "TaskStateGet ContextStateGet TaskStateSet ContextStateSet TaskStatesGone ContextStatesGone TasksErase"},
	} {
		for _, name := range strings.Fields(x.statements) {
			plan := strings.Join(explain(t, c, name, named[name]), "\n")
			require.NotRegexp(t, "Seq Scan on "+table, plan, name)
			require.Contains(t, plan, x.index, name)
			if name == "RelaysDue" || name == "RelaysAppend" {
				require.Contains(t, plan, map[string]string{"RelaysDue": "task_calls_relays", "RelaysAppend": "task_calls_pkey"}[name])
				require.NotRegexp(t, "Seq Scan on (tasks|events)", plan, name)
			}
		}
	}
	// These functions look at one task.
	for name, query := range map[string]string{
		"calls_open":    "SELECT * FROM holdfast.task_calls c WHERE c.child = $1::uuid AND NOT c.answers LIMIT 1",
		"call_settle":   "UPDATE holdfast.task_calls c SET settled_at = now() WHERE c.child = $1::uuid AND c.started_at IS NOT NULL AND c.settled_at IS NULL",
		"calls_settled": "SELECT FROM holdfast.task_calls c WHERE c.parent = $1::uuid AND c.seq = $2::bigint AND c.settled_at IS NULL",
		"caller_ended":  "SELECT FROM holdfast.task_calls c WHERE c.parent = $1::uuid",
	} {
		require.NotContains(t, strings.Join(explain(t, c, name, query), "\n"), "Seq Scan on task_calls", name)
	}
}

// A payload that fits into a page stays in its row with the id of its artifact, in each partition of the log.
func TestPayloadsStayInTheirRows(t *testing.T) {
	f := parallel(t)
	moved := func() int {
		return scan[int](f, `SELECT sum(pg_relation_size(c.reltoastrelid)) FROM pg_partition_tree('holdfast.task_events') p JOIN pg_class c ON c.oid = p.relid WHERE isleaf`)
	}
	p := f.running("a")
	random := func(n int) string {
		b := make([]byte, n*3/4)
		_, _ = rand.Read(b)
		return base64.StdEncoding.EncodeToString(b)
	}
	write := func(text string) {
		a := &task.Artifact{ID: uuid.NewString(), Parts: []task.Part{task.Text(text)}}
		p.must(t, &task.Event{Kind: task.EventArtifact, Artifact: a})
	}
	for _, kept := range []bool{false, true} {
		f.exec("UPDATE holdfast.tasks SET kept = $1", kept)
		for _, text := range []string{random(2 << 10), random(7 << 10), strings.Repeat(random(64), 40)} {
			write(text)
			require.Zero(t, moved(), len(text))
		}
	}
	write(random(16 << 10))
	require.Positive(t, moved())
}
