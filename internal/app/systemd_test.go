package app

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// notifySocket is the socket of a supervisor, which receives a datagram for each message.
func notifySocket(t *testing.T, name string) (*net.UnixConn, func() string) {
	t.Helper()
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	return socket, func() string {
		buf := make([]byte, 4096)
		n, err := socket.Read(buf)
		require.NoError(t, err)
		return string(buf[:n])
	}
}

func TestSupervisorIsTold(t *testing.T) {
	t.Parallel()
	for _, name := range []string{filepath.Join(t.TempDir(), "notify"), "@holdfast-test-" + strconv.Itoa(os.Getpid())} {
		_, received := notifySocket(t, name)
		env := map[string]string{"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "30000", "WATCHDOG_PID": strconv.Itoa(os.Getpid())}
		s, err := newSupervisor(func(v string) string { return env[v] })
		require.NoError(t, err)
		defer s.close()
		require.NoError(t, s.tell("READY=1"))
		require.Equal(t, "READY=1", received())
	}
}

func TestWatchdogIsToldUntilStuck(t *testing.T) {
	t.Parallel()
	socket, received := notifySocket(t, filepath.Join(t.TempDir(), "notify"))
	env := map[string]string{"NOTIFY_SOCKET": socket.LocalAddr().String(), "WATCHDOG_USEC": "30000"}
	s, err := newSupervisor(func(v string) string { return env[v] })
	require.NoError(t, err)
	defer s.close()
	require.Equal(t, 30*time.Millisecond, s.watchdog)

	ctx, stop := context.WithCancel(t.Context())
	var stuck atomic.Bool
	ended, warned := make(chan error), make(chan string, 1000)
	go func() { ended <- s.watch(ctx, stuck.Load, func(msg string, _ ...any) { warned <- msg }) }()
	for range 3 {
		require.Equal(t, "WATCHDOG=1", received())
	}
	stuck.Store(true)
	require.Contains(t, <-warned, "stuck")
	// Earlier messages are still in the socket; then it is silent.
	<-warned
	require.NoError(t, s.tell("END"))
	for message := received(); message != "END"; message = received() {
		require.Equal(t, "WATCHDOG=1", message)
	}
	<-warned
	<-warned
	require.NoError(t, s.tell("END"))
	require.Equal(t, "END", received())
	stop()
	require.NoError(t, <-ended)
}

// Without systemd, or with a watchdog that means another process, nothing is told.
func TestNobodySupervises(t *testing.T) {
	t.Parallel()
	s, err := newSupervisor(func(string) string { return "" })
	require.NoError(t, err)
	require.NoError(t, s.tell("READY=1"))
	require.NoError(t, s.watch(t.Context(), nil, nil))
	s.close()

	socket, _ := notifySocket(t, filepath.Join(t.TempDir(), "notify"))
	env := map[string]string{"NOTIFY_SOCKET": socket.LocalAddr().String(), "WATCHDOG_USEC": "30000", "WATCHDOG_PID": "1"}
	s, err = newSupervisor(func(v string) string { return env[v] })
	require.NoError(t, err)
	defer s.close()
	require.Zero(t, s.watchdog)

	_, err = newSupervisor(func(string) string { return "/nowhere/notify" })
	require.ErrorContains(t, err, "NOTIFY_SOCKET")
}
