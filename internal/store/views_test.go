package store

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
	"github.com/holdfast-a2a/holdfast/internal/pg/schema"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

// query returns all rows of a query as text.
func query(t testing.TB, c interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}, sql string, args ...any,
) (columns []string, lines [][]string) {
	t.Helper()
	rows, err := c.Query(t.Context(), sql, append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...)
	require.NoError(t, err, sql)
	defer rows.Close()
	for _, d := range rows.FieldDescriptions() {
		columns = append(columns, d.Name)
	}
	for rows.Next() {
		var line []string
		for _, v := range rows.RawValues() {
			line = append(line, string(v))
		}
		lines = append(lines, line)
	}
	require.NoError(t, rows.Err(), sql)
	return columns, lines
}

// The functions of the contract. All others in the schema are internal.
const contractFunctions = "('sql_contract_version', 'task_uuid', 'uuid_at')"

// Within a major version lines are only added to this file, and new columns of a view come after its old ones (docs/sql.md).
func TestTheViewsAreAContract(t *testing.T) {
	f := parallel(t)
	var have strings.Builder
	fmt.Fprintf(&have, "version %s\n", scan[string](f, "SELECT holdfast.sql_contract_version()"))
	_, lines := query(t, f.conn(), `
		SELECT format('%s.%s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod))
		  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		 WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind = 'v' AND c.relname LIKE 'v\_%' AND a.attnum > 0
		 ORDER BY c.relname, a.attnum`)
	for _, l := range lines {
		fmt.Fprintln(&have, l[0])
	}
	_, lines = query(t, f.conn(), `
		SELECT format('%s(%s) %s', p.proname, pg_get_function_identity_arguments(p.oid), format_type(p.prorettype, NULL))
		  FROM pg_proc p WHERE p.pronamespace = 'holdfast'::regnamespace AND p.proname IN `+contractFunctions+` ORDER BY 1`)
	for _, l := range lines {
		fmt.Fprintln(&have, l[0])
	}
	const file = "testdata/views.golden"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(have.String()), 0o600))
	}
	want := storetest.Must(os.ReadFile(file))(t)
	require.Equal(t, string(want), have.String(), "a change of the contract; see docs/sql.md before running with -update")
}

func TestViewsNameAllStates(t *testing.T) {
	f := parallel(t)
	for _, s := range task.States {
		require.Equal(t, s.String(), scan[string](f, "SELECT holdfast.state_name($1::smallint)", int16(s)))
	}
	p := f.running("a")
	p.must(t, status(task.StateWorking), chunk("x"), &task.Event{Kind: task.EventRun, Run: &task.RunNote{Outcome: task.RunCheckpoint}})
	_, lines := query(t, f.conn(), "SELECT kind FROM holdfast.v_events WHERE task = $1 ORDER BY seq", p.c.Task.ID.String())
	require.Len(t, lines, 4)
	for i, e := range f.log(p.c.Task.ID) {
		require.Equal(t, e.Kind.String(), lines[i][0])
	}
}

func TestViewsOfWebhooksShowNoSecret(t *testing.T) {
	f := parallel(t)
	n := fresh("a")
	n.Push = hook("c", "h")
	n.Push.Token, n.Push.Credentials = "sesame-token", "sesame-credentials"
	h := f.create(n)
	f.ok(f.Cancel(t.Context(), h, nil))
	f.record(failed(f.duePushes(1)[0], time.Hour))
	sealed := scan[[]byte](f, "SELECT secrets FROM holdfast.push_configs")
	require.NotEmpty(t, sealed)
	storetest.Must(f.AddAPIKey(t.Context(), &APIKey{ID: "k", Hash: []byte(strings.Repeat("x", 32)), Name: "sesam", Subject: "alice"}, 0))(t)
	require.Equal(t, "sesam", scan[string](f, "SELECT name FROM holdfast.v_api_keys"))
	for _, view := range []string{"v_push", "v_push_attempts"} {
		_, lines := query(t, f.conn(), "SELECT * FROM holdfast."+view)
		require.Len(t, lines, 1)
		require.NotContains(t, fmt.Sprint(lines), "sesame", view)
		require.NotContains(t, fmt.Sprint(lines), hex.EncodeToString(sealed), view)
	}
	f.ok(f.DeletePush(t.Context(), h.ID, "c"))
	require.Equal(t, "h:80", scan[string](f, "SELECT host FROM holdfast.v_push_attempts"), "also of a webhook that was deleted")
}

