package retention

import (
	"os"
	"path/filepath"
	"syscall"
)

// lock keeps other processes of this machine from writing an export file until unlock. The lock is
// a separate file, because a purge replaces the export file itself.
func lock(name string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(filepath.Dir(name), ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}
