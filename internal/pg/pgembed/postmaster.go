package pgembed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const pidName = "postmaster.pid"

func (c cluster) pidFile() string { return filepath.Join(c.data(), pidName) }

// postmaster returns the process id of the running server, or 0 if none runs. It reads the server's pid file and checks that the
// process is this server: after a reboot, or in a container, another process may have the number.
func (c cluster) postmaster() (pid int, err error) {
	pid, err = c.recordedPID()
	if err != nil || pid <= 0 || !c.isPostmaster(pid) {
		return 0, err
	}
	return pid, nil
}

// recordedPID returns the first line of the pid file, or 0 without a file.
func (c cluster) recordedPID() (int, error) {
	raw, err := os.ReadFile(c.pidFile())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("PostgreSQL's pid file: %w", err)
	}
	first, _, _ := strings.Cut(string(raw), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil {
		return 0, nil //nolint:nilerr // half written: its author has died, and postgres deals with that
	}
	return max(pid, -pid), nil
}

// isPostmaster reports whether the process is a PostgreSQL server whose working directory is our data directory. A
// zombie has no working directory.
func (c cluster) isPostmaster(pid int) bool {
	if runtime.GOOS == "linux" {
		cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		return err == nil && cwd == c.data()
	}
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	out, err := exec.Command("ps", "-o", "stat=,command=", "-p", strconv.Itoa(pid)).Output() //nolint:noctx // instant
	return err == nil && !strings.HasPrefix(string(out), "Z") && strings.Contains(string(out), "postgres")
}

// clearStale removes the effects of a dead server. Postgres ignores a pid file whose process is gone, but refuses to
// start if another process of the same user has the number. The only exception is the process that starts it, so we
// write our own number there. The rest of the file stays: postgres uses it to check that no child of the dead server
// still uses the shared memory.
func (c cluster) clearStale() error {
	if pid, err := c.postmaster(); err != nil || pid != 0 {
		return errors.Join(errRemains, err)
	}
	err := c.inHome(func(files *os.Root) error {
		path := filepath.Join(dataName, pidName)
		raw, err := files.ReadFile(path)
		if err != nil {
			return err
		}
		if _, rest, ok := strings.Cut(string(raw), "\n"); ok {
			return files.WriteFile(path, []byte(strconv.Itoa(os.Getpid())+"\n"+rest), 0o600)
		}
		return files.Remove(path)
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("PostgreSQL's pid file: %w", err)
	}
	// The socket's lock file has the same rule. Only this cluster uses the directory, so we remove the file.
	err = os.Remove(filepath.Join(c.socketDir(), ".s.PGSQL."+port+".lock"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("PostgreSQL's socket: %w", err)
	}
	return nil
}

// stop signals the server and waits until it has ended.
func (c cluster) stop(ctx context.Context, sig syscall.Signal) error {
	pid, err := c.postmaster()
	if err != nil || pid == 0 {
		return err
	}
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop PostgreSQL: %w", err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for c.isPostmaster(pid) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL is still shutting down (pid %d): %w", pid, context.Cause(ctx))
		case <-tick.C:
		}
	}
	c.log.Info("postgresql stopped", "dir", c.home)
	return nil
}
