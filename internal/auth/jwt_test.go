package auth

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// issuer issues tokens, as OpenID Connect defines it, and answers without a network.
type issuer struct {
	URL string
	t   testing.TB

	mu       sync.Mutex
	keys     []jose.JSONWebKey // private ones
	answer   func(w http.ResponseWriter, r *http.Request) bool
	asked    int
	metadata string // path
	said     string // issuer in the metadata, if different
}

func newIssuer(t testing.TB) *issuer {
	t.Helper()
	i := &issuer{URL: "https://issuer.example", t: t, metadata: "/.well-known/openid-configuration"}
	i.rotate("one", jose.RS256)
	return i
}

// Client returns a client whose requests the issuer answers.
func (i *issuer) Client() *http.Client { return &http.Client{Transport: i} }

// RoundTrip implements http.RoundTripper.
func (i *issuer) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	w := httptest.NewRecorder()
	defer func() {
		if recover() != nil {
			err = errors.New("the connection broke")
		}
	}()
	i.serve(w, r)
	resp = w.Result()
	resp.Request = r
	return resp, r.Context().Err()
}

func (i *issuer) serve(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	i.asked++
	answer, metadata, said := i.answer, i.metadata, cmp.Or(i.said, i.URL)
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, k := range i.keys {
		set.Keys = append(set.Keys, k.Public())
	}
	i.mu.Unlock()
	if answer != nil && answer(w, r) {
		return
	}
	switch r.URL.Path {
	case metadata:
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": said, "jwks_uri": i.URL + "/keys"})
	case "/keys":
		_ = json.NewEncoder(w).Encode(set)
	default:
		http.NotFound(w, r)
	}
}

// behave replaces the answer to everything; f returns true if it answered.
func (i *issuer) behave(answer func(w http.ResponseWriter, r *http.Request) bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.answer = answer
}

func (i *issuer) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked
}

// rotate replaces all keys.
func (i *issuer) rotate(kid string, algorithm jose.SignatureAlgorithm) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = []jose.JSONWebKey{newKey(i.t, kid, algorithm)}
}

// newKey makes a key. RSA keys are made once for each name, because that takes long.
func newKey(t testing.TB, name string, algorithm jose.SignatureAlgorithm) jose.JSONWebKey {
	t.Helper()
	var private crypto.Signer
	if strings.HasPrefix(string(algorithm), "ES") {
		private = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	} else {
		made, _ := rsaKeys.LoadOrStore(name, sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) }))
		private = made.(func() *rsa.PrivateKey)()
	}
	return jose.JSONWebKey{Key: private, KeyID: name, Algorithm: string(algorithm), Use: "sig"}
}

var rsaKeys sync.Map

// strange is another key with the id of a known one.
func strange(t testing.TB, kid string) jose.JSONWebKey {
	t.Helper()
	k := newKey(t, "strange", jose.RS256)
	k.KeyID = kid
	return k
}

func (i *issuer) key() jose.JSONWebKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keys[0]
}

// usual are the claims of a valid token.
func (i *issuer) usual() map[string]any {
	now := time.Now()
	return map[string]any{
		"iss": i.URL, "aud": "holdfast", "sub": "alice", "scope": "weather:use x", "jti": "j-1",
		"iat": now.Unix(), "nbf": now.Add(-time.Minute).Unix(), "exp": now.Add(time.Hour).Unix(),
	}
}

// token signs claims with the first key.
func (i *issuer) token(claims map[string]any) string {
	key := i.key()
	return sign(i.t, jose.SigningKey{Algorithm: jose.SignatureAlgorithm(key.Algorithm), Key: key}, "JWT", claims)
}

func sign(t testing.TB, key jose.SigningKey, typ string, claims map[string]any) string {
	t.Helper()
	signer := must(jose.NewSigner(key, (&jose.SignerOptions{}).WithType(jose.ContentType(typ))))
	compact := must(jwt.Signed(signer).Claims(claims).Serialize())
	return compact
}

// with changes claims; nil removes one.
func with(claims map[string]any, pairs ...any) map[string]any {
	for n := 0; n < len(pairs); n += 2 {
		if pairs[n+1] == nil {
			delete(claims, pairs[n].(string))
		} else {
			claims[pairs[n].(string)] = pairs[n+1]
		}
	}
	return claims
}

