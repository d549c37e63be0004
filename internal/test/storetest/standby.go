package storetest

import (
	"context"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/pg/pgembed"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// Basebackup returns PostgreSQL's program that copies a server, which Standby needs.
func Basebackup(ctx context.Context) (program string, err error) {
	bin, err := pgembed.Find(ctx, slog.New(slog.DiscardHandler), 0)
	if err != nil {
		return "", err
	}
	program = filepath.Join(bin.Dir, "pg_basebackup")
	_, err = os.Stat(program)
	return program, err
}

// Standby starts a standby that streams from the server. It skips the test if PostgreSQL's programs
// do not include pg_basebackup.
func (s *PrivateServer) Standby() *PrivateServer {
	s.t.Helper()
	if _, err := Basebackup(s.t.Context()); err != nil {
		s.t.Skipf("a standby needs PostgreSQL's pg_basebackup: %v", err)
	}
	from, err := url.Parse(s.URL)
	require.NoError(s.t, err, "standby")
	return Restored(s.t, s.settings, func(b *PrivateServer, data string) {
		b.Shell("pg_basebackup --pgdata=\"$DATA\" --checkpoint=fast --write-recovery-conf --no-sync --dbname=\"$FROM\"", "DATA="+data,
			"FROM=host="+from.Query().Get("host")+" port="+from.Query().Get("port")+" user="+from.User.Username()+" application_name=standby")
	})
}

// Restored starts a server with the files that restore puts into a missing directory, as a standby or from a backup.
func Restored(t testing.TB, settings map[string]string, restore func(s *PrivateServer, data string)) *PrivateServer {
	t.Helper()
	s := newPrivate(t, settings)
	s.Stop() // only its directories are needed
	data := s.data()
	require.NoError(t, os.RemoveAll(data), "private server")
	restore(s, data)
	s.Start()
	s.URL = s.pg.DSN()
	return s
}

// Shell runs a script as PostgreSQL's account, with its programs in the path, and returns its output.
func (s *PrivateServer) Shell(script string, env ...string) string {
	s.t.Helper()
	bin, err := pgembed.Find(s.t.Context(), slog.New(slog.DiscardHandler), 0)
	require.NoError(s.t, err, "PostgreSQL's programs")
	home := filepath.Dir(s.data())
	cmd := exec.CommandContext(s.t.Context(), "/bin/sh", "-euc", script)
	cmd.Dir, cmd.Env = home, append([]string{"PATH=" + bin.Dir + ":" + os.Getenv("PATH"), "HOME=" + home}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: ownerOf(s.t, home)}
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s: %v: %s", script, err, out)
	}
	return string(out)
}

// Promote makes the standby the primary.
func (s *PrivateServer) Promote() {
	s.t.Helper()
	s.Exec("SELECT pg_promote()")
}

// StartAsStandby starts a stopped primary as a standby of no server: it accepts connections and no
// writes.
func (s *PrivateServer) StartAsStandby() {
	s.t.Helper()
	signal := filepath.Join(s.data(), "standby.signal")
	err := os.WriteFile(signal, nil, 0o600)
	if owner := ownerOf(s.t, s.data()); err == nil && owner != nil {
		err = os.Lchown(signal, int(owner.Uid), int(owner.Gid))
	}
	require.NoError(s.t, err, "standby")
	s.Start()
}

// StopStreaming cuts a standby off from its primary, which commits further on its own.
func (s *PrivateServer) StopStreaming() {
	s.t.Helper()
	s.Exec("ALTER SYSTEM SET primary_conninfo = ''")
	s.Exec("SELECT pg_reload_conf()")
	waittest.Eventually(s.t, "the standby stops to stream", func() error {
		return waittest.Unless(s.Count("SELECT count(*)::int FROM pg_stat_wal_receiver") == 0, "it streams")
	})
}

