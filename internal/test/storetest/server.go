package storetest

import (
	"context"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/pg/pgembed"
	"github.com/holdfast-a2a/holdfast/internal/pg/schema"
)

// PrivateServer is a PostgreSQL server of one test, which the test can stop and start. Its address
// stays the same.
type PrivateServer struct {
	URL string // a migrated database on it

	t        testing.TB
	dir      string
	settings map[string]string
	pg       *pgembed.Server // nil while stopped
}

// Server starts a cluster only for this test; it takes about two seconds. Without settings it syncs
// to disk as in production. It needs PostgreSQL's programs, and downloads missing ones: it crashes
// the processes of the cluster, which it cannot in a container.
func Server(t testing.TB, settings map[string]string) *PrivateServer {
	t.Helper()
	s := Empty(t, settings)
	require.NoError(t, schema.Migrate(t.Context(), s.URL, slog.New(slog.DiscardHandler)), "private server")
	return s
}

// Empty is Server with an empty database, without a schema.
func Empty(t testing.TB, settings map[string]string) *PrivateServer {
	t.Helper()
	s := newPrivate(t, settings)
	s.URL = s.pg.DSN()
	return s
}

// newPrivate starts a cluster with an empty database.
func newPrivate(t testing.TB, settings map[string]string) *PrivateServer {
	t.Helper()
	dir, err := os.MkdirTemp("", "holdfast-") //nolint:usetesting // as root, PostgreSQL's user cannot enter t.TempDir
	require.NoError(t, err, "private server")
	require.NoError(t, os.Chmod(dir, 0o755), "private server")
	s := &PrivateServer{t: t, dir: dir, settings: settings}
	s.Start()
	t.Cleanup(func() {
		if s.pg == nil {
			s.Start()
		}
		if err := s.pg.Destroy(context.Background()); err != nil {
			t.Errorf("private server: %v", err)
		}
		_ = os.RemoveAll(dir)
	})
	return s
}

// Stop shuts the server down as an operator would: the server ends its sessions with an error.
func (s *PrivateServer) Stop() {
	s.t.Helper()
	require.NoError(s.t, s.pg.Stop(context.WithoutCancel(s.t.Context())), "stop the private server")
	s.pg = nil
}

// Crash ends the server at once, like a power cut, except that the kernel's caches survive.
// Connections break without an error message, and the next Start recovers from the log.
func (s *PrivateServer) Crash() {
	s.t.Helper()
	require.NoError(s.t, syscall.Kill(s.pg.PID(), syscall.SIGQUIT), "crash the private server")
	s.Stop() // waits for the end
}

// Start starts the server again with the same settings.
func (s *PrivateServer) Start() {
	s.t.Helper()
	pg, err := pgembed.Start(context.WithoutCancel(s.t.Context()), pgembed.Options{
		Dir: s.dir, Log: slog.New(slog.DiscardHandler), Settings: s.settings,
	})
	require.NoError(s.t, err, "start the private server")
	s.pg = pg
}

// WithPassword creates a superuser that has to show its password, and returns a URL for it, without one.
func (s *PrivateServer) WithPassword(user, password string) string {
	s.t.Helper()
	s.Exec("CREATE ROLE " + user + " LOGIN SUPERUSER PASSWORD '" + password + "'")
	file := filepath.Join(s.data(), "pg_hba.conf")
	rules, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, append([]byte("local all "+user+" scram-sha-256\n"), rules...), 0o600)
	}
	require.NoError(s.t, err, "private server")
	s.Exec("SELECT pg_reload_conf()")
	u, err := url.Parse(s.URL)
	require.NoError(s.t, err, "private server")
	u.User = url.User(user)
	return u.String()
}
