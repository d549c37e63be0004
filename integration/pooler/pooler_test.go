package pooler

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// bouncer is a PgBouncer in transaction mode in front of one database.
type bouncer struct {
	URL string

	t    *testing.T
	file string
	user *syscall.Credential
	cmd  *exec.Cmd
}

// newBouncer starts a PgBouncer, with more lines of configuration. It skips the test without the program.
func newBouncer(t *testing.T, database, more string) *bouncer {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		t.Skip("needs pgbouncer (Debian: apt-get install pgbouncer)")
	}
	cfg, err := pgx.ParseConfig(database)
	require.NoError(t, err)
	addr := clustertest.Reserve(t)
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "holdfast-pooler-") //nolint:usetesting // PostgreSQL's user cannot enter t.TempDir
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := &bouncer{t: t, file: filepath.Join(dir, "pgbouncer.ini"), user: userOf(t, cfg.Host)}
	to := fmt.Sprintf("host=%s port=%d dbname=%s user=%s", cfg.Host, cfg.Port, cfg.Database, cfg.User)
	if cfg.Password != "" {
		to += " password=" + cfg.Password
	}
	ini := fmt.Sprintf("[databases]\n%s = %s\n[pgbouncer]\nlisten_addr = %s\nlisten_port = %s\nunix_socket_dir =\n"+
		"auth_type = any\npool_mode = transaction\ndefault_pool_size = 10\nmax_client_conn = 200\n%s\n", cfg.Database, to, host, port, more)
	require.NoError(t, os.WriteFile(b.file, []byte(ini), 0o600))
	for _, path := range []string{dir, b.file} {
		if b.user != nil {
			require.NoError(t, os.Lchown(path, int(b.user.Uid), int(b.user.Gid)))
		}
	}
	b.URL = (&url.URL{Scheme: "postgres", User: url.User(cfg.User), Host: addr, Path: cfg.Database, RawQuery: "sslmode=disable"}).String()
	b.start(program)
	t.Cleanup(b.kill)
	return b
}

// userOf is the owner of PostgreSQL's socket, who may enter its directory; nil if that is us. PgBouncer does not run as
// root.
func userOf(t *testing.T, host string) *syscall.Credential {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(host)
	if err != nil {
		return &syscall.Credential{Uid: 65534, Gid: 65534} // not a socket: nobody will do
	}
	st := info.Sys().(*syscall.Stat_t)
	return &syscall.Credential{Uid: st.Uid, Gid: st.Gid}
}

func (b *bouncer) start(program string) {
	b.t.Helper()
	b.cmd = exec.Command(program, "-q", b.file)
	b.cmd.Dir = "/"
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: b.user, Pdeathsig: syscall.SIGKILL}
	require.NoError(b.t, b.cmd.Start())
	waittest.Eventually(b.t, "PgBouncer answers", func() error {
		conn, err := pgx.Connect(waittest.Context(b.t), b.URL)
		if err != nil {
			return err
		}
		return conn.Close(context.Background())
	})
}

// kill ends PgBouncer, which breaks all connections through it.
func (b *bouncer) kill() {
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait()
}

// newDatabase makes a database with the settings that docs/deployment.md asks for. They belong to the database instead
// of the role, which other tests use, too.
func newDatabase(t *testing.T) *clustertest.DB {
	t.Helper()
	db := clustertest.NewDB(t)
	name := clustertest.One[string](db, "SELECT current_database()")
	for setting, value := range map[string]string{
		"timezone": "UTC", "enable_seqscan": "off", "plan_cache_mode": "force_generic_plan", "jit": "off",
		"default_transaction_isolation": "read committed", "lock_timeout": "4s", "statement_timeout": "30s",
		"idle_in_transaction_session_timeout": "10s",
	} {
		db.Exec("ALTER DATABASE " + name + " SET " + setting + " = '" + value + "'")
	}
	return db
}

// crowd sends tasks to the replicas in turn, and returns a function that waits until every acknowledged one is completed.
func crowd(t *testing.T, n int, replicas ...*clustertest.Replica) (completed func() (acknowledged int)) {
	t.Helper()
	var tasks []string
	for i := range n {
		res, err := replicas[i%len(replicas)].TrySend(a2atest.V03, a2atest.Say("chunks=20 size=20 delay=10ms").Detached())
		if err == nil {
			tasks = append(tasks, res.Task())
		}
	}
	return func() int {
		t.Helper()
		for i, task := range tasks {
			require.Equal(t, "completed", replicas[(i+1)%len(replicas)].Settled(task).State())
		}
		return len(tasks)
	}
}