func TestTimeAsUUID(t *testing.T) {
	f := parallel(t)
	for _, at := range []time.Time{
		time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), time.Date(2031, 12, 31, 23, 59, 59, 999_000_000, time.UTC),
		time.Date(2026, 3, 1, 10, 0, 0, 1_999_000, time.UTC),
	} {
		require.Equal(t, task.ID(partition.FirstID(at)).String(), scan[string](f, "SELECT holdfast.uuid_at($1)::text", at))
	}
}

func TestTasksByName(t *testing.T) {
	f := parallel(t)
	named := func(owner, name string) task.ID {
		n := fresh("a")
		n.ClientID, n.Task.Owner, n.Task.PublicID = true, owner, name
		return f.create(n).ID
	}
	find := func(name string) *string {
		return scan[*string](f, "SELECT holdfast.task_uuid($1)::text", name)
	}
	one, plain, odd := named("ada", "trip"), f.create(fresh("a")).ID, NewID().String()
	shaped := named("ada", odd)
	require.Equal(t, one.String(), *find("trip"))
	require.Equal(t, plain.String(), *find(plain.String()))
	require.Equal(t, one.String(), *find(strings.ToUpper(one.String())), "by UUID, too")
	require.Equal(t, shaped.String(), *find(odd), "a client's id that looks like a UUID")
	require.Nil(t, find("nobody's"))

	two := named("ben", "trip")
	_, err := f.conn().Exec(t.Context(), "SELECT holdfast.task_uuid('trip')")
	require.ErrorContains(t, err, "several tasks have the id trip; name one by its UUID: "+one.String()+", "+two.String())
}

var oddJSON = json.RawMessage(`{"z":1.0,"a":12345678901234567890,"a":[null,"\"\\"]}`)

// randomChunk makes an artifact event; index is the number that the emitter would have counted.
func randomChunk(r *rand.Rand, index map[string]int) *task.Event {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	a := &task.Artifact{ID: pick("a", "b", "c"), Name: pick("", "", "name", "other"), Description: pick("", "", "what it is")}
	if _, ok := index[a.ID]; !ok {
		index[a.ID] = len(index)
	}
	a.Index = index[a.ID]
	for range 1 + r.IntN(3) {
		part := []task.Part{
			task.Text(pick("x", "", "line\n", "ü\"\\")),
			{Kind: task.PartData, Data: oddJSON},
			{Kind: task.PartData, Data: json.RawMessage("null")},
			{Kind: task.PartRaw, Raw: []byte{0, 255}, Filename: "f", MediaType: "m/t"},
			{Kind: task.PartURL, URL: "http://x", Metadata: oddJSON},
		}[r.IntN(5)]
		a.Parts = append(a.Parts, part)
	}
	if r.IntN(3) == 0 {
		a.Metadata = json.RawMessage(pick(`{"n":1}`, `{"m":null,"n":2}`, string(oddJSON)))
	}
	if r.IntN(3) == 0 {
		a.Extensions = []string{pick("e1", "e2")}
	}
	return &task.Event{Kind: task.EventArtifact, Artifact: a, Append: r.IntN(3) > 0, Last: r.IntN(5) == 0}
}

