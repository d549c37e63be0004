package command

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// linger is how long stdout and stderr may stay silent, after the process has
// ended, before they count as ended too.
const linger = 2 * time.Second

// process is a started program and its group.
type process struct {
	stdout *output
	grace  time.Duration
	done   chan struct{} // closed when the process has been reaped
	state  *os.ProcessState

	pid      int
	stopOnce sync.Once
	mu       sync.Mutex // orders signals and the reaping
	reaped   bool
}

func (p *program) start(doc []byte, stderr io.Writer) (*process, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{
		Path:        p.path,
		Args:        p.opts.Argv,
		Dir:         p.opts.Dir,
		Env:         p.env,
		Stdin:       bytes.NewReader(doc),
		Stdout:      write,
		Stderr:      stderr,
		SysProcAttr: groupLeader(),
		WaitDelay:   linger,
	}
	stdout := &output{file: read}
	child := &process{stdout: stdout, grace: p.opts.Grace, done: make(chan struct{})}
	started := make(chan error)
	go child.keep(cmd, stdout, started)
	err = <-started
	_ = write.Close() // the child has its own; while this one is open stdout has no end
	if err != nil {
		_ = read.Close()
		return nil, err
	}
	return child, nil
}

// keep is the keeper; see the package comment.
func (c *process) keep(cmd *exec.Cmd, stdout *output, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	c.pid = cmd.Process.Pid
	started <- nil

	awaitExit(c.pid)
	c.mu.Lock()
	c.reaped = true
	killGroup(c.pid, syscall.SIGKILL)
	c.mu.Unlock()
	// The error repeats the exit status, or says that a process which has left the
	// group holds stderr: either way the process has ended.
	_ = cmd.Wait()
	c.state = cmd.ProcessState
	stdout.expire()
	close(c.done)
}

// wait returns how the process ended, once it has.
func (c *process) wait() *os.ProcessState {
	<-c.done
	return c.state
}

// stop asks the group to end and kills it after the grace.
func (c *process) stop() {
	c.stopOnce.Do(func() {
		c.signal(syscall.SIGTERM)
		time.AfterFunc(c.grace, func() { c.signal(syscall.SIGKILL) })
	})
}

// stopAfterGrace leaves the process time to end by itself first.
func (c *process) stopAfterGrace() { time.AfterFunc(c.grace, c.stop) }

func (c *process) signal(s syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reaped {
		killGroup(c.pid, s)
	}
}

// killGroup signals a process group. The error would be that it has ended.
func killGroup(leader int, signal syscall.Signal) { _ = syscall.Kill(-leader, signal) }

// output is the reading end of stdout. It has no deadline while the process
// lives. Afterwards each read has its own, so that a slow consumer loses nothing
// and a leaked descriptor holds nobody up.
type output struct {
	file    *os.File
	expired atomic.Bool
	unread  bool // belongs to the reader: what comes is discarded
}

func (o *output) expire() {
	o.expired.Store(true)
	o.extend()
}

// extend starts the time of a read. A file that cannot have a deadline, which
// a pipe always can, would be closed already.
func (o *output) extend() { _ = o.file.SetReadDeadline(time.Now().Add(linger)) }

// discard reads on, so that a process which is still writing comes to its end.
// Once it has ended no read is given more time: whoever writes then is not ours.
func (o *output) discard() {
	o.unread = true
	_, _ = io.Copy(io.Discard, o)
}

func (o *output) Read(p []byte) (int, error) {
	if o.expired.Load() && !o.unread {
		o.extend()
	}
	n, err := o.file.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = io.EOF
	}
	if err != nil {
		_ = o.file.Close()
	}
	return n, err
}
