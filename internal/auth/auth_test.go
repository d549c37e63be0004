package auth

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/crypto/bcrypt"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

func TestMain(m *testing.M) {
	weakest = bcrypt.MinCost + 1
	goleak.VerifyTestMain(m)
}

// database is a store that counts look-ups of keys.
type database struct {
	*store.Store
	mu    sync.Mutex
	asked int
}

func (d *database) FindAPIKey(ctx context.Context, id string) (*task.Key, error) {
	d.mu.Lock()
	d.asked++
	d.mu.Unlock()
	return d.Store.FindAPIKey(ctx, id)
}

func (d *database) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked
}

func openDatabase(t testing.TB) *database {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{URL: storetest.New(t).URL, Listener: &signal.Bus{}})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close(context.Background()) })
	return &database{Store: s}
}

func addKey(t testing.TB, d *database, k store.APIKey, lifetime time.Duration) (key, id string) {
	t.Helper()
	key, id, hash := NewAPIKey()
	k.ID, k.Hash = id, hash
	_, err := d.AddAPIKey(t.Context(), &k, lifetime)
	require.NoError(t, err)
	return key, id
}

func TestAPIKeys(t *testing.T) {
	t.Parallel()
	d := openDatabase(t)
	s := NewAPIKeys("keys", "X-API-Key", d)
	a := New(Options{Schemes: []Scheme{s}})
	key, id := addKey(t, d, store.APIKey{Tenant: "acme", Subject: "alice", Scopes: []string{"weather:use"}}, 0)
	require.Regexp(t, `^hfk_[a-z2-7]{16}_[a-z2-7]{59}$`, key)

	want := task.Caller{Tenant: "acme", Subject: "alice", Scopes: []string{"weather:use"}, Method: KindAPIKey, Credential: "keys/" + id}
	for range 3 {
		got := a.Authenticate(t.Context(), shows("X-Api-Key", key))
		require.NoError(t, got.err)
		require.Equal(t, want, got.Caller)
	}
	require.Equal(t, 1, d.count(), "later requests use the cache")
	stored, err := d.Operator(task.Caller{}, false).ListAPIKeys(t.Context(), "", 1)
	require.NoError(t, err)
	require.False(t, stored[0].LastUsedAt.IsZero(), "the use is recorded")
	sum := sha256.Sum256([]byte(key))
	require.Equal(t, sum[:], stored[0].Hash)

	// Another secret with the same id, and a valid checksum.
	head := keyPrefix + id + "_" + strings.Repeat("a", secretLength)
	require.Equal(t, Unknown, reasonOf(t, a, shows("X-Api-Key", head+checksum(head))))
	stranger, _, _ := NewAPIKey()
	require.Equal(t, Unknown, reasonOf(t, a, shows("X-Api-Key", stranger)))
	asked := d.count()
	for _, broken := range []string{"", "x", key[:len(key)-1], key + "a", strings.ToUpper(key), "hfk_" + key[5:], key[:70] + "zz" + key[72:], key + "\x00"} {
		require.Equal(t, Malformed, reasonOf(t, a, shows("X-Api-Key", broken)), broken)
	}
	require.Equal(t, asked, d.count(), "malformed keys are not looked up")

	// A replica accepts a revoked key until it hears of the revocation.
	_, err = d.RevokeAPIKey(t.Context(), id)
	require.NoError(t, err)
	require.Empty(t, reasonOf(t, a, shows("X-Api-Key", key)))
	s.Forget()
	require.Equal(t, Revoked, reasonOf(t, a, shows("X-Api-Key", key)))
	gone, err := d.RevokeAPIKey(t.Context(), "nobodys")
	require.NoError(t, err)
	require.Nil(t, gone)

	brief, _ := addKey(t, d, store.APIKey{Subject: "bob"}, time.Microsecond)
	require.Equal(t, Expired, reasonOf(t, a, shows("X-Api-Key", brief)))

	bearers := New(Options{Schemes: []Scheme{NewAPIKeys("keys", "Authorization", d)}})
	other, _ := addKey(t, d, store.APIKey{Subject: "carol"}, time.Hour)
	require.Empty(t, reasonOf(t, bearers, bearer(other)))
	require.Equal(t, Malformed, reasonOf(t, bearers, bearer("eyJhbGciOiJub25lIn0.e30.")))
}

// keyring is a store of keys in memory.
type keyring struct {
	mu     sync.Mutex
	keys   map[string]*task.Key
	ends   map[string]time.Time
	asked  int             // look-ups
	away   bool            // look-ups fail
	broken string          // look-ups of this key fail
	failed int             // look-ups that failed
	hold   chan struct{}   // look-ups wait until it is closed
	found  func(id string) // called when a key was found, before the answer arrives
}

