package limits

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
)

// A misconfigured server reports all mistakes and does not start.
func TestServerReportsAllConfigurationErrors(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "holdfast.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
limits: {max_blok: 30s}
worker: {lease_ttl: 1ms}
agents:
  - name: a
    executor: {kind: http}
`), 0o600))
	res := clustertest.Command(t, t.TempDir(), []string{"HOLDFAST_LISTEN=127.0.0.1:0", "HOLDFAST_ADMIN_LISTEN=127.0.0.1:0"}, "serve", "--config", file)
	require.Equal(t, 2, res.Code, res.Err)
	for _, want := range []string{"3 mistakes", "limits.max_blok", "worker.lease_ttl", "agents[0].executor.http.url"} {
		require.Contains(t, res.Err, want)
	}
	// An address in use, and a database that is down.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	res = clustertest.Command(t, t.TempDir(), []string{
		"HOLDFAST_DATABASE_URL=" + clustertest.NewDB(t).URL, "HOLDFAST_LISTEN=" + l.Addr().String(), "HOLDFAST_ADMIN_LISTEN=127.0.0.1:0",
	}, "serve")
	require.Equal(t, 1, res.Code)
	require.Contains(t, res.Err, "address already in use")
	res = clustertest.Command(t, t.TempDir(), nil, "tasks", "list", "--database-url", "postgres://nobody@127.0.0.1:1/nothing?connect_timeout=2")
	require.Equal(t, 1, res.Code)
	require.Contains(t, res.Err, "nothing as nobody on 127.0.0.1:1 is not reachable: ")
	require.Equal(t, 1, strings.Count(res.Err, "refused"), "the cause once: %s", res.Err)
}

// Bytes that no HTTP server reads get an answer all the same, and harm nobody.
func TestNoHTTP(t *testing.T) {
	t.Parallel()
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: clustertest.NewDB(t).URL, Config: clustertest.Settings})
	for send, want := range map[string]string{
		"POST / HTTP/1.1\r\nHost: localhost\r\nX-Large: " + strings.Repeat("x", 80<<10) + "\r\n\r\n": "^HTTP/1.1 431 ",
		"\x16\x03\x01 hello\r\n\r\n": "^HTTP/1.1 400 ",
	} {
		c := dialFrom(t, 1, a2atest.Host(r.URL))
		_, err := io.WriteString(c, send)
		require.NoError(t, err)
		answer, _ := io.ReadAll(c)
		require.Regexp(t, want, string(answer))
	}
	require.Equal(t, "completed", r.Send(a2atest.V03, a2atest.Say("echo:well")).State())
}
