package runapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

// events stores posted events. The first one has the ordinal that the agent names; those that are stored already are passed
// over, so an upload may be repeated after a cut.
func (a *API) events(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(a.stopped, cancel)()
	x, err := a.writer(ctx, w, r)
	if over, ok := errors.AsType[*worker.Over](err); ok {
		from, bad := (&exchange{query: r.URL.Query()}).from()
		if bad == nil && over.Newest && from < over.Posted {
			// It has begun to store this upload, and the event that ended the run is probably one of them.
			return a.answer(w, r, wire.EventsAnswer{Next: over.Posted, Ended: true})
		}
	}
	if err != nil {
		return a.blame(ctx, err)
	}
	defer x.end()
	from, err := x.from()
	if err != nil {
		return err
	}
	if next := x.Next(); from > next {
		p := web.Refuse(http.StatusConflict, reasonOrdinal, "from", fmt.Sprintf("events %d to %d are missing; go on at next", next, from-1))
		p.Next = &next
		return p
	}
	u := &upload{exchange: x, ordinal: from, stored: x.Next(), player: wire.NewPlayer(x.Run, x.At(from-1))}
	err = a.receive(u)
	if err == nil {
		err = x.Flush(ctx)
	}
	if err != nil {
		return u.broken(a.blame(ctx, err))
	}
	return a.ok(x, wire.EventsAnswer{Next: max(x.Committed(), u.stored), Ended: x.Settled() || u.retried})
}

// handOverPatience is how long a request waits that is ahead of the agent's own answer 202.
const handOverPatience = 2 * time.Second

// writer visits the attempt of a request that posts events. The worker that has called the agent may not have read its answer
// yet, so writer waits for it to hand the run over.
func (a *API) writer(ctx context.Context, w http.ResponseWriter, r *http.Request) (*exchange, error) {
	until := time.Now().Add(handOverPatience)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		x, err := a.begin(ctx, w, r, false)
		if err != nil || x.Posts() {
			return x, err
		}
		x.end()
		switch {
		case x.Answered():
			return nil, web.Refuse(http.StatusConflict, reasonAnswering, "",
				"the answer of the agent has events of the run: answer 202 and post all events, or answer with them")
		case time.Now().After(until):
			return nil, web.Refuse(http.StatusServiceUnavailable, web.ReasonUnavailable, "",
				"the agent has not answered yet: answer 202 and post all events, or answer with them")
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// blame returns why an upload has ended with an error. If its context has ended, no event is at fault.
func (a *API) blame(ctx context.Context, err error) error {
	switch {
	case a.stopped.Err() != nil:
		return web.Refuse(http.StatusServiceUnavailable, web.ReasonUnavailable, "", "the server is stopping")
	case ctx.Err() != nil:
		return cut()
	}
	return err
}

// from reads the ordinal of the first event.
func (x *exchange) from() (int64, error) {
	if err := x.parameters("from"); err != nil {
		return 0, err
	}
	n, err := x.number("from", 0, math.MaxInt64/2, -1)
	if err == nil && n < 0 {
		err = web.Invalid("from", "is missing: the ordinal of the first event, 0 for the first one of the run")
	}
	return n, err
}

// upload is a request with events.
type upload struct {
	*exchange
	player  *wire.Player
	ordinal int64 // of the next event
	stored  int64 // how many were stored before
	retried bool
}

// receive plays the events of an upload as they arrive.
func (a *API) receive(u *upload) error {
	media, _, _ := mime.ParseMediaType(u.r.Header.Get("Content-Type"))
	most := cmp.Or(u.Agent().MaxEvent, wire.DefaultMaxEvent)
	switch media {
	case "application/x-ndjson", "application/ndjson", "application/jsonl":
		in := &patient{in: u.r.Body, connection: http.NewResponseController(u.w), timeout: a.o.Limits.Timeout, stopped: a.stopped}
		stop := context.AfterFunc(a.stopped, in.wake)
		defer stop()
		err := u.stream(web.Lines(in, most))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return web.Refuse(http.StatusRequestTimeout, web.ReasonInvalid, "", "no event came for too long; go on at next")
		}
		return err
	case "application/json":
		limits := a.o.Limits
		limits.Size = min(limits.Size, int64(most))
		raw, fault := limits.Read(u.w, u.r, u.account)
		if fault != nil {
			return fault
		}
		events, bad := wire.DecodeAnswer(raw)
		if bad != nil {
			return malformed(bad)
		}
		for _, e := range events {
			if err := u.take(e); err != nil {
				return err
			}
		}
		return nil
	}
	return web.Refuse(http.StatusUnsupportedMediaType, web.ReasonInvalid, "Content-Type", "must be application/x-ndjson or application/json")
}

// patient is a body whose sender may take its time between two reads, until the server stops. The deadline holds for reads only:
// after the end of a body, net/http reads on, and if that runs into a deadline it ends the request's context, in the middle of an
// event that is being stored.
type patient struct {
	in         io.Reader
	connection *http.ResponseController
	timeout    time.Duration
	stopped    context.Context //nolint:containedctx // of the server

	mu      sync.Mutex
	reading bool
}

func (p *patient) Read(b []byte) (int, error) {
	p.expect(true, time.Now().Add(p.timeout))
	defer p.expect(false, time.Time{})
	return p.in.Read(b)
}

func (p *patient) expect(reading bool, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reading = reading
	if reading && p.stopped.Err() != nil {
		until = time.Now()
	}
	_ = p.connection.SetReadDeadline(until)
}

// wake ends a read that waits.
func (p *patient) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reading {
		_ = p.connection.SetReadDeadline(time.Now())
	}
}

