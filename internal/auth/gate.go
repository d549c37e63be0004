package auth

import (
	"errors"
	"slices"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Gate is who may use an agent.
type Gate struct {
	// Schemes are the names of those that it takes, in the order of the cards. None: it asks for nothing.
	Schemes []string
	// Scope is what the principal must have; "" for nothing.
	Scope string
}

// Open reports whether the gate asks for nothing.
func (g *Gate) Open() bool { return len(g.Schemes) == 0 }

// Admit is who calls, as an agent behind a gate sees it. The error is task.Unauthenticated,
// with challenges, task.Forbidden, or that of a check that could not be made.
func (a *Authenticator) Admit(id *Identity, g *Gate) (engine.Principal, error) {
	if g.Open() {
		// Nobody in particular, also when something was shown: tasks must not change hands
		// with a header that was not asked for.
		return engine.Principal{}, nil
	}
	err := id.err
	if err == nil && !slices.Contains(g.Schemes, id.scheme) {
		err = refuse(Elsewhere, nil)
	}
	if err != nil {
		return engine.Principal{}, a.refused(err, id.scheme, g)
	}
	if !id.Has(g.Scope) {
		return engine.Principal{}, &task.Error{
			Kind: task.Forbidden, Msg: "the scope " + g.Scope + " is needed", Challenges: a.wanting(id.scheme, g.Scope),
		}
	}
	return id.Principal, nil
}

func (a *Authenticator) refused(err error, scheme string, g *Gate) error {
	var bad *refusal
	if !errors.As(err, &bad) {
		return err
	}
	e := &task.Error{Kind: task.Unauthenticated, Cause: err}
	if bad.reason != Missing {
		e.Msg = "the credentials were not accepted"
	}
	for _, name := range g.Schemes {
		if s := a.byName[name]; s != nil {
			e.Challenges = append(e.Challenges, s.challenge(name == scheme))
		}
	}
	// Several issuers ask in the same words.
	e.Challenges = slices.Compact(e.Challenges)
	return e
}

// realm is that of all challenges.
const realm = `realm="holdfast"`

// wanting is what a bearer of too little is told (RFC 6750). Others have no such words.
func (a *Authenticator) wanting(scheme, scope string) []string {
	if s := a.byName[scheme]; s == nil || s.kind() != KindJWT {
		return nil
	}
	return []string{`Bearer ` + realm + `, error="insufficient_scope", scope="` + scope + `"`}
}
