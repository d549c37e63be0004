package operators

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// diagnosis is what doctor says.
type diagnosis struct {
	Checks []struct{ Check, Status, Detail string }
}

func (d diagnosis) find(t testing.TB, check string) (status, detail string) {
	t.Helper()
	for _, c := range d.Checks {
		if c.Check == check {
			return c.Status, c.Detail
		}
	}
	require.Fail(t, "there is no check "+check, d)
	return "", ""
}

// With migrate: off a server does not start on a schema that needs a migration. With wait it says that it is not ready
// until another process has migrated.
func TestServersThatDoNotMigrate(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	db.Exec("DROP SCHEMA holdfast CASCADE")
	ports := []string{"HOLDFAST_LISTEN=127.0.0.1:0", "HOLDFAST_GRPC_LISTEN=off", "HOLDFAST_ADMIN_LISTEN=127.0.0.1:0"}
	off := clustertest.Command(t, t.TempDir(), append(append(db.Env(), ports...), "HOLDFAST_MIGRATE=off"), "serve")
	require.Equal(t, 1, off.Code, off.Err)
	require.Contains(t, off.Err, "migrate is off: the database has schema version 0, but this server needs version")
	require.Contains(t, off.Err, "run holdfast migrate with this binary")
	require.False(t, clustertest.One[bool](db, "SELECT to_regnamespace('holdfast') IS NOT NULL"), "it has changed nothing")

	admin := nettest.Reserve(t)
	a := clustertest.Start(t, clustertest.Options{
		Name: "a", DB: db.URL, Config: clustertest.Settings, Async: true, Env: []string{"HOLDFAST_MIGRATE=wait", "HOLDFAST_ADMIN_LISTEN=" + admin},
	})
	a.Admin = "http://" + admin
	waittest.Eventually(t, "it waits", func() error {
		status, body := a.Ready()
		return waittest.Unless(status == http.StatusServiceUnavailable && strings.Contains(body, `"name":"schema","status":"failed","error":"the database has schema version 0`), "%d %s", status, body)
	})
	status, _, _ := a.Page("/livez")
	require.Equal(t, http.StatusOK, status, "a restart would not help")
	for _, page := range []string{"/", "/console/", "/docs/", "/admin/v1/me"} {
		status, _, _ = a.Page(page)
		require.Equal(t, http.StatusServiceUnavailable, status, "a console that is open asks again: %s", page)
	}
	db.Operate("migrate")
	a.WaitServing()
	a.WaitReady()
	require.Equal(t, "completed", a.Send(a2atest.V03, a2atest.Say("echo:x")).State())

	// Now the schema is there.
	b := clustertest.Start(t, clustertest.Options{Name: "b", DB: db.URL, Config: clustertest.Settings, Env: []string{"HOLDFAST_MIGRATE=off"}})
	b.Stop()

	// A server that waits stops when it is told to.
	db.Exec("UPDATE holdfast.schema_steps SET version_id = version_id - 1000")
	c := clustertest.Start(t, clustertest.Options{Name: "c", DB: db.URL, Config: clustertest.Settings, Async: true, Env: []string{"HOLDFAST_MIGRATE=wait"}})
	waittest.Eventually(t, "it waits", func() error {
		return waittest.Unless(strings.Contains(c.Log(), "waiting for the schema"), "%s", c.Log())
	})
	c.Stop()
	db.Exec("UPDATE holdfast.schema_steps SET version_id = version_id + 1000")
}

