package clustertest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// HAProxy runs HAProxy with a configuration until the test ends. Without the program it skips the test.
func HAProxy(t testing.TB, config string) {
	t.Helper()
	program, err := exec.LookPath("haproxy")
	if err != nil {
		t.Skip("needs haproxy (Debian: apt-get install haproxy)")
	}
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	cmd := exec.Command(program, "-db", "-f", file)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(out.String())
		}
	})
}