// quick is a pace for tests, in which no fetch happens by itself.
var quick = pace{every: time.Hour, retry: time.Hour, apart: 0, within: 2 * time.Second, keep: time.Hour}

func (i *issuer) options() JWTOptions {
	return JWTOptions{
		Name: "sso", Issuer: i.URL, Audiences: []string{"holdfast", "https://agents.example.com"},
		Client: i.Client(),
	}
}

// accepting is a running scheme for the tokens of the issuer.
func (i *issuer) accepting(change ...func(*JWT)) *JWT { return accept(i.t, i.options(), change...) }

func accept(t testing.TB, o JWTOptions, change ...func(*JWT)) *JWT {
	t.Helper()
	s := NewJWT(o)
	s.pace = quick
	for _, f := range change {
		f(s)
	}
	runs(t, s.Run)
	return s
}

// runs runs something until the end of the test.
func runs(t testing.TB, run func(context.Context) error) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = run(ctx)
	}()
	t.Cleanup(func() { stop(); <-done })
}

// bearer is a request with a token.
func bearer(token string) *Request { return shows("Authorization", "Bearer "+token) }

// shows is a request with headers, in pairs.
func shows(pairs ...string) *Request {
	h := http.Header{}
	for n := 0; n < len(pairs); n += 2 {
		h.Add(pairs[n], pairs[n+1])
	}
	return &Request{Header: h.Values}
}

// reasonOf is the reason for which an authenticator refuses a request; "" if it accepts it.
func reasonOf(t *testing.T, a *Authenticator, r *Request) Reason {
	t.Helper()
	id := a.Authenticate(t.Context(), r)
	if id.err == nil {
		return ""
	}
	var bad *refusal
	require.ErrorAs(t, id.err, &bad)
	return bad.reason
}

func TestAcceptedTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		a := New(Options{Schemes: []Scheme{i.accepting()}})
		want := task.Caller{Subject: "alice", Scopes: []string{"weather:use", "x"}, Method: KindJWT, Credential: "sso/j-1"}
		for _, token := range []string{
			i.token(i.usual()),
			i.token(with(i.usual(), "aud", []string{"else", "https://agents.example.com"})),
			i.token(with(i.usual(), "scope", nil, "scp", []string{"weather:use", "x"})),
			i.token(with(i.usual(), "exp", time.Now().Add(-10*time.Second).Unix())), // within the tolerated difference of clocks
			i.token(with(i.usual(), "nbf", time.Now().Add(10*time.Second).Unix())),
			i.token(with(i.usual(), "nbf", nil, "iat", nil)),
		} {
			for range 2 { // the second time from the cache
				id := a.Authenticate(t.Context(), bearer(token))
				require.NoError(t, id.err)
				require.Equal(t, want, id.Caller)
			}
		}
		require.Equal(t, 2, i.count(), "metadata and keys were fetched once")
		for _, spelling := range []string{"bearer ", "BEARER  "} {
			require.Empty(t, reasonOf(t, a, shows("Authorization", spelling+i.token(i.usual()))))
		}
	})
}