// SQL assembles chunks to the artifacts that clients see.
func TestArtifactsInSQLAreFoldedAsInGo(t *testing.T) {
	f := parallel(t)
	worker := f.worker(time.Hour)
	for seed := range uint64(60) {
		h := f.create(fresh("a"))
		p := &pen{s: f.Store, c: f.claim(worker, "a", 1)[0]}
		r, index := rand.New(rand.NewPCG(7, seed)), map[string]int{}
		var evs []*task.Event
		for range 1 + r.IntN(12) {
			evs = append(evs, randomChunk(r, index))
		}
		p.must(t, evs...)
		h = storetest.Must(f.Header(t.Context(), h.ID))(t)
		want := storetest.Must(f.Snapshot(t.Context(), h, true))(t)

		var have []task.Artifact
		_, lines := query(t, f.conn(), `
			SELECT artifact_id, index, coalesce(name, ''), coalesce(description, ''), parts, metadata::text, array_to_json(ARRAY(
			         SELECT x FROM json_array_elements_text(extensions) x)), coalesce(text, ''), chunks, complete
			  FROM holdfast.v_artifacts WHERE task = $1 ORDER BY index`, h.ID.String())
		for _, l := range lines {
			a := task.Artifact{ID: l[0], Name: l[2], Description: l[3]}
			require.NoError(t, json.Unmarshal([]byte(l[1]), &a.Index))
			var list []partJSON
			require.NoError(t, jsonv2.Unmarshal([]byte(l[4]), &list, lenient))
			a.Parts = parts(list)
			if l[5] != "" {
				a.Metadata = json.RawMessage(l[5])
			}
			if l[6] != "[]" {
				require.NoError(t, json.Unmarshal([]byte(l[6]), &a.Extensions))
			}
			have = append(have, a)
			text, chunks, complete := "", 0, false
			for _, q := range a.Parts {
				text += q.Text
			}
			for _, e := range evs {
				if e.Artifact.ID == a.ID {
					if !e.Append {
						chunks, complete = 0, false
					}
					chunks, complete = chunks+1, complete || e.Last
				}
			}
			require.Equal(t, []string{text, fmt.Sprint(chunks), fmt.Sprint(complete)[:1]}, l[7:])
		}
		require.Equal(t, want.Artifacts, have, "seed %d", seed)
	}
}

