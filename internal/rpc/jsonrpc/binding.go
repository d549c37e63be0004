// Package jsonrpc is the JSON-RPC binding: one URL for every version of A2A. It only does the
// framing. The codecs define the shapes; the engine does the work.
package jsonrpc

import (
	"cmp"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/rpc/overhttp"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

// Options configures a binding. A number that is 0 means its default.
type Options = overhttp.Options

// Binding serves JSON-RPC requests.
type Binding struct {
	*overhttp.Binding
	turnedAway *limit.Places[string] // of bodies that turnAway reads
}

// New makes a binding.
func New(o Options) *Binding {
	return &Binding{overhttp.New(o), limit.NewPlaces[string](maxTurnedAways, maxTurnedAwaysOfAddress)}
}

// Endpoint says where a request arrived, and whether the path pins a version.
type Endpoint struct {
	dispatch.Endpoint
	Pin string
}

// exchange is the state of one request.
type exchange struct {
	overhttp.Exchange
	b      *Binding
	pin    string
	id     string // literal JSON
	taskID string // as the request names it
	head   []byte // the bytes before each document of its answer
}

// Serve answers one request.
func (b *Binding) Serve(w http.ResponseWriter, r *http.Request, at Endpoint) {
	x := &exchange{Exchange: overhttp.Begin(b.Binding, w, r, at.Endpoint, "jsonrpc"), b: b, pin: at.Pin, id: nullID}
	defer x.Contain(x)
	b.Limits.Begin(w)
	if at.TurnedAway != nil {
		x.turnAway(at.TurnedAway)
		return
	}
	if !web.IsJSON(r.Header.Get("Content-Type")) {
		x.refuse(codeContentType, "Incompatible content types: Content-Type must be application/json")
		return
	}
	x.Ctx = b.Operations.Arrive(x.Ctx, &x.Request)
	account := x.Account
	defer account.Close()
	if err := b.Operations.CountEarly(&x.Request, r.ContentLength); err != nil {
		x.turnAway(err)
		return
	}
	content, ok := x.read()
	if !ok {
		return
	}
	env, bad := parse(content, b.Limits.Depth)
	x.id = env.id
	x.Params = env.params
	if bad != nil {
		x.unread(bad.code, bad.message)
		return
	}
	if x.decode(env) {
		x.head = []byte(envelopeHead + x.id + `,"result":`)
		x.Serve(x)
	}
}

// Limits for the bodies of callers that no agent admits: maxTurnedAway in bytes, turnedAwayWithin in
// time, and how many are read at a time, in total and from one address.
const (
	maxTurnedAway           = 64 << 10
	turnedAwayWithin        = 5 * time.Second
	maxTurnedAways          = 256
	maxTurnedAwaysOfAddress = 32
)

// turnAway answers a caller that no agent here admits. It reads the request only for its id and
// version, and does not read large requests. It reports no other fault of the request. If too many
// such requests are being read, it answers without the id.
func (x *exchange) turnAway(err error) {
	version := x.RequestedVersion()
	x.Codec = registry.Fallback()
	if said := registry.ByVersion(cmp.Or(x.pin, version)); said != nil {
		x.Codec = said
	}
	if content, ok := x.readTurnedAway(); ok {
		env, _ := parse(content, x.b.Limits.Depth)
		x.id = env.id
		if choice, _ := registry.Pick(env.method, version, x.pin, false); choice.Codec != nil {
			x.Codec = choice.Codec
			x.Op = x.Codec.Traits().Operations[env.method]
		}
	}
	x.Fail(err)
}

// readTurnedAway reads the body of a caller that no agent admits. It reserves no memory for a body
// that did not arrive.
func (x *exchange) readTurnedAway() ([]byte, bool) {
	leave, ok := x.b.turnedAway.Take(limit.Sender(x.R.RemoteAddr))
	if !ok {
		x.W.Header().Set("Connection", "close") // the body stays unread
		return nil, false
	}
	defer leave()
	limits := x.b.Limits
	limits.Size, limits.Timeout, limits.ReserveNothing = min(limits.Size, maxTurnedAway), min(limits.Timeout, turnedAwayWithin), true
	limits.Begin(x.W)
	content, unread := limits.Read(x.W, x.R, x.Account)
	return content, unread == nil
}

// read reads the body, within its bounds of size and time.
func (x *exchange) read() ([]byte, bool) {
	content, bad := x.b.Limits.Read(x.W, x.R, x.Account)
	if bad == nil {
		return content, true
	}
	if bad.Err != nil {
		x.Codec = cmp.Or(registry.ByVersion(cmp.Or(x.pin, x.RequestedVersion())), registry.Fallback())
		x.b.Operations.Limited(&x.Request, dispatch.LimitMemory)
		x.Fail(bad.Err)
		return nil, false
	}
	switch bad.Status {
	case http.StatusRequestEntityTooLarge:
		x.b.Operations.Limited(&x.Request, dispatch.LimitBody)
		x.status(bad.Status, codeInvalidRequest, "Request too large: "+bad.Msg)
	case http.StatusRequestTimeout, http.StatusUnsupportedMediaType:
		x.status(bad.Status, codeInvalidRequest, "Request payload validation error: "+bad.Msg)
	default:
		x.refuse(codeParse, "Invalid JSON payload: "+bad.Msg)
	}
	return nil, false
}

// decode finds the version, and reads the params in the shape of that version.
func (x *exchange) decode(env *envelope) bool {
	choice, err := registry.Pick(env.method, x.RequestedVersion(), x.pin, x.b.StrictVersion)
	if errors.Is(err, registry.ErrMethod) {
		x.unread(codeMethodNotFound, "Method not found: "+quoteMethod(env.method))
		return false
	}
	x.Codec, x.Ambiguous = choice.Codec, choice.Ambiguous
	x.Method = env.method
	x.Op = x.Codec.Traits().Operations[env.method]
	if err == nil {
		err = env.refused
	}
	if err == nil {
		x.Call, err = x.Codec.Decode(x.Op, x.Params)
	}
	if err != nil {
		x.Fail(x.Unread(x.tenant(), err))
		return false
	}
	x.taskID = x.Call.TaskID()
	x.ReadHeaders(x.R.Header.Values)
	return true
}

// unread refuses a request that no codec can read.
func (x *exchange) unread(code int, message string) {
	if err := x.Unread(x.tenant(), nil); err != nil {
		x.Codec = cmp.Or(registry.ByVersion(cmp.Or(x.pin, x.RequestedVersion())), registry.Fallback())
		x.Fail(err)
		return
	}
	x.refuse(code, message)
}

// tenant returns the agent that the params name, or "": also if they name two.
func (x *exchange) tenant() string {
	var names []string
	_ = members(x.Params, func(member string, v jsontext.Value) {
		if member == "tenant" {
			names = append(names, unquote(v))
		}
	})
	if len(names) != 1 {
		return ""
	}
	return names[0]
}

func quoteMethod(m string) string {
	m = strings.ToValidUTF8(m, "\uFFFD")
	if len(m) > 64 {
		m = strings.ToValidUTF8(m[:64], "") + "…"
	}
	b, _ := jsontext.AppendQuote(nil, m)
	return string(b)
}

// Answer answers with a document as the result.
func (x *exchange) Answer(document []byte) {
	x.Reply(http.StatusOK, dialect.TypeJSON, x.head, document, tail)
}

// Event adds a complete response to the stream, with the document as its result.
func (x *exchange) Event(id, document []byte) { x.Out.Event(id, x.head, document, tail) }