func newKeyring() *keyring {
	return &keyring{keys: map[string]*task.Key{}, ends: map[string]time.Time{}}
}

// add makes a key that is valid for a day, or for less.
func (k *keyring) add(subject string, lifetime time.Duration, scopes ...string) (key, id string) {
	key, id, hash := NewAPIKey()
	k.keys[id] = &task.Key{Hash: hash, Owner: task.Owner{Subject: subject}, Scopes: scopes}
	k.ends[id] = time.Now().Add(cmp.Or(lifetime, 24*time.Hour))
	return key, id
}

func (k *keyring) setAway(away bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.away = away
}

func (k *keyring) revoke(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys[id].Revoked = true
}

func (k *keyring) FindAPIKey(_ context.Context, id string) (*task.Key, error) {
	k.mu.Lock()
	k.asked++
	hold, found := k.hold, k.found
	if k.away || id == k.broken {
		k.failed++
		k.mu.Unlock()
		return nil, &task.Error{Kind: task.Unavailable}
	}
	var answer *task.Key
	if known := k.keys[id]; known != nil {
		key := *known
		key.Left = time.Until(k.ends[id])
		answer = &key
	}
	k.mu.Unlock()
	if hold != nil {
		<-hold
	}
	if answer != nil && found != nil {
		found(id)
	}
	return answer, nil
}

func (*keyring) RecordKeyUse(context.Context, string) error { return nil }

// A revocation between the look-up and the caching is not lost.
func TestRevokedKeyIsNotCached(t *testing.T) {
	t.Parallel()
	d := newKeyring()
	keys := NewAPIKeys("keys", "X-Api-Key", d)
	d.found = func(id string) {
		d.revoke(id)
		keys.Forget()
	}
	a := New(Options{Schemes: []Scheme{keys}})
	key, _ := d.add("alice", 0)
	require.Empty(t, reasonOf(t, a, shows("X-Api-Key", key)), "the key was valid at the look-up")
	require.Equal(t, Revoked, reasonOf(t, a, shows("X-Api-Key", key)))
}

func TestCache(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCache[int](10)
		key := func(i int) [sha256.Size]byte { return sha256.Sum256([]byte{byte(i)}) }
		has := func(i int) bool { _, ok := c.get(key(i)); return ok }
		for i := range 100 {
			c.put(key(i), i, time.Hour)
			require.True(t, has(0), "the used entry stays")
		}
		require.Equal(t, 10, c.Len())
		require.False(t, has(1))
		waittest.Advance(59 * time.Minute)
		require.True(t, has(99))
		waittest.Advance(2 * time.Minute)
		require.False(t, has(99), "use does not extend its time")
		c.put(key(0), 0, 0)
		c.put(key(1), 1, -1)
		require.False(t, has(0) || has(1), "no time was left")
	})
}

// While the database is away, a request may say that a key that was good lately is enough. The answer of the database about the key ends that.
func TestKeysOfLately(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newKeyring()
		keys := NewAPIKeys("keys", "X-Api-Key", d)
		a := New(Options{Schemes: []Scheme{keys.OrBearer()}})
		key, id := d.add("alice", 0)
		ask := func(lately, away bool, after time.Duration) error {
			waittest.Advance(after)
			d.setAway(away)
			r := shows("X-Api-Key", key)
			r.Lately = lately
			_, err := a.Admit(a.Authenticate(t.Context(), r), &Gate{Schemes: []string{"keys"}})
			return err
		}
		require.ErrorIs(t, ask(true, true, 0), task.Unavailable, "it was never good")
		require.NoError(t, ask(false, false, 0))
		require.NoError(t, ask(true, true, latelyFor-time.Second))
		require.ErrorIs(t, ask(false, true, 0), task.Unavailable)
		require.ErrorIs(t, ask(true, true, 2*time.Second), task.Unavailable)
		require.NoError(t, ask(true, false, 0))
		keys.Forget()
		require.ErrorIs(t, ask(true, true, 0), task.Unavailable, "a key was revoked, perhaps this one")
		require.NoError(t, ask(true, false, 0))
		d.revoke(id)
		require.ErrorIs(t, ask(true, false, 2*keyFor), task.Unauthenticated)
		require.ErrorIs(t, ask(true, true, 0), task.Unavailable)
	})
}

// An outage is logged, but not with every request. A canceled request is not.
func TestDatabaseOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		d := newKeyring()
		d.setAway(true)
		a := New(Options{Schemes: []Scheme{NewAPIKeys("keys", "X-Api-Key", d)}, Log: slog.New(slog.NewTextHandler(&log, nil))})
		key, _ := d.add("alice", 0)
		left, leave := context.WithCancel(t.Context())
		leave()
		for _, want := range []string{"scheme=keys requests=1 error=", "requests=100 "} {
			a.Authenticate(left, shows("X-Api-Key", key))
			require.Empty(t, log.String())
			for range 100 {
				_, err := a.Admit(a.Authenticate(t.Context(), shows("X-Api-Key", key)), &Gate{Schemes: []string{"keys"}})
				require.Equal(t, task.Unavailable, task.KindOf(err), "the key is not at fault")
			}
			require.Equal(t, 1, strings.Count(log.String(), "\n"))
			require.Contains(t, log.String(), want)
			waittest.Advance(troubleEvery)
			log.Reset()
		}
	})
}

