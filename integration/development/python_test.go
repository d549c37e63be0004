package development

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
)

// block returns a block of a page.
func block(t testing.TB, page, info string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + page)
	require.NoError(t, err)
	found := regexp.MustCompile("(?s)```" + regexp.QuoteMeta(info) + "\n(.*?)```").FindSubmatch(text)
	require.NotNil(t, found, "%s of %s", info, page)
	return string(found[1])
}

var environment = sync.OnceValues(func() (string, error) {
	dir, err := filepath.Abs("../../sdk/python/.cache/readme")
	if err != nil {
		return "", err
	}
	script := `export PIP_RETRIES=10 PIP_DEFAULT_TIMEOUT=60 UV_HTTP_TIMEOUT=120; rm -rf "$1"; ../../sdk/python/check wheel "$1/dist"; python3 -m venv "$1/venv"; "$1/venv/bin/pip" install --quiet "$1"/dist/holdfast_agent-*.whl`
	if out, err := exec.Command("bash", "-euc", script, "bash", dir).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return dir, nil
})

// python returns an interpreter that has the wheel of the SDK, as the README says. All tests share it.
func python(t testing.TB) string {
	t.Helper()
	dir, err := environment()
	require.NoError(t, err)
	return filepath.Join(dir, "venv/bin/python")
}

// The program of the README runs on the wheel of the Python SDK, starts again after an edit, and loses no task.
func TestTenLinesOfPython(t *testing.T) {
	t.Parallel()
	hello := block(t, "README.md", "python hello.py")
	dir := clustertest.EmbeddedDir(t)
	listen := nettest.Reserve(t)
	w := &workshop{t: t, dir: dir, url: "http://" + listen, flags: []string{
		"dev", "--agent", "hello", "--listen", listen, "--grpc-listen", "off", "--admin-listen", nettest.Reserve(t),
		"--", python(t), "hello.py",
	}}
	w.write("hello.py", hello)
	p := w.dev()
	p.see(`holdfast send "hello"`)
	p.see("the worker is connected")
	res := w.send("world")
	require.Zero(t, res.Code, res.Err)
	require.Contains(t, res.Out, "Hello, world!")
	p.see(taskIn(t, res.Out) + " completed")

	w.write("hello.py", strings.ReplaceAll(hello, "Hello", "Good day"))
	p.see("hello.py changed")
	p.see("agent restarted")
	p.seeTimes(2, "the worker is connected")
	res = w.send("again")
	require.Zero(t, res.Code, res.Err)
	require.Contains(t, res.Out, "again!")
	p.types("\x03")
	require.Zero(t, p.end())
}

// An agent of the examples and its server are killed in the middle of an answer. Both start again: the client's stream goes on, and
// nothing is lost or doubled.
func TestKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	interpreter := python(t) // takes long the first time, and the server may not run for so long
	listen := nettest.Reserve(t)
	w := &workshop{t: t, dir: clustertest.EmbeddedDir(t), url: "http://" + listen}
	trip, err := os.ReadFile("../../examples/python/worker/trip.py")
	require.NoError(t, err)
	w.write("trip.py", strings.ReplaceAll(string(trip), "sleep(0.1)", "sleep(1)"))
	w.write("holdfast.yaml", "agents:\n  - name: trip\n    executor: {kind: worker, worker: {lease: 3s}}\n")
	serve := func() *process {
		return run(t, false, w.dir, []string{"TMPDIR=/tmp"}, "serve", "--config", "holdfast.yaml", "--listen", listen, "--grpc-listen", "off",
			"--admin-listen", nettest.Reserve(t))
	}
	agent := func() *exec.Cmd {
		cmd := exec.Command(interpreter, "trip.py")
		cmd.Dir, cmd.Env, cmd.Stderr = w.dir, append(os.Environ(), "HOLDFAST_URL="+w.url), t.Output()
		require.NoError(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		return cmd
	}

	server, worker := serve(), agent()
	server.see("server ready")
	asked := w.send("--no-input", "Book me a trip")
	require.Equal(t, 4, asked.Code, asked.Err)
	id := taskIn(t, asked.Out)
	client := run(t, false, w.dir, nil, "stream", "--url", w.url, "--task", id, "Oslo")
	client.see("Oslo, day 2")
	require.NoError(t, worker.Process.Kill())
	server.signal(syscall.SIGKILL)
	server.end() // frees its port
	serve().see("server ready")
	agent()
	require.Zero(t, client.end())
	client.see("Have a good trip.")

	body := `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"` + id + `"}}`
	res, err := http.Post(w.url, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	var got struct {
		Result struct {
			Status    struct{ State string }
			Artifacts []struct{ Parts []struct{ Text string } }
		}
	}
	require.NoError(t, json.NewDecoder(res.Body).Decode(&got))
	require.Equal(t, "completed", got.Result.Status.State)
	require.Len(t, got.Result.Artifacts, 1)
	require.Len(t, got.Result.Artifacts[0].Parts, 1)
	require.Equal(t, "Oslo, day 1: Arrive, and walk along the harbour.\n"+
		"Oslo, day 2: Take the ferry to the museums.\n"+
		"Oslo, day 3: Ski above the city.\n"+
		"Oslo, day 4: Leave.\n", got.Result.Artifacts[0].Parts[0].Text)
}
