package admin

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/auth"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

// Talk is how operators talk to agents.
type Talk struct {
	// Serve answers a request in the name of a caller. path is the escaped path below the base of the agent.
	Serve func(w http.ResponseWriter, r *http.Request, agent, path string, caller task.Caller) error
	// URL is where clients reach the agents: the base of the server.
	URL string
	// Schemes are how their requests show a credential.
	Schemes []Scheme
}

// Scheme is a scheme of callers.
type Scheme struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"`
	Header string `json:"header,omitempty"` // of the credential
}

// The headers by which an operator says in whose name it talks. Their values are percent-encoded.
const (
	subjectHeader = "Holdfast-Subject"
	tenantHeader  = "Holdfast-Tenant"
	scopesHeader  = "Holdfast-Scopes" // separated by spaces
	reasonHeader  = "Holdfast-Reason"
)

// talkReason is the reason in the audit log if the operator gives none.
const talkReason = "talk"

// passed are the headers of a request that its agent's binding gets: those of A2A. Headers that a browser adds stay here, because
// an agent may be configured to get the headers of its clients.
var passed = []string{
	"Accept", "A2a-Extensions", "A2a-Version", "Content-Type", "If-None-Match", "Last-Event-Id", "Prefer", "Traceparent", "Tracestate",
	"X-A2a-Extensions", "X-Request-Id",
}

type talksView struct {
	// Available says that this process answers below /talk/{agent}/.
	Available bool        `json:"available"`
	URL       string      `json:"url,omitempty"`
	Schemes   []Scheme    `json:"schemes"`
	Agents    []talkAgent `json:"agents"`
	// Tenant is the only tenant whose callers the operator may name.
	Tenant *string `json:"tenant,omitempty"`
	// Scopes are those that the operator may give to the callers that it names. Absent: any.
	Scopes *[]string `json:"scopes,omitempty"`
}

type talkAgent struct {
	Name    string   `json:"name"`
	Default bool     `json:"default,omitempty"`
	Kind    string   `json:"kind"`
	Schemes []string `json:"schemes"` // none: all callers are anonymous
	Scope   string   `json:"scope,omitempty"`
}

// talks says how the operator may talk to agents.
func (a *API) talks(x *exchange) error {
	view := talksView{Schemes: []Scheme{}, Agents: []talkAgent{}}
	if a.o.Talk != nil {
		view.Available, view.URL = true, a.o.Talk.URL
		view.Schemes = append(view.Schemes, a.o.Talk.Schemes...)
	}
	for i := range a.o.Agents {
		g := &a.o.Agents[i]
		view.Agents = append(view.Agents, talkAgent{g.Name, g.Default, g.Kind, append([]string{}, g.Schemes...), g.Scope})
	}
	if x.who.Bound {
		view.Tenant = &x.who.Caller.Tenant
	}
	if x.who.Watch != nil {
		scopes := append([]string{}, x.who.Caller.Scopes...)
		view.Scopes = &scopes
	}
	return x.ok(view)
}

// talk passes a request on to an agent, in the name of a caller, and its answer back. Requests of A2A may wait and stream, so each
// takes one of the places for streams.
func (a *API) talk(x *exchange) error {
	if a.o.Talk == nil {
		return task.Errorf(task.Unsupported, "this process has no role api; talk to one that has it")
	}
	name := x.r.PathValue("agent")
	i := slices.IndexFunc(a.o.Agents, func(g Agent) bool { return g.Name == name })
	if i < 0 {
		return task.Errorf(task.NotFound, "no agent of the configuration has this name")
	}
	caller, err := x.named(&a.o.Agents[i])
	if err != nil {
		return err
	}
	key, err := x.idempotencyKey()
	if err != nil {
		return err
	}
	ctx, end, err := a.place(x)
	if err != nil {
		return err
	}
	defer end()
	r := x.r.Clone(ctx)
	r.Header = http.Header{}
	for _, name := range passed {
		if values := x.r.Header[name]; values != nil {
			r.Header[name] = values
		}
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	if r.ContentLength == 0 {
		// The server's limit for reading a request would end a stream. Bindings set their own for a body.
		_ = http.NewResponseController(x.w).SetReadDeadline(time.Time{})
	}
	// The path keeps the escapes of the client: an id may have a slash.
	_, path, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), Path+"/talk/"), "/")
	return a.o.Talk.Serve(inline{x.w}, r, name, path, caller)
}

// named returns the caller that the headers name. An operator gives no scope that it does not have, and a tenant's operator names
// callers of its tenant.
func (x *exchange) named(agent *Agent) (task.Caller, error) {
	by := x.who.Caller
	c := task.Caller{Method: task.MethodOperator, Credential: by.Subject, Address: by.Address}
	values := map[string]string{}
	for _, name := range []string{subjectHeader, tenantHeader, scopesHeader, reasonHeader} {
		all := x.r.Header[name]
		if len(all) > 1 {
			return c, web.Invalid(name, "must be given once")
		}
		if len(all) == 1 {
			value, err := url.PathUnescape(all[0])
			if err != nil {
				return c, web.Invalid(name, "must be percent-encoded")
			}
			values[name] = value
		}
	}
	if err := x.reasoned(cmp.Or(values[reasonHeader], talkReason)); err != nil {
		return c, err
	}
	c.Reason = x.op.By().Reason
	c.Subject, c.Tenant, c.Scopes = values[subjectHeader], values[tenantHeader], strings.Fields(values[scopesHeader])
	if len(agent.Schemes) == 0 {
		if c.Subject != "" || c.Tenant != "" || len(c.Scopes) > 0 {
			return c, web.Invalid(subjectHeader, "must not be given: all callers of this agent are anonymous")
		}
		return c, nil
	}
	if x.who.Bound {
		if _, given := values[tenantHeader]; given && c.Tenant != by.Tenant {
			return c, web.Refuse(http.StatusForbidden, web.ReasonForbidden, tenantHeader, "must be your tenant")
		}
		c.Tenant = by.Tenant
	}
	if err := auth.CheckSubject(c.Tenant, c.Subject); err != nil {
		return c, web.Invalid(subjectHeader, "must name the caller: "+err.Error())
	}
	if x.who.Watch != nil { // else everybody here may do everything
		for _, scope := range c.Scopes {
			if !by.Has(scope) {
				return c, web.Refuse(http.StatusForbidden, web.ReasonForbidden, scopesHeader, "must be scopes that you have yourself")
			}
		}
	}
	return c, nil
}

// inline keeps a binding from taking the connection for a stream, which then is served until the handler returns: its place, and
// what ends it, are here.
type inline struct{ http.ResponseWriter }

// FlushError, SetReadDeadline and SetWriteDeadline are for http.ResponseController.
func (w inline) FlushError() error { return http.NewResponseController(w.ResponseWriter).Flush() }

// SetReadDeadline is the one of the connection.
func (w inline) SetReadDeadline(t time.Time) error {
	return http.NewResponseController(w.ResponseWriter).SetReadDeadline(t)
}

// SetWriteDeadline is the one of the connection.
func (w inline) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(w.ResponseWriter).SetWriteDeadline(t)
}