// With the direct URL for LISTEN, all works through a pooler in transaction mode, which may also die.
func TestReplicasBehindPooler(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	b := newBouncer(t, db.URL, "")
	env := []string{"HOLDFAST_LISTEN_DATABASE_URL=" + db.URL}
	x, y := clustertest.Pair(t, clustertest.Options{DB: b.URL, Env: env})

	require.Equal(t, 20, crowd(t, 20, x, y)())
	first := x.Stream(a2atest.V03, a2atest.Say("chunks=50 size=20 delay=10ms"))
	task := first.UntilState("working").Task()
	events := y.Resume(task, 0).Rest()
	db.Holds(task, events, 50)

	held := x.Stream(a2atest.V03, a2atest.Say("hold")).UntilState("working").Task()
	require.Equal(t, "canceled", y.Cancel(held).State())

	status := doctor(t, b.URL, env...)
	for _, check := range []string{"database", "notify", "session"} {
		require.Equal(t, "ok", status[check].Status, status[check])
	}

	completed := crowd(t, 20, x, y)
	b.kill()
	b.start("pgbouncer")
	require.Equal(t, 20, completed())
	db.Sound()
}

type finding struct{ Check, Status, Detail, Advice string }

func doctor(t *testing.T, database string, env ...string) map[string]finding {
	t.Helper()
	res := clustertest.Command(t, t.TempDir(), append(env, "HOLDFAST_DATABASE_URL="+database), "doctor", "-o", "json", "--timeout", "20s")
	var d struct{ Checks []finding }
	require.NoError(t, json.Unmarshal([]byte(res.Out), &d), res.Err)
	out := map[string]finding{}
	for _, c := range d.Checks {
		out[c.Check] = c
	}
	return out
}

// Without the direct URL the server says what to set and migrates nothing, also if the pooler ignores parameters.
func TestPoolerAsTheOnlyURL(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]string{
		"refuses parameters": "",
		"ignores parameters": "ignore_startup_parameters = holdfast.direct, timezone, statement_timeout, lock_timeout, jit, enable_seqscan, " +
			"plan_cache_mode, default_transaction_isolation, idle_in_transaction_session_timeout, synchronous_commit",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t)
			b := newBouncer(t, db.URL, more)
			status := doctor(t, b.URL)
			require.Equal(t, "fail", status["session"].Status, status)
			require.Contains(t, status["session"].Advice, "HOLDFAST_LISTEN_DATABASE_URL")

			db.Exec("DROP SCHEMA holdfast CASCADE")
			for _, verb := range []string{"serve", "migrate"} {
				res := clustertest.Command(t, t.TempDir(), []string{"HOLDFAST_DATABASE_URL=" + b.URL, "HOLDFAST_LISTEN=127.0.0.1:0", "HOLDFAST_ADMIN_LISTEN=127.0.0.1:0"}, verb)
				require.NotZero(t, res.Code)
				require.Contains(t, res.Out+res.Err, "database_url leads to a pooler; set HOLDFAST_LISTEN_DATABASE_URL to PostgreSQL itself")
				require.False(t, clustertest.One[bool](db, "SELECT to_regnamespace('holdfast') IS NOT NULL"), "%s migrated nothing", verb)
			}
			res := clustertest.Command(t, t.TempDir(), []string{"HOLDFAST_DATABASE_URL=" + b.URL, "HOLDFAST_LISTEN_DATABASE_URL=" + db.URL}, "migrate")
			require.Zero(t, res.Code, res.Err)
		})
	}
}

// A server is told to prepare statements although the pooler cannot keep them: it gets odd errors (42P05, 26000). It
// stops preparing and repeats what it acknowledged, so no task fails.
func TestPreparedStatementsBehindPooler(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	b := newBouncer(t, db.URL, "")
	env := []string{"HOLDFAST_LISTEN_DATABASE_URL=" + db.URL}
	x := clustertest.Start(t, clustertest.Options{Name: "x", DB: b.URL + "&default_query_exec_mode=cache_statement", Env: env, Config: clustertest.Settings})
	require.NotZero(t, crowd(t, 40, x)())
	require.Contains(t, x.Log(), "the pooler loses prepared statements")
	require.Empty(t, clustertest.Column[string](db, "SELECT id::text FROM holdfast.tasks WHERE state <> 5"))
}
