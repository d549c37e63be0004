// Package rest is the HTTP+JSON binding, of 1.0 and of 0.3: it finds the operation by
// path and verb, makes its request of path, query and body, and shows documents bare
// and errors with a status. The shapes belong to the codecs, the work to the operations.
package rest

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/body"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/rpc/fault"
	"github.com/holdfast-a2a/holdfast/internal/rpc/operation"
	"github.com/holdfast-a2a/holdfast/internal/rpc/sse"
)

// Options configures a binding. The zero value of a number means its default.
type Options struct {
	Operations   *operation.Runner
	Limits       body.Limits
	WriteTimeout time.Duration // of one write to a stream; default 10 s
	// StrictVersion refuses an A2A-Version of another version than the path's, and paths of 1.0 without one.
	StrictVersion bool
	// Statuses100 answers errors of 1.0 with the statuses of 1.0.0 in place of 1.0.1's.
	Statuses100 bool
	Log         *slog.Logger
}

// Binding serves HTTP+JSON requests.
type Binding struct {
	opt     Options
	streams *sse.Streams
}

// New makes a binding.
func New(o Options) *Binding {
	o.Limits = o.Limits.OrDefaults()
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 10*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Binding{opt: o, streams: sse.NewStreams(o.WriteTimeout)}
}

// Wait returns when every stream has ended, which they do when the hub is closed. When
// ctx ends before, it cuts them. No request may begin meanwhile.
func (b *Binding) Wait(ctx context.Context) error { return b.streams.Wait(ctx) }

// exchange is one request on its way.
type exchange struct {
	operation.Request
	*Target
	b       *Binding
	w       http.ResponseWriter // nil once a stream was begun
	r       *http.Request       // nil once a stream was begun
	ctx     context.Context     //nolint:containedctx // of the request, and then of the stream
	op      engine.Op
	replied bool        // a plain answer was begun
	out     *sse.Writer // a stream was begun
}

// Serve answers one request, whose path leads to t.
func (b *Binding) Serve(w http.ResponseWriter, r *http.Request, at operation.Endpoint, t *Target) {
	x := &exchange{
		b: b, w: w, r: r, ctx: r.Context(), Target: t, Request: operation.Request{Endpoint: at, Codec: t.version},
	}
	defer x.contain()
	if !x.route() || !x.negotiate() {
		return
	}
	if err := registry.Admit(x.version, x.requestedVersion(), b.opt.StrictVersion); err != nil {
		x.fail(err)
		return
	}
	if x.decode() {
		x.serve()
	}
}

// route finds the operation.
func (x *exchange) route() bool {
	op, ok := x.verbs.operation(x.r.Method)
	x.op = op
	switch {
	case x.verbs == nil:
		x.refuse(http.StatusNotFound, "METHOD_NOT_FOUND", "UNIMPLEMENTED", codeMethodNotFound,
			"Method not found: A2A "+x.version.Version()+" has no such path")
	case ok:
		return true
	case x.r.Method == http.MethodOptions:
		x.w.Header().Set("Allow", x.verbs.allow())
		x.w.WriteHeader(http.StatusNoContent)
	default:
		x.w.Header().Set("Allow", x.verbs.allow())
		x.refuse(http.StatusMethodNotAllowed, "METHOD_NOT_FOUND", "UNIMPLEMENTED", codeMethodNotFound,
			"Method not found: here it is "+strings.TrimPrefix(x.verbs.allow(), "OPTIONS, "))
	}
	return false
}

// requestedVersion is A2A-Version, a header or a parameter of the query.
func (x *exchange) requestedVersion() string {
	return cmp.Or(x.r.Header.Get("A2a-Version"), x.r.URL.Query().Get("A2A-Version"))
}

// decode reads the request in the words of its version.
func (x *exchange) decode() bool {
	params, ok := x.params()
	if !ok {
		return false
	}
	call, err := x.Codec.Decode(x.op, params)
	if err != nil {
		x.fail(err)
		return false
	}
	x.Call = call
	if x.tenant != "" {
		call.Tenant = x.tenant
	}
	x.ReadHeaders(x.r.Header)
	return true
}

// serve runs the operation and shows its answer.
func (x *exchange) serve() {
	if x.op.Streams() {
		x.stream()
		return
	}
	result, err := x.b.opt.Operations.Call(x.ctx, &x.Request)
	if err != nil {
		x.fail(err)
		return
	}
	x.observe(operation.Succeeded)
	x.reply(http.StatusOK, x.mediaType(), result)
}

func (x *exchange) observe(outcome string) { x.b.opt.Operations.Observe(x.op, x.Codec, outcome) }

// faults is the table of the version that the request speaks.
func (x *exchange) faults() *fault.Table {
	if x.b.opt.Statuses100 && x.version == version10 {
		return fault.Edition100
	}
	return x.version.faults
}

// contain keeps a panic from taking the connection down without an answer.
func (x *exchange) contain() {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler { //nolint:errorlint // net/http compares in the same way
		panic(v)
	}
	halfway := x.replied
	x.broken(operation.Panicked(v), "stack", string(debug.Stack()))
	if halfway {
		// Part of an answer must not look like a whole one.
		panic(http.ErrAbortHandler)
	}
}