// hashed is the hash of a password, made once, because hashing is slow by design.
func hashed(t testing.TB, password string) string {
	t.Helper()
	if known, ok := hashes.Load(password); ok {
		return known.(string)
	}
	h := must(bcrypt.GenerateFromPassword([]byte(password), weakest))
	// Concurrent tests that hash the same password get the same hash.
	known, _ := hashes.LoadOrStore(password, string(h))
	return known.(string)
}

var hashes sync.Map

// passwords is a scheme for users.
func passwords(t testing.TB, users ...User) *Basic {
	t.Helper()
	s, err := NewBasic("users", users)
	require.NoError(t, err)
	return s
}

func basic(name, password string) *Request {
	return shows("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(name+":"+password)))
}

func TestBasic(t *testing.T) {
	t.Parallel()
	s := passwords(t, User{Name: "alice", Hash: hashed(t, "sesame:open"), Tenant: "acme", Scopes: []string{"x"}}, User{Name: "bob", Hash: hashed(t, "")})
	// Count the comparisons, and note the hashes; the time that each takes is the library's.
	var compared []string
	compare := s.compare
	s.compare = func(hash, password []byte) error {
		compared = append(compared, string(hash[:7]))
		return compare(hash, password)
	}
	a := New(Options{Schemes: []Scheme{s}})
	for range 3 {
		id := a.Authenticate(t.Context(), basic("alice", "sesame:open"))
		require.NoError(t, id.err)
		require.Equal(t, task.Caller{Tenant: "acme", Subject: "alice", Scopes: []string{"x"}, Method: KindBasic, Credential: "users/alice"}, id.Caller)
	}
	require.Len(t, compared, 1, "a correct password is compared once")
	require.Empty(t, reasonOf(t, a, basic("bob", "")))
	compared = nil
	require.Equal(t, Unknown, reasonOf(t, a, basic("alice", "wrong")))
	require.Equal(t, Unknown, reasonOf(t, a, basic("mallory", "wrong")))
	require.Equal(t, Unknown, reasonOf(t, a, basic("", "")))
	require.Equal(t, []string{"$2a$05$", "$2a$05$", "$2a$05$"}, compared,
		"known or unknown user, each try costs one comparison of the same cost")

	for _, broken := range []string{"!", "YWxpY2U=", "YWxpY2U6c2VzYW1lOm9wZW4", base64.StdEncoding.EncodeToString([]byte("alice:" + strings.Repeat("x", 73)))} {
		require.Equal(t, Malformed, reasonOf(t, a, shows("Authorization", "Basic "+broken)), broken)
	}

	require.NoError(t, s.SetUsers([]User{{Name: "alice", Hash: hashed(t, "new")}}))
	require.Equal(t, Unknown, reasonOf(t, a, basic("alice", "sesame:open")), "a replaced password is not cached")
	require.Empty(t, reasonOf(t, a, basic("alice", "new")))

	dear := must(bcrypt.GenerateFromPassword([]byte("x"), weakest+1))
	for text, users := range map[string][]User{
		"no users":           nil,
		"listed twice":       {{Name: "a", Hash: hashed(t, "x")}, {Name: "a", Hash: hashed(t, "y")}},
		"one cost for all":   {{Name: "a", Hash: hashed(t, "x")}, {Name: "b", Hash: string(dear)}},
		"not a bcrypt hash":  {{Name: "a", Hash: "secret"}},
		"cost 4; use a cost": {{Name: "a", Hash: string(must(bcrypt.GenerateFromPassword([]byte("x"), 4)))}},
	} {
		require.ErrorContains(t, s.SetUsers(users), text)
	}
	require.Empty(t, reasonOf(t, a, basic("alice", "new")), "they stay")
}

// blocked makes comparisons wait until they are released, and counts them.
func blocked(s *Basic) (begun *atomic.Int64, release func()) {
	begun = new(atomic.Int64)
	gate := make(chan struct{})
	s.compare = func(hash, password []byte) error {
		begun.Add(1)
		<-gate
		// Like the real comparison, without its cost.
		if known, _ := hashes.Load(string(password)); known == string(hash) {
			return nil
		}
		return bcrypt.ErrMismatchedHashAndPassword
	}
	return begun, sync.OnceFunc(func() { close(gate) })
}

func from(r *Request, address string) *Request {
	r.Address = address
	return r
}

// Comparing is slow. Clients without a password must not occupy all processors with it and lock others out.
func TestPasswordComparisonsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := passwords(t, User{Name: "alice", Hash: hashed(t, "x")}, User{Name: "bob", Hash: hashed(t, "y")}, User{Name: "carol", Hash: hashed(t, "z")})
		var log strings.Builder
		a := New(Options{Schemes: []Scheme{s}, Log: slog.New(slog.NewTextHandler(&log, nil))})
		require.Empty(t, reasonOf(t, a, basic("alice", "x")))
		require.Empty(t, reasonOf(t, a, basic("carol", "z")))
		_, release := blocked(s)
		defer release()
		var waiting sync.WaitGroup
		waits := func(name, password, address string) <-chan *Authentication {
			before, got := s.from.Taken(), make(chan *Authentication, 1)
			waiting.Go(func() { got <- a.Authenticate(context.Background(), from(basic(name, password), address)) })
			synctest.Wait()
			require.Equal(t, before+1, s.from.Taken(), "%s %s", name, address)
			return got
		}
		busy := func(name, password, address string) {
			t.Helper()
			require.Equal(t, task.RateLimited, task.KindOf(a.Authenticate(t.Context(), from(basic(name, password), address)).err), "%s %s", name, address)
		}
		// A client that guesses one user's password locks out no other user.
		for n := range maxWaitingOfName {
			waits("bob", fmt.Sprint(n), fmt.Sprintf("10.0.0.%d:1", n))
		}
		busy("bob", "more", "10.0.1.1:1")
		busy("bob", "y", "10.0.1.1:1")
		// A client that guesses names locks out only clients at its own address.
		for n := range maxWaitingFrom {
			waits(fmt.Sprint("nobody", n), "x", fmt.Sprintf("10.0.2.1:%d", n))
		}
		busy("mallory", "x", "10.0.2.1:99")
		require.Empty(t, reasonOf(t, a, from(basic("alice", "x"), "10.0.2.1:1")), "a cached password does not wait")
		right := waits("dave", "x", "[2001:db8:1::1]:1")
		for n := range maxWaitingFrom - 1 {
			waits(fmt.Sprint("somebody", n), "x", fmt.Sprintf("[2001:db8:1::%x]:1", n+2))
		}
		busy("mallory", "x", "[2001:db8:1::ffff]:1")
		for n := s.from.Taken(); n < maxWaiting; n++ {
			waits(fmt.Sprint("anybody", n), "x", fmt.Sprintf("10.1.0.%d:1", n))
		}
		busy("mallory", "x", "10.2.0.1:1")
		require.Empty(t, log.String(), "any client can cause this, at any rate, so it is not logged")
		// A client whose password was correct before gets a comparison.
		s.users.Load().right.DeleteAll()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for range 20 {
			require.Equal(t, task.Unavailable, task.KindOf(a.Authenticate(gone, from(basic("carol", "z"), "10.0.2.1:1")).err), "she waits")
		}
		release()
		waiting.Wait()
		require.NoError(t, a.Authenticate(t.Context(), from(basic("carol", "z"), "10.0.2.1:1")).err)
		require.Error(t, (<-right).err)
		require.Zero(t, s.from.Taken())
		require.Zero(t, s.ofName.Taken())
	})
}

