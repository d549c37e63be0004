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
		x.fail(&task.Error{Kind: task.RateLimited, Msg: "too many open streams", RetryAfter: 5 * time.Second}, true)
		return
	}
	defer x.releaseStream()
	st, err := open()
	if err != nil {
		x.fail(err, true)
		return
	}
	defer st.Close()
	if x.b.opt.Observer.StreamOpened != nil {
		defer x.b.opt.Observer.StreamOpened(x.codec.Version())()
	}
	s := &streaming{exchange: x, st: st, head: []byte(envelopeHead + x.id + `,"result":`)}
	x.observe(succeeded)
	s.out = sse.Start(x.w, x.b.opt.WriteTimeout)
	if err := s.run(); err != nil && x.r.Context().Err() == nil && !errors.Is(err, engine.ErrClosed) && !isWrite(err) {
		x.b.opt.Log.Error("stream broke off", "task_id", st.Header.PublicID, "error", err)
	}
}

func (x *exchange) takeStream() bool {
	if x.b.streams == nil {
		return true
	}
	select {
	case x.b.streams <- struct{}{}:
		return true
	default:
		return false
	}
}

func (x *exchange) releaseStream() {
	if x.b.streams != nil {
		<-x.b.streams
	}
}

// streaming is the state of one open stream.
type streaming struct {
	*exchange
	st     *engine.Stream
	out    *sse.Writer
	head   []byte
	opened bool // the task, or an event of it, has been shown
}

var tail = []byte("}")

// writeError marks what is the client's absence.
type writeError struct{ error }

func isWrite(err error) bool {
	var w writeError
	return errors.As(err, &w)
}

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
	op := s.op
	ended = s.codec.Closes(op, t.Status.State)
	if ended {
		// A send that finds its task settled (a repeated request) shows what a late subscriber sees.
		op = engine.OpSubscribe
	}
	docs, err := s.codec.Opening(op, t)
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
	return ended, s.flush()
}

// next waits for events, with signs of life in between.
func (s *streaming) next() ([]*engine.Entry, error) {
	for {
		ctx, cancel := context.WithTimeout(s.r.Context(), s.b.opt.KeepAlive)
		evs, err := s.st.Next(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || s.r.Context().Err() != nil {
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
	if !s.opened {
		if ev.Direct {
			doc, err := s.codec.Direct(s.st.Header, ev.Event)
			s.out.Event(int64(ev.Seq), s.head, doc, tail)
			return true, err
		}
		if ended, err := s.open(); err != nil || ended {
			return ended, err
		}
	}
	doc, err := ev.Encoded(int(s.codec.ID()), func(e *task.Event) ([]byte, error) { return s.codec.Event(s.st.Header, e) })
	if err != nil {
		return false, err
	}
	if doc != nil {
		s.out.Event(int64(ev.Seq), s.head, doc, tail)
	}
	return ev.Kind == task.EventStatus && s.codec.Closes(s.op, ev.State) && !s.st.Superseded(ev.Event), nil
}

func (s *streaming) flush() error {
	if err := s.out.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return writeError{err}
	}
	return nil
}
