// Package rest is the HTTP+JSON binding, of 1.0 and of 0.3: it finds the operation by
// path and verb, makes its request of path, query and body, and shows documents bare
// and errors with a status. The shapes belong to the codecs, the work to the operations.
package rest

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/rpc/fault"
	"github.com/holdfast-a2a/holdfast/internal/rpc/operation"
	"github.com/holdfast-a2a/holdfast/internal/rpc/web"
)

// Options configures a binding. The zero value of a number means its default.
type Options = web.Options

// Binding serves HTTP+JSON requests.
type Binding struct{ *web.Binding }

// New makes a binding.
func New(o Options) *Binding { return &Binding{web.New(o)} }

// exchange is one request on its way.
type exchange struct {
	web.Exchange
	*Target
	b *Binding
}

// Serve answers one request, whose path leads to t.
func (b *Binding) Serve(w http.ResponseWriter, r *http.Request, at operation.Endpoint, t *Target) {
	x := &exchange{Exchange: web.Begin(w, r, at), Target: t, b: b}
	x.Codec = t.version
	defer x.Contain(x)
	if !x.route() {
		return
	}
	if at.TurnedAway != nil {
		x.Fail(at.TurnedAway)
		return
	}
	if !x.negotiate() {
		return
	}
	if err := registry.Admit(x.version, x.requestedVersion(), "path", b.StrictVersion); err != nil {
		x.Fail(err)
		return
	}
	if x.decode() {
		x.serve()
	}
}

// route finds the operation.
func (x *exchange) route() bool {
	op, ok := x.verbs.operation(x.R.Method)
	x.Op = op
	switch {
	case x.verbs == nil:
		x.refuse(http.StatusNotFound, "METHOD_NOT_FOUND", "UNIMPLEMENTED", codeMethodNotFound,
			"Method not found: A2A "+x.version.Version()+" has no such path")
	case ok:
		return true
	case x.R.Method == http.MethodOptions:
		x.W.Header().Set("Allow", x.verbs.allow())
		x.W.WriteHeader(http.StatusNoContent)
	default:
		x.W.Header().Set("Allow", x.verbs.allow())
		x.refuse(http.StatusMethodNotAllowed, "METHOD_NOT_FOUND", "UNIMPLEMENTED", codeMethodNotFound,
			"Method not found: here it is "+strings.TrimPrefix(x.verbs.allow(), "OPTIONS, "))
	}
	return false
}

// requestedVersion is A2A-Version, a header or a parameter of the query.
func (x *exchange) requestedVersion() string {
	return cmp.Or(x.R.Header.Get("A2a-Version"), x.R.URL.Query().Get("A2A-Version"))
}

// decode reads the request in the words of its version.
func (x *exchange) decode() bool {
	params, ok := x.params()
	if !ok {
		return false
	}
	call, err := x.Codec.Decode(x.Op, params)
	if err != nil {
		x.Fail(err)
		return false
	}
	x.Call = call
	if x.tenant != "" {
		call.Tenant = x.tenant
	}
	x.ReadHeaders(x.R.Header.Values)
	return true
}

// serve runs the operation and shows its answer.
func (x *exchange) serve() {
	if x.Op.Streams() {
		x.Stream(x.b.Binding, x)
		return
	}
	result, err := x.b.Operations.Call(x.Ctx, &x.Request)
	if err != nil {
		x.Fail(err)
		return
	}
	x.observe(operation.Succeeded)
	x.reply(http.StatusOK, x.mediaType(), result)
}

func (x *exchange) observe(outcome string) { x.b.Operations.Observe(x.Op, x.Codec, outcome) }

// faults is the table of the version that the request speaks.
func (x *exchange) faults() *fault.Table {
	if x.b.Statuses100 && x.version == version10 {
		return fault.Edition100
	}
	return x.version.faults
}

// Event adds a bare document to the stream.
func (x *exchange) Event(id int64, document []byte) { x.Out.Event(id, document) }
