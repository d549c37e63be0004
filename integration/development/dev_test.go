package development

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// program is an agent over HTTP. It starts a child, which writes the number of its process to a file.
const program = `import json, os, subprocess, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

child = subprocess.Popen(["sleep", "600"])
with open("child.pid", "w") as f:
    f.write(str(child.pid))
print("listening for", os.environ["HOLDFAST_AGENT"], "of", os.environ["HOLDFAST_URL"], file=sys.stderr)


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_POST(self):
        run = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = run["message"]["parts"][0]["text"]
        if text == "ask":
            events = [{"type": "ask", "message": "Where to?"}]
        elif text == "fail":
            events = [{"type": "fail", "message": "no luck"}]
        else:
            events = [{"type": "text", "name": "plan", "text": "first edition: " + text}, {"type": "complete", "message": "bye"}]
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.end_headers()
        for event in events:
            self.wfile.write(json.dumps(event).encode() + b"\n")


ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
`

// workshop is a directory in which somebody writes an agent.
type workshop struct {
	t        testing.TB
	dir, url string
	flags    []string
}

func newWorkshop(t testing.TB, source string) *workshop {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Fatal("the test needs python3")
	}
	dir := filepath.Join(clustertest.EmbeddedDir(t), "my-agent")
	require.NoError(t, os.Mkdir(dir, 0o755))
	listen, own := nettest.Reserve(t), nettest.Reserve(t)
	_, port, err := net.SplitHostPort(own)
	require.NoError(t, err)
	w := &workshop{t: t, dir: dir, url: "http://" + listen, flags: []string{
		"dev", "--listen", listen, "--grpc-listen", "off", "--admin-listen", nettest.Reserve(t), "--http", port, "--", "python3", "agent.py",
	}}
	w.write("agent.py", source)
	return w
}

// write saves a file, as editors do.
func (w *workshop) write(name, text string) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	require.NoError(w.t, os.WriteFile(path+"~", []byte(text), 0o600))
	require.NoError(w.t, os.Rename(path+"~", path))
}

// dev starts the server and the agent. A busy machine compiles the agent for longer than a send waits by default.
func (w *workshop) dev() *process {
	w.t.Helper()
	return run(w.t, true, w.dir, []string{"TMPDIR=/tmp", "HOLDFAST_LIMITS_MAX_BLOCK=1h"}, w.flags...)
}

func (w *workshop) send(args ...string) clustertest.Finished {
	w.t.Helper()
	return clustertest.Command(w.t, w.dir, nil, append([]string{"send", "--url", w.url}, args...)...)
}

// grandchild returns the number of the process that the agent has started.
func (w *workshop) grandchild() int {
	w.t.Helper()
	pid := 0
	waittest.Eventually(w.t, "the agent has started its child", func() error {
		text, err := os.ReadFile(filepath.Join(w.dir, "child.pid"))
		if err != nil {
			return err
		}
		pid, err = strconv.Atoi(string(text))
		return err
	})
	return pid
}

func (w *workshop) gone(pid int) {
	w.t.Helper()
	waittest.Eventually(w.t, fmt.Sprintf("process %d ends", pid), func() error {
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err == nil && !strings.Contains(string(state), ") Z ") {
			return fmt.Errorf("it runs: %s", state)
		}
		return nil
	})
}

