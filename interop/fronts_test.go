//go:build interop

package interop

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// Holdfast in front of the official Python servers, as processes. servers/ has the agents.

// upstream is a server process.
type upstream struct {
	addr     string
	executed atomic.Int64
	kill     func()
}

func startUpstream(t *testing.T, name string) *upstream {
	t.Helper()
	source, err := filepath.Abs(filepath.Join("servers", name))
	require.NoError(t, err)
	manifest := filepath.Join(source, "requirements.txt")
	content, err := os.ReadFile(manifest)
	require.NoError(t, err)
	dir := cacheOf(t, "server-"+name, content)
	python := filepath.Join(dir, "venv", "bin", "python")
	once(t, dir, func() {
		execute(t, dir, nil, "python3", "-m", "venv", filepath.Join(dir, "venv"))
		execute(t, dir, nil, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", manifest)
	})
	u := &upstream{addr: free(t)}
	_, port, err := net.SplitHostPort(u.addr)
	require.NoError(t, err)
	cmd := exec.Command(python, filepath.Join(source, "main.py"), port)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	u.kill = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	t.Cleanup(u.kill)
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if lines.Text() == "executed" {
				u.executed.Add(1)
			}
		}
	}()
	waittest.Eventually(t, name+" serves", func() error {
		resp, err := http.Get("http://" + u.addr + "/.well-known/agent-card.json")
		if err == nil {
			resp.Body.Close()
		}
		return err
	})
	return u
}

func TestFrontsOfOfficialServers(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"py-1", "py-0.3"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := startUpstream(t, name)
			link := clustertest.NewProxy(t, u.addr)
			db := clustertest.NewDB(t)
			path := map[string]string{"py-1": "/rpc", "py-0.3": "/"}[name]
			config := clustertest.Settings
			for agent, stream := range map[string]bool{"up": true, "poll": false} {
				config += fmt.Sprintf("  - {name: %s, executor: {kind: a2a, a2a: {card_url: \"http://%s\", url: \"http://%s%s\", stream: %t, poll_interval: 300ms}}, limits: {cancel_grace: 5s}}\n",
					agent, link.Addr, link.Addr, path, stream)
			}
			f := clustertest.Start(t, clustertest.Options{Name: "front", DB: db.URL, Config: config})
			executions := int64(0)
			for _, agent := range []string{"up", "poll"} {
				send := func(says, task string) *a2atest.Result {
					t.Helper()
					executions++
					return f.Send(a2atest.V03, a2atest.Say(says).To(task).At(agent))
				}
				res := send("hello", "")
				require.Equal(t, "completed", res.State(), res.Said())
				require.Equal(t, "you said hello", a2atest.Text(res.Artifacts[0].Parts))
				res = send("ask", "")
				require.Equal(t, "input-required", res.State(), res.Said())
				require.Equal(t, "which?", res.Said())
				res = send("that one", res.Task())
				require.Equal(t, "completed", res.State(), res.Said())
				require.Equal(t, "you said that one", a2atest.Text(res.Artifacts[0].Parts))
			}
			want := ""
			for i := range 40 {
				want += fmt.Sprintf("%08d ", i)
			}
			// Cuts, at each third piece that the first client gets.
			streams := make([]*a2atest.Reply, 10)
			for i := range streams {
				streams[i] = f.Stream(a2atest.V03, a2atest.Say("count").At("up"))
				// From its first event on, the front knows the agent's task.
				streams[i].Until("the agent's first event", func(e *a2atest.Event) bool { return e.Said() == "at work" })
				executions++
			}
			for i, s := range streams {
				got := ""
				for n := 0; ; {
					e, err := s.Next()
					require.NoError(t, err)
					if e.Artifact != nil {
						got += a2atest.Text(e.Artifact.Parts)
						if n++; i == 0 && n%3 == 0 {
							link.Cut()
						}
					}
					if e.State() == "completed" {
						break
					}
					require.NotContains(t, []string{"failed", "canceled"}, e.State(), e.Said())
				}
				require.Equal(t, want, got, "each piece once")
			}
			// kill -9 of the front, while it streams.
			task := f.Send(a2atest.V03, a2atest.Say("count").At("up").Detached()).Task()
			executions++
			waittest.Eventually(t, "the agent works", func() error {
				return waittest.Unless(len(db.Chunks(task)) > 0, "not yet")
			})
			f.Kill()
			f.Run()
			waittest.Eventually(t, "the task completes", func() error {
				got := f.GetOver(a2atest.Unversioned, a2atest.Say().To(task).At("up"))
				require.NotEqual(t, "failed", got.State(), got.Said())
				return waittest.Unless(got.State() == "completed", "%s", got.State())
			})
			got := f.GetOver(a2atest.Unversioned, a2atest.Say().To(task).At("up"))
			require.Equal(t, want, a2atest.Text(got.Artifacts[0].Parts))
			require.Equal(t, executions, u.executed.Load(), "each message was executed once")

			// kill -9 of the agent, whose store is its memory: the task is lost, and is not begun again.
			lost := f.Stream(a2atest.V03, a2atest.Say("count").At("up"))
			executions++
			lost.Until("a piece", func(e *a2atest.Event) bool { return e.Artifact != nil })
			u.kill()
			again := startUpstream(t, name)
			link.Lead(again.addr)
			end := a2atest.Last(lost.Rest())
			require.Equal(t, "failed", end.State())
			require.Contains(t, end.Said(), "lost its task")
			require.Zero(t, again.executed.Load())
			db.Sound()
		})
	}
}
