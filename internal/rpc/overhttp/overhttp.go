// Package overhttp is the common part of the bindings over HTTP, besides reading bodies: options,
// containment of panics, and the start of streams.
package overhttp

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/tracing"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

// Options configures a binding. A number that is 0 means its default.
type Options struct {
	Operations   *dispatch.Runner
	Limits       web.BodyLimits
	WriteTimeout time.Duration // of one write to a stream; default 10 s
	// StrictVersion refuses an A2A-Version that lacks the method or path. It also refuses requests
	// without one, in versions that require it.
	StrictVersion bool
	// FormerStatuses answers errors with the statuses of a version's former edition. It does not
	// affect JSON-RPC.
	FormerStatuses bool
	Log            *slog.Logger
}

// Binding is the common base of the bindings.
type Binding struct {
	Options
	streams *web.Streams
}

// New makes the base of a binding.
func New(o Options) *Binding {
	o.Limits = o.Limits.OrDefaults()
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 10*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Binding{Options: o, streams: web.NewStreams(o.WriteTimeout)}
}

// Wait blocks until every stream has ended. Streams end when the hub is closed. When ctx ends
// first, Wait cuts them. No request may begin meanwhile.
func (b *Binding) Wait(ctx context.Context) error { return b.streams.Wait(ctx) }

// Exchange is the state of one request, and of its stream.
type Exchange struct {
	dispatch.Request
	Base    *Binding
	W       http.ResponseWriter // nil once a stream has begun
	R       *http.Request       // nil once a stream has begun
	Ctx     context.Context     //nolint:containedctx // of the request, and then of the stream
	Op      engine.Op
	Replied bool             // a plain answer has begun
	Out     *web.EventWriter // set once a stream has begun
}

// Begin returns an exchange whose request is still unread.
func Begin(b *Binding, w http.ResponseWriter, r *http.Request, at dispatch.Endpoint, binding string) Exchange {
	return Exchange{Base: b, W: w, R: r, Ctx: r.Context(), Request: dispatch.Request{Endpoint: at, Binding: binding, Began: time.Now()}}
}

// Answerer shows the outcome of an exchange, in the form of its binding.
type Answerer interface {
	dispatch.Sink
	// Answer answers with the document of an operation.
	Answer(document []byte)
	// Fail answers with an error of an operation.
	Fail(err error)
	// Broken answers with an internal fault. attrs are further fields for its log line.
	Broken(err error, attrs ...any)
}

// Contain answers after a panic instead of dropping the connection. Callers must defer it.
func (x *Exchange) Contain(a Answerer) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler { //nolint:errorlint // net/http compares in the same way
		panic(v)
	}
	halfway := x.Replied
	a.Broken(dispatch.Panicked(v), "stack", string(debug.Stack()))
	if halfway {
		// A partial answer must not look complete.
		panic(http.ErrAbortHandler)
	}
}

// RequestedVersion returns A2A-Version, from the header or else from the query.
func (x *Exchange) RequestedVersion() string {
	version := dispatch.First(x.R.Header[dispatch.VersionHeader])
	if version == "" && x.R.URL.RawQuery != "" {
		version = x.R.URL.Query().Get("A2A-Version")
	}
	return version
}

// Observe measures an answered request.
func (x *Exchange) Observe(outcome string) {
	x.Base.Operations.Observe(x.Ctx, x.Op, &x.Request, outcome)
}

// Known returns an error of an operation that is for the client; nil for an internal fault, which it answers.
func (x *Exchange) Known(a Answerer, err error) *task.Error {
	e, ours := dispatch.Known(err)
	if !ours {
		return e
	}
	if x.Ctx.Err() == nil { // an error after the client has left is no fault
		a.Broken(err)
	}
	return nil
}

// Reply writes a plain answer of JSON, whose parts follow each other.
func (x *Exchange) Reply(status int, mediaType string, parts ...[]byte) {
	x.Replied = true
	// A client that reads nothing must not hold the goroutine and the answer forever.
	_ = http.NewResponseController(x.W).SetWriteDeadline(time.Now().Add(x.Base.Limits.Timeout))
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	h := x.W.Header()
	x.Echo(h.Set)
	h.Set("Content-Type", mediaType)
	h.Set("Content-Length", strconv.Itoa(size))
	// A task changes, and belongs to its caller.
	h.Set("Cache-Control", "no-store")
	x.W.WriteHeader(status)
	for _, part := range parts {
		_, _ = x.W.Write(part)
	}
}

// Serve runs the operation and shows its answer.
func (x *Exchange) Serve(a Answerer) {
	if x.Op.Streams() {
		x.stream(a)
		return
	}
	document, err := x.Base.Operations.Call(x.Ctx, &x.Request)
	if err != nil {
		a.Fail(err)
		return
	}
	x.Observe(dispatch.Succeeded)
	a.Answer(document)
}

// stream opens a stream and hands it to the group of streams, which runs it.
func (x *Exchange) stream(a Answerer) {
	b := x.Base
	st, err := b.Operations.Open(x.Ctx, &x.Request)
	if err != nil {
		a.Fail(err)
		return
	}
	x.Echo(x.W.Header().Set)
	if st.Over() && x.R.Method == http.MethodGet {
		// The EventSource of a browser connects again after every stream that ends, except after this status.
		st.Close()
		x.Replied = true
		x.W.WriteHeader(http.StatusNoContent)
		return
	}
	span := tracing.Take(x.Ctx)
	b.streams.Serve(x.W, x.R, func(ctx context.Context, out *web.EventWriter) {
		defer span.End()
		x.Ctx, x.Out = ctx, out
		// The stream may live for hours, so it keeps only what it needs.
		x.W, x.R = nil, nil
		x.Request = dispatch.Request{Codec: x.Codec}
		defer x.Contain(a)
		if err := st.Follow(ctx, a); err != nil {
			a.Fail(err)
		}
	})
}

// Name sets the name of the next event.
func (x *Exchange) Name(name string) { x.Out.Name(name) }

// KeepAlive adds a comment to the stream.
func (x *Exchange) KeepAlive() { x.Out.KeepAlive() }

// Full reports whether the stream should be flushed.
func (x *Exchange) Full() bool { return x.Out.Full() }

// Flush sends the added events.
func (x *Exchange) Flush() error { return x.Out.Flush() }
