package auth

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// Reloader loads files anew when they change. It compares their contents, because what is
// mounted may be swapped under a name in ways that no event tells of.
type Reloader struct {
	every   time.Duration
	log     *slog.Logger
	watched []*watched
	// checked is told that a round has ended, for tests.
	checked func()
}

type watched struct {
	files []string
	load  func(contents [][]byte) error
	last  [][]byte
}

// NewReloader makes a reloader that looks as often as it is told.
func NewReloader(every time.Duration, log *slog.Logger) *Reloader {
	return &Reloader{every: every, log: log, checked: func() {}}
}

// Add loads files now, which must succeed, and again whenever one of them changes. When load then fails, what it has
// loaded before must stay.
func (r *Reloader) Add(load func(contents [][]byte) error, files ...string) error {
	w := &watched{files: files, load: load}
	contents, err := w.read()
	if err != nil {
		return err
	}
	w.last = contents
	if err := load(contents); err != nil {
		return err
	}
	r.watched = append(r.watched, w)
	return nil
}

// Run looks at the files until ctx ends.
func (r *Reloader) Run(ctx context.Context) error {
	ticker := time.NewTicker(r.every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		for _, w := range r.watched {
			r.look(w)
		}
		r.checked()
	}
}

func (r *Reloader) look(w *watched) {
	contents, err := w.read()
	if err == nil {
		same := true
		for i := range contents {
			same = same && bytes.Equal(contents[i], w.last[i])
		}
		if same {
			return
		}
		// Also when it cannot be used, so that it is complained of once.
		w.last = contents
		err = w.load(contents)
	}
	if err != nil {
		r.log.Error("files have changed and cannot be used; what was loaded before stays", "files", w.files, "error", err)
		return
	}
	r.log.Info("files were loaded anew", "files", w.files)
}

func (w *watched) read() ([][]byte, error) {
	out := make([][]byte, len(w.files))
	for i, name := range w.files {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read: %w", err)
		}
		out[i] = b
	}
	return out, nil
}
