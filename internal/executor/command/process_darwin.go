package command

import (
	"syscall"
	"unsafe"
)

// groupLeader puts the process into its own group. Darwin cannot tie its life to the server's.
func groupLeader() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// protect does nothing: Darwin has no such switch, and shows a process's environment to its user.
func protect() error { return nil }

// awaitExit waits until the process has ended and leaves it unreaped, so that
// its number still means its group.
func awaitExit(pid int) {
	const byPID = 1
	var info [16]uint64 // a siginfo_t, which is smaller
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, byPID, uintptr(pid),
			uintptr(unsafe.Pointer(&info)), syscall.WEXITED|syscall.WNOWAIT, 0, 0)
		if errno != syscall.EINTR {
			return
		}
	}
}
