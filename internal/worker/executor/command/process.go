package command

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/procgroup"
)

// linger is how long stdout and stderr may stay silent after the process has ended. Then they count as ended too.
const linger = 2 * time.Second

// process is a started program and its group.
type process struct {
	stdout *output
	grace  time.Duration
	group  *procgroup.Process

	stopOnce sync.Once
}

func (p *program) start(stdin io.Reader, stderr io.Writer, env ...string) (*process, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{
		Path:        p.path,
		Args:        p.opts.Argv,
		Dir:         p.opts.Dir,
		Env:         slices.Concat(p.env, env),
		Stdin:       stdin,
		Stdout:      write,
		Stderr:      stderr,
		SysProcAttr: p.attributes(),
		WaitDelay:   linger,
	}
	stdout := &output{file: read}
	group, err := procgroup.Start(cmd)
	_ = write.Close() // the child has its own; stdout has no end while this one is open
	if err != nil {
		_ = read.Close()
		return nil, err
	}
	go func() {
		<-group.Done()
		stdout.expire()
	}()
	return &process{stdout: stdout, grace: p.opts.Grace, group: group}, nil
}

// attributes are those of a program as the user that the options name.
func (p *program) attributes() *syscall.SysProcAttr {
	if p.opts.UID == 0 {
		return nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(p.opts.UID), Gid: uint32(p.opts.GID)}}
}

// wait blocks until the process has ended, and returns its state.
func (c *process) wait() *os.ProcessState { return c.group.State() }

// stop asks the group to end and kills it after the grace.
func (c *process) stop() {
	c.stopOnce.Do(func() {
		c.signal(syscall.SIGTERM)
		time.AfterFunc(c.grace, func() { c.signal(syscall.SIGKILL) })
	})
}

// stopAfterGrace leaves the process time to end by itself first.
func (c *process) stopAfterGrace() { time.AfterFunc(c.grace, c.stop) }

func (c *process) signal(s syscall.Signal) { c.group.Signal(s) }

// output is the read end of stdout. It has no deadline while the process lives. Afterwards each read has its own
// deadline: a slow consumer loses nothing, and a leaked descriptor blocks nobody.
type output struct {
	file    *os.File
	expired atomic.Bool
	unread  bool // only the reader uses it: it discards the rest of the input
}

func (o *output) expire() {
	o.expired.Store(true)
	o.extend()
}

// extend starts the deadline of a read. It fails only on a closed file: a pipe always supports deadlines.
func (o *output) extend() { _ = o.file.SetReadDeadline(time.Now().Add(linger)) }

// discard reads on, so that a process that is still writing can finish. After its end, reads get no more time: any
// other writer is not our process.
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
