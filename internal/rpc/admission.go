package rpc

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"github.com/holdfast-a2a/holdfast/internal/auth"
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/fault"
	"github.com/holdfast-a2a/holdfast/internal/rpc/operation"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Shown is what a request over HTTP shows of its caller.
func Shown(r *http.Request) *auth.Request {
	a := &auth.Request{Header: r.Header.Values, Address: r.RemoteAddr}
	if r.TLS != nil {
		a.Chain = r.TLS.PeerCertificates
	}
	return a
}

func (s *Server) arrival(r *http.Request, agent string, common bool) operation.Endpoint {
	return s.endpoint(r.Context(), Shown(r), agent, common)
}

// endpoint is what operations learn of where a request arrived, and of who calls. A common
// one serves every agent, and which one may stand in the body: then it is the operation
// that asks the agent.
func (s *Server) endpoint(ctx context.Context, r *auth.Request, agent string, common bool) operation.Endpoint {
	at := operation.Endpoint{Agent: agent, Common: common, Address: r.Address, ExtendedCard: s.extendedCard}
	if s.opt.Auth == nil {
		return at
	}
	reachable := []string{agent}
	if common {
		reachable = append(reachable, slices.Sorted(maps.Keys(s.agents))...)
	}
	id := s.opt.Auth.Authenticate(ctx, r, s.gates(reachable...)...)
	at.Admit = func(agent string) (engine.Principal, error) { return s.admit(id, agent) }
	at.Watch = func(agent string, end func(error)) (stop func()) { return s.watch(id, agent, end) }
	for _, name := range reachable {
		if s.agents[name] == nil {
			continue // nobody is the common one
		}
		_, err := at.Admit(name)
		if err == nil {
			at.TurnedAway = nil
			break
		}
		if at.TurnedAway == nil {
			at.TurnedAway = err
		}
	}
	return at
}

// gates are those of agents.
func (s *Server) gates(agents ...string) []*auth.Gate {
	var gates []*auth.Gate
	for _, name := range agents {
		if a := s.agents[name]; a != nil {
			gates = append(gates, &a.Gate)
		}
	}
	return gates
}

// admit asks an agent. One that is not served has nothing to hide.
func (s *Server) admit(id *auth.Identity, agent string) (engine.Principal, error) {
	a := s.agents[agent]
	if a == nil {
		return nobody, nil
	}
	return s.opt.Auth.Admit(id, &a.Gate)
}

// watch looks after what an agent has let in.
func (s *Server) watch(id *auth.Identity, agent string, end func(error)) (stop func()) {
	a := s.agents[agent]
	if a == nil {
		return func() {}
	}
	return s.opt.Auth.Watch(id, &a.Gate, end)
}

// reader is who reads cards. Nil is nobody in particular.
type reader struct{ id *auth.Identity }

// reader finds out who reads about agents.
func (s *Server) reader(r *http.Request, agents ...string) *reader {
	if s.opt.Auth == nil {
		return nil
	}
	return &reader{s.opt.Auth.Authenticate(r.Context(), Shown(r), s.gates(agents...)...)}
}

// cardOf is the card of an agent as a reader sees it. Where an agent is for those only who
// have its scope, so is its card. Any other is for everybody, also for who comes with an old
// token and has to learn where to get a new one; but skills may have scopes of their own,
// and of whom it is not known whether they have them must not learn that there are none.
func (s *Server) cardOf(a *Agent, by *reader) (*card.Card, error) {
	if by == nil {
		return a.Card.For(nobody.Has), nil
	}
	p, err := s.opt.Auth.Admit(by.id, &a.Gate)
	if err != nil && (a.Gate.Scope != "" || a.personal() && !refused(err)) {
		return nil, err
	}
	return a.Card.For(p.Has), nil
}

// refused reports whether an error says who somebody is not, and not that this could not be found out.
func refused(err error) bool {
	kind := task.KindOf(err)
	return kind == task.Unauthenticated || kind == task.Forbidden
}

var nobody engine.Principal

// personal reports whether the card of an agent is not the same for everybody.
func (a *Agent) personal() bool { return a.Gate.Scope != "" || a.Card.Restricted() }

// turnAway answers to a reader who is not let in, outside of every version.
func turnAway(c echo.Context, err error) error {
	var e *task.Error
	if known, ours := operation.Known(err); !ours {
		e = known
	} else {
		return err
	}
	fault.Headers(e, c.Response().Header().Add)
	c.Response().Header().Set("Cache-Control", "no-store")
	row := fault.Base.Row(e.Kind)
	return c.JSON(row.HTTP, map[string]string{"error": http.StatusText(row.HTTP)})
}
