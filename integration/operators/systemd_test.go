package operators

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// systemd learns that the server is ready when it is, that it lives, and that it stops when it begins to.
func TestServerTellsSystemd(t *testing.T) {
	t.Parallel()
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	// As systemd does, the test reads all the time: a server that cannot write waits.
	messages := make(chan string, 10_000)
	go func() {
		buf := make([]byte, 4096)
		for n, err := socket.Read(buf); err == nil; n, err = socket.Read(buf) {
			messages <- string(buf[:n])
		}
	}()
	await := func(want string) {
		t.Helper()
		for message := ""; message != want; message = waittest.Within(t, "a message", messages) {
			require.Contains(t, []string{"", "WATCHDOG=1"}, message)
		}
	}
	a := clustertest.Start(t, clustertest.Options{
		Name: "a", DB: clustertest.NewDB(t).URL, Config: clustertest.Settings,
		Env: []string{"NOTIFY_SOCKET=" + socket.LocalAddr().String(), "WATCHDOG_USEC=300000"},
	})
	await("READY=1\nSTATUS=Serving")
	await("WATCHDOG=1")
	await("WATCHDOG=1")
	a.Stop()
	await("STOPPING=1\nSTATUS=Draining")
}