func TestRefusedTokens(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	a := New(Options{Schemes: []Scheme{i.accepting()}})
	require.Empty(t, reasonOf(t, a, bearer(i.token(i.usual()))))

	key := i.key()
	public := must(x509.MarshalPKIXPublicKey(key.Key.(*rsa.PrivateKey).Public()))
	asPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	stranger := strange(t, "one")
	signedBy := func(k jose.JSONWebKey, algorithm jose.SignatureAlgorithm, claims map[string]any) string {
		return sign(t, jose.SigningKey{Algorithm: algorithm, Key: k}, "JWT", claims)
	}
	unkeyed := key
	unkeyed.KeyID = "another"
	good := i.token(i.usual())
	parts := strings.Split(good, ".")
	part := func(v any) string {
		b := must(json.Marshal(v))
		return base64.RawURLEncoding.EncodeToString(b)
	}
	now := time.Now()
	for name, c := range map[string]struct {
		token string
		want  Reason
	}{
		"no token at all":               {"abc", Malformed},
		"two parts":                     {parts[0] + "." + parts[1], Malformed},
		"a part too many":               {good + ".e30", Malformed},
		"alg none":                      {part(map[string]string{"alg": "none"}) + "." + parts[1] + ".", Algorithm},
		"alg None with a signature":     {part(map[string]string{"alg": "None", "kid": "one"}) + "." + parts[1] + "." + parts[2], Algorithm},
		"HS256 with the public key":     {sign(t, jose.SigningKey{Algorithm: jose.HS256, Key: asPEM}, "JWT", i.usual()), Algorithm},
		"HS256 with the key's DER":      {sign(t, jose.SigningKey{Algorithm: jose.HS256, Key: public}, "JWT", i.usual()), Algorithm},
		"another algorithm of the key":  {signedBy(key, jose.PS256, i.usual()), Signature},
		"another's key under our kid":   {signedBy(stranger, jose.RS256, i.usual()), Signature},
		"a kid that the issuer has not": {signedBy(unkeyed, jose.RS256, i.usual()), Signature},
		"other claims, same signature":  {parts[0] + "." + part(with(i.usual(), "sub", "bob")) + "." + parts[2], Signature},
		"no signature":                  {parts[0] + "." + parts[1] + ".", Signature},
		"of another issuer":             {i.token(with(i.usual(), "iss", "https://id.example.com")), Issuer},
		"of the issuer with a slash":    {i.token(with(i.usual(), "iss", i.URL+"/")), Issuer},
		"of no issuer":                  {i.token(with(i.usual(), "iss", nil)), Issuer},
		"for another audience":          {i.token(with(i.usual(), "aud", "else")), Audience},
		"without an audience":           {i.token(with(i.usual(), "aud", nil)), Audience},
		"expired":                       {i.token(with(i.usual(), "exp", now.Add(-time.Hour).Unix())), Expired},
		"never expiring":                {i.token(with(i.usual(), "exp", nil)), Claims},
		"not yet":                       {i.token(with(i.usual(), "nbf", now.Add(time.Hour).Unix())), Early},
		"from the future":               {i.token(with(i.usual(), "iat", now.Add(time.Hour).Unix())), Early},
		"without a subject":             {i.token(with(i.usual(), "sub", nil)), Claims},
		"a subject that is a number":    {i.token(with(i.usual(), "sub", 7)), Claims},
		"a subject with a NUL":          {i.token(with(i.usual(), "sub", "a\x00b")), Claims},
		"a subject that is long":        {i.token(with(i.usual(), "sub", strings.Repeat("x", 256))), Claims},
		"an invalid time":               {i.token(with(i.usual(), "exp", "tomorrow")), Claims},
		"an exp in capitals only":       {i.token(with(i.usual(), "exp", nil, "EXP", now.Add(time.Hour).Unix())), Claims},
		"a token that ends a session":   {sign(t, jose.SigningKey{Algorithm: jose.RS256, Key: key}, "logout+jwt", i.usual()), Malformed},
		"as long as it likes":           {good + strings.Repeat("x", maxCredential), Malformed},
	} {
		for range 2 { // a refused token is not cached as valid
			require.Equal(t, c.want, reasonOf(t, a, bearer(c.token)), name)
		}
	}
}

// A key verifies only its own algorithm, use and type, whatever a token names.
func TestRefusedKeys(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	s := i.accepting()
	a := New(Options{Schemes: []Scheme{s}})
	encryption, elsewhere := newKey(t, "enc", jose.RS256), newKey(t, "es", jose.ES256)
	encryption.Use = "enc"
	other := newKey(t, "rs512", jose.RS512)
	i.mu.Lock()
	i.keys = append(i.keys, encryption, elsewhere, other)
	i.mu.Unlock()
	for kid, key := range map[string]jose.JSONWebKey{"enc": encryption, "rs512": other} {
		require.Equal(t, Signature, reasonOf(t, a, bearer(sign(t, jose.SigningKey{Algorithm: jose.RS256, Key: key}, "JWT", i.usual()))), kid)
	}
	require.Empty(t, reasonOf(t, a, bearer(sign(t, jose.SigningKey{Algorithm: jose.ES256, Key: elsewhere}, "JWT", i.usual()))))
	// Without a kid, all matching keys are tried.
	elsewhere.KeyID = ""
	require.Empty(t, reasonOf(t, a, bearer(sign(t, jose.SigningKey{Algorithm: jose.ES256, Key: elsewhere.Key}, "JWT", i.usual()))))

	short := jose.JSONWebKey{Key: &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 1023), E: 65537}, KeyID: "short", Algorithm: "RS256", Use: "sig"}
	raw := `{"keys":[{"kty":"oct","k":"c2VjcmV0","kid":"s"},{"kty":"new"},7,` + string(must(json.Marshal(short))) + `]}`
	keys, err := parseKeySet([]byte(raw))
	require.NoError(t, err)
	require.Empty(t, keys)
}

