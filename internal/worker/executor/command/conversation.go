package command

import (
	"io"
	"log/slog"
	"os"
)

// Program is a program that other executors talk to on stdin and stdout, such as a server of tools. It runs under the same
// rules as an agent: its own process group, only the environment that is listed, stderr in the log.
type Program struct{ p *program }

// NewProgram checks that the program can be started.
func NewProgram(opts Options) (*Program, error) {
	e, err := newProgram(opts)
	if err != nil {
		return nil, err
	}
	return &Program{e}, nil
}

// Conversation is a running program.
type Conversation struct {
	In  io.WriteCloser // its stdin
	Out io.ReadCloser  // its stdout

	child  *process
	stderr *errorLog
}

// Start starts the program.
func (p *Program) Start(log *slog.Logger) (*Conversation, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	stderr := newErrorLog(log)
	child, err := p.p.start(read, stderr)
	_ = read.Close() // the child has its own
	if err != nil {
		_ = write.Close()
		return nil, err
	}
	return &Conversation{In: write, Out: readEnd{child.stdout}, child: child, stderr: stderr}, nil
}

// readEnd can be closed while it is read.
type readEnd struct{ *output }

func (r readEnd) Close() error { return r.file.Close() }

// Close ends stdin, and the program if it does not end by itself within the grace. It blocks until the program has ended.
func (c *Conversation) Close() {
	_ = c.In.Close() // the conversation may have closed it
	c.child.stopAfterGrace()
	c.child.wait()
	c.stderr.flush()
}

// Stop ends the program now, with the grace between SIGTERM and SIGKILL.
func (c *Conversation) Stop() { c.child.stop() }
