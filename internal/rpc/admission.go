package rpc

import (
	"context"
	"net/http"

	"github.com/holdfast-a2a/holdfast/internal/auth"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Shown extracts from an HTTP request what identifies its caller.
func Shown(r *http.Request) *auth.Request {
	a := &auth.Request{Header: r.Header.Values, Address: r.RemoteAddr}
	if r.TLS != nil {
		a.Chain = r.TLS.PeerCertificates
	}
	return a
}

func (s *Server) arrival(r *http.Request, agent string, common bool) dispatch.Endpoint {
	return s.endpoint(r.Context(), Shown(r), agent, common)
}

// endpoint describes to operations where a request arrived and who calls. A common endpoint serves
// every agent. The body may then name the agent, so the operation asks that agent.
func (s *Server) endpoint(ctx context.Context, r *auth.Request, agent string, common bool) dispatch.Endpoint {
	reachable := []string{agent}
	if common {
		reachable = append(reachable, s.names...)
	}
	a := s.admission(ctx, r, reachable...)
	at := dispatch.Endpoint{Agent: agent, Common: common, Admission: a, ExtendedCard: s.extendedCard}
	for _, name := range reachable {
		if s.agents[name] == nil {
			continue // there is no common agent
		}
		_, err := a.Admit(name)
		if err == nil {
			at.TurnedAway = nil
			limit.Accept(ctx)
			break
		}
		if at.TurnedAway == nil {
			at.TurnedAway = err
		}
	}
	return at
}

// admission holds the decisions of agents about the caller of one request. Each agent decides once.
type admission struct {
	s       *Server
	shown   *auth.Authentication // nil: no agent requires authentication
	address string
	decided []verdict // few agents, mostly one
}

type verdict struct {
	agent  string
	caller task.Caller
	err    error
}

// admission authenticates a request for the agents that it can reach.
func (s *Server) admission(ctx context.Context, r *auth.Request, reachable ...string) *admission {
	a := &admission{s: s, address: r.Address}
	if s.opt.Auth == nil {
		return a
	}
	var gates []*auth.Gate
	for _, name := range reachable {
		if served := s.agents[name]; served != nil {
			gates = append(gates, &served.Gate)
		}
	}
	a.shown = s.opt.Auth.Authenticate(ctx, r, gates...)
	return a
}

// Admit implements dispatch.Admission.
func (a *admission) Admit(agent string) (task.Caller, error) {
	for i := range a.decided {
		if v := &a.decided[i]; v.agent == agent {
			return v.caller, v.err
		}
	}
	v := verdict{agent: agent, caller: task.Caller{Address: a.address}}
	// An agent that is not served has nothing to hide.
	if served := a.s.agents[agent]; served != nil && a.shown != nil {
		v.caller, v.err = a.s.opt.Auth.Admit(a.shown, &served.Gate)
	}
	a.decided = append(a.decided, v)
	return v.caller, v.err
}

// Watch implements dispatch.Admission.
func (a *admission) Watch(agent string, end func(error)) (stop func()) {
	served := a.s.agents[agent]
	if served == nil || a.shown == nil {
		return func() {}
	}
	return a.s.opt.Auth.Watch(a.shown, &served.Gate, end)
}
