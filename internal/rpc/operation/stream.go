package operation

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Sink is a stream as its binding frames it. It belongs to one goroutine.
type Sink interface {
	// Event adds a document, under the id from which a client resumes (0 for none).
	Event(id int64, document []byte)
	// KeepAlive adds a sign of life.
	KeepAlive()
	// Full reports whether enough was added to be sent before more is encoded.
	Full() bool
	// Flush sends what was added. After an error the client is gone.
	Flush() error
}

// Stream is a stream that was opened. Follow must be called.
type Stream struct {
	runner *Runner
	codec  dialect.Codec
	op     engine.Op
	st     *engine.Stream
	// release gives its place back.
	release func()
	opened  bool // the task, or an event of it, has been shown
	marks   bool // documents have their ids in them, too
	cut     bool // the server stopped before the stream had ended
	// watch ends it with the credential that has opened it. Nil: nothing does.
	watch func(end func(error)) (stop func())
}

// Cut reports, of a stream that was followed, whether the server ended it because it
// stops. The client goes on elsewhere.
func (s *Stream) Cut() bool { return s.cut }

// Open runs an operation whose answer is a stream. An error is for the client to see.
func (o *Runner) Open(ctx context.Context, r *Request) (*Stream, error) {
	if err := o.prepare(r); err != nil {
		return nil, err
	}
	open, err := o.opener(r)
	if err != nil {
		return nil, err
	}
	release, err := o.takeStream(r)
	if err != nil {
		return nil, err
	}
	opened := false
	defer func() {
		if !opened {
			release()
		}
	}()
	st, err := open(ctx)
	if err != nil {
		return nil, err
	}
	o.origin(r, st.Header.Dialect)
	o.Observe(r.Call.Op, r.Codec, Succeeded)
	if o.opt.Observer.Resumed != nil && st.Task == nil {
		o.opt.Observer.Resumed(r.Codec.Version())
	}
	opened = true
	marks := slices.Contains(r.active, ResumeURI) && r.Codec.ID() != dialect.V01 // which has no extensions
	s := &Stream{runner: o, codec: r.Codec, op: r.Call.Op, st: st, marks: marks, release: release}
	if watch, agent := r.Watch, r.Agent; watch != nil {
		s.watch = func(end func(error)) func() { return watch(agent, end) }
	}
	return s, nil
}

// Follow shows the stream until it ends, the client leaves, or the server stops.
// Whatever ends it early, the client resumes by the last id. An error is for the client
// to see, as the end of its stream. Nothing of the request is held on to.
func (s *Stream) Follow(ctx context.Context, out Sink) error {
	defer s.release()
	defer s.st.Close()
	if o := &s.runner.opt.Observer; o.StreamOpened != nil {
		defer o.StreamOpened(s.codec.Version())()
	}
	followed, end := context.WithCancelCause(ctx)
	defer end(nil)
	if s.watch != nil {
		defer s.watch(end)()
	}
	f := &following{Stream: s, out: out}
	switch err := f.run(followed); {
	case err == nil, ctx.Err() != nil, errors.As(err, new(writeError)):
	case followed.Err() != nil:
		// Who is not let in any more hears it in the words of the version.
		return context.Cause(followed)
	case errors.Is(err, engine.ErrClosed):
		s.cut = true
		// The end of the body is a write too, and the deadline of the last one may have passed.
		_ = f.flush()
	default:
		return err
	}
	return nil
}

// opener completes the call, and is what opens its stream.
func (o *Runner) opener(r *Request) (func(context.Context) (*engine.Stream, error), error) {
	if c := r.Call; c.Op == engine.OpSubscribe {
		return func(ctx context.Context) (*engine.Stream, error) {
			return o.opt.Engine.Subscribe(ctx, c.Subscribe)
		}, o.prepareSubscribe(r, c.Subscribe)
	}
	s := r.Call.Send
	return func(ctx context.Context) (*engine.Stream, error) { return o.opt.Engine.Stream(ctx, s) }, o.prepareSend(r, s)
}

// following is a stream with where it goes.
type following struct {
	*Stream
	out Sink
}

// writeError marks what is the client's absence.
type writeError struct{ error }

func (s *following) run(ctx context.Context) error {
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
		evs, err := s.next(ctx)
		if err == nil {
			err = ctx.Err() // also where there is always something to show
		}
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
func (s *following) open() (ended bool, err error) {
	t := s.st.Task
	docs, err := s.codec.Opening(s.op, s.markedTask(t))
	if err != nil {
		return false, err
	}
	for i, doc := range docs {
		id := int64(0)
		if i == len(docs)-1 {
			id = s.st.ID(t.LastSeq)
		}
		s.out.Event(id, doc)
	}
	s.opened = true
	s.st.Task = nil // with all its artifacts
	return s.codec.Closes(s.op, t.Status.State), s.flush()
}

// next waits for events, with signs of life in between.
func (s *following) next(ctx context.Context) ([]*engine.Entry, error) {
	for {
		wait, cancel := context.WithTimeout(ctx, s.runner.opt.KeepAlive)
		evs, err := s.st.Next(wait)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return evs, err
		}
		s.out.KeepAlive()
		if err := s.flush(); err != nil {
			return nil, err
		}
	}
}

// show adds one event, and reports whether the stream ends with it.
func (s *following) show(ev *engine.Entry) (ended bool, err error) {
	if !ev.Streamed() {
		return false, nil
	}
	var doc []byte
	switch passed := s.st.Superseded(ev.Event); {
	case !s.opened && ev.Direct:
		doc, err = s.codec.Direct(s.st.Header, s.marked(ev.Event))
		ended = true
	case passed:
		doc, err = s.codec.Passed(s.st.Header, s.marked(ev.Event))
	default:
		if !s.opened {
			if ended, err := s.open(); err != nil || ended {
				return ended, err
			}
		}
		doc, err = s.event(ev)
		ended = ev.Kind == task.EventStatus && s.codec.Closes(s.op, ev.State)
	}
	if doc != nil && err == nil {
		s.out.Event(s.st.ID(ev.Seq), doc)
	}
	return ended, err
}

// event encodes an event that stands for nothing else. One with its id in it is encoded for
// each stream that asks for that.
func (s *following) event(ev *engine.Entry) ([]byte, error) {
	if s.marks {
		return s.codec.Event(s.st.Header, s.marked(ev.Event))
	}
	return ev.Encoded(int(s.codec.ID()), func(e *task.Event) ([]byte, error) { return s.codec.Event(s.st.Header, e) })
}

func (s *following) flush() error {
	if err := s.out.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return writeError{err}
	}
	return nil
}
