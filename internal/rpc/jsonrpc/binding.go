// Package jsonrpc is the JSON-RPC binding: one URL for every version of A2A. It
// does the framing and nothing else; the shapes belong to the codecs, the work to
// the engine.
package jsonrpc

import (
	"context"
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Engine is what the binding asks for.
type Engine interface {
	Find(ctx context.Context, c engine.Caller, taskID string) (*task.Task, error)
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

// Options configures a binding.
type Options struct {
	Engine       Engine
	MaxBody      int64
	MaxDepth     int
	BodyTimeout  time.Duration // for the whole body
	KeepAlive    time.Duration // between comments on a quiet stream
	WriteTimeout time.Duration // of one write to a stream
	MaxStreams   int           // open at a time; 0 means any number
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
	streams chan struct{}
}

// New makes a binding.
func New(o Options) *Binding {
	b := &Binding{opt: o}
	if o.MaxStreams > 0 {
		b.streams = make(chan struct{}, o.MaxStreams)
	}
	return b
}

// Endpoint is where a request arrived: which agent's, and whether the path pins a version.
type Endpoint struct {
	Agent     string
	Pin       string
	Principal engine.Principal
}

// exchange is one request on its way.
type exchange struct {
	b     *Binding
	w     http.ResponseWriter
	r     *http.Request
	at    Endpoint
	id    string // literal JSON
	codec dialect.Codec
	op    engine.Op
	call  *dialect.Call
}

// Serve answers one request.
func (b *Binding) Serve(w http.ResponseWriter, r *http.Request, at Endpoint) {
	x := &exchange{b: b, w: w, r: r, at: at, id: nullID}
	defer x.contain()
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
	if v := recover(); v != nil {
		if v == http.ErrAbortHandler {
			panic(v)
		}
		x.b.opt.Log.Error("request handler crashed", "panic", v)
		x.refuse(codeInternal, "Internal error")
	}
}

func acceptable(contentType string) bool {
	if contentType == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}

// read takes the body in, within its bounds of size and time.
func (x *exchange) read() ([]byte, bool) {
	if x.r.ContentLength > x.b.opt.MaxBody {
		x.tooLarge()
		return nil, false
	}
	rc := http.NewResponseController(x.w)
	if x.b.opt.BodyTimeout > 0 {
		_ = rc.SetReadDeadline(time.Now().Add(x.b.opt.BodyTimeout))
	}
	body, err := readAll(http.MaxBytesReader(x.w, x.r.Body, x.b.opt.MaxBody), x.r.ContentLength)
	// The answer may be a stream that lives for hours, during which nothing is read.
	_ = rc.SetReadDeadline(time.Time{})
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
	version := x.r.Header.Get("A2A-Version")
	if version == "" {
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
	if x.params(choice.Codec, env) != nil && choice.Ambiguous {
		// The request reads the same in every version; the answer does not. It is given in the
		// version that the task was created in.
		if id := x.call.TaskID(); id != "" {
			if t, err := x.b.opt.Engine.Find(x.r.Context(), x.caller(), id); err == nil {
				if c := registry.ByVersion(t.Dialect); c != nil && c != choice.Codec {
					x.params(c, env)
				}
			}
		}
	}
	return x.call != nil
}

// params decodes into x.call, or answers with what is wrong and returns nil.
func (x *exchange) params(c dialect.Codec, env *envelope) *dialect.Call {
	x.codec = c
	x.op, _ = c.Operation(env.method)
	call, err := c.Decode(x.op, env.params)
	if err != nil {
		x.call = nil
		x.fail(err, false)
		return nil
	}
	x.call = call
	return call
}

func quoteMethod(m string) string {
	if len(m) > 64 {
		m = m[:64]
	}
	b, _ := jsontext.AppendQuote(nil, strings.ToValidUTF8(m, "\uFFFD"))
	return string(b)
}

func (x *exchange) caller() engine.Caller {
	return engine.Caller{Principal: x.at.Principal, Agent: x.at.Agent, RequestID: uuid.NewString()}
}

// serve hands the call to the engine and the answer to the client.
func (x *exchange) serve() {
	ctx := x.r.Context()
	var (
		t   *task.Task
		err error
	)
	switch c := x.call; x.op {
	case engine.OpSend, engine.OpStream:
		if err = x.prepareSend(c.Send); err != nil {
			x.fail(err, false)
			return
		}
		if x.op == engine.OpStream {
			x.stream(func() (*engine.Stream, error) { return x.b.opt.Engine.Stream(ctx, c.Send) })
			return
		}
		t, err = x.b.opt.Engine.Send(ctx, c.Send)
	case engine.OpGet:
		c.Get.Caller, c.Get.WithArtifacts, c.Get.WithHistory = x.caller(), true, c.View.History != 0
		t, err = x.b.opt.Engine.Get(ctx, c.Get)
	case engine.OpCancel:
		c.Cancel.Caller = x.caller()
		t, err = x.b.opt.Engine.Cancel(ctx, c.Cancel)
	case engine.OpSubscribe:
		if err = x.prepareSubscribe(c.Subscribe); err != nil {
			x.fail(err, false)
			return
		}
		x.stream(func() (*engine.Stream, error) { return x.b.opt.Engine.Subscribe(ctx, c.Subscribe) })
		return
	default:
		err = task.Unsupported
	}
	if err != nil {
		x.fail(err, false)
		return
	}
	result, err := x.codec.Result(x.op, t, x.call.View)
	if err != nil {
		x.fail(err, false)
		return
	}
	x.observe(succeeded)
	x.reply(http.StatusOK, `,"result":`, result)
}

// maxKey bounds an Idempotency-Key header.
const maxKey = 255

func (x *exchange) prepareSend(r *engine.SendRequest) error {
	r.Caller = x.caller()
	r.Dialect = x.codec.Version()
	r.ContextMember = "message.contextId"
	if x.codec.ID() == dialect.V01 {
		r.ContextMember = "sessionId"
	}
	if x.b.opt.LegacyTaskIDs {
		r.MayCreate = true
	}
	if r.WaitUnsaid && x.b.opt.ReturnByDefault {
		r.Wait = false
	}
	r.IdempotencyKey = x.r.Header.Get("Idempotency-Key")
	if len(r.IdempotencyKey) > maxKey || strings.ContainsRune(r.IdempotencyKey, 0) {
		return task.InvalidField("Idempotency-Key", "must be at most %d characters", maxKey)
	}
	return nil
}

func (x *exchange) prepareSubscribe(r *engine.SubscribeRequest) error {
	r.Caller = x.caller()
	last := x.r.Header.Get("Last-Event-ID")
	if last == "" {
		return nil
	}
	n, err := strconv.ParseInt(last, 10, 64)
	if err != nil || n < 0 {
		return task.InvalidField("Last-Event-ID", "must be an id that a stream of this task has sent")
	}
	r.Resume, r.After = true, task.Seq(n)
	if x.b.opt.Observer.Resumed != nil {
		x.b.opt.Observer.Resumed(x.codec.Version())
	}
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
