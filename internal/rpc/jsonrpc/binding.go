// Package jsonrpc is the JSON-RPC binding: one URL for every version of A2A. It
// does the framing and nothing else; the shapes belong to the codecs, the work to
// the engine.
package jsonrpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v0"
	"github.com/holdfast-a2a/holdfast/internal/rpc/sse"
	"github.com/holdfast-a2a/holdfast/internal/rpc/strictjson"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Engine is what the binding asks for.
type Engine interface {
	Send(ctx context.Context, r *engine.SendRequest) (*task.Task, error)
	Stream(ctx context.Context, r *engine.SendRequest) (*engine.Stream, error)
	Get(ctx context.Context, r *engine.GetRequest) (*task.Task, error)
	Cancel(ctx context.Context, r *engine.CancelRequest) (*task.Task, error)
	Subscribe(ctx context.Context, r *engine.SubscribeRequest) (*engine.Stream, error)
}

// Observer takes the binding's measurements. Every field is optional.
type Observer struct {
	Request      func(operation, dialect, outcome string)
	StreamOpened func(dialect string) (closed func())
	Resumed      func(dialect string)
}

// Options configures a binding. The zero value of a number means its default.
type Options struct {
	Engine       Engine
	MaxBody      int64         // default 16 MiB
	MaxDepth     int           // of nested objects and arrays; default strictjson.MaxDepth
	BodyTimeout  time.Duration // for a whole body, the request's or the answer's; default 60 s
	KeepAlive    time.Duration // between comments on a quiet stream; default 15 s
	WriteTimeout time.Duration // of one write to a stream; default 10 s
	MaxStreams   int           // open at a time; default any number
	// LegacyTaskIDs lets an unknown task id in message/send become a new task.
	LegacyTaskIDs bool
	// ReturnByDefault answers a send that does not say whether to wait when it is stored.
	ReturnByDefault bool
	Observer        Observer
	Log             *slog.Logger
}

// Binding serves JSON-RPC requests.
type Binding struct {
	opt     Options
	places  chan struct{} // of streams
	streams *sse.Streams
}

// New makes a binding.
func New(o Options) *Binding {
	o.MaxBody = cmp.Or(o.MaxBody, 16<<20)
	o.MaxDepth = cmp.Or(o.MaxDepth, strictjson.MaxDepth)
	o.BodyTimeout = cmp.Or(o.BodyTimeout, 60*time.Second)
	o.KeepAlive = cmp.Or(o.KeepAlive, 15*time.Second)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 10*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	b := &Binding{opt: o, streams: sse.NewStreams(o.WriteTimeout)}
	if o.MaxStreams > 0 {
		b.places = make(chan struct{}, o.MaxStreams)
	}
	return b
}

// Wait returns when every stream has ended, which they do when the hub is closed. When
// ctx ends before, it cuts them. No request may begin meanwhile.
func (b *Binding) Wait(ctx context.Context) error { return b.streams.Wait(ctx) }

// Endpoint is where a request arrived: which agent's, and whether the path pins a version.
type Endpoint struct {
	Agent     string
	Pin       string
	Principal engine.Principal
}

// exchange is one request on its way.
type exchange struct {
	b         *Binding
	w         http.ResponseWriter // nil once a stream was begun
	r         *http.Request       // nil once a stream was begun
	ctx       context.Context     //nolint:containedctx // of the request, and then of the stream
	at        Endpoint
	id        string // literal JSON
	params    []byte
	codec     dialect.Codec
	ambiguous bool // the answer has the shape of the version that the task was created in
	op        engine.Op
	call      *dialect.Call
	taskID    string      // as the request names it
	replied   bool        // a plain answer was begun
	out       *sse.Writer // a stream was begun
}

