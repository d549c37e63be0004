package identity

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/issuertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// withTokens are the usual settings, for callers with tokens of an issuer; more is added to the scheme's jwt.
func withTokens(i *issuertest.Issuer, more string) string {
	return clustertest.Settings + "auth:\n  schemes:\n    - " + i.Scheme("sso", more) + "\n"
}

// often makes replicas fetch the keys every second, without a request.
const often = ", refresh: 1s"

// Verdicts on a token.
const (
	taken   = "taken"
	refused = "refused"
	away    = "cannot be checked"
)

// verdict is a replica's verdict on a token; the answer must be exactly as the version and its binding define it.
func verdict(w a2atest.Operation, a *a2atest.Reply) string {
	known := map[string]struct {
		http   int
		grpc   string
		reason string
		code   int
		wait   string
		asks   string
	}{
		refused: {http.StatusUnauthorized, "Unauthenticated", "UNAUTHENTICATED", -32600, "", `Bearer realm="holdfast", error="invalid_token"`},
		away:    {http.StatusServiceUnavailable, "Unavailable", "UNAVAILABLE", -32603, "2", ""},
	}
	for name, k := range known {
		want, asks := a2atest.Rejection{Status: strconv.Itoa(k.http), Code: k.code, RetryAfter: k.wait}, k.asks
		switch {
		case w.Binding == a2atest.GRPC:
			want.Status, want.Code, want.Reason = k.grpc, 0, k.reason
		case w.Version == "1.0":
			want.Reason = k.reason
			if w.Binding == a2atest.REST {
				want.Code = k.http
			}
		case w.Version == "0.1":
			want.Code = map[string]int{refused: -32007, away: -32011}[name]
		}
		if want.Message = a.Message; a.Rejection == want && a.Challenge == asks {
			return name
		}
	}
	if (a.Status == "200" || a.Status == "OK") && strings.HasSuffix(strings.ToLower(a.State()), "completed") {
		return taken
	}
	return fmt.Sprintf("%+v %s", a.Rejection, a.Body)
}

// shown is the verdict of every version and binding on a replica, which must agree.
func shown(r *clustertest.Replica, token string) string {
	r.T.Helper()
	var all []string
	for _, w := range a2atest.Sends {
		v := verdict(w, r.Do(w, a2atest.Say("echo:hi").With("authorization", "Bearer "+token)))
		if all = append(all, v); v != all[0] {
			return fmt.Sprintf("%s, but %s: %s", all[0], w, v)
		}
	}
	return all[0]
}

// becomes waits until a token gets a verdict, and then checks every version and binding.
func becomes(r *clustertest.Replica, want, token string) {
	r.T.Helper()
	w := a2atest.Sends[len(a2atest.Sends)-2]
	waittest.Eventually(r.T, fmt.Sprintf("the token is %s on %s", want, r.Name), func() error {
		got := verdict(w, r.Do(w, a2atest.Say("echo:hi").With("authorization", "Bearer "+token)))
		return waittest.Unless(got == want, "%s", got)
	})
	require.Equal(r.T, want, shown(r, token))
}

// fetches is the number of a replica's fetches from the issuer with an outcome.
func fetches(r *clustertest.Replica, outcome string) int {
	return r.Counted(fmt.Sprintf(`holdfast_issuer_fetches_total{outcome=%q,scheme="sso"}`, outcome))
}

// awaitFetch waits until a replica has fetched once more, with an outcome.
func awaitFetch(r *clustertest.Replica, outcome string) {
	r.T.Helper()
	before := fetches(r, outcome)
	waittest.Eventually(r.T, r.Name+" asks the issuer: "+outcome, func() error {
		return waittest.Unless(fetches(r, outcome) > before, "%d", before)
	})
}