// Concurrent requests with the same password cost one comparison.
func TestSamePasswordIsComparedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := passwords(t, User{Name: "alice", Hash: hashed(t, "x")})
		begun, release := blocked(s)
		defer release()
		a := New(Options{Schemes: []Scheme{s}})
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if err := a.Authenticate(context.Background(), basic("alice", "x")).err; err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		require.EqualValues(t, 1, begun.Load())
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		require.Equal(t, task.Unavailable, task.KindOf(a.Authenticate(gone, basic("alice", "x")).err), "a canceled request does not cancel the others")
		release()
		all.Wait()
		require.EqualValues(t, 1, begun.Load())
	})
}

// Authentication ignores credentials of schemes that no gate accepts.
func TestUnusedSchemesAreNotChecked(t *testing.T) {
	t.Parallel()
	s := passwords(t, User{Name: "alice", Hash: hashed(t, "x")})
	s.compare = func([]byte, []byte) error { t.Error("a password was compared"); return nil }
	d := newKeyring()
	outcomes := map[string]int{}
	a := New(Options{
		Schemes: []Scheme{s, NewAPIKeys("keys", "X-Api-Key", d)},
		Observe: func(scheme, outcome string) { outcomes[scheme+" "+outcome]++ },
	})
	keys, open := &Gate{Schemes: []string{"keys"}}, &Gate{}
	id := a.Authenticate(t.Context(), basic("alice", "x"), keys, open)
	_, err := a.Admit(id, keys)
	require.Equal(t, task.Unauthenticated, task.KindOf(err))
	require.Equal(t, map[string]int{"users elsewhere": 1}, outcomes)
	key, _ := d.add("alice", 0)
	p, err := a.Admit(a.Authenticate(t.Context(), shows("X-Api-Key", key), open), open)
	require.NoError(t, err)
	require.Zero(t, p)
	require.Zero(t, d.asked, "an open agent causes no look-up")
	require.Equal(t, Several, reasonOfFor(t, a, shows("X-Api-Key", key, "Authorization", "Basic YWxpY2U6eA=="), keys), "two credentials are refused")
}

