package command_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/command"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/executortest"
)

// asServer makes the test binary run one agent and nothing else, so that a test can kill the server of that agent.
const asServer = "HOLDFAST_TEST_COMMAND_SERVER"

func TestMain(m *testing.M) {
	if script := os.Getenv(asServer); script != "" {
		e, err := command.New(command.Options{Argv: []string{"sh", "-c", script}})
		if err == nil {
			err = e.Execute(context.Background(), executortest.NewRun("hello"), executortest.NewRecorder())
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// shell makes an executor whose agent is a shell script. $0 is dir.
func shell(t *testing.T, dir, script string, opts command.Options) executor.Executor {
	t.Helper()
	opts.Argv = []string{"sh", "-c", script, dir}
	e, err := command.New(opts)
	require.NoError(t, err)
	return e
}

func execute(t *testing.T, script string, opts command.Options) (*executortest.Recorder, error) {
	t.Helper()
	out := executortest.NewRecorder()
	return out, shell(t, t.TempDir(), script, opts).Execute(t.Context(), executortest.NewRun("hello"), out)
}

func TestDocumentInEventsOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := shell(t, dir, `cat >"$0/doc"; echo '{"type":"text","text":"hi "}'; echo; printf '{"type":"text","text":"there"}'`,
		command.Options{})
	out := executortest.NewRecorder()
	require.NoError(t, e.Execute(t.Context(), executortest.NewRun("hello"), out))
	require.Equal(t, "hi there", out.Text(t))
	raw, err := os.ReadFile(filepath.Join(dir, "doc"))
	require.NoError(t, err)
	var doc struct {
		Message struct{ Parts []struct{ Text string } }
	}
	require.NoError(t, json.Unmarshal(raw, &doc))
	require.Equal(t, "hello", doc.Message.Parts[0].Text)
}

func TestUnreadInputIsIgnored(t *testing.T) {
	t.Parallel()
	run := executortest.NewRun(strings.Repeat("x", 1<<20))
	out := executortest.NewRecorder()
	require.NoError(t, shell(t, "", `echo '{"type":"text","text":"done"}'`, command.Options{}).Execute(t.Context(), run, out))
	require.Equal(t, "done", out.Text(t))
}

func TestEnvironmentAndDirectory(t *testing.T) {
	t.Setenv("HOLDFAST_SECRET", "s3cret") // so this test is not parallel
	t.Setenv("HOLDFAST_SHARED", "shared")
	dir := t.TempDir()
	var log bytes.Buffer
	_, err := execute(t, `pwd >&2; env >&2`, command.Options{
		Dir: dir, Env: map[string]string{"GREETING": "hello", "HOME": "/nowhere"}, Inherit: []string{"HOLDFAST_SHARED"},
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	require.NoError(t, err)
	text := log.String()
	require.NotContains(t, text, "s3cret")
	for _, want := range []string{dir, "GREETING=hello", "HOLDFAST_SHARED=shared", "HOME=/nowhere", "PATH="} {
		require.Contains(t, text, want)
	}
}

func TestRunAPIIsInTheEnvironment(t *testing.T) {
	t.Parallel()
	run, out := executortest.NewRun("hello"), executortest.NewRecorder()
	run.API = &executor.API{URL: "http://holdfast.example/run/v1", Token: "hfrun_x"}
	var log bytes.Buffer
	e := shell(t, t.TempDir(), `echo "{\"type\":\"text\",\"text\":\"$HOLDFAST_RUN_URL $HOLDFAST_RUN_TOKEN\"}"`, command.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, e.Execute(t.Context(), run, out))
	require.Equal(t, "http://holdfast.example/run/v1 hfrun_x", out.Text(t))
	require.NotContains(t, log.String(), "hfrun_x")
}

func TestExitStatus(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ script, want string }{
		"an error":            {"exit 3", "the agent's process ended with exit status 3"},
		"a temporary failure": {"exit 75", "the agent's process ended with exit status 75; retry"},
		"a signal":            {"kill -KILL $$", "the agent's process ended with signal: killed; retry"},
		"inside an event":     {`printf '{"type":"te'; exit 3`, "the agent's process ended with exit status 3"},
		"a bad line": {"echo hello", "the agent's answer is not understood: " +
			"line 1: not JSON: invalid character 'h' at start of value, at byte 1"},
		"a bad member": {`echo; echo '{"type":"ask","mesage":"?"}'`, "the agent's answer is not understood: " +
			"line 2: mesage: is not a known member"},
		"half an event": {`printf '{"type":"te'`, "the agent's answer is not understood: " +
			"line 1: type: not JSON: unexpected EOF, at byte 12"},
	} {
		_, err := execute(t, c.script, command.Options{})
		require.Equal(t, c.want, executortest.Outcome(err), name)
	}
}

func TestEndsOfSettledRunsAreOnlyLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	out, err := execute(t, `echo '{"type":"ask","message":"Which?"}'; echo not read; exit 9`,
		command.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	require.Equal(t, task.StateInputRequired, out.Task(t).Status.State)
	require.Contains(t, log.String(), "exit status 9")

	out, err = execute(t, `echo '{"type":"complete"}'; exec sleep 1000`, command.Options{Grace: time.Millisecond})
	require.NoError(t, err)
	require.Equal(t, task.StateCompleted, out.Task(t).Status.State, "it is stopped")
}

// fifo makes a named pipe that a script opens with exec 3>"$0/alive". The returned channel closes when the last
// process that holds it open ends: a way to wait for processes that are not our children.
func fifo(t *testing.T, dir string) <-chan struct{} {
	t.Helper()
	path := filepath.Join(dir, "alive")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	dead := make(chan struct{})
	go func() {
		defer close(dead)
		f, err := os.Open(path)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, f)
		_ = f.Close()
	}()
	return dead
}

func TestCancelKillsProcessGroup(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		grace  time.Duration
	}{
		"that ends when asked": {`exec 3>"$0/alive"; sleep 1000 & echo '{"type":"status"}'; wait`, time.Hour},
		"that ignores SIGTERM": {`exec 3>"$0/alive"; trap '' TERM; sleep 1000 & echo '{"type":"status"}'; wait`, time.Millisecond},
		"that cleans up":       {`exec 3>"$0/alive"; trap 'echo tidy >"$0/tidy"; exit 0' TERM; echo '{"type":"status"}'; while :; do sleep 0.01; done`, time.Hour},
		"that writes without end": {
			`exec 3>"$0/alive"; while :; do echo '{"type":"status"}'; done & while :; do echo '{"type":"status"}'; done`, time.Hour,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			dead := fifo(t, dir)
			ctx, cancel := context.WithCancelCause(t.Context())
			out := executortest.NewRecorder()
			done := executortest.Go(ctx, shell(t, dir, c.script, command.Options{Grace: c.grace}),
				executortest.NewRun("hello"), out)
			out.Await(t, 1)
			cancel(executor.ErrCanceled)
			require.ErrorIs(t, executortest.Wait(t, done), executor.ErrCanceled)
			waittest.Within(t, "the last process ends", dead)
			if name == "that cleans up" {
				require.FileExists(t, filepath.Join(dir, "tidy"))
			}
		})
	}
}

func TestOrphansOfProcessAreKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	dead := fifo(t, dir)
	// The grandchild holds stdout, too, so the run would last as long as the grandchild.
	e := shell(t, dir, `exec 3>"$0/alive"; (echo '{"type":"text","text":"a"}'; exec sleep 1000) & read -r line <"$0/go"`,
		command.Options{})
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "go"), 0o600))
	out := executortest.NewRecorder()
	done := executortest.Go(t.Context(), e, executortest.NewRun("hello"), out)
	out.Await(t, 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), []byte("\n"), 0))
	require.NoError(t, executortest.Wait(t, done))
	waittest.Within(t, "the last process ends", dead)
	require.Equal(t, "a", out.Text(t))
}

func TestProcessOutsideGroupDoesNotBlock(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"and is silent":          `echo >"$0/gone"; exec sleep 1000`,
		"and writes without end": `echo "{\"type\":\"complete\"}"; echo >"$0/gone"; exec yes`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "gone"), 0o600))
			out := executortest.NewRecorder()
			e := shell(t, dir, `setsid sh -c 'echo "{\"type\":\"checkpoint\",\"data\":$$}"; `+script+`' "$0" &
				read -r line <"$0/gone"`, command.Options{})
			done := executortest.Go(t.Context(), e, executortest.NewRun("hello"), out)
			pid, err := strconv.Atoi(string(out.Await(t, 1)[0].Run.Checkpoint))
			require.NoError(t, err)
			// It leads a group of its own, which the executor must not kill.
			t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
			require.NoError(t, executortest.Wait(t, done))
		})
	}
}

func TestAgentDiesWithKilledServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	dead := fifo(t, dir)
	server := exec.Command(os.Args[0])
	// The agent reports through a second pipe that it runs.
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "started"), 0o600))
	server.Env = append(os.Environ(), asServer+"=exec 3>"+dir+"/alive; echo >"+dir+"/started; exec sleep 1000")
	require.NoError(t, server.Start())
	_, err := os.ReadFile(filepath.Join(dir, "started"))
	require.NoError(t, err)
	require.NoError(t, server.Process.Kill())
	require.Error(t, server.Wait())
	waittest.Within(t, "the last process ends", dead)
}

func TestProcessIsReaped(t *testing.T) {
	t.Parallel()
	out, err := execute(t, `echo "{\"type\":\"checkpoint\",\"data\":$$}"`, command.Options{})
	require.NoError(t, err)
	pid, err := strconv.Atoi(string(out.Events()[0].Run.Checkpoint))
	require.NoError(t, err)
	_, err = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
	require.ErrorIs(t, err, syscall.ECHILD)
}

func TestStderrGoesToOperators(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	_, err := execute(t, `for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22; do echo "line $i;" >&2; done
		printf '%05000d\n' 0 >&2; printf 'the end' >&2; exit 1`,
		command.Options{Log: slog.New(slog.NewJSONHandler(&log, nil))})
	failure, ok := errors.AsType[*executor.Failure](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, "the agent's process ended with exit status 1", failure.Msg, "clients do not read stderr")
	var report struct {
		Msg, Reason, Stderr, Level string
		TaskID                     string `json:"task_id"`
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	require.Len(t, lines, 25)
	require.NoError(t, json.Unmarshal([]byte(lines[24]), &report))
	require.Equal(t, "WARN", report.Level)
	require.Equal(t, "exit status 1", report.Reason)
	require.Equal(t, "task-1", report.TaskID)
	kept := strings.Split(report.Stderr, "\n")
	require.Len(t, kept, 20)
	require.Equal(t, "line 5;", kept[0])
	require.Equal(t, strings.Repeat("0", 4<<10)+" …", kept[18])
	require.Equal(t, "the end", kept[19])
	require.EqualError(t, failure.Cause, report.Stderr, "operators do")
}

func TestLostLeaseStopsProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	dead := fifo(t, dir)
	out := executortest.NewRecorder()
	out.Refuse(executor.ErrLeaseLost)
	e := shell(t, dir, `exec 3>"$0/alive"; echo '{"type":"status"}'; exec sleep 1000`, command.Options{})
	require.ErrorIs(t, e.Execute(t.Context(), executortest.NewRun("hello"), out), executor.ErrLeaseLost)
	waittest.Within(t, "the last process ends", dead)
}

func TestInvalidOptions(t *testing.T) {
	t.Parallel()
	sh := []string{"sh"}
	for want, opts := range map[string]command.Options{
		"command: argv: is empty; give at least the name of the program": {},
		`command: argv: exec: "no-such-agent": executable file`:          {Argv: []string{"no-such-agent"}},
		"command: dir: stat /no/such: no such file":                      {Argv: sh, Dir: "/no/such"},
		"command: dir: /bin/sh is not a directory":                       {Argv: sh, Dir: "/bin/sh"},
		"command: argv: argument 1 contains a NUL character; remove it":  {Argv: []string{"sh", "a\x00"}},
	} {
		_, err := command.New(opts)
		require.ErrorContains(t, err, want)
	}
}

func TestRelativeProgramPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "agent.sh"), []byte("#!/bin/sh\necho '{\"type\":\"complete\"}'\n"), 0o700))
	e, err := command.New(command.Options{Argv: []string{"./agent.sh"}, Dir: dir})
	require.NoError(t, err)
	require.NoError(t, e.Execute(t.Context(), executortest.NewRun("hello"), executortest.NewRecorder()))
}

// An operator replaces a program while the server runs.
func TestProgramThatCannotStartMeansAway(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agent.sh")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700))
	e, err := command.New(command.Options{Argv: []string{path}})
	require.NoError(t, err)
	require.NoError(t, os.Remove(path))
	err = e.Execute(t.Context(), executortest.NewRun("hello"), executortest.NewRecorder())
	away, ok := errors.AsType[*executor.Unavailable](err)
	require.True(t, ok, "%v", err)
	require.ErrorIs(t, away.Err, os.ErrNotExist)
}
