package pgembed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// fileLock is an advisory lock on a file. It ends with the process. Children do not inherit it, because Go opens files
// with O_CLOEXEC. So a PostgreSQL that outlives us does not hold our lease.
type fileLock struct{ file *os.File }

// The names of the locks of a cluster, in their order.
const (
	startLock = "postgres.start.lock"
	usersLock = "postgres.users.lock"
)

func openLock(path string) (*fileLock, error) {
	// Read access is enough for flock, so no other user may have it: a lock of theirs would block the start.
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock file: %w", err)
	}
	if err := private(f); err != nil {
		_ = f.Close()
		return nil, err
	}
	return &fileLock{file: f}, nil
}

// private takes other users' access to a lock file that an earlier version made. If root made the file in another
// user's directory, it gives the file to that user, so that both can open it.
func private(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("check the lock file: %w", err)
	}
	mine := int(info.Sys().(*syscall.Stat_t).Uid) == os.Geteuid()
	if (mine || os.Geteuid() == 0) && info.Mode().Perm() != 0o600 {
		if err := f.Chmod(0o600); err != nil {
			return fmt.Errorf("protect the lock file: %w", err)
		}
	}
	if os.Geteuid() != 0 {
		return nil
	}
	dir, err := os.Stat(filepath.Dir(f.Name()))
	if err != nil {
		return fmt.Errorf("check the lock file: %w", err)
	}
	if owner := dir.Sys().(*syscall.Stat_t); owner.Uid != 0 {
		if err := f.Chown(int(owner.Uid), int(owner.Gid)); err != nil {
			return fmt.Errorf("protect the lock file: %w", err)
		}
	}
	return nil
}

// exclusive waits for the lock until ctx ends. It calls waiting once if that takes more than a moment.
func (l *fileLock) exclusive(ctx context.Context, waiting func()) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		ok, err := l.try(syscall.LOCK_EX)
		if ok || err != nil {
			return err
		}
		if n == 20 {
			waiting()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", l.file.Name(), context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// try takes the lock in the given mode. It returns false at once if it cannot. A failed conversion loses the lock held
// before.
func (l *fileLock) try(mode int) (bool, error) {
	for {
		err := syscall.Flock(int(l.file.Fd()), mode|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, fmt.Errorf("flock %s: %w", l.file.Name(), err)
		}
	}
}

// InUse reports whether another process, or another part of this one, uses the cluster in dir, or is about to.
func InUse(dir string) (bool, error) {
	if !Exists(dir) {
		return false, nil
	}
	for _, name := range []string{startLock, usersLock} {
		l, err := openLock(filepath.Join(dir, name))
		if err != nil {
			return false, err
		}
		defer l.release()
		if free, err := l.try(syscall.LOCK_EX); !free || err != nil {
			return true, err
		}
	}
	return false, nil
}

// mine returns an error if another file is at the lock's path: our lock does not exclude a process that opens that
// file.
func (l *fileLock) mine() error {
	ours, err := l.file.Stat()
	there, gone := os.Stat(l.file.Name())
	if err := errors.Join(err, gone); err != nil {
		return fmt.Errorf("check the lock file: %w", err)
	}
	if !os.SameFile(ours, there) {
		return fmt.Errorf("%s was removed while in use; this process no longer owns the database there", l.file.Name())
	}
	return nil
}

func (l *fileLock) release() { _ = l.file.Close() }