// Two replicas find an issuer's keys by its metadata. Tokens of its token endpoint work on every binding of both
// replicas; forged tokens do not.
func TestTokensOfAnIssuer(t *testing.T) {
	t.Parallel()
	i := issuertest.Start(t)
	db := clustertest.NewDB(t)
	config := withTokens(i, ", tenant_claim: org, subject_prefix: 'sso:'")
	config = clustertest.Replace(config, "name: demo\n", "name: demo\n    auth: {scope: 'demo:use'}\n")
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: config, Env: i.Trust()})
	good := i.Token("alice", "demo:use", "else")
	for _, r := range []*clustertest.Replica{a, b} {
		require.Equal(t, taken, shown(r, good))
		for _, w := range a2atest.Sends {
			got := r.Do(w, a2atest.Say("echo:hi").With("authorization", "Bearer "+i.Token("alice", "else")))
			require.Contains(t, []string{"403", "PermissionDenied"}, got.Status, w)
			require.Equal(t, `Bearer realm="holdfast", error="insufficient_scope", scope="demo:use"`, got.Challenge, w)
		}
	}
	waittest.Eventually(t, "each replica fetched once", func() error {
		metadata, keys := i.Count("/.well-known/openid-configuration"), i.Count("/keys")
		return waittest.Unless(metadata == 2 && keys == 2, "%d, %d", metadata, keys)
	})
	require.Equal(t, []string{"acme sso:alice"}, clustertest.Column[string](db, "SELECT DISTINCT tenant || ' ' || owner FROM holdfast.tasks"))
	made := clustertest.One[int](db, "SELECT count(*) FROM holdfast.tasks")
	require.Equal(t, 2*len(a2atest.Sends), made)

	i.Rotate("es", jose.ES256)
	i.Rotate("enc", jose.RS256)
	i.Change(func(s *issuertest.State) {
		s.Keys[0].Use = "enc"
		slices.Reverse(s.Keys) // the first key signs again
	})
	claims := func(pairs ...any) object {
		return i.Claims("alice", append([]any{"scope", "demo:use"}, pairs...)...)
	}
	becomes(a, taken, i.SignWith(i.Key("es"), claims()))
	becomes(b, taken, i.SignWith(i.Key("es"), claims()))
	made = clustertest.One[int](db, "SELECT count(*) FROM holdfast.tasks")

	// The public key, which everybody can read.
	private := i.Key("one")
	public := private.Public()
	der, err := x509.MarshalPKIXPublicKey(public.Key.(*rsa.PublicKey))
	require.NoError(t, err)
	inPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	secret := func(key []byte) jose.JSONWebKey { return jose.JSONWebKey{Key: key, KeyID: "one", Algorithm: "HS256"} }
	stranger := issuertest.NewKey(t, "one", jose.RS256)
	parts := strings.Split(good, ".")
	encoded := func(o object) string { return base64.RawURLEncoding.EncodeToString(a2atest.JSON(o)) }
	hours := func(n int) int64 { return time.Now().Add(time.Duration(n) * time.Hour).Unix() }
	for name, c := range map[string]struct{ token, reason string }{
		"expired":                           {i.Sign(claims("exp", hours(-1))), "expired"},
		"without an end":                    {i.Sign(claims("exp", nil)), "claims"},
		"not yet valid":                     {i.Sign(claims("nbf", hours(1))), "early"},
		"issued in the future":              {i.Sign(claims("iat", hours(1))), "early"},
		"for another audience":              {i.Sign(claims("aud", "https://other.example.com")), "audience"},
		"for no audience":                   {i.Sign(claims("aud", nil)), "audience"},
		"of another issuer":                 {i.Sign(claims("iss", "https://id.example.com")), "issuer"},
		"of the issuer, with a slash":       {i.Sign(claims("iss", i.URL+"/")), "issuer"},
		"of no issuer":                      {i.Sign(claims("iss", nil)), "issuer"},
		"without a subject":                 {i.Sign(claims("sub", nil)), "claims"},
		"without a tenant":                  {i.Sign(claims("org", nil)), "claims"},
		"alg none":                          {encoded(object{"alg": "none", "typ": "JWT"}) + "." + parts[1] + ".", "algorithm"},
		"alg none, with a signature":        {encoded(object{"alg": "nOnE", "kid": "one"}) + "." + parts[1] + "." + parts[2], "algorithm"},
		"HS256 with the public key as PEM":  {i.SignWith(secret(inPEM), claims()), "algorithm"},
		"HS256 with the public key as DER":  {i.SignWith(secret(der), claims()), "algorithm"},
		"HS256 with the public key as JSON": {i.SignWith(secret(a2atest.JSON(public)), claims()), "algorithm"},
		"an algorithm that is not allowed":  {i.Sign(claims(), "alg", "PS256"), "algorithm"},
		"the kid of another algorithm":      {i.Sign(claims(), "kid", "es"), "signature"},
		"another algorithm under the kid":   {i.SignWith(i.Key("es"), claims(), "kid", "one"), "signature"},
		"a key for encryption":              {i.SignWith(i.Key("enc"), claims()), "signature"},
		"a kid that the issuer has not":     {i.Sign(claims(), "kid", "zero"), "signature"},
		"a stranger's key under the kid":    {i.SignWith(stranger, claims()), "signature"},
		"a stranger's key without a kid":    {i.SignWith(stranger, claims(), "kid", nil), "signature"},
		"a stranger's key in the header":    {i.SignWith(stranger, claims(), "jwk", stranger.Public()), "signature"},
		"an address of a stranger's keys":   {i.SignWith(stranger, claims(), "jku", i.URL+"/stranger"), "signature"},
		"other claims under the signature":  {parts[0] + "." + encoded(claims("sub", "bob")) + "." + parts[2], "signature"},
		"no signature":                      {parts[0] + "." + parts[1] + ".", "signature"},
		"an unknown critical header":        {i.Sign(claims(), "crit", []string{"x"}, "x", 1), "claims"},
		"one that ends a session":           {i.Sign(claims(), "typ", "logout+jwt"), "malformed"},
		"no token at all":                   {"sesame", "malformed"},
		"one that is too long":              {good + strings.Repeat("A", 16<<10), "malformed"},
	} {
		sample := fmt.Sprintf(`holdfast_authentications_total{outcome=%q,scheme="sso"}`, c.reason)
		for _, r := range []*clustertest.Replica{a, b} {
			before := r.Counted(sample)
			require.Equal(t, refused, shown(r, c.token), name)
			require.Equal(t, before+len(a2atest.Sends), r.Counted(sample), "%s: %s", name, c.reason)
		}
	}
	require.Equal(t, made, clustertest.One[int](db, "SELECT count(*) FROM holdfast.tasks"), "no refused token changed anything")
	require.Zero(t, i.Count("/stranger"))
	require.Equal(t, taken, shown(a, i.Sign(claims(), "kid", nil)), "a key may be found without its name")
	i.Silent(a)
	i.Silent(b)
}

