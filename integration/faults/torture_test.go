package faults

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/cmd/torture/checks"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// The torture finds no fault in two replicas of which it kills one, twice. It starts it again as an operator would.
func TestTorture(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	keys := db.Keys(store.APIKey{Tenant: "t"}, "alice", "bob")
	config := clustertest.WithKeys + "\npush: {allow_private: true}\n"
	b := clustertest.Start(t, clustertest.Options{Name: "b", DB: db.URL, Config: config})
	dir := t.TempDir()
	addr := nettest.Reserve(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(config), 0o600))
	env := append(db.Env(), "HOLDFAST_LISTEN="+addr)
	kill := "kill -9 $(cat " + dir + "/pid)"
	start := fmt.Sprintf("cd %s; %s serve --config a.yaml >>log 2>&1 & echo $! >%[1]s/pid", dir, clustertest.Binary(t))
	first := exec.Command("sh", "-c", start)
	first.Env = append(os.Environ(), env...)
	out, err := first.CombinedOutput()
	require.NoError(t, err, string(out))
	t.Cleanup(func() {
		_ = exec.Command("sh", "-c", kill).Run()
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Logf("log of a:\n%s", log[max(0, len(log)-20_000):])
		}
	})
	waittest.Eventually(t, "a serves", func() error {
		resp, err := http.Get("http://" + addr + "/.well-known/agent-card.json")
		if err == nil {
			resp.Body.Close()
		}
		return err
	})
	report := filepath.Join(dir, "report.json")
	res := clustertest.CommandOf(t, clustertest.Program(t, "./cmd/torture"), dir, env, "http://"+addr, b.URL, "-H", "X-API-Key: "+keys[0], "--other-header", "X-API-Key: "+keys[1],
		"--kill", kill, "--start", start, "--kill", kill, "--start", start, "--webhook-listen", "127.0.0.1:0", "--load", "4", "--seed", "1", "--report", report)
	t.Logf("%s\n%s", res.Err, res.Out)
	require.Zero(t, res.Code)
	raw, err := os.ReadFile(report)
	require.NoError(t, err)
	var told checks.Report
	require.NoError(t, json.Unmarshal(raw, &told))
	require.Len(t, told.Results, len(checks.Names()))
	for _, r := range told.Results {
		require.Equal(t, checks.Pass, r.Verdict, "%s: %s", r.Check, r.Reason)
	}
}
