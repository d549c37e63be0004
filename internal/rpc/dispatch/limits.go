package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// The limits, as Observer.Limited names them.
const (
	LimitRate          = "rate"
	LimitStreams       = "streams"        // per caller
	LimitServerStreams = "server_streams" // per replica
	LimitParts         = "parts"
	LimitMemory        = "memory"
	LimitBody          = "body" // bindings check it and stop reading there
)

// streamPause is the retry delay when all places for streams are taken: another stream must close
// first.
const streamPause = 5 * time.Second

// Arrive opens the account of a request, before its body is read. The caller must close it.
func (o *Runner) Arrive(ctx context.Context, r *Request) context.Context {
	r.Account = o.opt.Memory.Open(r.holder())
	return limit.WithAccount(ctx, r.Account)
}

// holder names the caller of a request whose body may name another agent: by the agent of the
// endpoint, or by the address.
func (r *Request) holder() limit.Holder {
	if r.Admission == nil {
		return limit.Holder{}
	}
	c, err := r.Admit(r.Agent)
	switch {
	case err != nil:
		return limit.Holder{}
	case c.Owner() == (task.Owner{}):
		return limit.Holder{Address: limit.Sender(c.Address)}
	}
	return limit.Holder{Owner: c.Owner()}
}

// CountEarly charges a request with a large body to its caller's rate limit before the body is read,
// if the endpoint serves one agent. length is negative if it is not known.
func (o *Runner) CountEarly(r *Request, length int64) error {
	if 0 <= length && length <= limit.SmallBytes || r.Common && len(o.agents) > 1 {
		return nil
	}
	var err error
	if r.Caller, err = r.Admit(r.Agent); err != nil {
		return nil //nolint:nilerr // the operation answers with it
	}
	return o.count(r)
}

// count charges a request to its caller's rate limit.
func (o *Runner) count(r *Request) error {
	if r.counted {
		return nil
	}
	r.counted = true
	if wait, ok := o.opt.Rates.Allow(r.Caller.Owner()); !ok {
		return o.refuse(r, LimitRate, "you have reached your limit of requests per second", wait)
	}
	return nil
}

// takeStream reserves a place for a stream. release returns the place.
func (o *Runner) takeStream(r *Request) (release func(), err error) {
	release, ok := o.opt.Streams.Take(r.Caller.Owner())
	switch {
	case ok:
		return release, nil
	case o.opt.Streams.Full():
		return nil, o.refuse(r, LimitServerStreams, "the server has reached its limit of open streams", streamPause)
	}
	return nil, o.refuse(r, LimitStreams, "you have reached your limit of open streams; close one", streamPause)
}

// MaxParts bounds the parts of a message: each costs memory beyond its size. Codecs read up to rawjson.MaxParts.
const MaxParts = 1000

// bound checks the number of a message's parts.
func (o *Runner) bound(r *Request, m *task.Message) error {
	if len(m.Parts) <= MaxParts {
		return nil
	}
	member := r.Codec.Traits().PartsMember
	o.Limited(r, LimitParts)
	return &task.Error{Kind: task.TooLarge, Field: member, Msg: fmt.Sprintf("%s: must not have more than %d parts", member, MaxParts)}
}

func (o *Runner) refuse(r *Request, limit, says string, wait time.Duration) error {
	o.Limited(r, limit)
	return &task.Error{Kind: task.RateLimited, Msg: says, RetryAfter: wait}
}

// Limited counts a request that a limit has refused.
func (o *Runner) Limited(r *Request, limit string) {
	if o.opt.Observer.Limited != nil {
		o.opt.Observer.Limited(r.Agent, limit)
	}
}
