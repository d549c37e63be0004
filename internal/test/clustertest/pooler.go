package clustertest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// PoolerEnv names the variable that puts a PgBouncer in transaction mode between replicas and each database of NewDB. Its only
// value is pgbouncer. Replicas that tests lead through a proxy to PostgreSQL stay without it.
const PoolerEnv = "HOLDFAST_TEST_POOLER"

// pooled has the URLs of poolers by those of their databases.
var pooled sync.Map

// behindPooler leads replicas to a new database through a pooler, if PoolerEnv says so.
func (d *DB) behindPooler() {
	d.T.Helper()
	switch pooler := os.Getenv(PoolerEnv); pooler {
	case "":
	case "pgbouncer":
		_, err := exec.LookPath(pooler)
		require.NoError(d.T, err, PoolerEnv)
		d.SetForPooler()
		d.Pooler = NewPooler(d.T, d.URL, "default_pool_size = 30")
		pooled.Store(d.URL, d.Pooler.URL)
	default:
		require.Fail(d.T, PoolerEnv+" is not pgbouncer")
	}
}

// databaseEnv are the variables that lead a server to a database: directly, or through the pooler with a direct URL for LISTEN.
func databaseEnv(database string) []string {
	if pooler, ok := pooled.Load(database); ok {
		return []string{"HOLDFAST_DATABASE_URL=" + pooler.(string), "HOLDFAST_LISTEN_DATABASE_URL=" + database}
	}
	return []string{"HOLDFAST_DATABASE_URL=" + database}
}

// SetForPooler makes the settings that docs/database.md asks for. They belong to the database instead of the role, which
// other tests use, too.
func (d *DB) SetForPooler() {
	d.T.Helper()
	name := One[string](d, "SELECT current_database()")
	for setting, value := range map[string]string{
		"timezone": "UTC", "enable_seqscan": "off", "plan_cache_mode": "force_generic_plan", "jit": "off",
		"default_transaction_isolation": "read committed", "lock_timeout": "4s", "statement_timeout": "30s",
		"idle_in_transaction_session_timeout": "10s",
	} {
		d.Exec("ALTER DATABASE " + name + " SET " + setting + " = '" + value + "'")
	}
}

// Pooler is a PgBouncer in transaction mode in front of one database.
type Pooler struct {
	URL string

	t    testing.TB
	file string
	user *syscall.Credential
	cmd  *exec.Cmd
}

// NewPooler starts a PgBouncer until the test ends, with more lines of configuration. It skips the test without the program.
func NewPooler(t testing.TB, database, more string) *Pooler {
	t.Helper()
	if _, err := exec.LookPath("pgbouncer"); err != nil {
		t.Skip("needs pgbouncer (Debian: apt-get install pgbouncer)")
	}
	cfg, err := pgx.ParseConfig(database)
	require.NoError(t, err)
	addr := nettest.Reserve(t)
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "holdfast-pooler-") //nolint:usetesting // PostgreSQL's user cannot enter t.TempDir
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := &Pooler{t: t, file: filepath.Join(dir, "pgbouncer.ini"), user: userOf(cfg.Host)}
	to := fmt.Sprintf("host=%s port=%d dbname=%s user=%s", cfg.Host, cfg.Port, cfg.Database, cfg.User)
	if cfg.Password != "" {
		to += " password=" + cfg.Password
	}
	ini := fmt.Sprintf("[databases]\n%s = %s\n[pgbouncer]\nlisten_addr = %s\nlisten_port = %s\nunix_socket_dir =\n"+
		"auth_type = any\npool_mode = transaction\nmax_client_conn = 500\n%s\n", cfg.Database, to, host, port, more)
	require.NoError(t, os.WriteFile(b.file, []byte(ini), 0o600))
	for _, path := range []string{dir, b.file} {
		if b.user != nil {
			require.NoError(t, os.Lchown(path, int(b.user.Uid), int(b.user.Gid)))
		}
	}
	b.URL = (&url.URL{Scheme: "postgres", User: url.User(cfg.User), Host: addr, Path: cfg.Database, RawQuery: "sslmode=disable"}).String()
	b.Start()
	t.Cleanup(b.Kill)
	return b
}

// userOf is the owner of PostgreSQL's socket, who may enter its directory; nil if that is us. PgBouncer does not run as
// root.
func userOf(host string) *syscall.Credential {
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

// Start starts PgBouncer, or restarts it at its address.
func (b *Pooler) Start() {
	b.t.Helper()
	b.cmd = exec.Command("pgbouncer", "-q", b.file)
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

// Kill ends PgBouncer, which breaks all connections through it.
func (b *Pooler) Kill() {
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait()
}