// Replicate makes the commits of the primary wait for its standby (synchronous replication).
func (s *PrivateServer) Replicate() {
	s.t.Helper()
	s.HoldCommits() // since a standby that confirms at once hides whether commits wait for it
	s.setStandby("*")
	waittest.Eventually(s.t, "the standby is synchronous", func() error {
		return waittest.Unless(s.Count("SELECT count(*)::int FROM pg_stat_replication WHERE sync_state = 'sync'") > 0, "it is not")
	})
}

// HoldCommits makes commits wait for a synchronous standby that does not exist, until ReleaseCommits.
func (s *PrivateServer) HoldCommits() {
	s.t.Helper()
	s.setStandby("nobody")
	// The checkpointer makes commits wait, some time after it is told to read the setting.
	waittest.Eventually(s.t, "commits wait for the standby", func() error {
		return waittest.Unless(s.commitWaits(), "they do not")
	})
}

// ReleaseCommits lets the server commit on its own.
func (s *PrivateServer) ReleaseCommits() {
	s.t.Helper()
	s.setStandby("")
}

func (s *PrivateServer) setStandby(name string) {
	s.t.Helper()
	s.Exec("ALTER SYSTEM SET synchronous_standby_names = '" + name + "'")
	s.Exec("SELECT pg_reload_conf()")
}

// commitWaits commits, gives up after a moment, and reports whether PostgreSQL warns that no standby
// has confirmed.
func (s *PrivateServer) commitWaits() (waits bool) {
	s.t.Helper()
	s.do(func(ctx context.Context, c *pgx.Conn) error {
		ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		_, err := c.Exec(ctx, "SELECT pg_logical_emit_message(true, 'test', '')")
		if ctx.Err() != nil {
			return nil // the moment may have passed before the commit waited
		}
		return err
	}, func(config *pgx.ConnConfig) {
		config.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
			return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: patience}
		}
		config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
			waits = waits || strings.Contains(n.Message, "synchronous replication")
		}
	})
	return waits
}

// Exec executes a statement in a session of its own.
func (s *PrivateServer) Exec(sql string) {
	s.t.Helper()
	s.do(func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, sql)
		return err
	})
}

// Count returns the number that a query selects.
func (s *PrivateServer) Count(sql string) (n int) {
	s.t.Helper()
	s.do(func(ctx context.Context, c *pgx.Conn) error { return c.QueryRow(ctx, sql).Scan(&n) })
	return n
}

func (s *PrivateServer) do(do func(context.Context, *pgx.Conn) error, with ...func(*pgx.ConnConfig)) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), patience)
	defer cancel()
	config, err := pgx.ParseConfig(s.URL)
	require.NoError(s.t, err, "private server")
	for _, set := range with {
		set(config)
	}
	c, err := pgx.ConnectConfig(ctx, config)
	if err == nil {
		err = do(ctx, c)
		_ = c.Close(ctx)
	}
	require.NoError(s.t, err, "private server")
}

// data is the directory of the cluster.
func (s *PrivateServer) data() string {
	home, err := filepath.EvalSymlinks(filepath.Join(s.dir, "postgres"))
	require.NoError(s.t, err, "private server")
	return filepath.Join(home, "data")
}

// ownerOf is the account that PostgreSQL runs as; nil if it is ours.
func ownerOf(t testing.TB, path string) *syscall.Credential {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err, "private server")
	st := info.Sys().(*syscall.Stat_t)
	if int(st.Uid) == os.Geteuid() {
		return nil
	}
	return &syscall.Credential{Uid: st.Uid, Gid: st.Gid}
}

// Hosts returns a URL that names the servers of several URLs, in their order. Each must have a host
// and a port of its own, as those of proxies have.
func Hosts(urls ...string) string {
	var hosts []string
	var first *url.URL
	for _, raw := range urls {
		u, err := url.Parse(raw)
		if err != nil {
			panic(err)
		}
		if first == nil {
			first = u
		}
		hosts = append(hosts, u.Host)
	}
	return strings.Replace(urls[0], first.Host, strings.Join(hosts, ","), 1)
}