// seedHistory makes n tasks of the last 60 days, nearly all of them ended, and the partitions of their months.
func (f *fixture) seedHistory(n int) (partitions []string) {
	f.t.Helper()
	now := storetest.Must(f.Now(f.t.Context()))(f.t)
	first := partition.Month.Floor(now).AddDate(0, -3, 0)
	require.NoError(f.t, storetest.Partitions(f.t.Context(), f.url, first, now))
	for month := range 4 {
		partitions = append(partitions, "events_"+first.AddDate(0, month, 0).Format("20060102"))
	}
	sql := `
		CREATE TEMP TABLE seed AS
		SELECT ((substr(holdfast.uuid_at(at)::text, 1, 14)) || '7' || substr(md5(i::text), 1, 3) || '-8' || substr(md5(i::text), 4, 3) || '-' || substr(md5(i::text), 7, 12))::uuid AS id,
		       at, i, CASE WHEN i % 100 = 0 THEN 6 WHEN i % 250 = 1 THEN 2 WHEN i % 250 = 2 THEN 3 ELSE 5 END::smallint AS state
		  FROM (SELECT i, now() - i * interval '60 days' / %[1]d AS at FROM generate_series(1, %[1]d) i) s;
		INSERT INTO holdfast.tasks (id, client_id, agent, tenant, owner, context_id, state, last_seq, status_seq, created_at, status_at,
		                            attempt, runs, run_ordinal, dialect)
		SELECT id, CASE WHEN i % 10 = 0 THEN 'c' || i END, 'agent' || i % 5, 't', 'o' || i % 100, 'ctx' || i / 4, state,
		       CASE state WHEN 2 THEN 2 ELSE 8 END, CASE state WHEN 2 THEN 2 ELSE 8 END, at, at + interval '3 s',
		       1, 1, CASE state WHEN 2 THEN 1 ELSE 7 END, '0.3'
		  FROM seed;
		INSERT INTO holdfast.task_names (tenant, owner, agent, client_id, task)
		SELECT tenant, owner, agent, client_id, id FROM holdfast.tasks WHERE client_id IS NOT NULL;
		INSERT INTO holdfast.task_events (task, seq, kind, state, attempt, append, last, artifact_id, payload, created_at, claimed_at)
		SELECT id, s, CASE WHEN s = 1 THEN 1 WHEN s IN (2, 8) THEN 2 ELSE 3 END, CASE s WHEN 2 THEN 2 WHEN 8 THEN state END,
		       CASE s WHEN 1 THEN 0 ELSE 1 END, s BETWEEN 4 AND 7, s = 7, CASE WHEN s BETWEEN 3 AND 7 THEN 'a' END,
		       CASE WHEN s = 1 THEN '{"id":"m' || i || '","role":"user","parts":[{"text":"' || repeat('lorem ', 20) || '"}]}'
		            WHEN s BETWEEN 3 AND 7 THEN '{"index":0,"name":"a","parts":[{"text":"' || repeat('ipsum ', 20) || '"}]}'
		            WHEN s = 8 AND state <> 5 THEN '{"message":{"id":"x","role":"agent","parts":[{"text":"no. ' || i % 7 || '"}]}}'
		            WHEN s = 8 THEN '{"message":{"id":"x","role":"agent","parts":[],"metadata":{"usage":{"totalTokens":' || i % 1000 || '}}}}' END::json,
		       at + s * interval '0.3 s', CASE WHEN s = 8 THEN at + interval '0.1 s' END
		  FROM seed, generate_series(1, 8) s WHERE state <> 2 OR s <= 2;
		INSERT INTO holdfast.task_queue (id, agent, message_seq, tries) SELECT id, 'agent' || i % 5, 1, 1 FROM seed WHERE state = 2;
		ANALYZE`
	f.ok(f.conn().PgConn().Exec(f.t.Context(), strings.ReplaceAll(sql, "%[1]d", fmt.Sprint(n))).ReadAll())
	return partitions
}