func reasonOfFor(t *testing.T, a *Authenticator, r *Request, g *Gate) Reason {
	t.Helper()
	var bad *refusal
	require.ErrorAs(t, a.Authenticate(t.Context(), r, g).err, &bad)
	return bad.reason
}

// Refusals per address are bounded. Valid credentials are not affected, from that address or another.
func TestRefusalsPerAddressAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newKeyring()
		keys := NewAPIKeys("keys", "X-Api-Key", d)
		outcomes := map[string]int{}
		a := New(Options{
			Schemes: []Scheme{keys}, Failures: limit.NewRates[Guesser](1, 5),
			Observe: func(_, outcome string) { outcomes[outcome]++ },
		})
		show := func(address string, pairs ...string) error {
			return a.Authenticate(t.Context(), from(shows(pairs...), address)).err
		}
		guess := func() error {
			stranger, _, _ := NewAPIKey()
			return show("10.0.0.1:2", "X-Api-Key", stranger)
		}
		good, _ := d.add("alice", 0)
		late, _ := d.add("bob", 0)
		require.NoError(t, show("10.0.0.1:1", "X-Api-Key", good))
		for range 50 {
			require.Error(t, show("10.0.0.1:1"))
		}
		require.Equal(t, 50, outcomes["missing"], "requests without credentials get 401 and do not count")
		for range 20 {
			require.Error(t, show("10.0.0.1:1", "X-Api-Key", "hfk_nonsense"), "a malformed one costs no query, and does not count")
		}
		for range 5 {
			require.ErrorAs(t, guess(), new(*refusal))
		}
		asked := d.asked
		var e *task.Error
		require.ErrorAs(t, guess(), &e)
		require.Equal(t, task.RateLimited, e.Kind)
		require.Equal(t, time.Second, e.RetryAfter)
		require.Equal(t, asked, d.asked, "no key was looked up")
		require.Equal(t, 1, outcomes["limited"])
		require.NoError(t, show("10.0.0.1:9", "X-Api-Key", good))
		keys.Forget()
		require.NoError(t, show("10.0.0.1:9", "X-Api-Key", good), "a credential that was valid before is checked")
		err := show("10.0.0.1:9", "X-Api-Key", late)
		require.Equal(t, task.RateLimited, task.KindOf(err), "a new credential shares the failure budget of its address")
		require.NoError(t, show("10.0.0.2:9", "X-Api-Key", late))
		waittest.Advance(time.Second)
		require.ErrorAs(t, guess(), new(*refusal), "a failure comes back each second")
	})
}

// A client that exhausts the failure budget of its address does not lock out credentials that cannot be guessed, such
// as new tokens. A credential that was valid before does not count as a failure.
func TestRefusalsDoNotBlockNewTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		alice, bob := User{Name: "alice", Hash: hashed(t, "x")}, User{Name: "bob", Hash: hashed(t, "y")}
		users := passwords(t, alice, bob)
		i := newIssuer(t)
		a := New(Options{Schemes: []Scheme{users, i.accepting()}, Failures: limit.NewRates[Guesser](1, 3)})
		show := func(r *Request) error { return a.Authenticate(t.Context(), from(r, "10.0.0.1:1")).err }
		late := i.usual()
		late["exp"] = time.Now().Add(-time.Hour).Unix()
		require.NoError(t, show(basic("alice", "x")))
		require.NoError(t, users.SetUsers([]User{bob}))
		for range 10 {
			require.ErrorAs(t, show(basic("alice", "x")), new(*refusal))
			require.ErrorAs(t, show(bearer(i.token(late))), new(*refusal))
		}
		require.NoError(t, show(basic("bob", "y")), "no failure was counted")
		for range 3 {
			require.ErrorAs(t, show(basic("carol", "z")), new(*refusal))
		}
		require.Equal(t, task.RateLimited, task.KindOf(show(basic("carol", "z"))))
		require.NoError(t, show(bearer(i.token(i.usual()))))
	})
}

// counted counts the password comparisons from now on; they come one at a time.
func counted(users *Basic) *int {
	compared, compare := new(int), users.compare
	users.compare = func(hash, password []byte) error {
		*compared++
		return compare(hash, password)
	}
	return compared
}

