package nettest

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Reserve binds a port without listening. Until a process listens, connections are refused, and the kernel gives the
// port to no process that asks for any port.
func Reserve(t testing.TB) (addr string) {
	t.Helper()
	syscall.ForkLock.RLock()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	// With SO_REUSEADDR on both sockets, one of them may listen.
	require.NoError(t, syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1))
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	bound, err := syscall.Getsockname(fd)
	require.NoError(t, err)
	return fmt.Sprintf("127.0.0.1:%d", bound.(*syscall.SockaddrInet4).Port)
}
