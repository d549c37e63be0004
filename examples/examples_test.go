// Package examples_test runs the example agents with the executors that they are written for.
package examples_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/command"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/executortest"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/http"
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

func program(t *testing.T, name, file string) executor.Executor {
	t.Helper()
	e, err := command.New(command.Options{Argv: []string{interpreter(t, name), file}})
	require.NoError(t, err)
	return e
}

// Building the module compiles the programs in Go, so those in the guides compile, too. integration/agents runs them, and the orchestrator.
func TestGuidesHaveThePrograms(t *testing.T) {
	t.Parallel()
	for guide, files := range map[string][]string{
		"agents/go":              {"main.go", "trip/main.go", "trip/main_test.go"},
		"agents/waits-and-calls": {"../python/orchestrator.py"},
	} {
		page, err := os.ReadFile("../docs/" + guide + ".md")
		require.NoError(t, err)
		for _, file := range files {
			source, err := os.ReadFile("go/" + file)
			require.NoError(t, err)
			program := string(source)
			if comment, rest, _ := strings.Cut(program, "\n"); strings.HasPrefix(comment, "// Command") {
				program = rest
			}
			require.Contains(t, string(page), "\n"+program+"```", file)
		}
	}
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

// Each example answers as its page says: with a question, or with the end of its task.
func TestConversations(t *testing.T) { //nolint:tparallel // the subtests talk to agents that start one after another
	t.Parallel()
	for name, x := range map[string]struct {
		agent executor.Executor
		turns [][2]string // what the client says; the question, or the text of the artifacts
		ends  task.State  // that the agent says; 0: none
	}{
		"python over HTTP": {
			serve(t, "python3", "python/http_agent.py"),
			[][2]string{
				{"hello wide world", "Shall I write it in upper or lower case?"},
				{"sideways", "Please answer upper or lower."},
				{"Upper", "HELLO WIDE WORLD "},
			},
			task.StateCompleted,
		},
		"node over HTTP":        {serve(t, "node", "node/http_agent.mjs"), [][2]string{{"stressed desserts 🙂", "desserts stressed 🙂 "}}, 0},
		"node over HTTP, empty": {serve(t, "node", "node/http_agent.mjs"), [][2]string{{"", ""}}, task.StateFailed},
		"a command of node": {
			program(t, "node", "node/command_agent.mjs"),
			[][2]string{
				{"guess my number", "Is it 50? Say yes, higher or lower."},
				{"higher", "Is it 75? Say yes, higher or lower."},
				{"lower", "Is it 62? Say yes, higher or lower."},
				{"yes", "It is 62."},
			},
			0,
		},
		"a command of python":        {program(t, "python3", "python/command_agent.py"), [][2]string{{"To be, or not to be", "6 words, 4 different"}}, 0},
		"a command of python, empty": {program(t, "python3", "python/command_agent.py"), [][2]string{{" ", ""}}, task.StateRejected},
	} {
		t.Run(name, func(t *testing.T) {
			c := &conversation{Executor: x.agent}
			for i, turn := range x.turns {
				out := c.say(t, turn[0])
				status := out.Task(t).Status
				if i < len(x.turns)-1 {
					require.Equal(t, task.StateInputRequired, status.State)
					require.Equal(t, turn[1], status.Message.FirstText())
					continue
				}
				if x.ends != 0 {
					require.Equal(t, x.ends, status.State)
				}
				if turn[1] != "" {
					require.Equal(t, turn[1], out.Text(t))
				}
			}
		})
	}
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
