package a2atest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// Followed is what a client got of a task, over its stream and all resumes.
type Followed struct {
	Task, State, Said string
	Text              string // of the artifacts
	Resumes           int
}

// Follow sends a message to an agent and reads the stream to its final event. If the stream breaks, the client resumes it,
// or repeats the message under the same key. A stream that does not continue where it broke is an error. Any goroutine
// may call Follow.
func (p *Peer) Follow(ctx context.Context, a *Args) (*Followed, error) {
	f := &Followed{}
	message, last := a.With("Idempotency-Key", rand.Text()), ""
	if a.ID == "" {
		message = message.As(rand.Text())
	}
	for {
		op, args := Stream, message
		if last != "" {
			op, args = Subscribe, &Args{Agent: a.Agent, Task: f.Task, After: last}
		}
		r, err := p.TryBegin(V03, op, args)
		if err == nil {
			err = f.read(r, &last)
			r.Close()
		}
		var seam *seam
		if err == nil || errors.As(err, &seam) {
			return f, err
		}
		f.Resumes++
		select {
		case <-ctx.Done():
			return f, fmt.Errorf("task %s after event %q: %w; at last: %w", f.Task, last, ctx.Err(), err)
		case <-time.After(100 * time.Millisecond): // a client's own pause
		}
	}
}

// seam is a fault of a stream that no resume mends.
type seam struct{ error }

// read reads a stream until its final event. last is the id of the newest event.
func (f *Followed) read(r *Reply, last *string) error {
	for {
		e, err := r.Next()
		if err != nil {
			return err
		}
		switch {
		case e.Kind == "task" && *last != "":
			return &seam{fmt.Errorf("task %s after event %s: the stream began again", f.Task, *last)}
		case e.Kind == "task":
			f.Text = ""
			for _, a := range e.Artifacts {
				f.Text += Text(a.Parts)
			}
		case e.Artifact != nil:
			if f.Text != "" && !e.Append {
				return &seam{fmt.Errorf("task %s, event %s: a chunk replaces %d bytes", f.Task, r.LastID, len(f.Text))}
			}
			f.Text += Text(e.Artifact.Parts)
		}
		f.Task = e.Task()
		if e.Seq != 0 {
			*last = r.LastID
		}
		if state := e.State(); state != "" {
			f.State, f.Said = state, e.Said()
		}
		if e.Final {
			return nil
		}
	}
}

// Pieces takes the text apart into chunks of a size.
func (f *Followed) Pieces(size int) []string { return Pieces([]Part{{Text: f.Text}}, size) }
