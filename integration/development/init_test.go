package development

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
)

// The project that init writes runs by the commands that it prints, on the built packages: no registry has them yet. The test of
// TypeScript is in sdk/typescript/test.
func TestInit(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	for language, install := range map[string]func(t *testing.T, dir, command string){
		"python": func(t *testing.T, dir, command string) {
			t.Helper()
			venv := filepath.Dir(filepath.Dir(python(t)))
			require.NoError(t, os.Symlink(venv, filepath.Join(dir, ".venv")))
			_, command, made := strings.Cut(command, "python3 -m venv .venv && ")
			require.True(t, made)
			shell(t, dir, command, "PIP_NO_INDEX=1", "PIP_FIND_LINKS="+filepath.Join(filepath.Dir(venv), "dist"))
		},
		"go": func(t *testing.T, dir, command string) {
			t.Helper()
			const module = "github.com/holdfast-a2a/holdfast"
			shell(t, dir, "go mod edit -require="+module+"@v0.0.0 -replace="+module+"="+root)
			shell(t, dir, command, "GOSUMDB=off")
		},
		"http": nil,
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(clustertest.EmbeddedDir(t), "greeter")
			require.NoError(t, os.Mkdir(dir, 0o755))
			written := clustertest.Command(t, dir, nil, "init", language, "-o", "json")
			require.Zero(t, written.Code, written.Err)
			var project struct{ Next []string }
			require.NoError(t, json.Unmarshal([]byte(written.Out), &project))
			require.Len(t, project.Next, 3)
			dev := project.Next[1]
			if install != nil {
				install(t, dir, project.Next[0])
			} else {
				dev = project.Next[0]
			}

			listen, own := nettest.Reserve(t), nettest.Reserve(t)
			_, port, err := net.SplitHostPort(own)
			require.NoError(t, err)
			words := strings.Fields(strings.Replace(dev, " 9000 ", " "+port+" ", 1))
			require.Equal(t, []string{"holdfast", "dev"}, words[:2])
			w := &workshop{t: t, dir: dir, url: "http://" + listen, flags: append([]string{
				"dev", "--listen", listen, "--grpc-listen", "off", "--admin-listen", nettest.Reserve(t),
			}, words[2:]...)}
			p := w.dev()
			p.see("server ready at")
			asked := w.send("--no-input", "Hi")
			require.Equal(t, 4, asked.Code, asked.Err)
			require.Contains(t, asked.Out, "What is your name?")
			answered := w.send("--task", taskIn(t, asked.Out), "Ada")
			require.Zero(t, answered.Code, answered.Err)
			require.Contains(t, answered.Out, "Hello, Ada!")
			p.types("\x03")
			require.Zero(t, p.end())

			tested := shell(t, dir, project.Next[2], "HOLDFAST_BINARY="+clustertest.Binary(t))
			require.Regexp(t, `(?m)^(Ran 1 test |ok  )`, tested)
			require.NotContains(t, tested, "Warning")
		})
	}
}

// shell runs a command of a project, and returns what it writes.
func shell(t testing.TB, dir, command string, env ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euc", command)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", command, out)
	return string(out)
}
