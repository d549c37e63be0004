package command

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// groupLeader puts the process into its own group. The kernel kills it when the keeper's thread ends, which happens
// only when the server is killed.
func groupLeader() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// protect keeps programs of the server's own user from reading its memory and its environment in /proc, which have its
// secrets. Programs of root can read them all the same. The server leaves no core dump then.
func protect() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

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