// A password in steady use counts as valid within the last day, although it is compared only once.
func TestPasswordInUseStaysKnownGood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		alice := User{Name: "alice", Hash: hashed(t, "x")}
		users := passwords(t, alice)
		compared := counted(users)
		a := New(Options{Schemes: []Scheme{users}, Failures: limit.NewRates[Guesser](1, 1)})
		show := func(r *Request) error { return a.Authenticate(t.Context(), from(r, "10.0.0.1:1")).err }
		for range (goodFor + time.Hour) / (passwordFor / 2) {
			require.NoError(t, show(basic("alice", "x")))
			waittest.Advance(passwordFor / 2)
		}
		require.Equal(t, 1, *compared)
		require.NoError(t, users.SetUsers([]User{alice}))
		require.ErrorAs(t, show(basic("bob", "y")), new(*refusal))
		require.Equal(t, task.RateLimited, task.KindOf(show(basic("bob", "y"))))
		require.NoError(t, show(basic("alice", "x")), "it is checked whatever other clients at its address do")
	})
}

// A fast digest of the password in memory for a day would defeat bcrypt.
func TestPasswordDigestsAreKeyed(t *testing.T) {
	t.Parallel()
	users := passwords(t, User{Name: "alice", Hash: hashed(t, "x")})
	a, b := New(Options{Schemes: []Scheme{users}}), New(Options{Schemes: []Scheme{users}})
	for _, one := range []*Authenticator{a, b} {
		users.users.Load().right.DeleteAll()
		require.NoError(t, one.Authenticate(t.Context(), basic("alice", "x")).err)
		require.Equal(t, 1, one.good.Len())
	}
	for _, d := range a.good.Keys() {
		require.NotContains(t, b.good.Keys(), d)
		require.NotEqual(t, sha256.Sum256([]byte("users\x00"+base64.StdEncoding.EncodeToString([]byte("alice:x")))), d)
	}
}

func TestParseUsers(t *testing.T) {
	t.Parallel()
	users, err := ParseUsers([]byte("# comment\n\nalice:$2y$12$x\r\nbob:$2y$12$y:acme:weather:use admin\n"))
	require.NoError(t, err)
	require.Equal(t, []User{{Name: "alice", Hash: "$2y$12$x"}, {Name: "bob", Hash: "$2y$12$y", Tenant: "acme", Scopes: []string{"weather:use", "admin"}}}, users)
	_, err = ParseUsers(nil)
	require.Error(t, err)
	_, err = ParseUsers([]byte(":x"))
	require.Error(t, err)
}