// Serve answers one request.
func (b *Binding) Serve(w http.ResponseWriter, r *http.Request, at Endpoint) {
	x := &exchange{b: b, w: w, r: r, ctx: r.Context(), at: at, id: nullID}
	defer x.contain()
	// It stays when the body is refused: net/http reads on for a while then, to use the connection again.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(b.opt.BodyTimeout))
	if !acceptable(r.Header.Get("Content-Type")) {
		x.refuse(codeContentType, "Incompatible content types: Content-Type must be application/json")
		return
	}
	body, ok := x.read()
	if !ok {
		return
	}
	env, bad := parse(body, b.opt.MaxDepth)
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
	x.broken(fmt.Errorf("panic: %v", v), "stack", string(debug.Stack()))
	if halfway {
		// Part of an answer must not look like a whole one.
		panic(http.ErrAbortHandler)
	}
}

// acceptable does not look at parameters: a body in another charset than UTF-8 is
// found out when it is read, and an ASCII one does no harm.
func acceptable(contentType string) bool {
	if contentType == "" || contentType == "application/json" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return false
	}
	return media == "application/json" || strings.HasSuffix(media, "+json")
}

// read takes the body in, within its bounds of size and time.
func (x *exchange) read() ([]byte, bool) {
	if x.r.ContentLength > x.b.opt.MaxBody {
		x.tooLarge()
		return nil, false
	}
	body, err := readAll(http.MaxBytesReader(x.w, x.r.Body, x.b.opt.MaxBody), x.r.ContentLength)
	if err == nil {
		// The answer may be a stream that lives for hours, during which nothing is read.
		_ = http.NewResponseController(x.w).SetReadDeadline(time.Time{})
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		x.tooLarge()
		return nil, false
	case errors.Is(err, os.ErrDeadlineExceeded):
		x.w.Header().Set("Connection", "close")
		x.status(http.StatusRequestTimeout, codeInvalidRequest, "Request payload validation error: the body did not arrive in time")
		return nil, false
	case err != nil:
		x.refuse(codeParse, "Invalid JSON payload: the body broke off")
		return nil, false
	}
	return body, true
}

func (x *exchange) tooLarge() {
	x.w.Header().Set("Connection", "close")
	x.status(http.StatusRequestEntityTooLarge, codeInvalidRequest,
		"Request too large: the limit is "+strconv.FormatInt(x.b.opt.MaxBody, 10)+" bytes")
}

// decode finds the version and reads the params in its words.
func (x *exchange) decode(env *envelope) bool {
	version := x.r.Header.Get("A2a-Version") // in canonical form, which Get need not make first
	if version == "" && x.r.URL.RawQuery != "" {
		version = x.r.URL.Query().Get("A2A-Version")
	}
	choice, err := registry.Pick(env.method, version, x.at.Pin)
	if errors.Is(err, registry.ErrMethod) {
		x.refuse(codeMethodNotFound, "Method not found: "+quoteMethod(env.method))
		return false
	}
	if err != nil {
		x.refuse(codeVersion, "Version not supported: "+err.Error())
		return false
	}
	x.codec, x.ambiguous = choice.Codec, choice.Ambiguous
	x.op, _ = x.codec.Operation(env.method)
	if env.refused != nil {
		x.fail(&task.Error{Kind: task.Invalid, Msg: env.refused.Error()})
		return false
	}
	x.params = env.params
	if x.call, err = x.codec.Decode(x.op, x.params); err != nil {
		x.fail(err)
		return false
	}
	x.taskID = x.call.TaskID()
	return true
}

// origin turns to the version that the task was created in, where the request reads
// the same in every version and the answer does not.
func (x *exchange) origin(version string) {
	c := registry.ByVersion(version)
	if !x.ambiguous || c == nil || c == x.codec {
		return
	}
	// Again, because versions differ in what a request shows that does not say.
	if call, err := c.Decode(x.op, x.params); err == nil {
		x.codec, x.call = c, call
	}
}

func quoteMethod(m string) string {
	if len(m) > 64 {
		m = m[:64]
	}
	b, _ := jsontext.AppendQuote(nil, strings.ToValidUTF8(m, "\uFFFD"))
	return string(b)
}

func (x *exchange) caller() engine.Caller {
	return engine.Caller{Principal: x.at.Principal, Agent: x.at.Agent}
}

