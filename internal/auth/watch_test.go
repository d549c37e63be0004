package auth

import (
	"crypto/x509"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/certtest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// watching is an authenticator that checks when the test says so, and reports each check.
type watching struct {
	*Authenticator
	t      *testing.T
	looked chan struct{}
}

func watchOver(t *testing.T, schemes ...Scheme) *watching {
	t.Helper()
	w := &watching{New(Options{Schemes: schemes}), t, make(chan struct{}, 1)}
	w.Authenticator.looked = func() {
		select {
		case w.looked <- struct{}{}:
		default:
		}
	}
	runs(t, w.Run)
	return w
}

// begin starts a stream: the channel receives the error that ends it.
func (w *watching) begin(r *Request, scope string) <-chan error {
	w.t.Helper()
	ended := make(chan error, 1)
	g := &Gate{Schemes: []string{w.opt.Schemes[0].Name()}, Scope: scope}
	id := w.Authenticate(w.t.Context(), r)
	_, err := w.Admit(id, g)
	require.NoError(w.t, err)
	w.t.Cleanup(w.Watch(id, g, func(err error) {
		select {
		case ended <- err:
		default:
		}
	}))
	return ended
}

func (w *watching) look() {
	w.t.Helper()
	select {
	case <-w.looked: // an earlier round
	default:
	}
	w.Recheck()
	<-w.looked
}

// endedWith expects that a stream has ended already, for a reason.
func endedWith(t *testing.T, c <-chan error, kind task.Kind, reason Reason) {
	t.Helper()
	require.Len(t, c, 1, "the stream continues")
	err := <-c
	require.Equal(t, kind, task.KindOf(err))
	var bad *refusal
	if reason != "" {
		require.ErrorAs(t, err, &bad)
		require.Equal(t, reason, bad.reason)
	}
	if errors.As(err, &bad) {
		require.NotEmpty(t, challengesOf(err), "the error says how to authenticate")
	}
}

func challengesOf(err error) []string {
	var e *task.Error
	_ = errors.As(err, &e)
	return e.Challenges
}

func goesOn(t *testing.T, c <-chan error) {
	t.Helper()
	require.Empty(t, c, "the stream was ended")
}

func TestStreamEndsWithItsKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newKeyring()
		keys := NewAPIKeys("keys", "X-Api-Key", d)
		w := watchOver(t, keys)
		alice, id := d.add("alice", 0, "use")
		bob, _ := d.add("bob", time.Hour, "use")
		hers, his := w.begin(shows("X-Api-Key", alice), "use"), w.begin(shows("X-Api-Key", bob), "use")

		// During an outage the revocation is unknown, so the stream continues.
		d.revoke(id)
		d.setAway(true)
		keys.Forget()
		w.look()
		goesOn(t, hers)
		d.setAway(false)
		w.look()
		endedWith(t, hers, task.Unauthenticated, Revoked)
		goesOn(t, his)

		// A known expiry ends the stream without a check.
		d.setAway(true)
		waittest.Advance(time.Hour - time.Second)
		goesOn(t, his)
		waittest.Advance(time.Second)
		endedWith(t, his, task.Unauthenticated, Expired)
	})
}

// One key that cannot be checked does not stop the check of the others. An outage does, otherwise each look-up would wait for it.
func TestUnreadableKeyIsNoOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newKeyring()
		keys := NewAPIKeys("keys", "X-Api-Key", d)
		w := watchOver(t, keys)
		alice, unreadable := d.add("alice", 0)
		hers := w.begin(shows("X-Api-Key", alice), "")
		var others []<-chan error
		for range 12 {
			key, id := d.add("bob", 0)
			others = append(others, w.begin(shows("X-Api-Key", key), ""))
			d.revoke(id)
		}
		d.setAway(true)
		keys.Forget()
		w.look()
		require.Equal(t, awayAfter, d.failed)
		d.away, d.broken = false, unreadable
		w.look()
		for _, c := range others {
			endedWith(t, c, task.Unauthenticated, Revoked)
		}
		goesOn(t, hers)
	})
}

// A password that is removed between the request and its stream ends the stream, although the check is over by then.
func TestRevocationWhileStreamBegins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		users := passwords(t, User{Name: "alice", Hash: hashed(t, "x")})
		w := watchOver(t, users)
		id := w.Authenticate(t.Context(), basic("alice", "x"))
		require.NoError(t, id.err)
		require.NoError(t, users.SetUsers([]User{{Name: "bob", Hash: hashed(t, "y")}}))
		w.look()
		ends := make(chan error, 1)
		defer w.Watch(id, &Gate{Schemes: []string{"users"}}, func(err error) { ends <- err })()
		<-w.looked
		endedWith(t, ends, task.Unauthenticated, Unknown)
	})
}

func TestStreamEndsWithItsPassword(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		alice, bob := User{Name: "alice", Hash: hashed(t, "x"), Scopes: []string{"use"}}, User{Name: "bob", Hash: hashed(t, "y"), Tenant: "a", Scopes: []string{"use"}}
		carol, dave := User{Name: "carol", Hash: hashed(t, "z"), Scopes: []string{"use"}}, User{Name: "dave", Hash: hashed(t, "z"), Scopes: []string{"use"}}
		users := passwords(t, alice, bob, carol, dave)
		compared := counted(users)
		w := watchOver(t, users)
		hers, his := w.begin(basic("alice", "x"), "use"), w.begin(basic("bob", "y"), "use")
		others, last := w.begin(basic("carol", "z"), "use"), w.begin(basic("dave", "z"), "use")
		w.look()
		require.Equal(t, 4, *compared, "correct passwords are not compared again")
		bob.Tenant, carol.Scopes = "b", nil
		require.NoError(t, users.SetUsers([]User{bob, carol, dave}))
		w.look()
		endedWith(t, hers, task.Unauthenticated, Unknown)
		endedWith(t, his, task.Unauthenticated, "") // his tenant has changed
		endedWith(t, others, task.Forbidden, "")    // the scope was removed
		goesOn(t, last)
	})
}

func TestStreamEndsWithItsTokensKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		sso := i.accepting(func(s *JWT) { s.pace.apart = 0 })
		w := watchOver(t, sso)
		token := bearer(i.token(i.usual()))
		c := w.begin(token, "")
		w.look()
		goesOn(t, c)
		i.rotate("new", jose.ES256)
		require.Empty(t, reasonOf(t, w.Authenticator, bearer(i.token(i.usual()))), "the new key makes the server fetch the keys")
		w.look()
		endedWith(t, c, task.Unauthenticated, Signature)
	})
}

func TestStreamEndsWithItsCertificateAuthority(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		people := certtest.NewAuthority(t)
		r := presents(issue(t, people, func(c *x509.Certificate) { c.DNSNames = []string{"alice"} }))
		var roots atomic.Pointer[x509.CertPool]
		roots.Store(pool(people))
		certs := NewMTLS(MTLSOptions{Name: "certs", Roots: roots.Load})
		w := watchOver(t, certs)
		c := w.begin(r, "")
		w.look()
		goesOn(t, c)
		roots.Store(pool(certtest.NewAuthority(t)))
		certs.known.DeleteAll()
		w.look()
		endedWith(t, c, task.Unauthenticated, Certificate)
	})
}