func TestDev(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t, program)
	p := w.dev()
	p.see("listening for my-agent of " + w.url)
	p.see(`holdfast send "hello"`)
	console := "http://" + w.flags[6] + "/console/"
	p.see("console  " + console)
	page, err := http.Get(console)
	require.NoError(t, err)
	require.NoError(t, page.Body.Close())
	require.Equal(t, http.StatusOK, page.StatusCode)

	// Its tasks are lines.
	res := w.send("hello")
	require.Zero(t, res.Code, res.Err)
	require.Contains(t, res.Out, "first edition: hello")
	p.see(taskIn(t, res.Out) + " user: hello")
	p.see(taskIn(t, res.Out) + " artifact plan: first edition: hello")
	p.see(taskIn(t, res.Out) + " completed: bye")
	res = w.send("ask")
	require.Equal(t, 4, res.Code, res.Err)
	p.see(taskIn(t, res.Out) + " asks: Where to?")
	res = w.send("fail")
	require.Equal(t, 3, res.Code, res.Err)
	p.see(taskIn(t, res.Out) + " failed: no luck")

	// An edit restarts it, and no child of the first start stays.
	first := w.grandchild()
	w.write("agent.py", strings.ReplaceAll(program, "first edition", "second edition"))
	p.see("agent.py changed")
	p.seeTimes(2, "listening for")
	w.gone(first)
	res = w.send("again")
	require.Contains(t, res.Out, "second edition: again")

	// Files that are no sources restart nothing: the next restart is that of the broken agent.
	w.write(".hidden", "x")
	w.write("agent.log", "x")
	require.NoError(t, os.Mkdir(filepath.Join(w.dir, "__pycache__"), 0o750))
	w.write("__pycache__/agent.py", "x")
	w.write("agent.py", program+"def broken(\n")
	p.see("SyntaxError")
	p.see("agent ended after")
	p.see("it starts again in")
	for _, quiet := range []string{"hidden changed", "agent.log changed", "__pycache__"} {
		require.NotContains(t, p.String(), quiet)
	}
	w.write("agent.py", strings.ReplaceAll(program, "first edition", "third edition"))
	res = w.send("mended") // the task waits until the agent is back
	require.Zero(t, res.Code, res.Err)
	require.Contains(t, res.Out, "third edition: mended")

	// A new directory is watched too.
	restarts := strings.Count(p.String(), "agent restarted")
	require.NoError(t, os.MkdirAll(filepath.Join(w.dir, "lib", "deep"), 0o750))
	w.write("lib/deep/part.py", "x = 1")
	p.see("lib/deep/part.py changed")
	p.seeTimes(restarts+1, "agent restarted")

	// An agent that dies starts again, without what it had started.
	require.Contains(t, w.send("ready").Out, "third edition: ready")
	last := w.grandchild()
	leader, err := syscall.Getpgid(last)
	require.NoError(t, err)
	ends := strings.Count(p.String(), "agent ended after")
	require.NoError(t, syscall.Kill(leader, syscall.SIGKILL))
	p.seeTimes(ends+1, "agent ended after")
	require.Contains(t, p.String(), "signal: killed")
	w.gone(last)
	res = w.send("back")
	require.Contains(t, res.Out, "third edition: back")

	// The directory is in use.
	second := clustertest.Command(t, w.dir, []string{"TMPDIR=/tmp"}, w.flags...)
	require.Equal(t, 1, second.Code)
	require.Contains(t, second.Err, "another holdfast uses the database in ")
	require.Equal(t, 1, strings.Count(second.Err, "\n"), second.Err)

	// So is the port, for an agent in another directory.
	other := newWorkshop(t, program)
	taken := append([]string(nil), other.flags...)
	taken[2] = w.flags[2]
	second = clustertest.Command(t, other.dir, []string{"TMPDIR=/tmp"}, taken...)
	require.Equal(t, 1, second.Code)
	require.Contains(t, second.Err, "is in use by another process")
	require.Equal(t, 1, strings.Count(second.Err, "\n"), second.Err)

	// Ctrl-C leaves nothing.
	last = w.grandchild()
	p.types("\x03")
	require.Zero(t, p.end())
	w.gone(last)
	require.Zero(t, clustertest.Postmaster(w.dir), "postgresql has stopped")

	// Tasks stay.
	p = w.dev()
	p.see("listening for")
	require.Contains(t, clustertest.Command(t, w.dir, nil, "stream", "--url", w.url, "--task", taskIn(t, res.Out)).Out, "third edition: back")
	p.signal(syscall.SIGTERM)
	require.Zero(t, p.end())
}

