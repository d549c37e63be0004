package auth

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/stretchr/testify/require"
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
	signer, err := jose.NewSigner(key, (&jose.SignerOptions{}).WithType(jose.ContentType(typ)))
	require.NoError(t, err)
	compact, err := jwt.Signed(signer).Claims(claims).Serialize()
	require.NoError(t, err)
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
		Algorithms: []string{"RS256", "ES256", "EdDSA"}, Client: i.Client(),
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
