// Package development runs the verbs of somebody who writes an agent or tries one: send, stream and dev, in terminals and over
// connections that break.
package development

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

func TestMain(m *testing.M) {
	clustertest.Main(m)
}

// screen is what a process has written.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// process is a verb that runs.
type process struct {
	*screen
	t    testing.TB
	cmd  *exec.Cmd
	tty  *os.File // nil without a terminal
	done chan struct{}
}

// run starts a verb whose output is one screen. In a terminal, it reads and writes there.
func run(t testing.TB, terminal bool, dir string, env []string, args ...string) *process {
	t.Helper()
	cmd, _, _ := clustertest.Verb(t, dir, env, args...)
	p := &process{screen: &screen{}, t: t, cmd: cmd, done: make(chan struct{})}
	var read sync.WaitGroup
	if terminal {
		var err error
		cmd.Stdin, cmd.Stdout, cmd.Stderr = nil, nil, nil
		p.tty, err = pty.Start(cmd)
		require.NoError(t, err)
		read.Go(func() {
			buf := make([]byte, 4096)
			for {
				n, err := p.tty.Read(buf)
				_, _ = p.Write(buf[:n])
				if err != nil {
					return
				}
			}
		})
	} else {
		cmd.Stdout, cmd.Stderr = p.screen, p.screen
		require.NoError(t, cmd.Start())
	}
	go func() {
		_ = cmd.Wait()
		read.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.done
		if p.tty != nil {
			_ = p.tty.Close()
		}
		if t.Failed() {
			t.Logf("screen of %s:\n%s", strings.Join(args, " "), p)
		}
	})
	return p
}

// see waits for a text on the screen, and returns what is there.
func (p *process) see(text string) string {
	p.t.Helper()
	// A server may make a database of its own first.
	waittest.Eventually(p.t, text+" on the screen", func() error {
		return waittest.Unless(strings.Contains(p.String(), text), "the screen has:\n%s", p)
	})
	return p.String()
}

// seeTimes waits until a text is on the screen at least n times.
func (p *process) seeTimes(n int, text string) {
	p.t.Helper()
	waittest.Eventually(p.t, text+" on the screen again", func() error {
		return waittest.Unless(strings.Count(p.String(), text) >= n, "the screen has:\n%s", p)
	})
}

// types types a line, or a control character.
func (p *process) types(text string) {
	p.t.Helper()
	_, err := p.tty.WriteString(text)
	require.NoError(p.t, err)
}

// end waits for the end and returns the exit code.
func (p *process) end() int {
	p.t.Helper()
	waittest.Within(p.t, "the verb ends", p.done)
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}
