// Package rest is the HTTP+JSON binding. It finds the operation by path and verb, and builds its
// request from path, query and body. It answers with bare documents, and with errors that have a
// status. The codecs define the shapes; package dispatch runs the operations.
package rest

import (
	"net/http"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/rpc/overhttp"
	"github.com/holdfast-a2a/holdfast/internal/web/fault"
)

// Options configures a binding. A number that is 0 means its default.
type Options = overhttp.Options

// Binding serves HTTP+JSON requests.
type Binding struct{ *overhttp.Binding }

// New makes a binding.
func New(o Options) *Binding { return &Binding{overhttp.New(o)} }

// exchange is the state of one request.
type exchange struct {
	overhttp.Exchange
	*Target
}

// Serve answers one request whose path leads to t.
func (b *Binding) Serve(w http.ResponseWriter, r *http.Request, at dispatch.Endpoint, t *Target) {
	x := &exchange{Exchange: overhttp.Begin(b.Binding, w, r, at, "rest"), Target: t}
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
	if err := registry.Admit(x.version, x.RequestedVersion(), "path", b.StrictVersion); err != nil {
		x.Fail(err)
		return
	}
	x.Ctx = b.Operations.Arrive(x.Ctx, &x.Request)
	account := x.Account
	defer account.Close()
	if x.decode() {
		x.Serve(x)
	}
}

// route finds the operation.
func (x *exchange) route() bool {
	op, ok := x.verbs.operation(x.R.Method)
	x.Op = op
	switch {
	case x.verbs == nil:
		x.refuse(http.StatusNotFound, "METHOD_NOT_FOUND", "UNIMPLEMENTED", codeMethodNotFound,
			"Method not found: A2A "+x.version.Traits().Version+" has no such path")
	case ok:
		return true
	case x.R.Method == http.MethodOptions:
		x.W.Header().Set("Allow", x.verbs.allow())
		x.W.WriteHeader(http.StatusNoContent)
	default:
		x.W.Header().Set("Allow", x.verbs.allow())
		x.refuse(http.StatusMethodNotAllowed, "METHOD_NOT_FOUND", "UNIMPLEMENTED", codeMethodNotFound,
			"Method not found: this path accepts "+strings.TrimPrefix(x.verbs.allow(), "OPTIONS, "))
	}
	return false
}

// decode reads the request in the shape of its version.
func (x *exchange) decode() bool {
	params, ok := x.params()
	if !ok {
		return false
	}
	call, err := x.Codec.Decode(x.Op, params)
	if err != nil {
		x.Fail(x.Unread(x.tenant, err))
		return false
	}
	x.Call = call
	if x.tenant != "" {
		call.Tenant = x.tenant
	}
	x.ReadHeaders(x.R.Header.Values)
	return true
}

// Answer answers with a bare document.
func (x *exchange) Answer(document []byte) { x.Reply(http.StatusOK, x.mediaType(), document) }

// faults returns the error table of the request's version.
func (x *exchange) faults() *fault.Table {
	return x.version.Traits().Statuses(x.Base.FormerStatuses)
}

// Event adds a bare document to the stream.
func (x *exchange) Event(id, document []byte) { x.Out.Event(id, document) }
