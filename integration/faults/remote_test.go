package faults

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

var chaosWorkers = flag.String("chaos.workers", "", "commands of more remote workers, with semicolons, run in the root of the repository; "+
	"each does what ./remoteworker does")

const remoteWorker = "./integration/faults/remoteworker"

// remote is a process with an agent of kind worker. Its connections lead through a proxy to one of the replicas.
type remote struct {
	t     testing.TB
	argv  []string
	proxy *clustertest.Proxy

	log string // a file

	ended chan struct{}
	cmd   atomic.Pointer[exec.Cmd] // the process that runs, or ran last
}

// newRemotes starts two workers in Go, and those that the flag names.
func newRemotes(t *testing.T, replicas []*clustertest.Replica) []*remote {
	t.Helper()
	program := clustertest.Program(t, remoteWorker)
	all := [][]string{{program}, {program}}
	for command := range strings.SplitSeq(*chaosWorkers, ";") {
		if command = strings.TrimSpace(command); command != "" {
			all = append(all, []string{"sh", "-c", "exec " + command})
		}
	}
	var out []*remote
	for i, argv := range all {
		w := &remote{t: t, argv: argv, log: filepath.Join(t.TempDir(), "log"), proxy: clustertest.NewProxy(t, a2atest.Host(replicas[i%len(replicas)].URL))}
		w.run()
		t.Cleanup(func() {
			w.kill()
			if said := w.said(); t.Failed() {
				t.Logf("remote worker %d:\n%s", i, said[max(0, len(said)-4000):])
			}
		})
		out = append(out, w)
	}
	return out
}

// said is what the worker has written to stderr.
func (w *remote) said() string {
	raw, _ := os.ReadFile(w.log)
	return string(raw)
}

func (w *remote) run() {
	w.t.Helper()
	log, err := os.OpenFile(w.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(w.t, err)
	defer func() { _ = log.Close() }()
	_, here, _, _ := runtime.Caller(0)
	cmd := exec.Command(w.argv[0], w.argv[1:]...)
	cmd.Dir = filepath.Join(filepath.Dir(here), "..", "..")
	cmd.Env = append(os.Environ(), "HOLDFAST_URL=http://"+w.proxy.Addr, "HOLDFAST_AGENT=far")
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(w.t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	w.ended = ended
	w.cmd.Store(cmd)
}

// pid is the id of that process.
func (w *remote) pid() int { return w.cmd.Load().Process.Pid }

func (w *remote) signal(s syscall.Signal) { _ = syscall.Kill(-w.pid(), s) }

func (w *remote) kill() {
	w.signal(syscall.SIGKILL)
	<-w.ended
}

// throughWorkers begins streams of remote workers that are not part of the crowd, and waits until these have runs.
func (c *rig) throughWorkers() (ends chan error) {
	c.t.Helper()
	ends = c.load.together(4, streams("far"))
	waittest.Eventually(c.t, "remote workers have runs", func() error {
		n := query[int](c, "SELECT count(*) FROM holdfast.v_tasks WHERE agent = 'far' AND state = 'working'")
		return waittest.Unless(n > 0, "no task of theirs is working")
	})
	return ends
}

// killRemotes kills each remote worker with kill -9, and starts it again when clients have made progress without it.
func (c *rig) killRemotes() {
	for _, w := range c.mortalRemotes() {
		ends := c.throughWorkers()
		w.kill()
		c.progress(len(c.replicas))
		w.run()
		c.succeed(ends)
	}
}

// freezeRemotes stops each remote worker until others have its runs, and lets it go on: its late events must be refused.
func (c *rig) freezeRemotes() {
	for _, w := range c.remotes {
		ends := c.throughWorkers()
		w.signal(syscall.SIGSTOP)
		c.succeed(ends) // by others, after the leases
		w.signal(syscall.SIGCONT)
	}
	c.progress(len(c.replicas))
}

// cutRemotes cuts the connections of remote workers in the middle of everything, and leads them to other replicas.
func (c *rig) cutRemotes() {
	for i := range 3 {
		ends := c.throughWorkers()
		for j, w := range c.remotes {
			w.proxy.Lead(a2atest.Host(c.replicas[(i+j+1)%len(c.replicas)].URL))
			w.proxy.Cut()
			c.progress(1)
			w.proxy.Cut()
		}
		c.succeed(ends)
	}
}

// replaceRemotes replaces each remote worker as a deploy does: it finishes or gives back its runs.
func (c *rig) replaceRemotes() {
	for _, w := range c.mortalRemotes() {
		ends := c.throughWorkers()
		w.signal(syscall.SIGTERM)
		waittest.Within(c.t, "the end of a remote worker", w.ended)
		require.Zero(c.t, w.cmd.Load().ProcessState.ExitCode(), "exit status of a remote worker")
		w.run()
		c.succeed(ends)
	}
}

// killBoth kills a replica with the runs of remote workers, and one of these.
func (c *rig) killBoth() {
	for i, r := range c.mortal() {
		ends := c.throughWorkers()
		w := c.mortalRemotes()[i%len(c.mortalRemotes())]
		w.kill()
		c.kill(r)
		c.progress(len(c.replicas))
		r.Run()
		w.run()
		c.succeed(ends)
	}
}
