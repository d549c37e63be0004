package agents

import (
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// The Go programs of examples/. Their embedded PostgreSQL ends with them, whatever signal stops them.

func TestGoProgram(t *testing.T) {
	t.Parallel()
	program := clustertest.Program(t, "./examples/go")
	a, env := startEmbedded(t, program)
	res := shouts(t, a)

	verb := func(args ...string) clustertest.Finished {
		t.Helper()
		return clustertest.CommandOf(t, program, a.Options.Dir, env, args...)
	}
	listed := verb("tasks", "list")
	require.Zero(t, listed.Code, listed.Err)
	require.Contains(t, listed.Out, res.Task())
	require.Contains(t, verb("doctor", "-v").Out, "shout", "the doctor knows the agents of the program")
	wrong := verb("serve", "--listen", "nowhere")
	require.Equal(t, 2, wrong.Code, wrong.Err)

	if !signal.Ignored(syscall.SIGHUP) { // these tests do not run under nohup
		a.Signal(syscall.SIGHUP)
		waittest.Eventually(t, "it goes on", func() error {
			return waittest.Unless(strings.Contains(a.Log(), "the configuration has not changed"), "not yet")
		})
	}
	stopsWithItsDatabase(t, a, syscall.SIGTERM)
	a.Run()
	require.Equal(t, "completed", a.Get(res.Task()).State())
}

// The program handles SIGINT alone.
func TestGoProgramWithItsOwnMain(t *testing.T) {
	t.Parallel()
	a, _ := startEmbedded(t, clustertest.Program(t, "./examples/go/serve"))
	shouts(t, a)
	stopsWithItsDatabase(t, a, syscall.SIGTERM)
	a.Run()
	stopsWithItsDatabase(t, a, syscall.SIGINT)
}

// startEmbedded starts a program on a database of its own, and returns the environment for its verbs.
func startEmbedded(t *testing.T, program string) (a *clustertest.Replica, env []string) {
	t.Helper()
	env = []string{
		"HOLDFAST_LISTEN=" + nettest.Reserve(t), "HOLDFAST_ADMIN_LISTEN=" + nettest.Reserve(t), "HOLDFAST_GRPC_LISTEN=127.0.0.1:0",
	}
	return clustertest.Start(t, clustertest.Options{Name: "a", Binary: program, Dir: clustertest.EmbeddedDir(t), Env: env}), env
}

func shouts(t *testing.T, a *clustertest.Replica) *a2atest.Result {
	t.Helper()
	res := a.Send(a2atest.V03, a2atest.Say("hear me"))
	require.Equal(t, "completed", res.State(), res.Said())
	require.Equal(t, "HEAR ME", a2atest.Text(res.Artifacts[0].Parts))
	return res
}

func stopsWithItsDatabase(t *testing.T, a *clustertest.Replica, sig syscall.Signal) {
	t.Helper()
	require.NotZero(t, clustertest.Postmaster(a.Options.Dir))
	a.Signal(sig)
	require.Zero(t, a.Wait(), "%s ends the program as asked", sig)
	require.Zero(t, clustertest.Postmaster(a.Options.Dir), "PostgreSQL has ended before the program")
}
