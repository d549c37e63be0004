package auth

import (
	"context"
	"crypto/x509"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/identity"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// watching is an authenticator that looks when it is told to, and tells when it has.
type watching struct {
	*Authenticator
	t      *testing.T
	looked chan struct{}
}

func watchOver(t *testing.T, schemes ...Scheme) *watching {
	t.Helper()
	w := &watching{New(Options{Schemes: schemes}), t, make(chan struct{}, 1)}
	w.Authenticator.looked = func() { w.looked <- struct{}{} }
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		_ = w.Run(ctx)
	}()
	t.Cleanup(func() { stop(); <-ran })
	return w
}

// begin is something that goes on: the channel gets what ends it.
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
	w.Recheck()
	await(w.t, w.looked)
}

// await is for what comes before it is time for the next look.
func await[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(watchEvery / 2):
		require.FailNow(t, "nothing came in time")
	}
	return v
}

// ended is what has ended something, which must be so by now.
func ended(t *testing.T, c <-chan error) (task.Kind, Reason) {
	t.Helper()
	select {
	case err := <-c:
		var bad *refusal
		if !errors.As(err, &bad) {
			return task.KindOf(err), ""
		}
		require.NotEmpty(t, challengesOf(err), "it says how to come back")
		return task.KindOf(err), bad.reason
	default:
		require.FailNow(t, "it goes on")
		return 0, ""
	}
}

func challengesOf(err error) []string {
	var e *task.Error
	_ = errors.As(err, &e)
	return e.Challenges
}

func goesOn(t *testing.T, c <-chan error) {
	t.Helper()
	select {
	case err := <-c:
		require.NoError(t, err, "it was ended")
	default:
	}
}

// outage is a database that may be away, or have one key that cannot be read.
type outage struct {
	*database
	away   atomic.Bool
	broken string
	asked  atomic.Int32 // in vain
}

func (o *outage) FindAPIKey(ctx context.Context, id string) (*identity.Key, error) {
	if o.away.Load() || id == o.broken {
		o.asked.Add(1)
		return nil, &task.Error{Kind: task.Unavailable}
	}
	return o.database.FindAPIKey(ctx, id)
}

func TestWhatAKeyHasBegunEndsWithIt(t *testing.T) {
	t.Parallel()
	d := &outage{database: openDatabase(t)}
	keys := NewAPIKeys("keys", "X-Api-Key", d)
	w := watchOver(t, keys)
	alice, id := addKey(t, d.database, store.APIKey{Subject: "alice", Scopes: []string{"use"}}, 0)
	bob, _ := addKey(t, d.database, store.APIKey{Subject: "bob", Scopes: []string{"use"}}, time.Hour)
	hers, his := w.begin(shows("X-Api-Key", alice), "use"), w.begin(shows("X-Api-Key", bob), "use")

	// Of an outage nothing is known but that it is one.
	_, err := d.RevokeAPIKey(t.Context(), id)
	require.NoError(t, err)
	d.away.Store(true)
	keys.Forget()
	w.look()
	goesOn(t, hers)
	d.away.Store(false)
	w.look()
	kind, reason := ended(t, hers)
	require.Equal(t, task.Unauthenticated, kind)
	require.Equal(t, Revoked, reason)
	goesOn(t, his)

	// Nobody has to look for the end that is known.
	brief, _ := addKey(t, d.database, store.APIKey{Subject: "carol"}, time.Second)
	err = await(t, w.begin(shows("X-Api-Key", brief), ""))
	require.Equal(t, task.Unauthenticated, task.KindOf(err))
	require.NotEmpty(t, challengesOf(err))
	goesOn(t, his)
}

// One key that cannot be checked keeps no other from being looked at. An outage does, or each would wait for it.
func TestOneKeyThatCannotBeCheckedIsNoOutage(t *testing.T) {
	t.Parallel()
	d := &outage{database: openDatabase(t)}
	keys := NewAPIKeys("keys", "X-Api-Key", d)
	w := watchOver(t, keys)
	alice, unreadable := addKey(t, d.database, store.APIKey{Subject: "alice"}, 0)
	hers := w.begin(shows("X-Api-Key", alice), "")
	var others []<-chan error
	var ids []string
	for range 12 {
		key, id := addKey(t, d.database, store.APIKey{Subject: "bob"}, 0)
		others, ids = append(others, w.begin(shows("X-Api-Key", key), "")), append(ids, id)
	}
	for _, id := range ids {
		_, err := d.RevokeAPIKey(t.Context(), id)
		require.NoError(t, err)
	}
	d.away.Store(true)
	keys.Forget()
	w.look()
	require.EqualValues(t, awayAfter, d.asked.Load())
	d.away.Store(false)
	d.broken = unreadable
	w.look()
	for _, c := range others {
		kind, reason := ended(t, c)
		require.Equal(t, task.Unauthenticated, kind)
		require.Equal(t, Revoked, reason)
	}
	goesOn(t, hers)
}

