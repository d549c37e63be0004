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

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
)

const masterKey = "sk-key-of-the-proxy"

// proxy is LiteLLM's proxy, installed and not started.
type proxy struct {
	t       *testing.T
	command []string
	address string
}

func newProxy(t *testing.T) *proxy {
	t.Helper()
	return &proxy{t, install(t, "models", "litellm"), nettest.Reserve(t)}
}

// start starts the proxy, and stops it when the test ends.
func (p *proxy) start() {
	p.t.Helper()
	host, port, err := net.SplitHostPort(p.address)
	require.NoError(p.t, err)
	config, err := filepath.Abs("models/litellm/config.yaml")
	require.NoError(p.t, err)
	cmd := exec.Command(p.command[0], append(p.command[1:], "--config", config, "--host", host, "--port", port)...)
	// Without the last variable, it downloads prices.
	cmd.Env = append(os.Environ(), "LITELLM_MASTER_KEY="+masterKey, "OWN_ADDRESS=http://"+p.address+"/v1", "LITELLM_LOCAL_MODEL_COST_MAP=True")
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
	deadline := time.Now().Add(5 * time.Minute) // it imports for minutes on a busy machine
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

// Agents of kind openai ask models behind LiteLLM's proxy, over both of its APIs.
func TestModels(t *testing.T) {
	t.Parallel()
	p := newProxy(t)
	type ask struct {
		model, api  string
		whole       bool
		key         string
		state, said string
	}
	const answer = "It is 42, says LiteLLM."
	asks := map[string]ask{
		"chat":          {"small", "chat-completions", false, masterKey, "completed", answer},
		"chat-whole":    {"small", "chat-completions", true, masterKey, "completed", answer},
		"chat-busy":     {"busy", "chat-completions", false, masterKey, "failed", "could not be reached for 3s"},
		"chat-broken":   {"broken", "chat-completions", false, masterKey, "failed", "the model's API answered 500 Internal Server Error"},
		"chat-long":     {"long", "chat-completions", false, masterKey, "failed", "the model's API answered 400 Bad Request: litellm.ContextWindowExceededError"},
		"chat-none":     {"none", "chat-completions", false, masterKey, "failed", "Invalid model name passed in model=none"},
		"chat-stranger": {"small", "chat-completions", false, "sk-another-key", "failed", "the model's API answered 40"},
		"new":           {"newer", "responses", false, masterKey, "completed", answer},
		"new-whole":     {"small", "responses", true, masterKey, "completed", answer},
		"new-busy":      {"newer-busy", "responses", false, masterKey, "failed", "could not be reached for 3s"},
		"new-none":      {"none", "responses", false, masterKey, "failed", "Invalid model name passed in model=none"},
		// The mock of LiteLLM cannot stream responses.
		"new-broken": {"small", "responses", false, masterKey, "failed", "the model's API answered 500 Internal Server Error"},
	}
	config := clustertest.Settings
	for name, a := range asks {
		away := "5m"
		if a.state == "failed" {
			away = "3s"
		}
		config += fmt.Sprintf(`
  - name: %s
    executor: {kind: openai, openai: {base_url: "http://%s/v1", api: %s, model: %s, api_key: %s, stream: %t}}
    limits: {max_attempts: 2, backoff: 100ms, unreachable_for: %s}
`, name, p.address, a.api, a.model, a.key, !a.whole, away)
	}
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: clustertest.NewDB(t).URL, Config: config})
	s := r.Stream(a2atest.V03, a2atest.Say("What is the answer?").At("chat"))
	s.UntilState("working")
	p.start() // the task waits for it
	p.wait()
	require.Equal(t, "completed", a2atest.Last(s.Rest()).State())

	t.Cleanup(func() { require.NotContains(t, r.Log(), masterKey) })
	for name, a := range asks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res := r.Send(a2atest.V03, a2atest.Say("What is the answer?").At(name))
			require.Equal(t, a.state, res.State(), res.Said())
			require.NotContains(t, res.Said(), "sk-")
			if a.state == "completed" {
				require.Equal(t, a.said, a2atest.Text(res.Artifacts[0].Parts))
			} else {
				require.Contains(t, res.Said(), a.said)
			}
		})
	}
}
