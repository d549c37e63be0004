package faults

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/torture"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// The verb torture finds no fault in two replicas of which it kills one, twice. It starts it again as an operator would.
func TestTorture(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	keys := db.Keys(store.APIKey{Tenant: "t"}, "alice", "bob")
	config := clustertest.WithKeys + "\npush: {allow_private: true}\n"
	b := clustertest.Start(t, clustertest.Options{Name: "b", DB: db.URL, Config: config})
	dir := t.TempDir()
	addr := clustertest.Reserve(t)
	script := filepath.Join(dir, "start")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(config), 0o600))
	require.NoError(t, os.WriteFile(script, fmt.Appendf(nil, "cd %s\n%s HOLDFAST_LISTEN=%s %s serve --config a.yaml >>log 2>&1 &\necho $! >pid\n",
		dir, strings.Join(quoted(db.Env()), " "), addr, clustertest.Binary(t)), 0o600))
	kill := "kill -9 $(cat " + dir + "/pid)"
	start := "sh " + script
	out, err := exec.Command("sh", "-c", start).CombinedOutput()
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
	res := clustertest.Command(t, dir, nil, "torture", "http://"+addr, b.URL, "-H", "X-API-Key: "+keys[0], "--other-header", "X-API-Key: "+keys[1],
		"--kill", kill, "--start", start, "--kill", kill, "--start", start, "--webhook-listen", "127.0.0.1:0", "--load", "4", "--seed", "1", "--report", report)
	t.Logf("%s\n%s", res.Err, res.Out)
	require.Zero(t, res.Code)
	raw, err := os.ReadFile(report)
	require.NoError(t, err)
	var told torture.Report
	require.NoError(t, json.Unmarshal(raw, &told))
	require.Len(t, told.Results, len(torture.Names()))
	for _, r := range told.Results {
		require.Equal(t, torture.Pass, r.Verdict, "%s: %s", r.Check, r.Reason)
	}
}

func quoted(all []string) (out []string) {
	for _, s := range all {
		name, value, _ := strings.Cut(s, "=")
		out = append(out, name+"="+strconv.Quote(value))
	}
	return out
}
