package clustertest

import (
	"bytes"
	"os/exec"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Front is a program that tests put in front of replicas.
type Front struct {
	mu  sync.Mutex
	out bytes.Buffer
}

// Write adds to the output.
func (p *Front) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

// Output is what the program has printed.
func (p *Front) Output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// Run runs a program of Debian, whose package has its name, until the test ends. Without the program it skips the test.
func Run(t testing.TB, env []string, name string, args ...string) *Front {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("needs %s (Debian: apt-get install %[1]s)", name)
	}
	cmd, p := exec.Command(path, args...), &Front{}
	cmd.Stdout, cmd.Stderr = p, p
	cmd.Env = append(cmd.Environ(), env...)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(p.Output())
		}
	})
	return p
}
