package agents

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// The agents of examples/, as real processes in their own languages, and a few faulty ones.

func TestExampleAgents(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	python := startAgent(t, "127.0.0.1:0", "python3", example(t, "python/http_agent.py"))
	node := startAgent(t, "127.0.0.1:0", "node", example(t, "node/http_agent.mjs"))
	config := fmt.Sprintf(clustertest.Patient+`
  - {name: python-http, executor: {kind: http, http: {url: %q}}}
  - {name: node-http, executor: {kind: http, http: {url: %q}}}
  - {name: python-command, executor: {kind: command, command: {argv: [python3, %q]}}}
  - {name: node-command, executor: {kind: command, command: {argv: [node, %q]}}}
`, python.URL, node.URL, example(t, "python/command_agent.py"), example(t, "node/command_agent.mjs"))
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: config})
	for _, d := range a2atest.Old {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			// talk sends a message to an agent, alternately on the two replicas.
			turn := 0
			talk := func(agent, taskID, says string) *a2atest.Result {
				t.Helper()
				turn++
				r := []*clustertest.Replica{a, b}[turn%2]
				return r.Send(d, a2atest.Say(says).To(taskID).At(agent))
			}
			res := talk("python-http", "", "hello durable world")
			require.Equal(t, "input-required", res.State(), res.Said())
			res = talk("python-http", res.Task(), "in italics")
			require.Equal(t, "input-required", res.State())
			res = talk("python-http", res.Task(), "upper")
			require.Equal(t, "completed", res.State(), res.Said())
			require.Equal(t, "HELLO DURABLE WORLD ", a2atest.Text(res.Artifacts[0].Parts))

			res = talk("node-http", "", "abc déf")
			require.Equal(t, "completed", res.State(), res.Said())
			require.Equal(t, "cba féd ", a2atest.Text(res.Artifacts[0].Parts))

			res = talk("python-command", "", "one two two")
			require.Equal(t, "completed", res.State(), res.Said())
			require.Equal(t, "3 words, 2 different", a2atest.Text(res.Artifacts[0].Parts))
			require.JSONEq(t, `{"one":1,"two":2}`, string(res.Artifacts[1].Parts[0].Data))

			res = talk("node-command", "", "start") // guesses a number; its only memory is the history
			require.Contains(t, res.Said(), "50")
			res = talk("node-command", res.Task(), "lower")
			require.Contains(t, res.Said(), "25")
			res = talk("node-command", res.Task(), "higher")
			require.Contains(t, res.Said(), "37")
			res = talk("node-command", res.Task(), "yes")
			require.Equal(t, "completed", res.State())
			require.Equal(t, "It is 37.", a2atest.Text(res.Artifacts[0].Parts))
		})
	}
}

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
	if interpreter := map[string]string{".py": "python3", ".mjs": "node"}[filepath.Ext(name)]; interpreter != "" {
		if _, err := exec.LookPath(interpreter); err != nil {
			t.Skip(interpreter + " is not installed")
		}
	}
	return path
}

// agent is an HTTP agent as a process.
type agent struct {
	t     testing.TB
	URL   string
	cmd   *exec.Cmd
	lines chan string
}

// startAgent runs an agent that takes its port as an argument and prints its address.
func startAgent(t testing.TB, addr, interpreter, file string, env ...string) *agent {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	a := &agent{t: t, lines: make(chan string, 1000)}
	a.cmd = exec.Command(interpreter, file, port)
	a.cmd.Env = append(os.Environ(), env...)
	a.cmd.Stderr = os.Stderr
	out, err := a.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, a.cmd.Start())
	t.Cleanup(a.Kill)
	go func() {
		for in := bufio.NewScanner(out); in.Scan(); {
			a.lines <- in.Text()
		}
		close(a.lines)
	}()
	a.URL = strings.TrimPrefix(a.untilSays("listening on "), "listening on ")
	return a
}

func (a *agent) untilSays(prefix string) string {
	a.t.Helper()
	for {
		line := waittest.Within(a.t, "the agent says "+prefix, a.lines)
		require.NotEmpty(a.t, line, "the agent ended before it said "+prefix)
		if strings.HasPrefix(line, prefix) {
			return line
		}
	}
}

func (a *agent) Kill() {
	_ = a.cmd.Process.Kill()
	_, _ = a.cmd.Process.Wait()
}
