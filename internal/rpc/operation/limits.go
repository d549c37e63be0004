package operation

import (
	"fmt"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// The limits, as Observer.Limited names them.
const (
	LimitRate          = "rate"
	LimitStreams       = "streams"        // of a caller
	LimitServerStreams = "server_streams" // of this replica
	LimitParts         = "parts"
	LimitBody          = "body" // met by the bindings, of which none reads on
)

// streamPause is when to try again for a stream, which others must close first.
const streamPause = 5 * time.Second

// count counts a request for its caller.
func (o *Runner) count(r *Request) error {
	if wait, ok := o.opt.Callers.Allow(r.account()); !ok {
		return o.refuse(r, LimitRate, "you have sent more requests in a second than you may", wait)
	}
	return nil
}

// takeStream takes a place for a stream, which release gives back.
func (o *Runner) takeStream(r *Request) (release func(), err error) {
	closed, ok := o.opt.Callers.Open(r.account())
	if !ok {
		return nil, o.refuse(r, LimitStreams, "you have as many open streams as you may", streamPause)
	}
	if o.streams == nil {
		return closed, nil
	}
	select {
	case o.streams <- struct{}{}:
		return func() { <-o.streams; closed() }, nil
	default:
		closed()
		return nil, o.refuse(r, LimitServerStreams, "too many open streams", streamPause)
	}
}

// bound checks the size of a message.
func (o *Runner) bound(r *Request, m *task.Message) error {
	if most := o.opt.MaxParts; most > 0 && len(m.Parts) > most {
		o.Limited(r, LimitParts)
		return &task.Error{Kind: task.TooLarge, Field: "message.parts", Msg: fmt.Sprintf("message.parts: must not be more than %d", most)}
	}
	for i := range m.Parts {
		if most := o.opt.MaxPart; most > 0 && m.Parts[i].Size() > most {
			field := fmt.Sprintf("message.parts[%d]", i)
			o.Limited(r, LimitParts)
			return &task.Error{Kind: task.TooLarge, Field: field, Msg: fmt.Sprintf("%s: must not be longer than %d bytes", field, most)}
		}
	}
	return nil
}

func (o *Runner) refuse(r *Request, limit, says string, wait time.Duration) error {
	o.Limited(r, limit)
	return &task.Error{Kind: task.RateLimited, Msg: says, RetryAfter: wait}
}

// Limited counts a refusal.
func (o *Runner) Limited(r *Request, limit string) {
	if o.opt.Observer.Limited != nil {
		o.opt.Observer.Limited(r.Agent, limit)
	}
}

// account is whose limits the request counts for.
func (r *Request) account() limit.Caller {
	return limit.Caller{Tenant: r.Principal.Tenant, Subject: r.Principal.Subject}
}