// A password that is taken away between the request and its stream ends it, too, although the look is over by then.
func TestWhatIsRevokedWhileAStreamBeginsEndsIt(t *testing.T) {
	t.Parallel()
	users, err := NewBasic("users", []User{{Name: "alice", Hash: hashed(t, "x")}})
	require.NoError(t, err)
	w := watchOver(t, users)
	id := w.Authenticate(t.Context(), basic("alice", "x"))
	require.NoError(t, id.err)
	require.NoError(t, users.SetUsers([]User{{Name: "bob", Hash: hashed(t, "y")}}))
	w.look()
	ends := make(chan error, 1)
	defer w.Watch(id, &Gate{Schemes: []string{"users"}}, func(err error) { ends <- err })()
	await(t, w.looked)
	kind, reason := ended(t, ends)
	require.Equal(t, task.Unauthenticated, kind)
	require.Equal(t, Unknown, reason)
}

func TestWhatAPasswordHasBegunEndsWithIt(t *testing.T) {
	t.Parallel()
	alice, bob := User{Name: "alice", Hash: hashed(t, "x"), Scopes: []string{"use"}}, User{Name: "bob", Hash: hashed(t, "y"), Tenant: "a", Scopes: []string{"use"}}
	carol, dave := User{Name: "carol", Hash: hashed(t, "z"), Scopes: []string{"use"}}, User{Name: "dave", Hash: hashed(t, "z"), Scopes: []string{"use"}}
	users, err := NewBasic("users", []User{alice, bob, carol, dave})
	require.NoError(t, err)
	compared := counted(users)
	w := watchOver(t, users)
	hers, his := w.begin(basic("alice", "x"), "use"), w.begin(basic("bob", "y"), "use")
	others, last := w.begin(basic("carol", "z"), "use"), w.begin(basic("dave", "z"), "use")
	w.look()
	require.Equal(t, 4, *compared, "what is known to be right is not compared again")
	bob.Tenant, carol.Scopes = "b", nil
	require.NoError(t, users.SetUsers([]User{bob, carol, dave}))
	w.look()
	kind, reason := ended(t, hers)
	require.Equal(t, task.Unauthenticated, kind)
	require.Equal(t, Unknown, reason, "she was removed")
	kind, _ = ended(t, his)
	require.Equal(t, task.Unauthenticated, kind, "his tasks are another tenant's now")
	kind, _ = ended(t, others)
	require.Equal(t, task.Forbidden, kind, "the scope was taken")
	goesOn(t, last)
}

func TestWhatATokenHasBegunEndsWithItsKey(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	sso := i.accepting(func(s *JWT) { s.pace.apart = 0 })
	w := watchOver(t, sso)
	token := bearer(i.token(i.usual()))
	c := w.begin(token, "")
	w.look()
	goesOn(t, c)
	i.rotate("new", jose.ES256)
	require.Empty(t, reasonOf(t, w.Authenticator, bearer(i.token(i.usual()))), "which makes the server fetch the keys")
	w.look()
	kind, reason := ended(t, c)
	require.Equal(t, task.Unauthenticated, kind)
	require.Equal(t, Signature, reason)
}

func TestWhatACertificateHasBegunEndsWithItsAuthority(t *testing.T) {
	t.Parallel()
	people := newAuthority(t, "people")
	_, _, pair := people.issue(func(c *x509.Certificate) { c.Subject.CommonName = "alice" })
	r := shows()
	r.Chain = []*x509.Certificate{must(x509.ParseCertificate(pair.Certificate[0]))}
	var roots atomic.Pointer[x509.CertPool]
	roots.Store(people.pool())
	certs := NewMTLS(MTLSOptions{Name: "certs", Roots: roots.Load})
	w := watchOver(t, certs)
	c := w.begin(r, "")
	w.look()
	goesOn(t, c)
	roots.Store(newAuthority(t, "others").pool())
	certs.known.DeleteAll()
	w.look()
	kind, reason := ended(t, c)
	require.Equal(t, task.Unauthenticated, kind)
	require.Equal(t, Certificate, reason)
}
