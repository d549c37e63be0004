package agents

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// Agents of examples/, as real processes in their own languages. (examples/ has the conversations of all.)

// The orchestrator of the guide calls two agents; one of them refuses.
func TestOrchestrator(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: fmt.Sprintf(clustertest.Patient+`
  - {name: orchestrator, executor: {kind: command, command: {argv: [python3, %q]}}}
  - {name: flights, executor: {kind: command, command: {argv: [python3, %q]}}}
  - {name: hotels, executor: {kind: demo}}
`, example(t, "python/orchestrator.py"), example(t, "python/command_agent.py"))})
	res := a.Send(a2atest.V03, a2atest.Say("to Oslo").At("orchestrator"))
	require.Equal(t, "completed", res.State(), res.Said())
	require.Equal(t, "2 words, 2 different", a2atest.Text(res.Artifacts[0].Parts))
	require.Equal(t, "to Oslo", a2atest.Text(res.Artifacts[1].Parts))
	res = b.Send(a2atest.V03, a2atest.Say("reject:full").At("orchestrator"))
	require.Equal(t, "rejected: no answer", a2atest.Text(res.Artifacts[1].Parts))
	db.Sound()
}

// When the server dies, its commands die with it or lose their pipe. The next attempt continues from the checkpoint.
func TestCommandContinuesFromCheckpoint(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	config := fmt.Sprintf(clustertest.Patient+`
  - name: python
    executor: {kind: command, command: {argv: [python3, %q], env: {DELAY: "0.2"}}}
`, example(t, "python/command_agent.py"))
	a := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: config})
	s := a.Stream(a2atest.V01, a2atest.Say("a a b b c c d d e e f f").To("counted").At("python"))
	s.UntilState("working")
	waittest.Eventually(t, "a checkpoint", func() error {
		return waittest.Unless(len(db.Runs("counted")) >= 3, "%v", db.Runs("counted"))
	})
	b := clustertest.Start(t, clustertest.Options{Name: "b", DB: db.URL, Config: config})
	a.Kill()
	s = b.Subscribe(a2atest.Unversioned, a2atest.Say().To("counted").At("python"))
	require.Equal(t, "completed", a2atest.Last(s.Rest()).State())
	res := b.GetOver(a2atest.Unversioned, a2atest.Say().To("counted").At("python"))
	require.Equal(t, "12 words, 6 different", a2atest.Text(res.Artifacts[0].Parts))
	require.JSONEq(t, `{"a":2,"b":2,"c":2,"d":2,"e":2,"f":2}`, string(res.Artifacts[1].Parts[0].Data))
	checkpoints := 0
	for _, outcome := range db.Runs("counted") {
		if outcome == "checkpoint" {
			checkpoints++
		}
	}
	require.Less(t, checkpoints, 15, "it began where the first attempt had stopped: at 12, or one more for each checkpoint that was not stored")
}

func example(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../examples", name))
	require.NoError(t, err)
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed")
	}
	return path
}

// startAgent runs an agent in Python that takes its port as an argument and prints its address.
func startAgent(t testing.TB, file string) (url string) {
	t.Helper()
	cmd := exec.Command("python3", file, "0")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_, _ = cmd.Process.Wait()
	})
	in := bufio.NewScanner(out)
	require.True(t, in.Scan(), "the agent has ended")
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return strings.TrimPrefix(in.Text(), "listening on ")
}
