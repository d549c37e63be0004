package auth

import (
	"errors"
	"slices"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Gate says which callers may use an agent.
type Gate struct {
	// Schemes are the names of the accepted schemes, in the order of the cards. Without schemes the gate is open.
	Schemes []string
	// Scope is the scope that a caller needs; "" for none.
	Scope string
}

// Open reports whether the gate needs no credential.
func (g *Gate) Open() bool { return len(g.Schemes) == 0 }

// Admit returns the caller for an agent behind a gate. The error is task.Unauthenticated with challenges,
// task.Forbidden, or the error of a check that failed.
func (a *Authenticator) Admit(id *Authentication, g *Gate) (task.Caller, error) {
	if g.Open() {
		// The caller is anonymous even when the request shows a credential. Otherwise an unneeded header would change
		// the owner of tasks.
		return task.Caller{Address: id.Address}, nil
	}
	err := id.err
	if err == nil && !slices.Contains(g.Schemes, id.scheme) {
		err = refuse(Elsewhere, nil)
	}
	if err != nil {
		return task.Caller{}, a.refused(err, id.scheme, g)
	}
	if !id.Has(g.Scope) {
		return task.Caller{}, &task.Error{
			Kind: task.Forbidden, Msg: "the scope " + g.Scope + " is needed", Challenges: a.wanting(id.scheme, g.Scope),
		}
	}
	return id.Caller, nil
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
			if c := s.challenge(name == scheme); c != "" {
				e.Challenges = append(e.Challenges, c)
			}
		}
	}
	// Several issuers have the same challenge.
	e.Challenges = slices.Compact(e.Challenges)
	return e
}

// realm is the realm of all challenges.
const realm = `realm="holdfast"`

// wanting returns the challenge for a token without the scope (RFC 6750). Other schemes do not define one.
func (a *Authenticator) wanting(scheme, scope string) []string {
	if s := a.byName[scheme]; s == nil || s.kind() != KindJWT {
		return nil
	}
	return []string{`Bearer ` + realm + `, error="insufficient_scope", scope="` + scope + `"`}
}