// A request has one credential, of any scheme. Unknown ones do not count.
func TestRequestHasOneCredential(t *testing.T) {
	t.Parallel()
	d := newKeyring()
	i := newIssuer(t)
	users := passwords(t, User{Name: "alice", Hash: hashed(t, "x")})
	var log bytes.Buffer
	outcomes := map[string]int{}
	a := New(Options{
		Schemes: []Scheme{NewAPIKeys("keys", "X-Api-Key", d), users, i.accepting()},
		Observe: func(scheme, outcome string) { outcomes[scheme+" "+outcome]++ },
		Log:     slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	key, _ := d.add("alice", 0)
	token := i.token(i.usual())
	password := "Basic " + base64.StdEncoding.EncodeToString([]byte("alice:x"))
	for name, c := range map[string]struct {
		r    *Request
		want Reason
	}{
		"none":                        {shows(), Missing},
		"an empty Authorization":      {shows("Authorization", ""), Malformed},
		"a key":                       {shows("X-Api-Key", key), ""},
		"a token":                     {bearer(token), ""},
		"a password":                  {shows("Authorization", password), ""},
		"a key twice":                 {shows("X-Api-Key", key, "X-Api-Key", key), Several},
		"a token twice":               {shows("Authorization", "Bearer "+token, "Authorization", "Bearer "+token), Several},
		"a token and a password":      {shows("Authorization", "Bearer "+token, "Authorization", password), Several},
		"a key and a token":           {shows("X-Api-Key", key, "Authorization", "Bearer "+token), Several},
		"a key and a broken one":      {shows("X-Api-Key", key, "Authorization", "Bearer x"), Several},
		"a key and an empty one":      {shows("X-Api-Key", key, "Authorization", ""), Malformed},
		"a list of two":               {shows("Authorization", "Bearer "+token+", "+password), Malformed},
		"an unknown scheme":           {shows("Authorization", "Digest x"), Malformed},
		"a scheme and no more":        {shows("Authorization", "Bearer"), Malformed},
		"a scheme and a space":        {shows("Authorization", "Bearer "), Malformed},
		"a tab for a space":           {shows("Authorization", "Bearer\t"+token), Malformed},
		"a space within":              {shows("Authorization", "Bearer "+token+" x"), Malformed},
		"an empty key":                {shows("X-Api-Key", ""), Malformed},
		"a key in the token's header": {bearer(key), Malformed},
		"a token in the key's header": {shows("X-Api-Key", token), Malformed},
		"in a header of a proxy":      {shows("X-Forwarded-User", "alice", "X-Forwarded-Authorization", password), Missing},
		"in a cookie":                 {shows("Cookie", "Authorization="+token), Missing},
		"control characters":          {shows("Authorization", "Bearer "+token+"\x00"), Malformed},
		"Proxy-Authorization too":     {shows("Proxy-Authorization", password, "X-Api-Key", key), ""},
	} {
		require.Equal(t, c.want, reasonOf(t, a, c.r), name)
	}
	require.Positive(t, outcomes["sso ok"])
	require.Positive(t, outcomes[" several"])
	for _, secret := range []string{key, token, password, password[6:], "x:"} {
		require.NotContains(t, log.String(), secret)
	}

	// If no scheme reads Authorization, its content is ignored.
	require.Empty(t, reasonOf(t, New(Options{Schemes: []Scheme{NewAPIKeys("keys", "X-Api-Key", d)}}), shows("X-Api-Key", key, "Authorization", password)))
}

func TestGates(t *testing.T) {
	t.Parallel()
	d := newKeyring()
	i := newIssuer(t)
	users := passwords(t, User{Name: "alice", Hash: hashed(t, "x"), Scopes: []string{"weather:use"}})
	a := New(Options{Schemes: []Scheme{i.accepting(), NewAPIKeys("keys", "X-API-Key", d), users}})
	all := []string{"sso", "keys", "users"}
	admit := func(r *Request, g *Gate) (task.Caller, *task.Error) {
		p, err := a.Admit(a.Authenticate(t.Context(), r), g)
		var e *task.Error
		errors.As(err, &e)
		return p, e
	}

	_, e := admit(shows(), &Gate{Schemes: all})
	require.Equal(t, task.Unauthenticated, e.Kind)
	require.Empty(t, e.Msg)
	challenges := []string{`Bearer realm="holdfast"`, `ApiKey realm="holdfast", header="X-API-Key"`, `Basic realm="holdfast", charset="UTF-8"`}
	require.Equal(t, challenges, e.Challenges)

	_, e = admit(bearer("x"), &Gate{Schemes: all})
	require.Equal(t, "the credentials were not accepted", e.Msg)
	require.Equal(t, `Bearer realm="holdfast", error="invalid_token"`, e.Challenges[0])
	_, e = admit(basic("alice", "y"), &Gate{Schemes: all})
	require.Equal(t, challenges, e.Challenges, "a refused password does not mention tokens")

	p, e := admit(basic("alice", "x"), &Gate{Schemes: all, Scope: "weather:use"})
	require.Nil(t, e)
	require.Equal(t, "alice", p.Subject)
	_, e = admit(basic("alice", "x"), &Gate{Schemes: []string{"sso"}})
	require.Equal(t, task.Unauthenticated, e.Kind, "this agent does not take passwords")
	p, e = admit(basic("alice", "x"), &Gate{Schemes: all, Scope: "weather:admin"})
	require.Equal(t, task.Forbidden, e.Kind)
	require.Zero(t, p)
	require.Empty(t, e.Challenges)
	_, e = admit(bearer(i.token(i.usual())), &Gate{Schemes: all, Scope: "weather:admin"})
	require.Equal(t, []string{`Bearer realm="holdfast", error="insufficient_scope", scope="weather:admin"`}, e.Challenges)

	p, e = admit(basic("alice", "x"), &Gate{})
	require.Nil(t, e)
	require.Zero(t, p, "where no authentication is required the caller is anonymous")
	p, e = admit(bearer("x"), &Gate{})
	require.Nil(t, e)
	require.Zero(t, p)
}

func FuzzAuthorization(f *testing.F) {
	users := passwords(f, User{Name: "alice", Hash: hashed(f, "x")})
	users.compare = func(hash, password []byte) error {
		if string(hash) == users.users.Load().byName["alice"].Hash && string(password) == "x" {
			return nil
		}
		return errors.New("no")
	}
	issuer := NewJWT(JWTOptions{Name: "sso", Issuer: "https://id.example.com", Audiences: []string{"a"}})
	issuer.current.Store(&keySet{fetched: time.Now(), keep: time.Hour, good: newCache[*proof](10)})
	issuer.busy, issuer.well, issuer.tried, issuer.pace.apart = false, true, time.Now(), time.Hour
	a := New(Options{Schemes: []Scheme{users, issuer, NewAPIKeys("keys", "X-Api-Key", newKeyring())}})
	for _, s := range []string{
		"", "Bearer", "Bearer x", "basic YWxpY2U6eA==", "Basic YWxpY2U6eA==", "Basic Og==", "Bearer a.b.c", "Bearer eyJhbGciOiJub25lIn0.e30.",
		"Bearer eyJhbGciOiJSUzI1NiIsImtpZCI6Im9uZSJ9.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUuY29tIn0.AAAA", "\x00", "Bearer \xff",
	} {
		f.Add(s, "")
	}
	key, _, _ := NewAPIKey()
	f.Add("", key)
	f.Add("", "hfk_")
	f.Fuzz(func(t *testing.T, authorization, key string) {
		r := shows()
		if authorization != "" {
			r = shows("Authorization", authorization)
		}
		if key != "" {
			r = shows("X-Api-Key", key)
		}
		id := a.Authenticate(t.Context(), r)
		if id.err != nil {
			require.ErrorAs(t, id.err, new(*refusal), "a refused credential must not panic")
			require.Zero(t, id.Caller)
			return
		}
		scheme, credential, _ := strings.Cut(authorization, " ")
		require.True(t, strings.EqualFold(scheme, "Basic"), authorization)
		require.Equal(t, "YWxpY2U6eA==", strings.Trim(credential, " "))
	})
}

func FuzzAPIKey(f *testing.F) {
	key, _, _ := NewAPIKey()
	f.Add(key)
	f.Add("hfk__")
	f.Add("")
	f.Fuzz(func(t *testing.T, key string) {
		id, ok := keyID(key)
		if !ok {
			return
		}
		require.Len(t, id, idLength)
		require.Len(t, key, keyLength)
		for i := range key { // one wrong letter is noticed
			broken := []byte(key)
			broken[i] ^= 1
			_, ok := keyID(string(broken))
			require.False(t, ok, string(broken))
		}
	})
}

// Checks of credentials that were not good before are bounded, in total and per address. Others are not affected.
func TestRunningChecksAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newKeyring()
		keys := NewAPIKeys("keys", "X-Api-Key", d)
		a := New(Options{Schemes: []Scheme{keys}})
		a.checks = limit.NewPlaces[string](4, 3)
		good, _ := d.add("alice", 0)
		require.NoError(t, a.Authenticate(t.Context(), from(shows("X-Api-Key", good), "10.0.0.1:1")).err)
		keys.Forget()
		d.hold = make(chan struct{})
		check := func(key, address string) <-chan error {
			done := make(chan error, 1)
			go func() { done <- a.Authenticate(t.Context(), from(shows("X-Api-Key", key), address)).err }()
			synctest.Wait()
			return done
		}
		stranger, _, _ := NewAPIKey()
		var waiting []<-chan error
		waits := func(address string) {
			c := check(stranger, address)
			require.Empty(t, c, address)
			waiting = append(waiting, c)
		}
		limited := func(address string) {
			t.Helper()
			require.Equal(t, task.RateLimited, task.KindOf(<-check(stranger, address)), address)
		}
		for range 3 {
			waits("10.0.0.1:1")
		}
		limited("10.0.0.1:9")
		waits("10.0.0.2:9")
		limited("10.0.0.3:9") // all places are taken
		known := check(good, "10.0.0.1:1")
		require.Empty(t, known, "a key that was good before waits for its look-up")
		close(d.hold)
		require.NoError(t, <-known)
		for _, c := range waiting {
			require.ErrorAs(t, <-c, new(*refusal))
		}
		require.ErrorAs(t, <-check(stranger, "10.0.0.1:9"), new(*refusal))
	})
}

