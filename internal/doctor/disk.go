package doctor

import "syscall"

// freeBytes returns how much an unprivileged process may still write to the disk of a directory.
func freeBytes(dir string) (free uint64, ok bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, false
	}
	return s.Bavail * uint64(s.Bsize), true
}