// must is for errors that cannot happen.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestKeyRotation(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	s := i.accepting()
	a := New(Options{Schemes: []Scheme{s}})
	old := i.token(i.usual())
	require.Empty(t, reasonOf(t, a, bearer(old)))
	i.rotate("two", jose.ES256)
	require.Empty(t, reasonOf(t, a, bearer(i.token(i.usual()))), "a token with a new key causes a fetch")
	require.Equal(t, Signature, reasonOf(t, a, bearer(old)), "tokens of the old key are not cached as valid")

	// A missing key is looked for at a bounded rate.
	s.mu.Lock()
	s.pace.apart = time.Hour
	s.mu.Unlock()
	asked := i.count()
	stranger := newKey(t, "three", jose.RS256)
	for range 20 {
		require.Equal(t, Signature, reasonOf(t, a, bearer(sign(t, jose.SigningKey{Algorithm: jose.RS256, Key: stranger}, "JWT", i.usual()))))
	}
	require.Equal(t, asked, i.count())
	// An empty key set is valid, too.
	s.mu.Lock()
	s.pace.apart = 0
	s.mu.Unlock()
	good := i.token(i.usual())
	i.mu.Lock()
	i.keys = nil
	i.mu.Unlock()
	s.renew(t.Context())
	require.Equal(t, Signature, reasonOf(t, a, bearer(good)))
}

func TestRefresh(t *testing.T) {
	t.Parallel()
	require.Equal(t, usualPace, NewJWT(JWTOptions{}).pace)
	require.Equal(t, time.Hour, NewJWT(JWTOptions{Refresh: time.Hour}).pace.every)
	require.Equal(t, usualPace.apart, NewJWT(JWTOptions{Refresh: time.Hour}).pace.apart)
	require.Equal(t, time.Second, NewJWT(JWTOptions{Refresh: time.Second}).pace.apart)
}

func TestJWTDuringIssuerOutage(t *testing.T) {
	t.Parallel()
	down := func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }
	writes := func(text string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			_, _ = w.Write([]byte(text))
			return true
		}
	}
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"down": down,
		"broken": func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusInternalServerError)
			return true
		},
		"elsewhere": func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "/keys", http.StatusFound)
			return true
		},
		"huge":    writes(`{"keys":[` + strings.Repeat(" ", maxKeySet) + `]}`),
		"no JSON": writes(`<html>`),
		"slow": func(_ http.ResponseWriter, r *http.Request) bool {
			<-r.Context().Done()
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				i := newIssuer(t)
				failed := make(chan error, 100)
				o := i.options()
				o.Fetched = func(_ string, err error) { failed <- err }
				s := accept(t, o)
				a := New(Options{Schemes: []Scheme{s}})
				require.NoError(t, <-failed)
				i.behave(answer)
				s.renew(t.Context())
				require.Error(t, <-failed)
				require.Empty(t, reasonOf(t, a, bearer(i.token(i.usual()))), "the last good copy is used")
				// A token with a key that is not in the copy cannot be judged now.
				unknown := sign(t, jose.SigningKey{Algorithm: jose.RS256, Key: newKey(t, "two", jose.RS256)}, "JWT", i.usual())
				require.Equal(t, task.Unavailable, task.KindOf(a.Authenticate(t.Context(), bearer(unknown)).err))
				require.Equal(t, Signature, reasonOf(t, a, bearer(sign(t, jose.SigningKey{Algorithm: jose.RS256, Key: strange(t, "one")}, "JWT", i.usual()))))

				// Without a copy, tokens are not refused but unavailable: the fault is on this side and may be short.
				fresh := New(Options{Schemes: []Scheme{i.accepting()}})
				require.Equal(t, task.Unavailable, task.KindOf(fresh.Authenticate(t.Context(), bearer(i.token(i.usual()))).err))
				i.behave(nil)
				require.Empty(t, reasonOf(t, fresh, bearer(i.token(i.usual()))), "the issuer is back")

				i.behave(down)
				claims := i.usual()
				claims["exp"] = time.Now().Add(100 * time.Hour).Unix()
				token := i.token(claims)
				waittest.Advance(quick.keep + time.Second)
				require.Equal(t, task.Unavailable, task.KindOf(a.Authenticate(t.Context(), bearer(token)).err), "the copy is too old")
			})
		})
	}
}

