// Package examples_test runs the example agents with the executors that they are written for.
package examples_test

import (
	"bufio"
	"context"
	"encoding/json"
	"go/format"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/executor/command"
	"github.com/holdfast-a2a/holdfast/internal/executor/executortest"
	"github.com/holdfast-a2a/holdfast/internal/executor/http"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// interpreter finds python3 or node. Without them the test fails, because a skipped test would hide broken examples.
func interpreter(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	require.NoError(t, err, "the examples need %s in PATH", name)
	return path
}

// server is a running example.
type server struct {
	executor.Executor
	lines chan string // its output
}

// serve starts an http example on a free port, which its first line of output names.
func serve(t *testing.T, program, file string, env ...string) server {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), interpreter(t, program), file, "0")
	cmd.Env = append(cmd.Environ(), env...)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := make(chan string, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(lines)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		_ = cmd.Wait()
	})
	url := regexp.MustCompile(`http://\S+`).FindString(<-lines)
	require.NotEmpty(t, url, "the example did not start")
	e, err := http.New(http.Options{URL: url})
	require.NoError(t, err)
	return server{Executor: e, lines: lines}
}

func program(t *testing.T, name, file string, env map[string]string) executor.Executor {
	t.Helper()
	e, err := command.New(command.Options{Argv: []string{interpreter(t, name), file}, Env: env})
	require.NoError(t, err)
	return e
}

// Building the module compiles the programs, so those in the guide compile, too. integration/agents runs them.
func TestGuideHasGoPrograms(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../docs/agents/go.md")
	require.NoError(t, err)
	for _, file := range []string{"main.go", "serve/main.go", "connect/main.go", "trip/main.go", "trip/main_test.go", "approve/main.go", "sdk/main.go"} {
		source, err := os.ReadFile("go/" + file)
		require.NoError(t, err)
		program := string(source)
		if comment, rest, _ := strings.Cut(program, "\n"); strings.HasPrefix(comment, "// Command") {
			program = rest
		}
		require.Contains(t, string(guide), "```go\n"+program+"```", file)
	}
}

// integration/agents runs it.
func TestGuideHasTheOrchestrator(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../docs/executors.md")
	require.NoError(t, err)
	program, err := os.ReadFile("python/orchestrator.py")
	require.NoError(t, err)
	require.Contains(t, string(guide), "```python\n"+string(program)+"```")
}

// conversation runs one task over several turns, as the server would.
type conversation struct {
	executor.Executor
	said []task.Said
}

// say runs a turn and returns its events.
func (c *conversation) say(t *testing.T, text string) *executortest.Recorder {
	t.Helper()
	run, out := executortest.NewRun(text), executortest.NewRecorder()
	for i := range c.said {
		if c.said[i].Role() == task.RoleUser {
			run.Turn++
		}
	}
	run.Memory = &executortest.Memory{Said: c.said}
	require.NoError(t, c.Execute(t.Context(), run, out))
	c.said = append(c.said, task.Said{Message: run.Message})
	for _, e := range out.Events() {
		if e.Message != nil {
			c.said = append(c.said, task.Said{Message: e.Message, State: e.State})
		}
	}
	return out
}

func question(t *testing.T, out *executortest.Recorder) string {
	t.Helper()
	status := out.Task(t).Status
	require.Equal(t, task.StateInputRequired, status.State)
	return status.Message.FirstText()
}

func TestPythonOverHTTP(t *testing.T) {
	t.Parallel()
	c := &conversation{Executor: serve(t, "python3", "python/http_agent.py")}
	require.Equal(t, "Shall I write it in upper or lower case?", question(t, c.say(t, "hello wide world")))
	require.Equal(t, "Please answer upper or lower.", question(t, c.say(t, "sideways")))
	out := c.say(t, "Upper")
	require.Equal(t, "HELLO WIDE WORLD ", out.Text(t))
	require.Equal(t, task.StateCompleted, out.Task(t).Status.State)
}

