// Package jsonrpc is the JSON-RPC binding: one URL for every version of A2A. It
// does the framing and nothing else; the shapes belong to the codecs, the work to
// the engine.
package jsonrpc

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/body"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/rpc/operation"
	"github.com/holdfast-a2a/holdfast/internal/rpc/sse"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Options configures a binding. The zero value of a number means its default.
type Options struct {
	Operations   *operation.Runner
	Limits       body.Limits
	WriteTimeout time.Duration // of one write to a stream; default 10 s
	// StrictVersion refuses an A2A-Version that does not have the method, and methods of 1.0 without one.
	StrictVersion bool
	Log           *slog.Logger
}

// Binding serves JSON-RPC requests.
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

// Endpoint is where a request arrived, and whether the path pins a version.
type Endpoint struct {
	operation.Endpoint
	Pin string
}

// exchange is one request on its way.
type exchange struct {
	operation.Request
	b       *Binding
	w       http.ResponseWriter // nil once a stream was begun
	r       *http.Request       // nil once a stream was begun
	ctx     context.Context     //nolint:containedctx // of the request, and then of the stream
	pin     string
	id      string // literal JSON
	op      engine.Op
	taskID  string      // as the request names it
	replied bool        // a plain answer was begun
	out     *sse.Writer // a stream was begun
	head    []byte      // what stands before each of its documents
}

// Serve answers one request.
func (b *Binding) Serve(w http.ResponseWriter, r *http.Request, at Endpoint) {
	x := &exchange{b: b, w: w, r: r, ctx: r.Context(), pin: at.Pin, id: nullID, Request: operation.Request{Endpoint: at.Endpoint}}
	defer x.contain()
	b.opt.Limits.Begin(w)
	if !body.IsJSON(r.Header.Get("Content-Type")) {
		x.refuse(codeContentType, "Incompatible content types: Content-Type must be application/json")
		return
	}
	content, ok := x.read()
	if !ok {
		return
	}
	env, bad := parse(content, b.opt.Limits.Depth)
	x.id = env.id
	if bad != nil {
		x.refuse(bad.code, bad.message)
		return
	}
	if x.decode(env) {
		x.serve()
	}
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

// read takes the body in, within its bounds of size and time.
func (x *exchange) read() ([]byte, bool) {
	content, bad := x.b.opt.Limits.Read(x.w, x.r)
	if bad == nil {
		return content, true
	}
	switch bad.Status {
	case http.StatusRequestEntityTooLarge:
		x.status(bad.Status, codeInvalidRequest, "Request too large: "+bad.Msg)
	case http.StatusRequestTimeout:
		x.status(bad.Status, codeInvalidRequest, "Request payload validation error: "+bad.Msg)
	default:
		x.refuse(codeParse, "Invalid JSON payload: "+bad.Msg)
	}
	return nil, false
}

// decode finds the version and reads the params in its words.
func (x *exchange) decode(env *envelope) bool {
	version := x.r.Header.Get("A2a-Version") // in canonical form, which Get need not make first
	if version == "" && x.r.URL.RawQuery != "" {
		version = x.r.URL.Query().Get("A2A-Version")
	}
	choice, err := registry.Pick(env.method, version, x.pin, x.b.opt.StrictVersion)
	if errors.Is(err, registry.ErrMethod) {
		x.refuse(codeMethodNotFound, "Method not found: "+quoteMethod(env.method))
		return false
	}
	if err != nil {
		x.refuseVersion(choice.Codec, err)
		return false
	}
	x.Codec, x.Ambiguous = choice.Codec, choice.Ambiguous
	x.Method, x.Params = env.method, env.params
	x.op, _ = x.Codec.Operation(env.method)
	if env.refused != nil {
		x.fail(&task.Error{Kind: task.Invalid, Msg: env.refused.Error()})
		return false
	}
	if x.Call, err = x.Codec.Decode(x.op, x.Params); err != nil {
		x.fail(err)
		return false
	}
	x.taskID = x.Call.TaskID()
	x.ReadHeaders(x.r.Header)
	return true
}

func quoteMethod(m string) string {
	if len(m) > 64 {
		m = m[:64]
	}
	b, _ := jsontext.AppendQuote(nil, strings.ToValidUTF8(m, "\uFFFD"))
	return string(b)
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
	x.reply(http.StatusOK, `,"result":`, result)
}

func (x *exchange) observe(outcome string) { x.b.opt.Operations.Observe(x.op, x.Codec, outcome) }
