package compose

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/testcontainers/testcontainers-go"

	"github.com/holdfast-a2a/holdfast/agent"
	"github.com/holdfast-a2a/holdfast/agent/testcontainer"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
)

// trial is the image dev-vVERSION of a release.
const trial = "holdfast:dev-compose-test"

// In a test of an agent's author, the server is a container of the image for a trial.
func TestTestcontainers(t *testing.T) {
	if !*run {
		t.Skip("needs a Docker daemon, and minutes: make compose-test")
	}
	if *build {
		docker(t, "build", "--quiet", "--target", "dev", "--tag", trial, root)
	}
	// The image of Ryuk is in a registry; both tests end their containers. The daemon is that of this machine, also in a container.
	t.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
	t.Setenv("TESTCONTAINERS_HOST_OVERRIDE", "127.0.0.1")
	t.Run("Go", func(t *testing.T) {
		server, err := testcontainer.Run(t.Context(), trial, []string{"shout"})
		testcontainers.CleanupContainer(t, server)
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() {
			served <- agent.Connect(ctx, server.URL, map[string]agent.Executor{
				"shout": agent.Func(func(ctx context.Context, run *agent.Run, out agent.Emitter) error {
					return out.Text(ctx, "", strings.ToUpper(run.Text()))
				}),
			}, agent.ConnectOptions{})
		}()
		require.Contains(t, clustertest.Command(t, t.TempDir(), nil, "send", "--url", server.URL, "hello").Out, "HELLO")
		stop()
		require.NoError(t, <-served)
	})
	t.Run("Python", func(t *testing.T) {
		dir := t.TempDir()
		output(t, exec.CommandContext(t.Context(), "../../sdk/python/check", "wheel", dir))
		wheel, err := filepath.Glob(filepath.Join(dir, "holdfast_agent-*.whl"))
		require.NoError(t, err)
		require.Len(t, wheel, 1)
		output(t, exec.CommandContext(t.Context(), "python3", "-m", "venv", filepath.Join(dir, "venv")))
		python := filepath.Join(dir, "venv", "bin", "python")
		output(t, exec.CommandContext(t.Context(), python, "-m", "pip", "install", "--quiet", wheel[0]+"[testcontainers]"))
		program := filepath.Join(dir, "shout.py")
		require.NoError(t, os.WriteFile(program, []byte(shout), 0o600))
		output(t, exec.CommandContext(t.Context(), python, program, trial))
	})
}

const shout = `
import asyncio, sys
import httpx
from holdfast_agent import Agent
from holdfast_agent.testcontainers import HoldfastContainer

agent = Agent("shout")

@agent.run
async def shout(run):
    await run.text(run.message.text.upper())

async def main(url):
    serving = asyncio.create_task(agent.connect(url=url))
    message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        answer = await http.post("/message:send", json={"message": message}, headers={"A2A-Version": "1.0"})
    assert answer.json()["task"]["artifacts"][0]["parts"][0]["text"] == "HELLO", answer.text
    serving.cancel()

with HoldfastContainer(sys.argv[1], "shout") as server:
    assert httpx.get(server.admin_url + "/readyz").status_code == 200
    asyncio.run(main(server.url))
`
