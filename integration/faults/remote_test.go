package faults

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/judge"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

var chaosWorkers = flag.String("chaos.workers", "", "commands of more remote workers, with semicolons, run in the root of the repository; "+
	"each does what ./remoteworker does")

const remoteWorker = "./integration/faults/remoteworker"

// remote is a process with an agent of kind worker. Its connections lead through a proxy to one of the replicas.
type remote struct {
	t     testing.TB
	argv  []string
	proxy *clustertest.Proxy

	ended chan struct{}
	mu    sync.Mutex
	cmd   *exec.Cmd
	log   bytes.Buffer
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
		w := &remote{t: t, argv: argv, proxy: clustertest.NewProxy(t, a2atest.Host(replicas[i%len(replicas)].URL))}
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

// Write collects stderr.
func (w *remote) Write(raw []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(raw)
}

// said is what the worker has written to stderr.
func (w *remote) said() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.String()
}

func (w *remote) run() {
	w.t.Helper()
	_, here, _, _ := runtime.Caller(0)
	cmd := exec.Command(w.argv[0], w.argv[1:]...)
	cmd.Dir = filepath.Join(filepath.Dir(here), "..", "..")
	cmd.Env = append(os.Environ(), "HOLDFAST_URL=http://"+w.proxy.Addr, "HOLDFAST_AGENT=far")
	cmd.Stderr = w
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(w.t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cmd, w.ended = cmd, ended
}

// pid is the id of the process that runs, or ran last.
func (w *remote) pid() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cmd.Process.Pid
}

func (w *remote) signal(s syscall.Signal) { _ = syscall.Kill(-w.cmd.Process.Pid, s) }

func (w *remote) kill() {
	w.signal(syscall.SIGKILL)
	<-w.ended
}

// working reads a stream of the agent that is served by remote workers.
func (c *client) working(ctx context.Context) error {
	const size = 32
	c = c.modern()
	c.path = "/agents/far"
	n := 5 + c.rng.IntN(40)
	taskID, _, err := c.stream(ctx, c.message("", fmt.Sprintf("chunks=%d size=%d delay=%dms", n, size, 2+c.rng.IntN(30))), nil)
	if err != nil {
		return err
	}
	c.ledger.Expect(taskID, judge.Outcome{State: "completed", Chunks: n, Size: size})
	return nil
}

// forgoing cancels a task of that agent, which does not end by itself.
func (c *client) forgoing(ctx context.Context) error {
	c = c.modern()
	c.path = "/agents/far"
	taskID, _, err := c.send(ctx, c.message("", "hold").without("blocking"))
	if err != nil {
		return err
	}
	c.ledger.Expect(taskID, judge.Outcome{State: "canceled"})
	return c.cancel(ctx, taskID)
}

// throughWorkers begins streams of remote workers that are not part of the crowd.
func (c *rig) throughWorkers(n int) (ends []chan error) {
	for i := range n {
		end := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), giveUp)
			defer cancel()
			end <- c.load.client(a2atest.V03, uint64(i)).working(ctx)
		}()
		ends = append(ends, end)
	}
	return ends
}

func (c *rig) served(ends []chan error) {
	c.t.Helper()
	for _, end := range ends {
		require.NoError(c.t, <-end, "a task of a remote worker")
	}
}

// holding waits until a remote worker has runs.
func (c *rig) holding() {
	c.t.Helper()
	waittest.Eventually(c.t, "remote workers have runs", func() error {
		n := query[int](c, "SELECT count(*) FROM holdfast.v_tasks WHERE agent = 'far' AND state = 'working'")
		return waittest.Unless(n > 0, "no task of theirs is working")
	})
}

// killRemotes kills each remote worker with kill -9, and starts it again when clients have made progress without it.
func (c *rig) killRemotes() {
	for _, w := range c.mortalRemotes() {
		ends := c.throughWorkers(4)
		c.holding()
		w.kill()
		c.progress(len(c.replicas))
		w.run()
		c.served(ends)
	}
}

// freezeRemotes stops each remote worker until others have its runs, and lets it go on: its late events must be refused.
func (c *rig) freezeRemotes() {
	for _, w := range c.remotes {
		ends := c.throughWorkers(4)
		c.holding()
		w.signal(syscall.SIGSTOP)
		c.served(ends) // by others, after the leases
		w.signal(syscall.SIGCONT)
	}
	c.progress(len(c.replicas))
}

// cutRemotes cuts the connections of remote workers in the middle of everything, and leads them to other replicas.
func (c *rig) cutRemotes() {
	for i := range 3 {
		ends := c.throughWorkers(4)
		c.holding()
		for j, w := range c.remotes {
			w.proxy.Lead(a2atest.Host(c.replicas[(i+j+1)%len(c.replicas)].URL))
			w.proxy.Cut()
			c.progress(1)
			w.proxy.Cut()
		}
		c.served(ends)
	}
}

// replaceRemotes replaces each remote worker as a deploy does: it finishes or gives back its runs.
func (c *rig) replaceRemotes() {
	for _, w := range c.mortalRemotes() {
		ends := c.throughWorkers(4)
		c.holding()
		w.signal(syscall.SIGTERM)
		waittest.Within(c.t, "the end of a remote worker", w.ended)
		require.Zero(c.t, w.cmd.ProcessState.ExitCode(), "exit status of a remote worker")
		w.run()
		c.served(ends)
	}
}

// killBoth kills a replica with the runs of remote workers, and one of these.
func (c *rig) killBoth() {
	for i, r := range c.mortal() {
		ends := c.throughWorkers(4)
		c.holding()
		w := c.mortalRemotes()[i%len(c.mortalRemotes())]
		w.kill()
		c.scrape(r)
		delete(c.scraped, r)
		r.Kill()
		c.progress(len(c.replicas))
		r.Run()
		w.run()
		c.served(ends)
	}
}
