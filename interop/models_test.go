//go:build interop

package interop

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
)

const masterKey = "sk-key-of-the-proxy"

// proxy is LiteLLM's proxy, installed and not started.
type proxy struct {
	t       *testing.T
	program string
	address string
}

func newProxy(t *testing.T) *proxy {
	t.Helper()
	source, err := filepath.Abs("models/litellm")
	require.NoError(t, err)
	dir := cachedFrom(t, source, "requirements.txt")
	once(t, dir, func() {
		execute(t, dir, nil, "python3", "-m", "venv", filepath.Join(dir, "venv"))
		execute(t, dir, nil, filepath.Join(dir, "venv", "bin", "python"), "-m", "pip", "install", "--quiet",
			"--disable-pip-version-check", "--requirement", filepath.Join(source, "requirements.txt"))
	})
	return &proxy{t, filepath.Join(dir, "venv", "bin", "litellm"), free(t)}
}

// start starts the proxy, and stops it when the test ends.
func (p *proxy) start() {
	p.t.Helper()
	host, port, err := net.SplitHostPort(p.address)
	require.NoError(p.t, err)
	config, err := filepath.Abs("models/litellm/config.yaml")
	require.NoError(p.t, err)
	cmd := exec.Command(p.program, "--config", config, "--host", host, "--port", port)
	// Without the second variable, it downloads prices.
	cmd.Env = append(os.Environ(), "LITELLM_MASTER_KEY="+masterKey, "LITELLM_LOCAL_MODEL_COST_MAP=True")
	cmd.Dir = p.t.TempDir()
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(p.t, cmd.Start())
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		if p.t.Failed() {
			p.t.Log(log.String())
		}
	})
}

func (p *proxy) wait() {
	p.t.Helper()
	deadline := time.Now().Add(3 * time.Minute) // it imports for a minute on a busy machine
	for {
		response, err := http.Get("http://" + p.address + "/health/liveliness")
		if err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return
			}
		}
		require.True(p.t, time.Now().Before(deadline), "the proxy does not answer: %v", err)
		time.Sleep(250 * time.Millisecond)
	}
}

// Agents of kind openai ask models behind LiteLLM's proxy.
func TestModels(t *testing.T) {
	t.Parallel()
	p := newProxy(t)
	config := clustertest.Settings
	for name, key := range map[string]string{"small": masterKey, "whole": masterKey, "busy": masterKey, "broken": masterKey, "long": masterKey, "none": masterKey, "stranger": "sk-another-key"} {
		model, stream := name, true
		switch name {
		case "whole":
			model, stream = "small", false
		case "stranger":
			model = "small"
		}
		config += fmt.Sprintf(`
  - name: %s
    executor: {kind: openai, openai: {base_url: "http://%s/v1", model: %s, api_key: %s, stream: %t}}
    limits: {max_attempts: 2, backoff: 100ms, unreachable_for: %s}
`, name, p.address, model, key, stream, map[bool]string{true: "3s", false: "5m"}[name == "busy"])
	}
	db := storetest.New(t).URL
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db, Config: config})
	s := r.Stream(a2atest.V03, a2atest.Say("What is the answer?").At("small"))
	s.UntilState("working")
	p.start() // the task waits for it
	p.wait()
	require.Equal(t, "completed", a2atest.Last(s.Rest()).State())

	t.Cleanup(func() { require.NotContains(t, r.Log(), masterKey) })
	for name, want := range map[string]struct{ state, said string }{
		"small":    {"completed", ""},
		"whole":    {"completed", ""},
		"busy":     {"failed", "could not be reached for 3s"},
		"broken":   {"failed", "the model's API answered 500 Internal Server Error"},
		"long":     {"failed", "the model's API answered 400 Bad Request: litellm.ContextWindowExceededError"},
		"none":     {"failed", "Invalid model name passed in model=none"},
		"stranger": {"failed", "the model's API answered 40"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res := r.Send(a2atest.V03, a2atest.Say("What is the answer?").At(name))
			require.Equal(t, want.state, res.State(), res.Said())
			require.Contains(t, res.Said(), want.said)
			require.NotContains(t, res.Said(), "sk-")
			if want.state == "completed" {
				require.Equal(t, "It is 42, says LiteLLM.", a2atest.Text(res.Artifacts[0].Parts))
			}
		})
	}
}