// serve hands the call to the engine and the answer to the client.
func (x *exchange) serve() {
	ctx := x.ctx
	var (
		t   *task.Task
		err error
	)
	switch c := x.call; x.op {
	case engine.OpSend, engine.OpStream:
		if err = x.prepareSend(c.Send); err != nil {
			x.fail(err)
			return
		}
		if x.op == engine.OpStream {
			x.stream(func() (*engine.Stream, error) { return x.b.opt.Engine.Stream(ctx, c.Send) })
			return
		}
		t, err = x.b.opt.Engine.Send(ctx, c.Send)
	case engine.OpGet:
		c.Get.Caller, c.Get.WithArtifacts = x.caller(), true
		t, err = x.b.opt.Engine.Get(ctx, c.Get)
	case engine.OpCancel:
		c.Cancel.Caller = x.caller()
		t, err = x.b.opt.Engine.Cancel(ctx, c.Cancel)
	case engine.OpSubscribe:
		if err = x.prepareSubscribe(c.Subscribe); err != nil {
			x.fail(err)
			return
		}
		x.stream(func() (*engine.Stream, error) { return x.b.opt.Engine.Subscribe(ctx, c.Subscribe) })
		return
	default:
		err = task.Unsupported
	}
	if err != nil {
		x.fail(err)
		return
	}
	x.origin(t.Dialect)
	result, err := x.codec.Result(x.op, t, x.call.View)
	if err != nil {
		x.fail(err)
		return
	}
	x.observe(succeeded)
	x.reply(http.StatusOK, `,"result":`, result)
}

// maxKey bounds an Idempotency-Key header, in bytes.
const maxKey = 255

func (x *exchange) prepareSend(r *engine.SendRequest) error {
	r.Caller = x.caller()
	r.Dialect = x.codec.Version()
	r.ContextMember = "message.contextId"
	if x.codec.ID() == dialect.V01 {
		r.ContextMember = "sessionId"
	}
	if x.b.opt.LegacyTaskIDs && !r.MayCreate {
		if complaint := v0.TaskIDFault(r.TaskID); complaint != "" {
			return task.InvalidField("message.taskId", "%s", complaint)
		}
		r.MayCreate = true
	}
	if r.WaitUnsaid && x.b.opt.ReturnByDefault {
		r.Wait = false
	}
	r.IdempotencyKey = x.r.Header.Get("Idempotency-Key")
	if len(r.IdempotencyKey) > maxKey || !utf8.ValidString(r.IdempotencyKey) {
		return task.InvalidField("Idempotency-Key", "must be UTF-8 and not longer than %d bytes", maxKey)
	}
	return nil
}

func (x *exchange) prepareSubscribe(r *engine.SubscribeRequest) error {
	r.Caller = x.caller()
	last := x.r.Header.Get("Last-Event-ID")
	if last == "" {
		return nil
	}
	n, err := strconv.ParseUint(last, 10, 63)
	if err != nil {
		return task.InvalidField("Last-Event-ID", "must be an id that a stream of this task has sent")
	}
	r.Resume, r.After = true, task.Seq(n)
	return nil
}

// Outcomes for metrics, beside the reasons of package fault.
const (
	succeeded = "ok"
	refused   = "refused" // by the binding, before an operation
)

func (x *exchange) observe(outcome string) {
	if x.b.opt.Observer.Request == nil {
		return
	}
	version := ""
	if x.codec != nil {
		version = x.codec.Version()
	}
	x.b.opt.Observer.Request(opNames[x.op], version, outcome)
}

var opNames = map[engine.Op]string{
	engine.OpNone: "none", engine.OpSend: "send", engine.OpStream: "stream", engine.OpGet: "get", engine.OpCancel: "cancel",
	engine.OpSubscribe: "subscribe", engine.OpPushSet: "push_set", engine.OpPushGet: "push_get",
	engine.OpPushList: "push_list", engine.OpPushDelete: "push_delete", engine.OpExtendedCard: "extended_card",
}
