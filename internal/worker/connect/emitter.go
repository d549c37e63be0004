package connect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

// window bounds the events of a run that the server has not stored, in bytes. One event may be larger.
const window = 1 << 20

// uploadTimeout is how long an upload may take. A slow server has enough of it; a connection that died silently has not.
const uploadTimeout = 2 * time.Minute

// repeated is how many failures of an upload in a row are one line of the log.
const repeated = 10

var errSettled = errors.New("the run has settled: emit nothing after input-required, auth-required, completed, failed, rejected, a wait, calls or a reply")

// errRefused says that the server has refused an event.
type errRefused struct{ *problem }

func (e errRefused) Unwrap() error { return e.problem }

func (e errRefused) Error() string { return "the server refused an event: " + e.problem.Error() }

// emitter queues the events of one run and posts them. It implements executor.Emitter.
type emitter struct {
	r *run

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change that somebody may wait for
	queue   [][]byte      // not stored yet, each with its line end
	first   int64         // ordinal of the first of them
	size    int           // of the queue
	posting bool          // a goroutine posts
	settled bool          // an event that ends the run is queued or stored
	end     *wire.Event   // that event, or nil
	ended   bool          // the server has said that the run is over
	closed  bool          // no more events of the agent, or none at all
	err     error         // an event was refused; sticky
}

func newEmitter(r *run) *emitter { return &emitter{r: r, changed: make(chan struct{})} }

// announce wakes those who wait. e.mu is held.
func (e *emitter) announce() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// emit queues an event. It blocks while the window is full.
func (e *emitter) emit(ctx context.Context, ev *wire.Event) error {
	line, err := wire.Encode(ev)
	if err != nil {
		return err
	}
	if most := e.r.doc.Run.Limits.Event; most > 0 && len(line) > most {
		return fmt.Errorf("the event has %d bytes; the limit is %d (limits.max_event)", len(line), most)
	}
	return e.put(ctx, append(line, '\n'), ev)
}

func (e *emitter) put(ctx context.Context, line []byte, ev *wire.Event) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		e.mu.Lock()
		switch {
		case e.err != nil:
			e.mu.Unlock()
			return e.err
		case e.ended:
			e.mu.Unlock()
			if cause := context.Cause(e.r.ctx); cause != nil {
				return cause
			}
			return errSettled
		case e.settled, e.closed:
			e.mu.Unlock()
			return errSettled
		case ev.Action == wire.Reply && (e.first > 0 || len(e.queue) > 0):
			e.mu.Unlock()
			return executor.ErrReply
		}
		if e.size > 0 && e.size+len(line) > window {
			changed := e.changed
			e.mu.Unlock()
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		e.queue, e.size = append(e.queue, line), e.size+len(line)
		if e.settled, e.end = ev.Ends(), nil; e.settled {
			e.end = ev
		}
		if !e.posting {
			e.posting = true
			e.r.w.background.Go(e.post)
		}
		e.mu.Unlock()
		return nil
	}
}

// close refuses further events of the agent. Queued ones are still posted.
func (e *emitter) close() {
	e.mu.Lock()
	e.closed = true
	e.announce()
	e.mu.Unlock()
}

// flush blocks until the server has stored all events or refused one, or until the run is over.
func (e *emitter) flush(ctx context.Context) error {
	for {
		e.mu.Lock()
		changed, done, err := e.changed, !e.posting, e.err
		e.mu.Unlock()
		if done {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// outcome returns the result of the run by its last event, as the server's log says it; "" without one.
func (e *emitter) outcome() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case !e.settled:
		return ""
	case e.end.Action == wire.Status && e.end.State.Parked():
		return "parked"
	case e.end.Action == wire.Status:
		return e.end.State.String()
	case e.end.Action == wire.Retry:
		return "retried"
	case e.end.Action == wire.Wait:
		return task.RunWaits
	case e.end.Action == wire.Call:
		return task.RunCalls
	}
	return task.StateCompleted.String()
}

// hasSettled reports whether an event has ended the run.
func (e *emitter) hasSettled() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.settled
}

// reopen lets the run emit its last event after one was refused.
func (e *emitter) reopen() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.err, e.closed, e.settled = nil, false, false
}

// post posts until nothing is queued, an event is refused, or the run is over.
func (e *emitter) post() {
	var pause backoff
	failures := 0
	for {
		from, body := e.batch()
		if body == nil {
			return
		}
		stored, err := e.upload(from, body)
		if e.r.life.Err() != nil {
			continue // batch ends it
		}
		on, advanced := e.answer(from, stored, err)
		switch {
		case !on:
			return
		case advanced:
			pause.reset()
			failures = 0
		default:
			if failures++; failures%repeated == 1 {
				e.r.log.Warn("upload failed, will retry", "error", err, "ordinal", from, "bytes", len(body), "failures", failures)
			}
			pause.wait(e.r.life, err)
		}
	}
}

// batch returns the queued events, up to a window of them. Without any, nobody posts from here on.
func (e *emitter) batch() (from int64, body []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.r.life.Err() != nil {
		e.queue, e.size, e.ended = nil, 0, true
	}
	for i, line := range e.queue {
		if i > 0 && len(body)+len(line) > window {
			break
		}
		body = append(body, line...)
	}
	if body == nil {
		e.posting = false
		e.announce()
	}
	return e.first, body
}

