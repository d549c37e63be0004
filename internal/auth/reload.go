package auth

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// Reloader reloads files when they change. It compares contents: mounted files may be replaced without an event.
type Reloader struct {
	every   time.Duration
	log     *slog.Logger
	watched []*watched
	// checked is called at the end of a round, for tests.
	checked func()
	now     chan struct{}
}

type watched struct {
	files []string
	load  func(contents [][]byte) error
	last  [][]byte
}

// NewReloader makes a reloader that checks the files at the given interval.
func NewReloader(every time.Duration, log *slog.Logger) *Reloader {
	return &Reloader{every: every, log: log, checked: func() {}, now: make(chan struct{}, 1)}
}

// Add loads files now and whenever one of them changes. It returns the error of the first load. When a later load
// fails, load must keep the previous contents.
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

// Run checks the files until ctx ends.
func (r *Reloader) Run(ctx context.Context) error {
	ticker := time.NewTicker(r.every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-r.now:
		case <-ctx.Done():
			return nil
		}
		for _, w := range r.watched {
			r.look(w)
		}
		r.checked()
	}
}

// Look makes Run check the files soon.
func (r *Reloader) Look() {
	select {
	case r.now <- struct{}{}:
	default:
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
		// Remember unusable contents too, so that they are reported once.
		w.last = contents
		err = w.load(contents)
	}
	if err != nil {
		r.log.Error("files not reloaded; their previous contents stay in use", "files", w.files, "error", err)
		return
	}
	r.log.Info("files reloaded", "files", w.files)
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