func TestDiscovery(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	i.metadata = "/.well-known/oauth-authorization-server" // as RFC 8414 defines it
	require.Empty(t, reasonOf(t, New(Options{Schemes: []Scheme{i.accepting()}}), bearer(i.token(i.usual()))))

	i = newIssuer(t)
	i.said = "https://id.example.com"
	require.ErrorContains(t, NewJWT(JWTOptions{Issuer: i.URL, Client: i.Client()}).fetch(t.Context()), "id.example.com", "metadata of another issuer")

	s := NewJWT(JWTOptions{Issuer: "https://id.example.com", Client: &http.Client{Transport: answers(
		`{"issuer":"https://id.example.com","jwks_uri":"http://id.example.com/keys"}`)}})
	require.ErrorContains(t, s.fetch(t.Context()), "https", "keys without TLS although the issuer has TLS")

	i = newIssuer(t)
	o := i.options()
	o.KeySetURL = i.URL + "/keys"
	require.Empty(t, reasonOf(t, New(Options{Schemes: []Scheme{accept(t, o)}}), bearer(i.token(i.usual()))))
	require.Equal(t, 1, i.count(), "the address of the keys is configured")
}

// answers is a transport that answers without a network.
type answers string

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(string(a))), Request: r}, nil
}

func TestClaims(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	s := i.accepting(func(s *JWT) {
		s.opt.TenantClaim, s.opt.SubjectClaim, s.opt.ScopesClaim, s.opt.SubjectPrefix = "org", "email", "/realm_access/roles", "acme:"
	})
	a := New(Options{Schemes: []Scheme{s}})
	claims := with(i.usual(), "org", "acme", "email", "a@example.com", "realm_access", map[string]any{"roles": []any{"admin", 7}})
	id := a.Authenticate(t.Context(), bearer(i.token(claims)))
	require.NoError(t, id.err)
	require.Equal(t, task.Caller{
		Tenant: "acme", Subject: "acme:a@example.com", Scopes: []string{"admin"}, Method: KindJWT, Credential: "sso/j-1",
	}, id.Caller)
	require.Equal(t, Claims, reasonOf(t, a, bearer(i.token(with(claims, "org", nil)))), "a missing tenant is not the tenant of other callers")
	require.Equal(t, Claims, reasonOf(t, a, bearer(i.token(with(claims, "org", 1)))))
}

// With several issuers, the one that a token names checks it.
func TestSeveralIssuers(t *testing.T) {
	t.Parallel()
	one, two := newIssuer(t), newIssuer(t)
	two.URL = "https://two.example"
	two.rotate("two", jose.RS256)
	first, second := one.accepting(), two.accepting(func(s *JWT) { s.name = "two" })
	a := New(Options{Schemes: []Scheme{first, second}})
	require.Equal(t, "two/j-1", a.Authenticate(t.Context(), bearer(two.token(two.usual()))).Credential)
	require.Equal(t, "sso/j-1", a.Authenticate(t.Context(), bearer(one.token(one.usual()))).Credential)
	require.Equal(t, Signature, reasonOf(t, a, bearer(one.token(two.usual()))), "one issuer's keys do not verify the other's tokens")
	require.Equal(t, Malformed, reasonOf(t, a, bearer(one.token(with(one.usual(), "iss", "https://id.example.com")))))
}

func TestRenewStopsWithContext(t *testing.T) {
	t.Parallel()
	s := NewJWT(JWTOptions{Issuer: "https://issuer.example"}) // nothing runs it
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, s.renew(ctx))
}
