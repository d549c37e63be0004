// Package web is what the bindings over HTTP have in common beside the reading of
// bodies: their options, the containment of panics, and the handing over of streams.
package web

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/body"
	"github.com/holdfast-a2a/holdfast/internal/rpc/operation"
	"github.com/holdfast-a2a/holdfast/internal/rpc/sse"
)

// Options configures a binding. The zero value of a number means its default.
type Options struct {
	Operations   *operation.Runner
	Limits       body.Limits
	WriteTimeout time.Duration // of one write to a stream; default 10 s
	// StrictVersion refuses an A2A-Version that does not have the method or path, and those of 1.0 without one.
	StrictVersion bool
	// Statuses100 answers errors of 1.0 with the statuses of 1.0.0 in place of 1.0.1's. JSON-RPC has none.
	Statuses100 bool
	Log         *slog.Logger
}

// Binding is what a binding is made on.
type Binding struct {
	Options
	streams *sse.Streams
}

// New makes the ground for a binding.
func New(o Options) *Binding {
	o.Limits = o.Limits.OrDefaults()
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 10*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Binding{Options: o, streams: sse.NewStreams(o.WriteTimeout)}
}

// Wait returns when every stream has ended, which they do when the hub is closed. When
// ctx ends before, it cuts them. No request may begin meanwhile.
func (b *Binding) Wait(ctx context.Context) error { return b.streams.Wait(ctx) }

// Exchange is one request on its way, and then its stream.
type Exchange struct {
	operation.Request
	W       http.ResponseWriter // nil once a stream was begun
	R       *http.Request       // nil once a stream was begun
	Ctx     context.Context     //nolint:containedctx // of the request, and then of the stream
	Op      engine.Op
	Replied bool        // a plain answer was begun
	Out     *sse.Writer // a stream was begun
}

// Begin is an exchange before anything of it was read.
func Begin(w http.ResponseWriter, r *http.Request, at operation.Endpoint) Exchange {
	return Exchange{W: w, R: r, Ctx: r.Context(), Request: operation.Request{Endpoint: at}}
}

// Answerer shows in the way of its binding what comes of an exchange.
type Answerer interface {
	operation.Sink
	// Fail answers with an error of an operation.
	Fail(err error)
	// Broken answers for a fault of our own, which attrs tell the log more of.
	Broken(err error, attrs ...any)
}

// Contain keeps a panic from taking the connection down without an answer. It is to
// be deferred.
func (x *Exchange) Contain(a Answerer) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler { //nolint:errorlint // net/http compares in the same way
		panic(v)
	}
	halfway := x.Replied
	a.Broken(operation.Panicked(v), "stack", string(debug.Stack()))
	if halfway {
		// Part of an answer must not look like a whole one.
		panic(http.ErrAbortHandler)
	}
}

// Stream opens a stream and hands it on to whoever runs it from here.
func (x *Exchange) Stream(b *Binding, a Answerer) {
	st, err := b.Operations.Open(x.Ctx, &x.Request)
	if err != nil {
		a.Fail(err)
		return
	}
	x.Echo(x.W.Header().Set)
	b.streams.Serve(x.W, x.R, func(ctx context.Context, out *sse.Writer) {
		x.Ctx, x.Out = ctx, out
		// It may live for hours and is to hold on to no more than it needs.
		x.W, x.R = nil, nil
		x.Request = operation.Request{Codec: x.Codec}
		defer x.Contain(a)
		if err := st.Follow(ctx, a); err != nil {
			a.Fail(err)
		}
	})
}

// KeepAlive adds a comment to the stream.
func (x *Exchange) KeepAlive() { x.Out.KeepAlive() }

// Full reports whether it is time to flush.
func (x *Exchange) Full() bool { return x.Out.Full() }

// Flush sends what was added.
func (x *Exchange) Flush() error { return x.Out.Flush() }
