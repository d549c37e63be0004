package dispatch

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Sink is a stream as its binding frames it. It belongs to one goroutine.
type Sink interface {
	// Name sets the name of the next event, for clients that tell events apart by it.
	Name(name string)
	// Event adds a document. A client resumes from the id, if there is one.
	Event(id []byte, document []byte)
	// KeepAlive adds a keep-alive frame.
	KeepAlive()
	// Full reports whether the sink should be flushed before it takes more.
	Full() bool
	// Flush sends the added frames. After an error the client is gone.
	Flush() error
}

// Stream is an open stream. The caller must call Follow, which also releases it, or Close.
type Stream struct {
	runner  *Runner
	codec   dialect.Codec
	op      engine.Op
	st      *engine.Stream
	account *limit.Account // of what its opening holds
	// release returns the stream's place.
	release func()
	opened  bool // the client has seen the task, or an event of it
	marks   bool // documents contain their ids
	noIDs   bool // events have no ids
	cut     bool // the server stopped before the stream had ended
	// answered measures the first event of the agent; nil afterwards, and for a stream that only subscribes.
	answered func()
	// watch ends the stream when the agent no longer admits its caller.
	watch func(end func(error)) (stop func())
}

// Cut reports, after Follow, whether the server ended the stream because it is stopping. The client
// resumes at another replica.
func (s *Stream) Cut() bool { return s.cut }

// Over reports whether nothing will follow: the client has seen every event of the stream.
func (s *Stream) Over() bool { return s.st.Over }

// Open runs an operation with a stream as its answer. The binding shows its errors to the client.
func (o *Runner) Open(ctx context.Context, r *Request) (*Stream, error) {
	if err := o.prepare(r); err != nil {
		return nil, err
	}
	if agent := o.agents[r.Agent]; agent != nil && agent.NoStreams {
		return nil, task.Errorf(task.StreamingUnsupported, "the agent declares no streams; use a send or a webhook")
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
	r.About(st.Header)
	o.origin(r, st.Header.Dialect)
	o.Observe(ctx, r.Call.Op, r, Succeeded)
	if o.opt.Observer.Resumed != nil && st.Task == nil {
		o.opt.Observer.Resumed(r.Codec.Traits().Version)
	}
	opened = true
	traits, resumes := r.Codec.Traits(), slices.Contains(r.active, ResumeURI)
	admission, agent, began := r.Admission, r.Agent, r.Began
	var answered func()
	if measure := o.opt.Observer.FirstEvent; measure != nil && r.Call.Op == engine.OpStream {
		answered = func() { measure(agent, time.Since(began)) }
	}
	r.Account.Stored() // a stream may live for hours, and needs no body
	return &Stream{
		answered: answered,
		runner:   o, codec: r.Codec, op: r.Call.Op, st: st, release: release, account: r.Account.Move(),
		marks: traits.Extensions && resumes, noIDs: traits.IDsOnRequest && !resumes && r.LastEventID == "",
		watch: func(end func(error)) func() { return admission.Watch(agent, end) },
	}, nil
}

// Close releases a stream that is not followed.
func (s *Stream) Close() {
	s.st.Close()
	s.release()
}

// Follow shows the stream until it ends, the client leaves, or the server stops. It blocks until
// then. After an early end the client resumes by the last id. An error is for the client to see, as
// the end of its stream. Follow keeps nothing of the request.
func (s *Stream) Follow(ctx context.Context, out Sink) error {
	defer s.release()
	defer s.account.Close()
	defer s.st.Close()
	if o := &s.runner.opt.Observer; o.StreamOpened != nil {
		defer o.StreamOpened(s.codec.Traits().Version)()
	}
	followed, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer s.watch(end)()
	f := &following{Stream: s, out: out}
	if s.runner.opt.EventNames {
		f.names = s.codec.Traits().EventNames
	}
	switch err := f.run(followed); {
	case err == nil, ctx.Err() != nil, errors.As(err, new(writeError)):
	case followed.Err() != nil:
		// The caller is no longer admitted. The binding shows this in the version of the stream.
		return context.Cause(followed)
	case errors.Is(err, engine.ErrClosed):
		s.cut = true
		// The end of the body is also a write, and the last write deadline may have passed.
		_ = f.flush()
	default:
		return err
	}
	return nil
}

// opener completes the call, and returns the function that opens its stream.
func (o *Runner) opener(r *Request) (func(context.Context) (*engine.Stream, error), error) {
	if c := r.Call; c.Op == engine.OpSubscribe {
		return func(ctx context.Context) (*engine.Stream, error) {
			return r.engine.Subscribe(ctx, c.Subscribe)
		}, prepareSubscribe(r, c.Subscribe)
	}
	s := r.Call.Send
	return func(ctx context.Context) (*engine.Stream, error) { return r.engine.Stream(ctx, s) }, o.prepareSend(r, s)
}

// following is a stream with its sink.
type following struct {
	*Stream
	out   Sink
	names *dialect.EventNames // nil: events have no names
	id    []byte              // of the last event, for its memory
}

// add adds a document: a status, or an artifact.
func (s *following) add(id []byte, status bool, document []byte) {
	switch {
	case s.names == nil:
	case status:
		s.out.Name(s.names.Status)
	default:
		s.out.Name(s.names.Artifact)
	}
	if s.noIDs {
		id = nil
	}
	s.out.Event(id, document)
}

// resumeID returns the id of a position, until the next call.
func (s *following) resumeID(p task.Position) []byte {
	s.id = s.st.ID(p).Append(s.id[:0])
	return s.id
}

// writeError marks a write that failed because the client is gone.
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
		// Send the headers: the client learns that the stream is open before its first event.
		return err
	}
	s.opened = s.opened || s.st.Task == nil
	for {
		evs, err := s.next(ctx)
		if err == nil {
			err = ctx.Err() // checked even if an event is always ready
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

// open shows the current state of the task. Only the last document has an id: a client that lost
// the stream earlier gets the whole opening again.
func (s *following) open() (ended bool, err error) {
	t := s.st.Task
	docs, err := s.codec.Opening(s.op, s.markedTask(t))
	if err != nil {
		return false, err
	}
	for i, doc := range docs {
		var id []byte
		if i == len(docs)-1 {
			id = s.resumeID(t.Position())
		}
		s.add(id, i == 0, doc)
	}
	s.opened = true
	s.st.Task = nil // frees its artifacts
	err = s.flush()
	s.account.Close()
	return s.codec.Closes(s.op, t.Status.State), err
}

// next waits for events, and sends keep-alives meanwhile.
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
		doc, err = s.codec.Event(s.st.Header, s.marked(ev.Event), true)
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
		s.add(s.resumeID(ev.Position()), ev.Kind == task.EventStatus, doc)
		if s.answered != nil && answers(ev.Event) {
			s.answered()
			s.answered = nil
		}
	}
	return ended, err
}

// answers reports whether an event comes from the agent: more than the start of a run.
func answers(e *task.Event) bool {
	return e.Kind != task.EventStatus || e.Message != nil || e.State != task.StateSubmitted && e.State != task.StateWorking
}

// event encodes an event. All streams of a version share the encoding, and those that ask for ids in
// their documents share another one.
func (s *following) event(ev *engine.Entry) ([]byte, error) {
	form := 2 * int(s.codec.Traits().ID)
	if s.marks {
		form++
	}
	return ev.Encoded(form, func(e *task.Event) ([]byte, error) { return s.codec.Event(s.st.Header, s.marked(e), false) })
}

func (s *following) flush() error {
	if err := s.out.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return writeError{err}
	}
	return nil
}