func TestPythonCommand(t *testing.T) {
	t.Parallel()
	e := program(t, "python3", "python/command_agent.py", nil)
	out := (&conversation{Executor: e}).say(t, "To be, or not to be")
	artifacts := out.Task(t).Artifacts
	require.Equal(t, "6 words, 4 different", artifacts[0].Parts[0].Text)
	require.JSONEq(t, `{"to":2,"be":2,"or":1,"not":1}`, string(artifacts[1].Parts[0].Data))

	out = (&conversation{Executor: e}).say(t, " ")
	require.Equal(t, task.StateRejected, out.Task(t).Status.State)
}

func TestPythonCommandContinuesFromCheckpoint(t *testing.T) {
	t.Parallel()
	slow := program(t, "python3", "python/command_agent.py", map[string]string{"DELAY": "0.05"})
	ctx, cancel := context.WithCancelCause(t.Context())
	run, out := executortest.NewRun("a b "+strings.Repeat("c ", 1000)), executortest.NewRecorder()
	done := executortest.Go(ctx, slow, run, out)
	out.Await(t, 2)
	cancel(executor.ErrShutdown)
	require.ErrorIs(t, executortest.Wait(t, done), executor.ErrShutdown)

	events := out.Events()
	stored := events[len(events)-1].Run.Checkpoint
	var before struct{ Done int }
	require.NoError(t, json.Unmarshal(stored, &before))
	require.GreaterOrEqual(t, before.Done, 2)

	run.Try, run.Attempt, run.Memory = 2, 2, &executortest.Memory{Stored: stored, Events: events}
	out = executortest.NewRecorder()
	require.NoError(t, program(t, "python3", "python/command_agent.py", nil).Execute(t.Context(), run, out))
	require.Len(t, out.Events(), 1002-before.Done+2, "a checkpoint for each remaining word, and two artifacts")
	require.JSONEq(t, `{"a":1,"b":1,"c":1000}`, string(out.Task(t).Artifacts[1].Parts[0].Data))
}

func TestNodeOverHTTP(t *testing.T) {
	t.Parallel()
	e := serve(t, "node", "node/http_agent.mjs")
	out := (&conversation{Executor: e}).say(t, "stressed desserts 🙂")
	require.Equal(t, "desserts stressed 🙂 ", out.Text(t))
	require.Len(t, out.Events(), 4)

	out = (&conversation{Executor: e}).say(t, "")
	require.Equal(t, task.StateFailed, out.Task(t).Status.State)
}

func TestNodeOverHTTPStopsOnCancel(t *testing.T) {
	t.Parallel()
	e := serve(t, "node", "node/http_agent.mjs", "DELAY=20")
	ctx, cancel := context.WithCancelCause(t.Context())
	out := executortest.NewRecorder()
	done := executortest.Go(ctx, e, executortest.NewRun(strings.Repeat("word ", 10_000)), out)
	out.Await(t, 3)
	cancel(executor.ErrCanceled)
	require.ErrorIs(t, executortest.Wait(t, done), executor.ErrCanceled)
	require.Equal(t, "the run was canceled", <-e.lines)
}

func TestNodeCommand(t *testing.T) {
	t.Parallel()
	c := &conversation{Executor: program(t, "node", "node/command_agent.mjs", nil)}
	require.Equal(t, "Is it 50? Say yes, higher or lower.", question(t, c.say(t, "guess my number")))
	require.Equal(t, "Is it 75? Say yes, higher or lower.", question(t, c.say(t, "higher")))
	require.Equal(t, "Is it 62? Say yes, higher or lower.", question(t, c.say(t, "lower")))
	require.Equal(t, "It is 62.", c.say(t, "yes").Text(t))
}

// interop runs the agents that obey the contract of docs/torture.md; the packages of the SDKs are not here.
func TestTortureAgentsParse(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"python3", "-c", "import ast, sys; ast.parse(open(sys.argv[1]).read())", "torture/python/main.py"},
		{"node", "--check", "torture/javascript/main.mjs"},
	} {
		out, err := exec.CommandContext(t.Context(), interpreter(t, args[0]), args[1:]...).CombinedOutput()
		require.NoError(t, err, "%v: %s", args, out)
	}
	source, err := os.ReadFile("torture/go/main.go")
	require.NoError(t, err)
	formatted, err := format.Source(source)
	require.NoError(t, err)
	require.Equal(t, string(formatted), string(source))
}