// cut says that the connection broke inside an upload.
func cut() *web.Problem {
	return web.Invalid("", "the body is incomplete; go on at next")
}

func (u *upload) stream(in *web.Stream) error {
	in.Bound(func(n int) error { return u.Run.Hold(u.Live(), n) }, u.Run.Drop)
	defer in.Close()
	for !u.player.Settled() && !u.retried {
		raw, line, err := in.Next()
		_, refused := errors.AsType[*web.LineError](err)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, web.ErrCut): // a last line without its end
		case errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case refused:
			p := web.Refuse(http.StatusRequestEntityTooLarge, web.ReasonTooLarge, "", wire.Unread(err).Error())
			p.Line = line
			return p
		case err != nil: // net/http ends the request's context, too
			if cause := context.Cause(u.Live()); cause != nil && !errors.Is(cause, context.Canceled) {
				return cause
			}
			return cut()
		}
		if u.ordinal < u.stored {
			u.ordinal++
			continue
		}
		event, bad := wire.Decode(raw)
		if bad != nil {
			bad.Line = line
			return malformed(bad)
		}
		if err := u.take(event); err != nil {
			p := toProblem(err)
			p.Line = line
			return p
		}
	}
	return nil
}

// take plays the next event.
func (u *upload) take(e *wire.Event) error {
	if u.ordinal < u.stored {
		u.ordinal++
		return nil
	}
	ctx := u.Live()
	u.At(u.ordinal)
	err := u.player.Play(ctx, e)
	switch {
	case e.Action == wire.Retry || err != nil && u.Spent():
		if failed := u.End(err); failed != nil {
			return failed
		}
		u.retried = true
		if e.Action != wire.Retry {
			return web.Refuse(http.StatusRequestEntityTooLarge, web.ReasonTooLarge, "",
				fmt.Sprintf("the artifacts of the task exceed %d bytes (limits.max_artifacts); the run has failed", u.Agent().MaxArtifacts))
		}
		return nil
	case err != nil:
		u.At(u.ordinal - 1) // it does not count
		return err
	}
	u.ordinal++
	if e.Action == wire.Store {
		// A repetition must not write the state again when others have changed it since.
		return u.Flush(ctx)
	}
	return nil
}

// broken ends an upload in its middle. The events before stay.
func (u *upload) broken(err error) error {
	// The request's context may have ended with its body.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.r.Context()), readTimeout)
	defer cancel()
	flushed := u.Flush(ctx)
	p := toProblem(err)
	if flushed != nil && p.Status < http.StatusInternalServerError && p.Status != http.StatusGone {
		p = toProblem(flushed)
	}
	if p.Status == http.StatusGone || p.Status == http.StatusInternalServerError {
		return p
	}
	next := max(u.Committed(), u.stored)
	with := *p
	with.Next = &next
	return &with
}
