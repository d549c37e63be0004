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

// Options say where a cluster is and how it runs.
type Options struct {
	// Dir holds the cluster. It is created if absent. A relative path depends on the working directory.
	Dir string
	// Log receives a line for each step.
	Log *slog.Logger
	// Settings override this package's defaults in postgresql.conf. They apply only to a server that Start starts, not
	// to a running one.
	Settings map[string]string
}

// Server is our use of a running PostgreSQL. All processes with the same directory share that PostgreSQL.
type Server struct {
	opts  Options
	turn  chan struct{} // orders the goroutines of this process, because they share the flock of start
	start *fileLock
	lease *fileLock
	c     cluster
}

// Exists reports whether a cluster was ever started in dir.
func Exists(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "postgres", "data"))
	return err == nil
}

// Look returns the address of the cluster in dir and the process id of its PostgreSQL, or 0 if it does not run. It
// starts nothing and changes nothing.
func Look(dir string) (dsn string, pid int, err error) {
	// Use the real path, because PostgreSQL reports it as its working directory.
	home, err := filepath.Abs(filepath.Join(dir, "postgres"))
	if err == nil {
		home, err = filepath.EvalSymlinks(home)
	}
	if err != nil {
		return "", 0, fmt.Errorf("database directory: %w", err)
	}
	c := cluster{home: home}
	pid, err = c.postmaster()
	return c.dsn(database), pid, err
}

// Start makes the cluster in o.Dir ready. It creates the cluster the first time, starts it if it does not run, and
// adopts it if it runs. It blocks until the database answers; after a crash, that is after recovery.
func Start(ctx context.Context, o Options) (*Server, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("database directory: %w", err)
	}
	o.Dir = dir
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the user PostgreSQL runs as must pass through
		return nil, fmt.Errorf("database directory: %w", elsewhereHelps(err, "the variable HOLDFAST_DATA_DIR names another directory"))
	}
	s := &Server{opts: o, turn: make(chan struct{}, 1)}
	if s.start, err = openLock(filepath.Join(dir, startLock)); err != nil {
		return nil, err
	}
	if s.lease, err = openLock(filepath.Join(dir, usersLock)); err != nil {
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
	// While we hold the start lock, nobody holds the lease exclusively, so this succeeds at once.
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

// DSN returns the address of the database, as a URL.
func (s *Server) DSN() string { return s.c.dsn(database) }

// Psql returns the command that connects an operator to the database.
func (s *Server) Psql() string { return s.c.psql() }

// PID returns the process id of PostgreSQL, or 0 if it does not run.
func (s *Server) PID() int {
	pid, _ := s.c.postmaster()
	return pid
}

// Watch keeps the database running until ctx ends: it restarts PostgreSQL if that dies.
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
		s.opts.Log.Warn("postgresql died; restarting it")
		if err := s.locked(ctx, s.c.run); err != nil && ctx.Err() == nil {
			s.opts.Log.Error("postgresql not restarted", "error", err)
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

// alone runs under the start lock, so that no process can take the lease between its two steps.
func (s *Server) alone() (bool, error) {
	alone, err := s.lease.try(syscall.LOCK_EX)
	if err != nil {
		return false, err
	}
	_, err = s.lease.try(syscall.LOCK_SH)
	return alone, err
}

// Stop ends our use of the cluster. If no other process uses it, Stop shuts PostgreSQL down: it closes sessions and
// rolls transactions back. Everything committed is on disk when Stop returns.
func (s *Server) Stop(ctx context.Context) error { return s.end(ctx, false) }

// Destroy calls Stop. If no other process uses the cluster, it also removes all its data.
func (s *Server) Destroy(ctx context.Context) error { return s.end(ctx, true) }

func (s *Server) end(ctx context.Context, destroy bool) error {
	defer s.close()
	return s.locked(ctx, func(ctx context.Context) error {
		alone, err := s.alone()
		if err != nil {
			return err
		}
		if !alone {
			s.opts.Log.Info("postgresql left running: another process uses it", "dir", s.opts.Dir)
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
		s.opts.Log.Info("waiting for another process that starts or stops postgresql", "dir", s.opts.Dir)
	})
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Flock(int(s.start.file.Fd()), syscall.LOCK_UN) }()
	// The directory may have been removed and created again. The PostgreSQL there is not ours to stop.
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
		// Neither pgx nor libpq accepts a plus for a space.
		RawQuery: "host=" + strings.ReplaceAll(url.QueryEscape(c.socketDir()), "+", "%20") + "&port=" + port,
	}
	return u.String()
}

func (c cluster) psql() string {
	return fmt.Sprintf("psql -h %s -U %s %s", shellWord(c.socketDir()), role, database)
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9/._+-]+$`)

// shellWord quotes s if a shell would change it.
func shellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