// The issuer changes its keys. A replica finds a new key with the first token that it signs, or at its next refresh.
// An old key works until a replica notices its withdrawal.
func TestIssuerRotatesKeys(t *testing.T) {
	t.Parallel()
	i := issuertest.Start(t)
	db := clustertest.NewDB(t)
	asked := clustertest.Start(t, clustertest.Options{Name: "asked", DB: db.URL, Config: withTokens(i, ""), Env: i.Trust()})
	watching := clustertest.Start(t, clustertest.Options{Name: "watching", DB: db.URL, Config: withTokens(i, often), Env: i.Trust()})
	both := []*clustertest.Replica{asked, watching}
	first := i.Token("alice")
	for _, r := range both {
		require.Equal(t, taken, shown(r, first))
	}
	i.Rotate("two", jose.ES256)
	second := i.Token("alice")
	for _, r := range both {
		becomes(r, taken, second)
		require.Equal(t, taken, shown(r, first), "both are published")
	}
	fetched := fetches(asked, "ok")
	i.Withdraw("one")
	becomes(watching, refused, first)
	require.Equal(t, taken, shown(watching, second))
	require.Equal(t, taken, shown(asked, first), "a replica that sees no new key does not fetch before its refresh")
	require.Equal(t, fetched, fetches(asked, "ok"))

	// In an emergency the issuer withdraws all keys, so all earlier signatures are worthless.
	i.Withdraw("two")
	i.Rotate("three", jose.EdDSA)
	third := i.Token("alice")
	for _, r := range both {
		becomes(r, taken, third)
		require.Equal(t, refused, shown(r, first))
		require.Equal(t, refused, shown(r, second))
	}
	i.Withdraw("three") // an empty key set is valid, too
	becomes(watching, refused, third)
	for _, r := range both {
		i.Silent(r)
	}
}

