//go:build interop

package interop

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
)

// TestStartPageClients runs the clients of docs/start.md with the SDKs of the first ring, against an agent that answers as that of the
// page does.
func TestStartPageClients(t *testing.T) {
	t.Parallel()
	if *ring2 {
		t.Skip("these clients are of the first ring")
	}
	page, err := os.ReadFile("../docs/start.md")
	require.NoError(t, err)
	block := func(info string) string {
		found := regexp.MustCompile("(?s)```" + regexp.QuoteMeta(info) + "\n(.*?)```").FindSubmatch(page)
		require.NotNil(t, found, info)
		return string(found[1])
	}
	_, after, ok := strings.Cut(string(page), "`.venv/bin/python client.py` prints")
	require.True(t, ok)
	want := regexp.MustCompile("(?s)```text\n(.*?)```").FindStringSubmatch(after)
	require.NotNil(t, want)

	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"text": "Hello, world!"}`))
	}))
	t.Cleanup(agent.Close)
	r := clustertest.Start(t, clustertest.Options{Name: "A", DB: storetest.New(t).URL, Config: `
listen: 127.0.0.1:0
grpc_listen: 127.0.0.1:0
admin_listen: 127.0.0.1:0
agents:
  - name: hello
    executor: {kind: http, http: {url: "` + agent.URL + `"}}
`})

	for name, c := range map[string]struct {
		info string
		run  func(t *testing.T, file string) *exec.Cmd // with the SDK
	}{
		"py-1": {"python client.py", func(t *testing.T, file string) *exec.Cmd {
			t.Helper()
			return exec.CommandContext(t.Context(), install(t, "clients", "py-1")[0], file)
		}},
		"js-1": {"js client.mjs", func(t *testing.T, file string) *exec.Cmd {
			t.Helper()
			modules := filepath.Join(filepath.Dir(install(t, "clients", "js-1")[1]), "node_modules")
			require.NoError(t, os.Symlink(modules, filepath.Join(filepath.Dir(file), "node_modules")))
			return exec.CommandContext(t.Context(), "node", file)
		}},
		"go-2": {"go main.go", func(t *testing.T, file string) *exec.Cmd {
			t.Helper()
			cmd := exec.CommandContext(t.Context(), "go", "run", file)
			cmd.Dir = "clients/go-2"
			cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
			return cmd
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, file, _ := strings.Cut(c.info, " ")
			file = filepath.Join(t.TempDir(), file)
			program := strings.ReplaceAll(block(c.info), "http://127.0.0.1:8080", r.URL)
			require.NoError(t, os.WriteFile(file, []byte(program), 0o600))
			out, err := c.run(t, file).CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Equal(t, want[1], string(out))
		})
	}
}
