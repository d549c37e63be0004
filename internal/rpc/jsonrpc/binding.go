// Package jsonrpc is the JSON-RPC binding: one URL for every version of A2A. It
// does the framing and nothing else; the shapes belong to the codecs, the work to
// the engine.
package jsonrpc

import (
	"cmp"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/rpc/body"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v03"
	"github.com/holdfast-a2a/holdfast/internal/rpc/operation"
	"github.com/holdfast-a2a/holdfast/internal/rpc/web"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Options configures a binding. The zero value of a number means its default.
type Options = web.Options

// Binding serves JSON-RPC requests.
type Binding struct{ *web.Binding }

// New makes a binding.
func New(o Options) *Binding { return &Binding{web.New(o)} }

// Endpoint is where a request arrived, and whether the path pins a version.
type Endpoint struct {
	operation.Endpoint
	Pin string
}

// exchange is one request on its way.
type exchange struct {
	web.Exchange
	b      *Binding
	pin    string
	id     string // literal JSON
	taskID string // as the request names it
	head   []byte // what stands before each document of its stream
}

// Serve answers one request.
func (b *Binding) Serve(w http.ResponseWriter, r *http.Request, at Endpoint) {
	x := &exchange{Exchange: web.Begin(w, r, at.Endpoint), b: b, pin: at.Pin, id: nullID}
	defer x.Contain(x)
	b.Limits.Begin(w)
	if at.TurnedAway != nil {
		x.turnAway(at.TurnedAway)
		return
	}
	if !body.IsJSON(r.Header.Get("Content-Type")) {
		x.refuse(codeContentType, "Incompatible content types: Content-Type must be application/json")
		return
	}
	content, ok := x.read()
	if !ok {
		return
	}
	env, bad := parse(content, b.Limits.Depth)
	x.id = env.id
	if bad != nil {
		x.refuse(bad.code, bad.message)
		return
	}
	if x.decode(env) {
		x.serve()
	}
}

// maxTurnedAway bounds what is read of whom we do not serve, in bytes, turnedAwayWithin the time.
const (
	maxTurnedAway    = 64 << 10
	turnedAwayWithin = 5 * time.Second
)

// turnAway answers to whom no agent here lets in. The request is read for its id and its
// version alone, and not when it is large; whatever else is wrong with it is not told.
func (x *exchange) turnAway(err error) {
	version := x.requestedVersion()
	x.Codec = v03.Codec{}
	if said := registry.ByVersion(cmp.Or(x.pin, version)); said != nil {
		x.Codec = said
	}
	limits := x.b.Limits
	limits.Size, limits.Timeout = min(limits.Size, maxTurnedAway), min(limits.Timeout, turnedAwayWithin)
	limits.Begin(x.W)
	if content, unread := limits.Read(x.W, x.R); unread == nil {
		env, _ := parse(content, limits.Depth)
		x.id = env.id
		if choice, _ := registry.Pick(env.method, version, x.pin, false); choice.Codec != nil {
			x.Codec = choice.Codec
			x.Op, _ = x.Codec.Operation(env.method)
		}
	}
	x.Fail(err)
}

// requestedVersion is A2A-Version, a header or a parameter of the query.
func (x *exchange) requestedVersion() string {
	version := operation.First(x.R.Header[operation.VersionHeader])
	if version == "" && x.R.URL.RawQuery != "" {
		version = x.R.URL.Query().Get("A2A-Version")
	}
	return version
}

// read takes the body in, within its bounds of size and time.
func (x *exchange) read() ([]byte, bool) {
	content, bad := x.b.Limits.Read(x.W, x.R)
	if bad == nil {
		return content, true
	}
	switch bad.Status {
	case http.StatusRequestEntityTooLarge:
		x.b.Operations.Limited(&x.Request, operation.LimitBody)
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
	choice, err := registry.Pick(env.method, x.requestedVersion(), x.pin, x.b.StrictVersion)
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
	x.Op, _ = x.Codec.Operation(env.method)
	if env.refused != nil {
		x.Fail(&task.Error{Kind: task.Invalid, Msg: env.refused.Error()})
		return false
	}
	if x.Call, err = x.Codec.Decode(x.Op, x.Params); err != nil {
		x.Fail(err)
		return false
	}
	x.taskID = x.Call.TaskID()
	x.ReadHeaders(x.R.Header.Values)
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
	if x.Op.Streams() {
		x.head = []byte(envelopeHead + x.id + `,"result":`)
		x.Stream(x.b.Binding, x)
		return
	}
	result, err := x.b.Operations.Call(x.Ctx, &x.Request)
	if err != nil {
		x.Fail(err)
		return
	}
	x.observe(operation.Succeeded)
	x.reply(http.StatusOK, `,"result":`, result)
}

func (x *exchange) observe(outcome string) { x.b.Operations.Observe(x.Op, x.Codec, outcome) }

// Event adds a whole response, with the document as its result, to the stream.
func (x *exchange) Event(id int64, document []byte) { x.Out.Event(id, x.head, document, tail) }
