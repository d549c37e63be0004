package procgroup

import (
	"syscall"
	"unsafe"
)

// leader puts the process into its own group. Darwin cannot tie its life to this process.
func leader() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

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
