package jsonrpc

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/sse"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// stream opens a stream and shows it until it ends, the client leaves, or the
// server stops. Whatever ends it early, the client resumes by the last id.
func (x *exchange) stream(open func() (*engine.Stream, error)) {
	if !x.takeStream() {
		x.fail(&task.Error{Kind: task.RateLimited, Msg: "too many open streams", RetryAfter: 5 * time.Second})
		return
	}
	followed := false
	defer func() {
		if !followed {
			x.releaseStream()
		}
	}()
	st, err := open()
	if err != nil {
		x.fail(err)
		return
	}
	x.origin(st.Header.Dialect)
	x.observe(succeeded)
	if o := &x.b.opt.Observer; o.Resumed != nil && st.Task == nil {
		o.Resumed(x.codec.Version())
	}
	followed = true
	x.b.streams.Serve(x.w, x.r, func(ctx context.Context, out *sse.Writer) {
		x.ctx, x.out = ctx, out
		// It may live for hours and is to hold on to no more than it needs.
		x.w, x.r, x.params, x.call = nil, nil, nil, nil
		x.follow(st)
	})
}

func (x *exchange) follow(st *engine.Stream) {
	defer x.releaseStream()
	defer st.Close()
	if o := &x.b.opt.Observer; o.StreamOpened != nil {
		defer o.StreamOpened(x.codec.Version())()
	}
	defer x.contain()
	s := &streaming{exchange: x, st: st, head: []byte(envelopeHead + x.id + `,"result":`)}
	switch err := s.run(); {
	case err == nil, x.ctx.Err() != nil, errors.As(err, new(writeError)):
	case errors.Is(err, engine.ErrClosed):
		// The end of the body is a write too, and the deadline of the last one may have passed.
		_ = s.flush()
	default:
		x.fail(err)
	}
}

func (x *exchange) takeStream() bool {
	if x.b.places == nil {
		return true
	}
	select {
	case x.b.places <- struct{}{}:
		return true
	default:
		return false
	}
}

func (x *exchange) releaseStream() {
	if x.b.places != nil {
		<-x.b.places
	}
}

// streaming is the state of one open stream.
type streaming struct {
	*exchange
	st     *engine.Stream
	head   []byte
	opened bool // the task, or an event of it, has been shown
}

// writeError marks what is the client's absence.
type writeError struct{ error }

func (s *streaming) run() error {
	if s.st.Over {
		return s.flush()
	}
	if s.st.Task != nil && !s.st.Hold {
		ended, err := s.open()
		if err != nil || ended {
			return err
		}
	} else if err := s.flush(); err != nil {
		// The headers: a client learns that the stream stands before anything happens on it.
		return err
	}
	s.opened = s.opened || s.st.Task == nil
	for {
		evs, err := s.next()
		if err != nil {
			return err
		}
		for _, ev := range evs {
			ended, err := s.show(ev)
			if err != nil {
				return err
			}
			if ended {
				return s.flush()
			}
			if s.out.Full() {
				if err := s.flush(); err != nil {
					return err
				}
			}
		}
		if err := s.flush(); err != nil {
			return err
		}
	}
}

// open shows the task as it stands. Only the last document has an id: a client
// that lost the stream before it gets the whole opening again.
func (s *streaming) open() (ended bool, err error) {
	t := s.st.Task
	docs, err := s.codec.Opening(s.op, t)
	if err != nil {
		return false, err
	}
	for i, doc := range docs {
		id := int64(0)
		if i == len(docs)-1 {
			id = int64(t.LastSeq)
		}
		s.out.Event(id, s.head, doc, tail)
	}
	s.opened = true
	s.st.Task = nil // with all its artifacts
	return s.codec.Closes(s.op, t.Status.State), s.flush()
}

// next waits for events, with signs of life in between.
func (s *streaming) next() ([]*engine.Entry, error) {
	for {
		ctx, cancel := context.WithTimeout(s.ctx, s.b.opt.KeepAlive)
		evs, err := s.st.Next(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || s.ctx.Err() != nil {
			return evs, err
		}
		s.out.KeepAlive()
		if err := s.flush(); err != nil {
			return nil, err
		}
	}
}

// show adds one event, and reports whether the stream ends with it.
func (s *streaming) show(ev *engine.Entry) (ended bool, err error) {
	if !ev.Streamed() {
		return false, nil
	}
	var doc []byte
	switch passed := s.st.Superseded(ev.Event); {
	case !s.opened && ev.Direct:
		doc, err = s.codec.Direct(s.st.Header, ev.Event)
		ended = true
	case passed:
		doc, err = s.codec.Passed(s.st.Header, ev.Event)
	default:
		if !s.opened {
			if ended, err := s.open(); err != nil || ended {
				return ended, err
			}
		}
		doc, err = ev.Encoded(int(s.codec.ID()), func(e *task.Event) ([]byte, error) { return s.codec.Event(s.st.Header, e) })
		ended = ev.Kind == task.EventStatus && s.codec.Closes(s.op, ev.State)
	}
	if doc != nil && err == nil {
		s.out.Event(int64(ev.Seq), s.head, doc, tail)
	}
	return ended, err
}

func (s *streaming) flush() error {
	if err := s.out.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return writeError{err}
	}
	return nil
}
