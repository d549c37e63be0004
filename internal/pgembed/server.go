package pgembed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

const (
	role     = "holdfast" // the cluster's superuser
	database = "holdfast"
)

// Options say where a cluster lives and how it runs.
type Options struct {
	// Dir holds the cluster and is made if absent; a relative one depends on the working directory.
	Dir string
	// Log receives a line for each step.
	Log *slog.Logger
	// Settings go to postgresql.conf over the defaults of this package. They apply to a server that Start starts,
	// and not to one that it finds running.
	Settings map[string]string
}

// Server is our use of a running PostgreSQL. It is shared with every other process that uses the same directory.
type Server struct {
	opts  Options
	turn  chan struct{} // the start lock among the goroutines of this process, since a process shares its flock
	start *fileLock
	lease *fileLock
	c     cluster
}

// Exists reports whether a cluster was ever started in dir.
func Exists(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "postgres", "data"))
	return err == nil
}

// Look tells the address of the cluster in dir and the process id of its PostgreSQL, 0 if that does not run. It starts
// nothing and changes nothing.
func Look(dir string) (dsn string, pid int, err error) {
	// The real path, since PostgreSQL reports its working directory by it.
	home, err := filepath.Abs(filepath.Join(dir, "postgres"))
	if err == nil {
		home, err = filepath.EvalSymlinks(home)
	}
	if err != nil {
		return "", 0, fmt.Errorf("database directory: %w", err)
	}
	c := cluster{home: home}
	pm, err := c.postmaster()
	return c.dsn(database), pm.pid, err
}

// Start makes the cluster in o.Dir ready: creates it the first time, starts it if it does not run, and adopts it if it
// does. It blocks until the database answers, which after a crash is when recovery has ended.
func Start(ctx context.Context, o Options) (*Server, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("database directory: %w", err)
	}
	o.Dir = dir
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the user PostgreSQL runs as must pass through
		return nil, fmt.Errorf("database directory: %w", err)
	}
	s := &Server{opts: o, turn: make(chan struct{}, 1)}
	if s.start, err = openLock(filepath.Join(dir, "postgres.start.lock")); err != nil {
		return nil, err
	}
	if s.lease, err = openLock(filepath.Join(dir, "postgres.users.lock")); err != nil {
		s.start.release()
		return nil, err
	}
	if err := s.locked(ctx, s.up); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// up runs under the start lock.
func (s *Server) up(ctx context.Context) error {
	// Nobody holds the lease exclusively while we hold the start lock, so this cannot fail for lack of it.
	if _, err := s.lease.try(syscall.LOCK_SH); err != nil {
		return err
	}
	c, err := openCluster(ctx, s.opts)
	if err != nil {
		return err
	}
	s.c = c
	return s.c.run(ctx)
}

// DSN is the address of the database, as a URL.
func (s *Server) DSN() string { return s.c.dsn(database) }

// Psql is the command that connects an operator to the database.
func (s *Server) Psql() string { return s.c.psql() }

// PID is the process id of PostgreSQL, 0 if it does not run.
func (s *Server) PID() int {
	pm, _ := s.c.postmaster()
	return pm.pid
}

// Watch keeps the database up until ctx ends: should PostgreSQL die, it is started again.
func (s *Server) Watch(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if s.PID() != 0 {
			continue
		}
		s.opts.Log.Warn("postgresql has gone and is started again")
		if err := s.locked(ctx, s.c.run); err != nil && ctx.Err() == nil {
			s.opts.Log.Error("postgresql does not start", "error", err)
		}
	}
}

// Alone reports whether no other process uses the cluster at this moment.
func (s *Server) Alone(ctx context.Context) (alone bool, err error) {
	err = s.locked(ctx, func(context.Context) error {
		alone, err = s.alone()
		return err
	})
	return alone, err
}

// alone runs under the start lock, so between its two steps nobody can take the lease for good.
func (s *Server) alone() (bool, error) {
	alone, err := s.lease.try(syscall.LOCK_EX)
	if err != nil {
		return false, err
	}
	_, err = s.lease.try(syscall.LOCK_SH)
	return alone, err
}

// Stop ends our use of the cluster. If nobody else uses it, PostgreSQL is shut down: sessions are cut, transactions
// rolled back, and everything committed is on disk when Stop returns.
func (s *Server) Stop(ctx context.Context) error { return s.end(ctx, false) }

// Destroy is Stop and, if nobody else uses the cluster, removes all its data.
func (s *Server) Destroy(ctx context.Context) error { return s.end(ctx, true) }

func (s *Server) end(ctx context.Context, destroy bool) error {
	defer s.close()
	return s.locked(ctx, func(ctx context.Context) error {
		alone, err := s.alone()
		if err != nil {
			return err
		}
		if !alone {
			s.opts.Log.Info("postgresql is left running: another process uses it", "dir", s.opts.Dir)
			return nil
		}
		if err := s.c.stop(ctx, syscall.SIGINT); err != nil || !destroy {
			return err
		}
		return s.c.remove()
	})
}

func (s *Server) locked(ctx context.Context, do func(context.Context) error) error {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s.turn }()
	err := s.start.exclusive(ctx, func() {
		s.opts.Log.Info("another process starts or stops postgresql: waiting", "dir", s.opts.Dir)
	})
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Flock(int(s.start.file.Fd()), syscall.LOCK_UN) }()
	// Somebody may have removed the directory and begun anew in its place. What runs there is not ours to stop.
	if err := errors.Join(s.start.mine(), s.lease.mine()); err != nil {
		return err
	}
	return do(ctx)
}

func (s *Server) close() {
	s.lease.release()
	s.start.release()
}

func (c cluster) dsn(name string) string {
	u := url.URL{
		Scheme: "postgres", User: url.User(role), Path: "/" + name,
		// Neither pgx nor libpq takes a plus for a space.
		RawQuery: "host=" + strings.ReplaceAll(url.QueryEscape(c.socketDir()), "+", "%20") + "&port=" + port,
	}
	return u.String()
}

func (c cluster) psql() string {
	return fmt.Sprintf("psql -h %s -U %s %s", shellWord(c.socketDir()), role, database)
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9/._+-]+$`)

// shellWord quotes s where a shell would not take it as it is.
func shellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