// An operator's usual filters use an index, with the planner's default settings, except for one: with the price of a
// random page on a disk, PostgreSQL 16 and later rather hash all of these few tasks than seek some.
func TestPlansOfViews(t *testing.T) {
	f := parallel(t)
	months := f.seedHistory(6000)
	c := f.conn()
	f.ok(c.Exec(t.Context(), "SET jit = off; SET timezone = 'UTC'; SET random_page_cost = 1.1", pgx.QueryExecModeSimpleProtocol))
	now := storetest.Must(f.Now(t.Context()))(t)
	var filled []string
	for _, name := range months[1:] {
		for _, name := range []string{name, strings.Replace(name, "events", "tasks", 1), strings.Replace(name, "events", "artifacts", 1)} {
			if scan[int](f, "SELECT count(*) FROM holdfast."+name) > 500 {
				filled = append(filled, name)
			}
		}
	}
	require.NotEmpty(t, filled)
	all := regexp.MustCompile(`Seq Scan on (task_names|` + strings.Join(filled, "|") + `)\b`)

	_, lines := query(t, c, `SELECT relname FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace AND relkind = 'v' AND relname LIKE 'v\_%' ORDER BY 1`)
	var queries []string
	perTask := map[string]bool{}
	for _, l := range lines {
		if !slices.Contains([]string{"v_workers", "v_remote_workers", "v_agents", "v_outages", "v_queue", "v_push", "v_push_attempts", "v_keys", "v_names", "v_api_keys", "v_audit"}, l[0]) { // small, or found by key
			perTask[l[0]] = true
		}
	}
	require.Len(t, perTask, 12)
	for view := range perTask {
		queries = append(queries,
			"SELECT * FROM holdfast."+view+" WHERE task = '"+task.ID(partition.FirstID(now)).String()+"'",
			"SELECT * FROM holdfast."+view+" WHERE task = holdfast.task_uuid('c10')",
			"SELECT * FROM holdfast."+view+" WHERE context_id = 'ctx7'",
			// Of more tasks, PostgreSQL 18 may as well read all.
			"SELECT count(*) FROM holdfast."+view+" WHERE task >= holdfast.uuid_at(now() - interval '5 minutes')",
		)
	}
	queries = append(queries,
		"SELECT * FROM holdfast.v_tasks WHERE open AND state = 'working'",
		"SELECT * FROM holdfast.v_tasks WHERE open AND state = 'input-required' AND status_at < now() - interval '3 days'",
		"SELECT * FROM holdfast.v_transitions x JOIN holdfast.v_tasks t USING (task) WHERE t.open AND t.state = 'working'",
		"SELECT * FROM holdfast.v_tasks WHERE tenant = 't' AND owner = 'o7' ORDER BY status_at DESC LIMIT 20",
		"SELECT * FROM holdfast.v_tasks ORDER BY task DESC LIMIT 20",
		"SELECT status_text, count(*) FROM holdfast.v_tasks WHERE state = 'failed' AND task >= holdfast.uuid_at(now() - interval '1 day') GROUP BY 1",
		"SELECT * FROM holdfast.v_names WHERE task_id = 'c10'",
		"SELECT * FROM holdfast.v_names WHERE task = '"+task.ID(partition.FirstID(now)).String()+"'",
		"SELECT * FROM holdfast.v_keys WHERE tenant = 't' AND owner = 'o7' AND key = 'k'",
	)
	for _, q := range queries {
		_, plan := query(t, c, "EXPLAIN "+q)
		text := ""
		for _, l := range plan {
			text += l[0] + "\n"
		}
		require.NotRegexp(t, all, text, q)
	}

	// With another collation than that of the index, this would read all of it.
	_, plan := query(t, c, `EXPLAIN SELECT count(*) FROM holdfast.v_tasks WHERE agent COLLATE "C" = 'agent1' AND NOT open AND status_at > now() - interval '1 day'`)
	require.Contains(t, fmt.Sprint(plan), "Index Cond: (((agent)::text = 'agent1'::text) AND (status_at > ")

	// Partitions older than the filter are not even opened.
	_, plan = query(t, c, "EXPLAIN SELECT * FROM holdfast.v_events WHERE task >= holdfast.uuid_at(date_trunc('month', now()))")
	text := fmt.Sprint(plan)
	require.Contains(t, text, "Subplans Removed: 6")
	for _, old := range months[:3] {
		require.NotContains(t, text, old)
		require.NotContains(t, text, strings.Replace(old, "events", "artifacts", 1))
	}
}

// needReader skips a test whose database role may not become the reader.
func needReader(t testing.TB, c *pgx.Conn) {
	t.Helper()
	var may bool
	require.NoError(t, c.QueryRow(t.Context(),
		"SELECT coalesce((SELECT pg_has_role(oid, 'MEMBER') FROM pg_roles WHERE rolname = 'holdfast_reader'), false)").Scan(&may))
	if !may {
		t.Skip("the role of the test server may not become holdfast_reader")
	}
}

// as runs with the rights of a role and then resets them.
func as(t testing.TB, c *pgx.Conn, role string, do func(tx pgx.Tx)) {
	t.Helper()
	tx := storetest.Must(c.Begin(t.Context()))(t)
	storetest.Must(tx.Exec(t.Context(), "SET LOCAL ROLE "+role))(t)
	do(tx)
	require.NoError(t, tx.Rollback(context.Background()))
}

