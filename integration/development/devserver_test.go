package development

import (
	"context"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/agent"
	"github.com/holdfast-a2a/holdfast/agent/devserver"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
)

// In a test of an agent's author, a conversation goes on after kill -9 of the server.
func TestDevServerOfGo(t *testing.T) {
	t.Parallel()
	trips := agent.Func(func(ctx context.Context, run *agent.Run, out agent.Emitter) error {
		if run.Turn == 1 {
			return out.AskInput(ctx, agent.Say("Where to?"))
		}
		return out.Text(ctx, "", run.Text()+" it is.")
	})
	server := devserver.Start(t, map[string]agent.Executor{"trips": trips}, devserver.Options{Binary: clustertest.Binary(t)})
	asked := server.Send("trips", "Book me a trip")
	require.Equal(t, "input-required: Where to?", asked.State()+": "+asked.Said())
	server.Kill()
	server.Restart()
	answered := server.Answer(asked, "Oslo")
	require.Equal(t, "completed: Oslo it is.", answered.State()+": "+answered.Text())
}

const devServerOfPython = `
import os
from holdfast_agent import Agent, testing

agent = Agent("trips")

@agent.run
async def trips(run):
    if run.turn == 1:
        await run.ask("Where to?")
    else:
        await run.text(f"{run.message.text} it is.")

with testing.DevServer(agent) as server:
    asked = server.send("Book me a trip")
    assert (asked.state, asked.message.text) == ("input-required", "Where to?"), asked
    server.kill()
    server.start()
    answered = server.send("Oslo", task=asked.id)
    assert (answered.state, answered.text) == ("completed", "Oslo it is."), answered
    directory = server._directory
    server.kill()
assert not os.path.exists(directory)

try:
    testing.DevServer(agent, binary="/bin/false").start()
except RuntimeError as e:
    assert str(e) == "the server did not start: it wrote nothing", e
else:
    raise AssertionError("a server that does not start goes unnoticed")
`

// The same with the wheel of the Python SDK.
func TestDevServerOfPython(t *testing.T) {
	t.Parallel()
	run := exec.CommandContext(t.Context(), python(t), "-c", devServerOfPython)
	run.Env = append(run.Environ(), "HOLDFAST_BINARY="+clustertest.Binary(t))
	out, err := run.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
