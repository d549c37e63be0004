package storetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/pg/pgembed"
)

// throwaway has the settings for a fast cluster without durability.
var throwaway = map[string]string{
	"fsync": "off", "full_page_writes": "off", "max_wal_size": "4GB", "max_connections": "500", "jit": "off",
}

// A test process does not know whether it is the last of `go test ./...`, and may be killed. So another process uses the
// cluster for it and outlives it: this same binary in a special mode, the janitor. It starts the cluster, and says where it
// is. When its test process has ended in any way, it waits until no test process has used the cluster for a while, and
// removes it. One janitor waits; the others see its lock and exit.
//
// The janitor also has real time, which a test in a bubble of testing/synctest has not.
const (
	envJanitor = "HOLDFAST_STORETEST_JANITOR"
	// EnvLinger is how long a cluster stays that no process uses; between two packages, that happens for a moment.
	EnvLinger = "HOLDFAST_STORETEST_LINGER"
	linger    = 15 * time.Second
	dutyFile  = "janitor.lock" // locked by the janitor that waits
	keptFile  = "kept"         // touched when a failed test left its database
	keptFor   = 30 * time.Minute
	readyMark = "the test cluster is ready: " // begins the line that says where
)

func obtain() (*server, error) {
	if given := os.Getenv(EnvURL); given != "" {
		return &server{url: given, keep: func() {}}, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("test cluster: %w", err)
	}
	// The janitor gets none of our own pipes: go test would wait until it has closed them.
	cmd := exec.CommandContext(context.Background(), self)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), envJanitor+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	ours, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("test cluster: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("test cluster: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("test cluster: %w", err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		found, ready := strings.CutPrefix(lines.Text(), readyMark)
		if !ready { // the janitor's own, or what init functions of the test's packages print
			_, _ = fmt.Fprintln(os.Stderr, found)
			continue
		}
		at, dir, _ := strings.Cut(found, "\t")
		keep := func() { _ = os.WriteFile(filepath.Join(dir, keptFile), nil, 0o600) }
		return &server{url: at, keep: keep, ours: ours}, out.Close()
	}
	return nil, errors.New("no PostgreSQL for tests; see above, or set " + EnvURL + " to a server")
}

func init() {
	if os.Getenv(envJanitor) == "" {
		return
	}
	signal.Ignore(syscall.SIGPIPE) // the test process may be killed while the cluster starts
	if err := janitor(context.Background()); err != nil {
		_, _ = fmt.Fprintln(os.Stdout, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// janitor starts or uses the cluster of this user, which all test processes with this version of PostgreSQL share.
func janitor(ctx context.Context) error {
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if _, err := pgembed.Find(ctx, log, 0); err != nil {
		log.Warn("this machine has no PostgreSQL; downloading its programs once, which may take a minute")
	}
	b, err := pgembed.Ensure(ctx, log, 0)
	if err != nil {
		return err
	}
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("holdfast-test-%d-%s", os.Geteuid(), b.Version))
	if err := private(dir); err != nil {
		return err
	}
	s, err := pgembed.Start(ctx, pgembed.Options{Dir: dir, Log: log, Settings: throwaway})
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(os.Stdout, "%s%s\t%s\n", readyMark, s.DSN(), dir)
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test process has ended
	log = slog.New(slog.DiscardHandler)
	for {
		if waited, err := lookAfter(ctx, s, dir); !waited || err != nil {
			return err
		}
		// A process may have started the cluster again before we gave up the lock. Then its janitor saw us wait, and left.
		if _, pid, err := pgembed.Look(dir); err != nil || pid == 0 {
			return nil //nolint:nilerr // the cluster's directory is gone
		}
		if s, err = pgembed.Start(ctx, pgembed.Options{Dir: dir, Log: log, Settings: throwaway}); err != nil {
			return err
		}
	}
}

// private creates a directory that only this user can write to. Its name is predictable, so another
// user may have created it.
func private(dir string) error {
	err := os.Mkdir(dir, 0o755)
	if err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("test cluster: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("test cluster: %w", err)
	}
	if !info.IsDir() || int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("test cluster: %s belongs to somebody else", dir)
	}
	return nil
}

// lookAfter waits until no process has used the cluster for a while, and removes it. It returns false at once if another
// janitor waits.
func lookAfter(ctx context.Context, s *pgembed.Server, dir string) (waited bool, err error) {
	lock, err := os.OpenFile(filepath.Join(dir, dutyFile), os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return false, err
	}
	// This also keeps the file from garbage collection, which would close it. Then every janitor would wait, each would see
	// the others use the cluster, and none would end.
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return false, nil // another janitor waits
	}
	unused := linger
	if d, err := time.ParseDuration(os.Getenv(EnvLinger)); err == nil {
		unused = d
	}
	kept := filepath.Join(dir, keptFile)
	for used := time.Now(); ; time.Sleep(min(unused, time.Second)) {
		alone, err := s.Alone(ctx)
		if err != nil {
			return true, err
		}
		if !alone {
			used = time.Now()
		}
		wait := unused
		if info, err := os.Stat(kept); err == nil && time.Since(info.ModTime()) < keptFor {
			wait = max(wait, keptFor)
		}
		if time.Since(used) < wait {
			continue
		}
		_ = os.Remove(kept)
		return true, s.Destroy(ctx)
	}
}