func (e *emitter) upload(from int64, body []byte) (t wire.EventsAnswer, err error) {
	ctx, cancel := context.WithTimeout(e.r.life, uploadTimeout)
	defer cancel()
	err = e.r.w.client.do(ctx, &exchange{
		method: http.MethodPost, path: fmt.Sprintf("%s/events?from=%d", runAPI, from), token: e.r.token,
		header: map[string]string{"Content-Type": "application/x-ndjson"}, body: body, into: &t,
	})
	return t, err
}

// drop forgets events that the server has. It reports whether next can be: the server has neither more events than were emitted,
// nor fewer than it has acknowledged. e.mu is held.
func (e *emitter) drop(next int64) bool {
	n := next - e.first
	if n < 0 || n > int64(len(e.queue)) {
		return false
	}
	for _, line := range e.queue[:n] {
		e.size -= len(line)
	}
	clear(e.queue[:n])
	e.queue, e.first = e.queue[n:], next
	e.announce()
	return true
}

// answer takes note of an answer. It reports whether to post on, and whether the server has stored something.
func (e *emitter) answer(from int64, t wire.EventsAnswer, err error) (on, advanced bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer func() {
		if !on {
			e.queue, e.size, e.posting = nil, 0, false
			e.announce()
		}
	}()
	p, isProblem := errors.AsType[*problem](err)
	next := from
	switch {
	case err == nil:
		next = t.Next
	case isProblem && p.Next != nil:
		next = *p.Next
	}
	switch {
	case err == nil && t.Ended:
		if !e.settled { // by a limit of the agent, for example
			e.r.stop(ErrOver, nil)
		}
		e.ended = true
		return false, true
	case isProblem && (p.Status == http.StatusGone || p.Status == http.StatusUnauthorized): // the token is good for as long as the run
		e.ended = true
		e.r.stop(executor.ErrLeaseLost, nil)
		return false, false
	case !e.drop(next):
		e.closed = true
		e.r.stop(errOutOfStep, nil)
		return false, false
	case !isProblem || !p.refusesEvent():
		return true, next > from
	}
	e.err = errRefused{p}
	e.settled = false
	if e.end != nil && e.end.Action == wire.Reply && p.Status == http.StatusUnprocessableEntity {
		e.err = executor.ErrReply // Reply returns it, and the run goes on
		return false, false
	}
	e.r.interrupt(e.err)
	return false, false
}

// refusesEvent reports whether the first event that is not stored is at fault. 400 without a line says that the body did not
// arrive whole.
func (p *problem) refusesEvent() bool {
	switch p.Status {
	case http.StatusBadRequest:
		return p.Line > 0 || p.Field != ""
	case http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return true
	}
	return false
}

// Status implements executor.Emitter.
func (e *emitter) Status(ctx context.Context, s task.State, msg *task.Message) error {
	return e.StatusAbout(ctx, s, msg, executor.About{})
}

// StatusAbout implements executor.Emitter.
func (e *emitter) StatusAbout(ctx context.Context, s task.State, msg *task.Message, more executor.About) error {
	return e.emit(ctx, &wire.Event{Action: wire.Status, State: s, Message: msg, Metadata: more.Metadata, Error: wire.Cause(more.Cause)})
}

// Ask implements executor.Emitter.
func (e *emitter) Ask(ctx context.Context, a executor.Ask) error {
	if err := a.Resume.Check(); err != nil {
		return err
	}
	return e.emit(ctx, &wire.Event{Action: wire.Status, State: a.State, Message: a.Message, Metadata: a.Metadata, Resume: a.Resume})
}

// Artifact implements executor.Emitter.
func (e *emitter) Artifact(ctx context.Context, c executor.Chunk) error {
	action := wire.Artifact
	if c.Grows {
		action = wire.Text
	}
	return e.emit(ctx, &wire.Event{Action: action, Chunk: c})
}

// Reply implements executor.Emitter. It waits for the answer of the server, which knows whether the agent may reply.
func (e *emitter) Reply(ctx context.Context, msg *task.Message) error {
	if e.r.doc.Run.Turn > 1 {
		return executor.ErrReply
	}
	if err := e.emit(ctx, &wire.Event{Action: wire.Reply, Message: msg}); err != nil {
		return err
	}
	err := e.flush(ctx)
	if errors.Is(err, executor.ErrReply) {
		e.reopen()
	}
	return err
}

// Checkpoint implements executor.Emitter.
func (e *emitter) Checkpoint(ctx context.Context, data json.RawMessage) error {
	return e.emit(ctx, &wire.Event{Action: wire.Checkpoint, Checkpoint: data})
}

// Record implements executor.Emitter.
func (e *emitter) Record(ctx context.Context, record json.RawMessage) error {
	return e.emit(ctx, &wire.Event{Action: wire.Record, Checkpoint: record})
}

// Committed implements executor.Emitter.
func (e *emitter) Committed(ctx context.Context) error { return e.flush(ctx) }

// Wait implements executor.Emitter.
func (e *emitter) Wait(ctx context.Context, w executor.Wait) error {
	if err := w.Check(time.Now()); err != nil {
		return err
	}
	return e.emit(ctx, &wire.Event{Action: wire.Wait, Wait: w})
}

// Call implements executor.Emitter. The server knows the agent's limit of calls.
func (e *emitter) Call(ctx context.Context, calls []executor.Call) error {
	if err := executor.CheckCalls(calls, max(len(calls), 1)); err != nil {
		return &executor.Failure{Msg: "The agent's calls are wrong.", Cause: err}
	}
	return e.emit(ctx, &wire.Event{Action: wire.Call, Calls: calls})
}