// While the issuer is down or returns garbage, tokens of its known keys stay valid, and clients with tokens that
// cannot be checked are asked to retry. When it is back, nobody has to act.
func TestIssuerOutage(t *testing.T) {
	t.Parallel()
	i := issuertest.Start(t)
	db := clustertest.NewDB(t)
	var replicas []*clustertest.Replica
	for _, name := range []string{"a", "b"} {
		replicas = append(replicas, clustertest.Start(t, clustertest.Options{Name: name, DB: db.URL, Config: withTokens(i, often), Env: i.Trust()}))
	}
	seen, unseen := i.Token("alice"), i.Token("alice")
	for _, r := range replicas {
		require.Equal(t, taken, shown(r, seen))
	}
	outage := func(name string, begin, end func()) {
		begin()
		for _, r := range replicas {
			awaitFetch(r, "error")
			require.Equal(t, taken, shown(r, seen), name)
			require.Equal(t, taken, shown(r, unseen), "%s: the last good keys also check new tokens", name)
			require.Equal(t, refused, shown(r, i.SignWith(issuertest.NewKey(t, i.Key("").KeyID, jose.RS256), i.Claims("alice"))), name)
		}
		i.Rotate("while-"+name, jose.RS256)
		newer := i.Sign(i.Claims("alice"))
		for _, r := range replicas {
			require.Equal(t, away, shown(r, newer), "%s: the token may be valid", name)
		}
		end()
		for _, r := range replicas {
			becomes(r, taken, newer)
			require.Equal(t, taken, shown(r, seen), name)
		}
		unseen = i.Token("alice")
	}
	outage("killed", i.Kill, i.Run)
	for _, m := range issuertest.Moods {
		outage(string(m), func() { i.Be(m) }, func() { i.Be(issuertest.Well) })
	}
	require.Zero(t, i.Count("/moved"), "redirects are not followed")
	for _, r := range replicas {
		require.Contains(t, r.Log(), "issuer keys not fetched")
		i.Silent(r)
	}
}

// A replica that starts without its issuer asks all clients to retry, and lets them in when the issuer is there.
func TestReplicaStartsWithoutIssuer(t *testing.T) {
	t.Parallel()
	i := issuertest.Start(t)
	token := i.Token("alice")
	i.Kill()
	db := clustertest.NewDB(t)
	a := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: withTokens(i, ""), Env: i.Trust()})
	doubting := clustertest.Start(t, clustertest.Options{Name: "doubting", DB: db.URL, Config: withTokens(i, often)})
	for _, r := range []*clustertest.Replica{a, doubting} {
		require.Equal(t, away, shown(r, token))
		require.Equal(t, away, shown(r, i.SignWith(issuertest.NewKey(t, "one", jose.RS256), i.Claims("alice"))), "the token cannot be checked")
		require.Equal(t, refused, shown(r, i.Sign(i.Claims("alice", "iss", "https://id.example.com"))), "a malformed token needs no key")
		card, err := http.Get(r.URL + "/.well-known/agent-card.json")
		require.NoError(t, err)
		require.NoError(t, card.Body.Close())
		require.Equal(t, http.StatusOK, card.StatusCode, "cards need no credentials")
	}
	require.Zero(t, clustertest.One[int](db, "SELECT count(*) FROM holdfast.tasks"))
	i.Run()
	becomes(a, taken, token)
	awaitFetch(doubting, "error")
	require.Equal(t, away, shown(doubting, token), "a server at the issuer's address without its certificate is not trusted")
	i.Silent(a)
	i.Silent(doubting)
}