// Wrong secrets of a key that exists use up a budget of that key at that address, not the one of all clients there.
func TestRefusalsOfOneKeyDoNotBlockOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newKeyring()
		a := New(Options{Schemes: []Scheme{NewAPIKeys("keys", "X-Api-Key", d)}, Failures: limit.NewRates[Guesser](1, 3)})
		show := func(key, address string) error {
			return a.Authenticate(t.Context(), from(shows("X-Api-Key", key), address)).err
		}
		known, id := d.add("alice", 0)
		other, _ := d.add("bob", 0)
		revoked, gone := d.add("carol", 0)
		d.revoke(gone)
		forged := keyPrefix + id + "_" + strings.Repeat("a", secretLength)
		for _, refused := range []string{revoked, forged + checksum(forged)} {
			for range 3 {
				require.ErrorAs(t, show(refused, "10.0.0.1:1"), new(*refusal))
			}
			require.Equal(t, task.RateLimited, task.KindOf(show(refused, "10.0.0.1:1")))
		}
		require.Equal(t, task.RateLimited, task.KindOf(show(known, "10.0.0.1:1")), "this key is being guessed from this address")
		require.NoError(t, show(known, "10.0.0.2:1"))
		require.NoError(t, show(other, "10.0.0.1:1"))
	})
}
