package rpc

import (
	"net/http"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/rpc/jsonrpc"
	"github.com/holdfast-a2a/holdfast/internal/rpc/rest"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// operators are the bindings for the requests of operators. They are not those of clients, because they serve until the admin
// address closes, and Shutdown waits for the streams of clients before.
type operators struct {
	jsonrpc *jsonrpc.Binding
	rest    *rest.Binding
}

func newOperators(o *Options) operators {
	var own operators
	if o.JSONRPC != nil {
		own.jsonrpc = jsonrpc.New(o.JSONRPC.Options)
	}
	if o.REST != nil {
		own.rest = rest.New(o.REST.Options)
	}
	return own
}

// ServeAs answers a request to one agent as its clients get it. An operator names the caller, so the request needs no credential.
// path is the escaped path below the base of the agent. ServeAs returns when the answer has ended, also that of a stream, if w lets
// nobody take the connection. The error is task.NotFound if the agent has no such path or method.
func (s *Server) ServeAs(w http.ResponseWriter, r *http.Request, agent, path string, caller task.Caller) error {
	if s.agents[agent] == nil {
		return task.Errorf(task.NotFound, "no agent of the configuration has this name")
	}
	at := dispatch.Endpoint{Agent: agent, Admission: &named{s, caller}, ExtendedCard: s.extendedCard}
	_, at.TurnedAway = at.Admit(agent)
	if target := rest.Match(path); target != nil {
		s.operators.rest.Serve(w, r, at, target)
		return nil
	}
	pin, ok := pinned(path)
	if !ok || r.Method != http.MethodPost {
		return task.Errorf(task.NotFound, "an agent has no such path: POST JSON-RPC to its base or to v{version}, or use a path of HTTP+JSON")
	}
	s.operators.jsonrpc.Serve(w, r, jsonrpc.Endpoint{Endpoint: at, Pin: pin})
	return nil
}

// pinned returns the version that a path of JSON-RPC pins, "" for the path of all versions.
func pinned(path string) (version string, ok bool) {
	if path == "" {
		return "", true
	}
	for _, c := range registry.All() {
		if path == "v"+c.Traits().Version {
			return c.Traits().Version, true
		}
	}
	return "", false
}

// named admits the caller that an operator has named, as the gate of the agent admits one that shows a credential.
type named struct {
	s      *Server
	caller task.Caller
}

// Admit implements dispatch.Admission.
func (n *named) Admit(agent string) (task.Caller, error) {
	c := n.caller
	switch gate := n.s.Gate(agent); {
	case gate.Open():
		// All callers of such an agent are anonymous.
		c.Tenant, c.Subject, c.Scopes = "", "", nil
	case !c.Has(gate.Scope):
		return task.Caller{}, task.Errorf(task.Forbidden, "the scope %s is needed", gate.Scope)
	}
	return c, nil
}

// Watch implements dispatch.Admission. The caller of ServeAs ends the request with the operator's credential.
func (n *named) Watch(string, func(error)) (stop func()) { return func() {} }
