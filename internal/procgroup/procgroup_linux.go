package procgroup

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// leader puts the process into its own group. The kernel kills it when the keeper's thread ends, which happens only when
// this process is killed.
func leader() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit waits until the process has ended and leaves it unreaped, so that
// its number still means its group.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
