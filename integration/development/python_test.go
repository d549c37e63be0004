package development

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/clustertest"
)

// The program of the README runs on the wheel of the Python SDK, starts again after an edit, and loses no task.
func TestTenLinesOfPython(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	hello := regexp.MustCompile("(?s)```python hello.py\n(.*?)```").FindSubmatch(readme)
	require.NotNil(t, hello)

	dir := clustertest.EmbeddedDir(t)
	shell := func(script string) {
		cmd := exec.CommandContext(t.Context(), "bash", "-euc", script, "bash", dir)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	shell(`../../sdk/python/check wheel "$1/dist"; python3 -m venv "$1/venv"; "$1/venv/bin/pip" install --quiet "$1"/dist/holdfast_agent-*.whl`)
	listen := clustertest.Reserve(t)
	w := &workshop{t: t, dir: dir, url: "http://" + listen, flags: []string{
		"dev", "--agent", "hello", "--listen", listen, "--grpc-listen", "off", "--admin-listen", clustertest.Reserve(t),
		"--", filepath.Join(dir, "venv/bin/python"), "hello.py",
	}}
	w.write("hello.py", string(hello[1]))
	p := w.dev()
	p.see(`holdfast send ` + w.url + ` "hello"`)
	res := w.send("world")
	require.Zero(t, res.Code, res.Err)
	require.Contains(t, res.Out, "Hello, world!")
	p.see(taskIn(t, res.Out) + " completed")

	w.write("hello.py", strings.ReplaceAll(string(hello[1]), "Hello", "Good day"))
	p.see("hello.py changed")
	p.see("agent restarted")
	res = w.send("again")
	require.Zero(t, res.Code, res.Err)
	require.Contains(t, res.Out, "again!")
	p.types("\x03")
	require.Zero(t, p.end())
}
