package secrets

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/procgroup"
)

const (
	// Timeout bounds a command.
	Timeout = 10 * time.Second
	// MaxBytes bounds a value.
	MaxBytes = 1 << 20
	// recent is how long Recent uses what a command has written.
	recent = time.Minute
)

// Source gives a secret. A nil Source gives none.
type Source struct {
	from from

	mu    sync.Mutex // held while a command runs for Recent
	value string
	at    time.Time

	used atomic.Pointer[[2]string]
}

// from has one of its members.
type from struct {
	Text    string   `json:"text,omitempty"`
	File    string   `json:"file,omitempty"`
	Command []string `json:"command,omitempty"`
}

// Text returns a source of a value that is known. An empty text is no source.
func Text(value string) *Source {
	if value == "" {
		return nil
	}
	return &Source{from: from{Text: value}}
}

// File returns a source that reads a file each time.
func File(path string) *Source { return &Source{from: from{File: path}} }

// Command returns a source that runs a program without a shell. The value is what the program writes to stdout.
func Command(argv ...string) *Source { return &Source{from: from{Command: argv}} }

// Read returns the value without the line break at its end. It runs a command again, for Timeout at most.
func (s *Source) Read(ctx context.Context) (string, error) {
	var raw []byte
	var err error
	switch {
	case s == nil:
		return "", nil
	case s.from.Text != "":
		return s.from.Text, nil
	case s.from.File != "":
		raw, err = readFile(s.from.File)
	default:
		raw, err = run(ctx, s.from.Command)
	}
	if err != nil {
		return "", err
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(raw), "\n"), "\r")
	if strings.TrimSpace(text) == "" {
		return "", fmt.Errorf("%s is empty", s)
	}
	s.use(text)
	return text, nil
}

// use remembers a value for Used.
func (s *Source) use(value string) {
	for {
		old := s.used.Load()
		if old != nil && old[0] == value {
			return
		}
		next := &[2]string{value}
		if old != nil {
			next[1] = old[0]
		}
		if s.used.CompareAndSwap(old, next) {
			return
		}
	}
}

// Used returns the two newest values that were read. It is for those who remove secrets from texts.
func (s *Source) Used() []string {
	if s == nil {
		return nil
	}
	if s.from.Text != "" {
		return []string{s.from.Text}
	}
	if used := s.used.Load(); used != nil {
		return []string{used[0], used[1]}
	}
	return nil
}

// Recent is Read, but what a command has written is used for a minute. It is for credentials of calls, which are frequent.
func (s *Source) Recent(ctx context.Context) (string, error) {
	if s == nil || len(s.from.Command) == 0 {
		return s.Read(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.at.IsZero() && time.Since(s.at) < recent {
		return s.value, nil
	}
	value, err := s.Read(ctx)
	if err == nil {
		s.value, s.at = value, time.Now()
	}
	return value, err
}

// String names the source, and never shows a value or the arguments of a command.
func (s *Source) String() string {
	switch {
	case s == nil:
		return "none"
	case s.from.File != "":
		return s.from.File
	case len(s.from.Command) > 0:
		return "the output of " + s.from.Command[0]
	}
	return "the value"
}

// MarshalJSON returns the source as UnmarshalJSON reads it.
func (s *Source) MarshalJSON() ([]byte, error) { return json.Marshal(s.from) }

// UnmarshalJSON reads a source.
func (s *Source) UnmarshalJSON(raw []byte) error { return json.Unmarshal(raw, &s.from) }

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written to it
	raw, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err == nil && len(raw) > MaxBytes {
		err = fmt.Errorf("%s has more than %d bytes", path, MaxBytes)
	}
	return raw, err
}

// run returns what a program writes to stdout. Its errors repeat what it wrote to stderr, which is for people.
func run(ctx context.Context, argv []string) ([]byte, error) {
	name := "the command " + argv[0]
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	out, diagnostics := &limited{most: MaxBytes}, &limited{most: 300}
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // the whole group is ended below, not only this process
	cmd.Stdout, cmd.Stderr = out, diagnostics
	cmd.WaitDelay = time.Second
	p, err := procgroup.Start(cmd)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { p.Signal(syscall.SIGKILL) })()
	<-p.Done()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, fmt.Errorf("%s did not end within %s", name, Timeout)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case !p.State().Success():
		text := strings.Join(strings.Fields(strings.ToValidUTF8(diagnostics.kept.String(), "")), " ")
		if text != "" {
			text = ": " + text
		}
		return nil, fmt.Errorf("%s failed (%s)%s", name, p.State(), text)
	case out.over:
		return nil, fmt.Errorf("%s wrote more than %d bytes", name, MaxBytes)
	}
	return out.kept.Bytes(), nil
}

// limited keeps the first bytes of an output, and drops the others.
type limited struct {
	kept bytes.Buffer
	most int
	over bool
}

func (l *limited) Write(p []byte) (int, error) {
	keep := min(len(p), l.most-l.kept.Len())
	l.over = l.over || keep < len(p)
	_, _ = l.kept.Write(p[:keep]) // a buffer does not fail
	return len(p), nil
}