// A whole server runs as a role that owns nothing: it serves, runs, keeps callers apart, creates partitions, and deletes
// them when their time is over. The role can do nothing to the schema.
func TestTheServersRoleOwnsNothing(t *testing.T) {
	t.Parallel()
	pg := storetest.Server(t, map[string]string{"fsync": "off"})
	for _, sql := range []string{
		"CREATE ROLE app_owner LOGIN CREATEROLE PASSWORD 'o'", "CREATE ROLE app_server LOGIN PASSWORD 's'",
		"CREATE DATABASE app OWNER app_owner", "REVOKE CONNECT ON DATABASE app FROM PUBLIC", "GRANT CONNECT ON DATABASE app TO app_server",
	} {
		pg.Exec(sql)
	}
	as := func(name, password string) string {
		u, err := url.Parse(pg.URL)
		require.NoError(t, err)
		u.User, u.Path = url.UserPassword(name, password), "/app"
		return u.String()
	}
	owner, server := as("app_owner", "o"), as("app_server", "s")
	migrate := func(args ...string) clustertest.Finished {
		return clustertest.Command(t, t.TempDir(), nil, append([]string{"migrate", "--database-url", owner}, args...)...)
	}
	env := []string{"HOLDFAST_DATABASE_URL=" + server}
	ports := []string{"HOLDFAST_LISTEN=127.0.0.1:0", "HOLDFAST_GRPC_LISTEN=off", "HOLDFAST_ADMIN_LISTEN=127.0.0.1:0"}

	require.Zero(t, migrate().Code)
	refused := clustertest.Command(t, t.TempDir(), append(env, ports...), "serve")
	require.Equal(t, 1, refused.Code)
	require.Contains(t, refused.Err, "run holdfast migrate --runtime-role app_server as the owner of the schema")
	for role, want := range map[string]string{"nobody_here": "there is no such role", "app_owner": "owns the tables"} {
		res := migrate("--runtime-role", role)
		require.Equal(t, 1, res.Code, res.Err)
		require.Contains(t, res.Err, want)
	}
	res := migrate("--runtime-role", "app_server")
	require.Zero(t, res.Code, res.Err)
	require.Zero(t, migrate("--runtime-role", "app_server").Code, "again")

	// Partitions whose time is over, made by the role itself.
	db := clustertest.OpenDB(t, server)
	long := time.Now().AddDate(0, 0, -40)
	for _, f := range partition.Families {
		_, err := partition.Ensure(t.Context(), db.Conn, f, partition.Day, long, long.Add(time.Millisecond))
		require.NoError(t, err, f.Name)
	}
	stamp := long.UTC().Format("20060102")
	there := "SELECT count(*)::int FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace AND relkind = 'r' AND relname LIKE '%\\_" + stamp + "'"
	require.Equal(t, 6, clustertest.One[int](db, there))

	config := clustertest.Settings + "auth: {row_level_security: require}\nretention: {tasks: 24h, delivery_attempts: 24h, audit: 24h}\n"
	a := clustertest.Start(t, clustertest.Options{Name: "a", DB: server, Config: config})
	require.Equal(t, "completed", a.Send(a2atest.V03, a2atest.Say("echo:x")).State())
	require.Equal(t, "completed", a2atest.Last(a.Stream(a2atest.V03, a2atest.Say("chunks=20 size=8")).Rest()).State())
	asked := a.Send(a2atest.V03, a2atest.Say("ask:what?"))
	require.Equal(t, "input-required", asked.State())
	require.Equal(t, "completed", a.Send(a2atest.V03, a2atest.Say("that").To(asked.Task())).State())
	waittest.Eventually(t, "retention drops old partitions", func() error {
		n := clustertest.One[int](db, there)
		return waittest.Unless(n == 0, "%d are there", n)
	})
	a.Stop()
	require.NotContains(t, a.Log(), "permission denied")
	require.NotContains(t, a.Log(), "row-level security is off")
	db.Sound()
	require.Equal(t, 3, clustertest.One[int](db, "SELECT count(*)::int FROM holdfast.tasks"), "no policy hides rows from the server")

	// The verbs work with that role.
	for _, verb := range [][]string{{"tasks", "list"}, {"audit", "verify"}, {"retention"}, {"tasks", "purge", "--owner", "", "--yes"}} {
		done := clustertest.Command(t, t.TempDir(), env, verb...)
		require.Zero(t, done.Code, "%v: %s", verb, done.Err)
	}
	doctor := func(check, want, says string) {
		t.Helper()
		var found diagnosis
		checked := clustertest.Command(t, t.TempDir(), append(env, ports...), "doctor", "-o", "json")
		require.NoError(t, json.Unmarshal([]byte(checked.Out), &found), checked.Err)
		status, detail := found.find(t, check)
		require.Equal(t, want, status, detail)
		require.Contains(t, detail, says)
	}
	doctor("role", "ok", "app_server owns nothing")
	doctor("isolation", "ok", "")

	// The role can do none of these.
	require.Zero(t, clustertest.One[int](db, "SELECT count(*)::int FROM pg_class c WHERE c.relnamespace = 'holdfast'::regnamespace AND pg_has_role(c.relowner, 'USAGE')"))
	current := clustertest.One[string](db, "SELECT relname FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace AND relkind = 'r' AND relname LIKE 'audit\\_2%' ORDER BY relname DESC LIMIT 1")
	for _, sql := range []string{
		"CREATE TABLE holdfast.mine ()", "CREATE SCHEMA mine", "DROP TABLE holdfast.task_queue", "ALTER TABLE holdfast.tasks DISABLE ROW LEVEL SECURITY",
		"ALTER TABLE holdfast.tasks ADD COLUMN x int", "TRUNCATE holdfast.tasks", "DROP SCHEMA holdfast CASCADE", "SET ROLE app_owner",
		"DELETE FROM holdfast.audit_log", "UPDATE holdfast.audit_log SET n = 0", "INSERT INTO holdfast.audit_log (n) VALUES (1)", "ALTER TABLE holdfast.audit_log DISABLE TRIGGER ALL",
		"DELETE FROM holdfast.audit_chains", "UPDATE holdfast.audit_chains SET head = ''", "UPDATE holdfast.schema_steps SET version_id = 0",
		"SELECT holdfast.admit_servers('app_server')", "CREATE POLICY mine ON holdfast.tasks USING (true)",
		"SELECT holdfast.partition_detach('" + current + "')", "SELECT holdfast.partition_drop('" + current + "')",
		"SELECT holdfast.partition_drop('task_queue')", "SELECT holdfast.partition_detach('tasks_kept')", "SELECT holdfast.partition_add('extra', '1', '2')",
	} {
		_, err := db.Conn.Exec(t.Context(), sql)
		var answer *pgconn.PgError
		require.ErrorAs(t, err, &answer, sql)
		require.Equal(t, "42501", answer.Code, "%s: %s", sql, answer.Message)
	}

	// A later migration brings a table. Servers may use it once the owner has run the verb again.
	mine := clustertest.OpenDB(t, owner)
	mine.Exec("CREATE TABLE holdfast.later (a int); ALTER TABLE holdfast.later ENABLE ROW LEVEL SECURITY")
	refused = clustertest.Command(t, t.TempDir(), append(env, ports...), "serve")
	require.Equal(t, 1, refused.Code)
	require.Contains(t, refused.Err, "later")
	require.Zero(t, migrate().Code)
	db.Exec("INSERT INTO holdfast.later VALUES (1)")
	require.Equal(t, 1, clustertest.One[int](db, "SELECT count(*)::int FROM holdfast.later"))
	mine.Exec("DROP TABLE holdfast.later")

	// It still does not migrate if somebody lets it create tables.
	mine.Exec("GRANT CREATE ON SCHEMA holdfast TO app_server")
	a.Run()
	a.Stop()
	doctor("role", "warn", "may create tables")

	// docs/database.md, for a deployment whose servers own the schema.
	for _, sql := range []string{"CREATE ROLE app_both LOGIN CREATEROLE PASSWORD 'b'", "CREATE ROLE new_owner LOGIN CREATEROLE PASSWORD 'n'", "CREATE DATABASE second OWNER app_both"} {
		pg.Exec(sql)
	}
	second := func(name, password string) string { return strings.Replace(as(name, password), "/app?", "/second?", 1) }
	b := clustertest.Start(t, clustertest.Options{Name: "b", DB: second("app_both", "b"), Config: config})
	require.Equal(t, "completed", b.Send(a2atest.V03, a2atest.Say("echo:x")).State())
	b.Stop()
	u, err := url.Parse(pg.URL)
	require.NoError(t, err)
	u.Path = "/second"
	clustertest.OpenDB(t, u.String()).Exec("REASSIGN OWNED BY app_both TO new_owner")
	res = clustertest.Command(t, t.TempDir(), nil, "migrate", "--database-url", second("new_owner", "n"), "--runtime-role", "app_both")
	require.Zero(t, res.Code, res.Err)
	b.Run()
	require.Equal(t, "completed", b.Send(a2atest.V03, a2atest.Say("echo:x")).State())
	changed := clustertest.OpenDB(t, second("app_both", "b"))
	require.Equal(t, 2, clustertest.One[int](changed, "SELECT count(*)::int FROM holdfast.tasks"))
	require.Zero(t, clustertest.One[int](changed, "SELECT count(*)::int FROM pg_class c WHERE c.relnamespace = 'holdfast'::regnamespace AND pg_has_role(c.relowner, 'USAGE')"))
}