func TestReaderReadsViewsOnly(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	p.must(t, status(task.StateWorking), chunk("x"))
	c := f.conn()
	needReader(t, c)
	_, relations := query(t, c, "SELECT relname, relkind FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'p', 'v') ORDER BY 1")
	views := 0
	for _, r := range relations {
		name := "holdfast." + r[0]
		as(t, c, "holdfast_reader", func(tx pgx.Tx) {
			_, err := tx.Exec(t.Context(), "SELECT * FROM "+name)
			if strings.HasPrefix(r[0], "v_") {
				views++
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "permission denied", name)
			}
		})
		as(t, c, "holdfast_reader", func(tx pgx.Tx) {
			require.Error(t, errOf(tx.Exec(t.Context(), "DELETE FROM "+name)), name)
		})
	}
	require.Equal(t, 23, views)
	as(t, c, "holdfast_reader", func(tx pgx.Tx) {
		_, lines := query(t, tx, "SELECT text FROM holdfast.v_artifacts WHERE task = holdfast.task_uuid($1)", p.c.Task.ID.String())
		require.Equal(t, [][]string{{"x"}}, lines)
	})
	for _, write := range []string{
		"UPDATE holdfast.v_tasks SET agent = 'b'", "INSERT INTO holdfast.v_workers (name) VALUES ('x')", "CREATE TABLE holdfast.mine ()",
		"SELECT pg_notify('holdfast', 'x') FROM holdfast.tasks",
	} {
		as(t, c, "holdfast_reader", func(tx pgx.Tx) {
			require.ErrorContains(t, errOf(tx.Exec(t.Context(), write)), "permission denied", write)
		})
	}
}

// If the server may not create roles, it creates the views without theirs, and the manual's commands add it.
func TestMigrateWithoutTheRightToCreateRoles(t *testing.T) {
	t.Parallel()
	s := storetest.Empty(t, map[string]string{"fsync": "off"})
	admin := storetest.Must(pgx.Connect(t.Context(), s.URL))(t)
	defer admin.Close(context.Background()) //nolint:errcheck // the server goes next
	for _, sql := range []string{"CREATE ROLE modest LOGIN PASSWORD 'modest'", "CREATE DATABASE modest OWNER modest"} {
		storetest.Must(admin.Exec(t.Context(), sql))(t, sql)
	}
	there := func() (yes bool) {
		require.NoError(t, admin.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = 'holdfast_reader')").Scan(&yes))
		return yes
	}
	u := storetest.Must(url.Parse(s.URL))(t)
	u.Path = "/modest"
	superURL := u.String()
	u.User = url.UserPassword("modest", "modest")
	require.NoError(t, schema.Migrate(t.Context(), u.String(), slog.New(slog.DiscardHandler)))
	require.False(t, there())
	callersOfAModestRole(t, admin, u.String())

	super := storetest.Must(pgx.Connect(t.Context(), superURL))(t)
	defer super.Close(context.Background()) //nolint:errcheck // the server goes next
	var views int
	require.NoError(t, super.QueryRow(t.Context(), `SELECT count(*) FROM pg_views WHERE schemaname = 'holdfast' AND viewname LIKE 'v\_%'`).Scan(&views))
	require.Equal(t, 23, views)
	for _, block := range readManual(t).blocks("The role", "sql") {
		storetest.Must(super.PgConn().Exec(t.Context(), block).ReadAll())(t, block)
	}
	as(t, super, "alice", func(tx pgx.Tx) {
		_, lines := query(t, tx, `SELECT viewname FROM pg_views WHERE schemaname = 'holdfast' AND viewname LIKE 'v\_%'`)
		for _, l := range lines {
			storetest.Must(tx.Exec(t.Context(), "SELECT * FROM holdfast."+l[0]))(t, l[0])
		}
	})
	as(t, super, "alice", func(tx pgx.Tx) {
		require.ErrorContains(t, errOf(tx.Exec(t.Context(), "SELECT FROM holdfast.tasks")), "permission denied")
	})
}