// An agent that ignores SIGTERM is killed, and a second Ctrl-C leaves none either.
func TestDevStopsStubbornAgents(t *testing.T) {
	t.Parallel()
	stubborn := "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + program
	t.Run("after the grace", func(t *testing.T) {
		t.Parallel()
		w := newWorkshop(t, stubborn)
		w.flags = append([]string{"dev", "--grace", "100ms"}, w.flags[1:]...)
		p := w.dev()
		p.see("listening for")
		child := w.grandchild()
		p.types("\x03")
		require.Zero(t, p.end())
		require.Contains(t, p.String(), "agent did not end; killing it")
		w.gone(child)
	})
	t.Run("at the second Ctrl-C", func(t *testing.T) {
		t.Parallel()
		w := newWorkshop(t, stubborn)
		w.flags = append([]string{"dev", "--grace", "10m"}, w.flags[1:]...)
		p := w.dev()
		p.see("listening for")
		child := w.grandchild()
		p.types("\x03")
		waittest.Eventually(t, "the second Ctrl-C ends it", func() error {
			select {
			case <-p.done:
				return nil
			default:
				_, _ = p.tty.WriteString("\x03")
				return fmt.Errorf("it runs")
			}
		})
		w.gone(child)
	})
}

// With a configuration, the server has its agents, and the program gets a key if they need one.
func TestDevWithConfiguration(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t, "import os\nprint('key', os.environ['HOLDFAST_API_KEY'][:3], 'for', os.environ['HOLDFAST_AGENT'])\nimport time\ntime.sleep(600)\n")
	w.write("holdfast.yaml", "auth: {schemes: [{name: keys, kind: api_key}]}\nagents: [{name: trips, executor: {kind: demo}}]\n")
	var flags []string
	for i := 0; i < len(w.flags); i++ {
		if w.flags[i] == "--http" {
			flags = append(flags, "--config", "holdfast.yaml")
			i++
			continue
		}
		flags = append(flags, w.flags[i])
	}
	w.flags = flags
	p := w.dev()
	p.see("for trips")
	require.Equal(t, 1, w.send("hello").Code, "the agents need a key")
	p.types("\x03")
	require.Zero(t, p.end())
}

// Without anything, dev serves the demo agent. Ports that are in use move, and the verbs in the same directory find the server.
func TestDevWithoutCommand(t *testing.T) {
	t.Parallel()
	// Below the ports that the kernel gives to other tests.
	var taken []string
	for port := 20000 + rand.IntN(8000); len(taken) < 2; port += 2 { // gRPC has the port between
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		taken = append(taken, l.Addr().String())
	}
	file := filepath.Join(t.TempDir(), "holdfast.yaml")
	require.NoError(t, os.WriteFile(file, []byte("listen: "+taken[0]+"\nadmin_listen: "+taken[1]+"\n"), 0o600))
	env := []string{"TMPDIR=/tmp", "HOLDFAST_CONFIG=" + file, "DISPLAY=", "WAYLAND_DISPLAY="}
	found := map[string]bool{}
	for range 2 {
		dir := clustertest.EmbeddedDir(t)
		p := run(t, true, dir, env, "dev")
		p.see(taken[0] + " is in use; listen is 127.0.0.1:")
		p.see(taken[1] + " is in use; admin_listen is 127.0.0.1:")
		p.see(`holdfast send "hello"`)
		sent := clustertest.Command(t, dir, nil, "send", "hello")
		require.Zero(t, sent.Code, sent.Err)
		p.see(taskIn(t, sent.Out) + " completed")
		opened := clustertest.Command(t, dir, env, "open")
		require.Contains(t, p.String(), "console  "+strings.TrimSpace(opened.Out))
		require.False(t, found[opened.Out], "each has a console of its own")
		found[opened.Out] = true
		require.Zero(t, clustertest.Command(t, dir, env, "ready").Code)
		examined := clustertest.Command(t, dir, env, "doctor", "-v")
		require.NotContains(t, examined.Out, taken[1], "the addresses are those of the server")
	}
	given := clustertest.Command(t, clustertest.EmbeddedDir(t), append(env, "HOLDFAST_LISTEN="+taken[0]), "dev")
	require.Equal(t, 1, given.Code)
	require.Contains(t, given.Err, "is in use by another process")
}
