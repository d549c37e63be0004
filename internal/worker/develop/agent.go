// Package develop runs an agent for its author: it starts the agent's program, and starts it again when a file has changed or
// the program has ended.
package develop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/procgroup"
)

const (
	// steady is how long a program must run for its next end to count as the first.
	steady = 10 * time.Second
	// returned is how long a program has to give its runs back.
	returned = 3 * time.Second
	// leaked is how long the output of an ended program may stay open.
	leaked = 2 * time.Second
)

// Agent is the program of an agent.
type Agent struct {
	Argv  []string
	Dir   string // "": the current one
	Env   []string
	Grace time.Duration // between SIGTERM and the next one
	// Pause is the wait before a program that has ended by itself starts again. It doubles up to MaxPause, while the program
	// ends soon.
	Pause, MaxPause time.Duration
	// Ended is called when the program has ended.
	Ended func()
	// Say gets what happens to the program, and Output each line that it writes. They may be called at once.
	Say, Output func(line string)

	mu      sync.Mutex
	process *procgroup.Process
}

// Run keeps the program running until ctx ends, and then stops it. A change starts it again. The error says that it cannot be
// started.
func (a *Agent) Run(ctx context.Context, changes <-chan string) error {
	failures := 0
	for starts := 1; ; starts++ {
		began := time.Now()
		p, out, err := a.start()
		if err != nil {
			return fmt.Errorf("start the agent: %w", err)
		}
		if starts == 1 {
			a.Say(fmt.Sprintf("agent started, process %d", p.PID()))
		} else {
			a.Say(fmt.Sprintf("agent restarted, process %d", p.PID()))
		}
		select {
		case <-ctx.Done():
			a.stop(p)
			out.flush()
			return nil
		case path := <-changes:
			a.Say(path + " changed")
			a.stop(p)
			a.Ended()
			out.flush()
			failures = 0
			continue
		case <-p.Done():
			a.Ended()
			out.flush()
		}
		lived := time.Since(began)
		if lived > steady {
			failures = 0
		}
		pause := min(a.Pause<<min(failures, 16), a.MaxPause)
		failures++
		a.Say(fmt.Sprintf("agent ended after %s: %s; it starts again in %s, or when a file changes", lived.Round(100*time.Millisecond), ending(p.State()), pause))
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case path := <-changes:
			a.Say(path + " changed")
			failures = 0
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		timer.Stop()
	}
}

// ending describes how a process has ended.
func ending(s *os.ProcessState) string {
	if s == nil {
		return "unknown status"
	}
	return s.String()
}

func (a *Agent) start() (*procgroup.Process, *lines, error) {
	cmd := exec.Command(a.Argv[0], a.Argv[1:]...) //nolint:noctx // stop ends it, with its group
	if cmd.Err != nil {
		return nil, nil, cmd.Err
	}
	out := &lines{each: a.Output}
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = a.Dir, a.Env, out, out, leaked
	p, err := procgroup.Start(cmd)
	if err != nil {
		return nil, nil, err
	}
	a.mu.Lock()
	a.process = p
	a.mu.Unlock()
	return p, out, nil
}

// stop ends the program: SIGTERM, the grace, SIGTERM again, at which the SDKs give their runs back, and SIGKILL.
func (a *Agent) stop(p *procgroup.Process) {
	for _, step := range []struct {
		grace time.Duration
		over  string
	}{
		{a.Grace, fmt.Sprintf("agent did not end within %s; its runs begin again", a.Grace)},
		{min(a.Grace, returned), "agent did not end; killing it"},
	} {
		p.Signal(syscall.SIGTERM)
		timer := time.NewTimer(step.grace)
		select {
		case <-p.Done():
			timer.Stop()
			return
		case <-timer.C:
			a.Say(step.over)
		}
	}
	p.Signal(syscall.SIGKILL)
	<-p.Done()
}

// Kill ends the program and its children at once.
func (a *Agent) Kill() {
	a.mu.Lock()
	p := a.process
	a.mu.Unlock()
	if p != nil {
		p.Signal(syscall.SIGKILL)
		<-p.Done()
	}
}

// Find returns an error if there is no such program.
func Find(program string) error {
	_, err := exec.LookPath(program)
	if errors.Is(err, exec.ErrDot) {
		return nil
	}
	return err
}

// maxLine bounds a line of output, in bytes.
const maxLine = 8 << 10

// lines passes on what is written, line by line.
type lines struct {
	each func(line string)

	mu  sync.Mutex
	buf []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, p...)
	for {
		end := bytes.IndexByte(l.buf, '\n')
		switch {
		case end > maxLine, end < 0 && len(l.buf) > maxLine:
			l.each(string(l.buf[:maxLine]))
			l.buf = l.buf[maxLine:]
			continue
		case end < 0:
			return len(p), nil
		}
		l.each(string(bytes.TrimSuffix(l.buf[:end], []byte("\r"))))
		l.buf = l.buf[end+1:]
	}
}

// flush passes on a last line without an end.
func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.buf) > 0 {
		l.each(string(l.buf))
		l.buf = nil
	}
}