// auth.row_level_security: require is a promise: the server does not start where the policies do not apply.
func TestRowLevelSecurityIsRequired(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	env := append(db.Env(), "HOLDFAST_LISTEN=127.0.0.1:0", "HOLDFAST_GRPC_LISTEN=off", "HOLDFAST_ADMIN_LISTEN=127.0.0.1:0", "HOLDFAST_AUTH_ROW_LEVEL_SECURITY=require")
	role := clustertest.One[string](db, "SELECT holdfast.api_role()")
	for _, c := range []struct{ spoil, mend, want string }{
		{"ALTER TABLE holdfast.push_configs DISABLE ROW LEVEL SECURITY", "ALTER TABLE holdfast.push_configs ENABLE ROW LEVEL SECURITY", "row-level security is disabled on push_configs"},
		{"ALTER ROLE " + role + " BYPASSRLS", "ALTER ROLE " + role + " NOBYPASSRLS", "bypasses row-level security"},
		{"ALTER ROLE " + role + " SUPERUSER", "ALTER ROLE " + role + " NOSUPERUSER", "bypasses row-level security"},
		{"ALTER TABLE holdfast.task_names OWNER TO " + role, "ALTER TABLE holdfast.task_names OWNER TO CURRENT_USER", "belongs to the owner of tables"},
	} {
		db.Exec(c.spoil)
		res := clustertest.Command(t, t.TempDir(), env, "serve")
		db.Exec(c.mend)
		require.Equal(t, 1, res.Code, "%s: %s", c.spoil, res.Err)
		require.Contains(t, res.Err, "auth.row_level_security is require, but ", c.spoil)
		require.Contains(t, res.Err, c.want, fmt.Sprint(c))
	}
}
