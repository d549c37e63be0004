package command

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
)

const (
	maxErrorLine = 4 << 10
	keptLines    = 20
)

// errorLog logs a program's stderr line by line. It keeps the last lines for the report when the program fails. Clients
// never see stderr; it is for operators.
type errorLog struct {
	log *slog.Logger

	mu   sync.Mutex
	line []byte // not yet ended
	long bool   // the rest of line is dropped
	tail []string
}

func newErrorLog(log *slog.Logger) *errorLog { return &errorLog{log: log} }

// Write takes any piece of the stream. It never fails.
func (e *errorLog) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	written := len(p)
	for len(p) > 0 {
		piece, rest, ended := bytes.Cut(p, []byte("\n"))
		if room := maxErrorLine - len(e.line); len(piece) > room {
			piece, e.long = piece[:room], true
		}
		e.line = append(e.line, piece...)
		if ended {
			e.endLine()
		}
		p = rest
	}
	return written, nil
}

// endLine needs the lock.
func (e *errorLog) endLine() {
	text := strings.ToValidUTF8(strings.TrimRight(string(e.line), "\r"), "\uFFFD")
	if e.long {
		text += " …"
	}
	e.line, e.long = e.line[:0], false
	e.log.Info("agent stderr", slog.String("line", text))
	if len(e.tail) == keptLines {
		e.tail = append(e.tail[:0], e.tail[1:]...)
	}
	e.tail = append(e.tail, text)
}

// flush logs a last line that has no end.
func (e *errorLog) flush() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.line) > 0 {
		e.endLine()
	}
}

// cause returns the last lines, or nil without output.
func (e *errorLog) cause() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.tail) == 0 {
		return nil
	}
	return errors.New(strings.Join(e.tail, "\n"))
}

// report logs why a run failed, with the last lines of stderr.
func (e *errorLog) report(msg, reason string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.log.Warn(msg, slog.String("reason", reason), slog.String("stderr", strings.Join(e.tail, "\n")))
}
