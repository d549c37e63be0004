package doctor

import "syscall"

// DiskOf returns the size of the disk of a directory, and how much of it an unprivileged process may still write, in bytes.
func DiskOf(dir string) (free, size uint64, ok bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, 0, false
	}
	return s.Bavail * uint64(s.Bsize), s.Blocks * uint64(s.Bsize), true
}
