// Package procgroup runs programs in process groups of their own, so that none of their children outlives them. The group is
// signaled only before its leader is reaped, because a released number may become another group's. A process that leaves the
// group by setsid can escape.
package procgroup

import (
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// Process leads a group. When it has ended, the rest of the group is killed.
type Process struct {
	done  chan struct{} // closed when the process has been reaped
	state *os.ProcessState
	pid   int

	mu     sync.Mutex // orders signals and reaping
	reaped bool
}

// Start starts a program. Its attributes are those of a leader, with the credential that cmd has.
func Start(cmd *exec.Cmd) (*Process, error) {
	attributes := leader()
	if cmd.SysProcAttr != nil {
		attributes.Credential = cmd.SysProcAttr.Credential
	}
	cmd.SysProcAttr = attributes
	p := &Process{done: make(chan struct{})}
	started := make(chan error)
	go p.keep(cmd, started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// keep starts the process, waits for it and reaps it. It stays on one OS thread, because the kernel kills the child when the
// thread that forked it ends (Pdeathsig). A thread of the Go runtime may end before this process does.
func (p *Process) keep(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	p.pid = cmd.Process.Pid
	started <- nil

	awaitExit(p.pid)
	p.mu.Lock()
	p.reaped = true
	kill(p.pid, syscall.SIGKILL)
	p.mu.Unlock()
	// The error repeats the exit status, or says that a process outside the group holds an output. In both cases the process
	// has ended.
	_ = cmd.Wait()
	p.state = cmd.ProcessState
	close(p.done)
}

// PID returns the number of the process and of its group.
func (p *Process) PID() int { return p.pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// State blocks until the process has ended, and returns how.
func (p *Process) State() *os.ProcessState {
	<-p.done
	return p.state
}

// Signal signals the group, unless the process has ended.
func (p *Process) Signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		kill(p.pid, s)
	}
}

// kill signals a process group. Its only error is that the group has ended.
func kill(leader int, signal syscall.Signal) { _ = syscall.Kill(-leader, signal) }
