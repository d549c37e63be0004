package integration

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
)

// withTokens are the usual settings, for callers with tokens of an issuer; more goes into its jwt.
func withTokens(i *issuer, more string) string {
	return settings + "auth:\n  schemes:\n    - " + i.scheme("sso", more) + "\n"
}

// often lets a test see what becomes known without anybody asking.
const often = ", refresh: 1s"

// What comes of a token.
const (
	taken   = "taken"
	refused = "refused"
	away    = "cannot be checked"
)

// verdict is what came of a token, when the answer is exactly as the version and its binding have it.
func (w *way) verdict(a *reply) string {
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
		want := reply{status: strconv.Itoa(k.http), code: k.code, retryAfter: k.wait, challenge: k.asks}
		switch {
		case w.binding == onGRPC:
			want.status, want.code, want.reason = k.grpc, 0, k.reason
		case w.version == "1.0":
			want.reason = k.reason
			if w.binding == onREST {
				want.code = k.http
			}
		case w.version == "0.1":
			want.code = map[string]int{refused: -32007, away: -32011}[name]
		}
		if a.status == want.status && a.code == want.code && a.reason == want.reason && a.retryAfter == want.retryAfter && a.challenge == want.challenge {
			return name
		}
	}
	if (a.status == "200" || a.status == "OK") && strings.HasSuffix(strings.ToLower(a.state()), "completed") {
		return taken
	}
	return fmt.Sprintf("%+v", *a)
}

// shown is what every way makes of a token on a replica, which is the same.
func (r *replica) shown(token string) string {
	r.t.Helper()
	var all []string
	for _, w := range ways {
		v := w.verdict(w.send(r.t, r, say("echo:hi", "authorization", "Bearer "+token)))
		if all = append(all, v); v != all[0] {
			return fmt.Sprintf("%s, but %s: %s", all[0], w.name, v)
		}
	}
	return all[0]
}

// becomes waits until a token is met with a verdict, and then asks in every way.
func (r *replica) becomes(verdict, token string) {
	r.t.Helper()
	w := ways[len(ways)-2]
	eventually(r.t, fmt.Sprintf("the token is %s on %s", verdict, r.name), func() error {
		got := w.verdict(w.send(r.t, r, say("echo:hi", "authorization", "Bearer "+token)))
		return unless(got == verdict, "%s", got)
	})
	require.Equal(r.t, verdict, r.shown(token))
}

// counted is a sample of the metrics, such as a_total{b="c"}; 0 when there is none.
func (r *replica) counted(sample string) int {
	r.t.Helper()
	resp, err := http.Get(r.admin + "/metrics")
	require.NoError(r.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(sample) + ` (\d+)$`).FindSubmatch(b)
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(string(found[1]))
	require.NoError(r.t, err)
	return n
}

// fetches is how often a replica has asked the issuer, with an outcome.
func (r *replica) fetches(outcome string) int {
	return r.counted(fmt.Sprintf(`holdfast_issuer_fetches_total{outcome=%q,scheme="sso"}`, outcome))
}

// awaitFetch waits until a replica has asked once more, with an outcome.
func (r *replica) awaitFetch(outcome string) {
	r.t.Helper()
	before := r.fetches(outcome)
	eventually(r.t, r.name+" asks the issuer: "+outcome, func() error {
		return unless(r.fetches(outcome) > before, "%d", before)
	})
}

// Two replicas find an issuer's keys by its metadata. What the token endpoint gives out is good on every binding of both,
// and nothing else is.
func TestTokensOfAnIssuer(t *testing.T) {
	t.Parallel()
	i := startIssuer(t)
	db := newDB(t)
	config := withTokens(i, ", tenant_claim: org, subject_prefix: 'sso:'")
	config = replace(config, "name: demo\n", "name: demo\n    auth: {scope: 'demo:use'}\n")
	a := start(t, replicaOptions{Name: "a", DB: db.url, Config: config, Env: i.trust()})
	b := start(t, replicaOptions{Name: "b", DB: db.url, Config: config, Env: i.trust()})
	t.Cleanup(db.sound)
	good := i.token("alice", "demo:use", "else")
	for _, r := range []*replica{a, b} {
		require.Equal(t, taken, r.shown(good))
		for _, w := range ways {
			got := w.send(t, r, say("echo:hi", "authorization", "Bearer "+i.token("alice", "else")))
			require.Contains(t, []string{"403", "PermissionDenied"}, got.status, w.name)
			require.Equal(t, `Bearer realm="holdfast", error="insufficient_scope", scope="demo:use"`, got.challenge, w.name)
		}
	}
	eventually(t, "each has asked once", func() error {
		metadata, keys := i.count("/.well-known/openid-configuration"), i.count("/keys")
		return unless(metadata == 2 && keys == 2, "%d, %d", metadata, keys)
	})
	require.Equal(t, []string{"acme sso:alice"}, column[string](db, "SELECT DISTINCT tenant || ' ' || owner FROM holdfast.tasks"))
	made := one[int](db, "SELECT count(*) FROM holdfast.tasks")
	require.Equal(t, 2*len(ways), made)

	i.rotate("es", jose.ES256)
	i.rotate("enc", jose.RS256)
	i.change(func(s *issuerState) {
		s.Keys[0].Use = "enc"
		slices.Reverse(s.Keys) // the first signs again
	})
	claims := func(pairs ...any) object {
		return i.claims("alice", append([]any{"scope", "demo:use"}, pairs...)...)
	}
	a.becomes(taken, i.signWith(i.key("es"), claims()))
	b.becomes(taken, i.signWith(i.key("es"), claims()))
	made = one[int](db, "SELECT count(*) FROM holdfast.tasks")

	// What anybody can read.
	private := i.key("one")
	public := private.Public()
	der, err := x509.MarshalPKIXPublicKey(public.Key.(*rsa.PublicKey))
	require.NoError(t, err)
	inPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	secret := func(key []byte) jose.JSONWebKey { return jose.JSONWebKey{Key: key, KeyID: "one", Algorithm: "HS256"} }
	stranger := newKey(t, "one", jose.RS256)
	parts := strings.Split(good, ".")
	encoded := func(o object) string { return base64.RawURLEncoding.EncodeToString(mustMarshal(o)) }
	hours := func(n int) int64 { return time.Now().Add(time.Duration(n) * time.Hour).Unix() }
	for name, c := range map[string]struct{ token, reason string }{
		"expired":                             {i.sign(claims("exp", hours(-1))), "expired"},
		"without an end":                      {i.sign(claims("exp", nil)), "claims"},
		"not yet valid":                       {i.sign(claims("nbf", hours(1))), "early"},
		"issued in the future":                {i.sign(claims("iat", hours(1))), "early"},
		"for another audience":                {i.sign(claims("aud", "https://other.example.com")), "audience"},
		"for no audience":                     {i.sign(claims("aud", nil)), "audience"},
		"of another issuer":                   {i.sign(claims("iss", "https://id.example.com")), "issuer"},
		"of the issuer, with a slash":         {i.sign(claims("iss", i.url+"/")), "issuer"},
		"of no issuer":                        {i.sign(claims("iss", nil)), "issuer"},
		"without a subject":                   {i.sign(claims("sub", nil)), "claims"},
		"without a tenant":                    {i.sign(claims("org", nil)), "claims"},
		"alg none":                            {encoded(object{"alg": "none", "typ": "JWT"}) + "." + parts[1] + ".", "algorithm"},
		"alg none, with a signature":          {encoded(object{"alg": "nOnE", "kid": "one"}) + "." + parts[1] + "." + parts[2], "algorithm"},
		"HS256 with the public key as PEM":    {i.signWith(secret(inPEM), claims()), "algorithm"},
		"HS256 with the public key as DER":    {i.signWith(secret(der), claims()), "algorithm"},
		"HS256 with the public key as JSON":   {i.signWith(secret(mustMarshal(public)), claims()), "algorithm"},
		"an algorithm that is not ours":       {i.sign(claims(), "alg", "PS256"), "algorithm"},
		"the kid of another algorithm":        {i.sign(claims(), "kid", "es"), "signature"},
		"another algorithm under the kid":     {i.signWith(i.key("es"), claims(), "kid", "one"), "signature"},
		"a key for encryption":                {i.signWith(i.key("enc"), claims()), "signature"},
		"a kid that the issuer has not":       {i.sign(claims(), "kid", "zero"), "signature"},
		"a stranger's key under the kid":      {i.signWith(stranger, claims()), "signature"},
		"a stranger's key without a kid":      {i.signWith(stranger, claims(), "kid", nil), "signature"},
		"a stranger's key in the header":      {i.signWith(stranger, claims(), "jwk", stranger.Public()), "signature"},
		"an address of a stranger's keys":     {i.signWith(stranger, claims(), "jku", i.url+"/stranger"), "signature"},
		"other claims under the signature":    {parts[0] + "." + encoded(claims("sub", "bob")) + "." + parts[2], "signature"},
		"no signature":                        {parts[0] + "." + parts[1] + ".", "signature"},
		"what must be understood, and is not": {i.sign(claims(), "crit", []string{"x"}, "x", 1), "claims"},
		"one that ends a session":             {i.sign(claims(), "typ", "logout+jwt"), "malformed"},
		"no token at all":                     {"sesame", "malformed"},
		"one that is too long":                {good + strings.Repeat("A", 16<<10), "malformed"},
	} {
		sample := fmt.Sprintf(`holdfast_authentications_total{outcome=%q,scheme="sso"}`, c.reason)
		for _, r := range []*replica{a, b} {
			before := r.counted(sample)
			require.Equal(t, refused, r.shown(c.token), name)
			require.Equal(t, before+len(ways), r.counted(sample), "%s: %s", name, c.reason)
		}
	}
	require.Equal(t, made, one[int](db, "SELECT count(*) FROM holdfast.tasks"), "nothing of that did anything")
	require.Zero(t, i.count("/stranger"))
	require.Equal(t, taken, a.shown(i.sign(claims(), "kid", nil)), "a key may be found without its name")
	i.silent(a)
	i.silent(b)
}

// The issuer changes its keys. A new one is found by the first token that it has signed, and also by a replica that
// nobody shows one; an old one is good until it is withdrawn and that is noticed, in a hurry or not.
func TestAnIssuerChangesItsKeys(t *testing.T) {
	t.Parallel()
	i := startIssuer(t)
	db := newDB(t)
	asked := start(t, replicaOptions{Name: "asked", DB: db.url, Config: withTokens(i, ""), Env: i.trust()})
	watching := start(t, replicaOptions{Name: "watching", DB: db.url, Config: withTokens(i, often), Env: i.trust()})
	t.Cleanup(db.sound)
	both := []*replica{asked, watching}
	first := i.token("alice")
	for _, r := range both {
		require.Equal(t, taken, r.shown(first))
	}
	i.rotate("two", jose.ES256)
	second := i.token("alice")
	for _, r := range both {
		r.becomes(taken, second)
		require.Equal(t, taken, r.shown(first), "both are published")
	}
	fetched := asked.fetches("ok")
	i.withdraw("one")
	watching.becomes(refused, first)
	require.Equal(t, taken, watching.shown(second))
	require.Equal(t, taken, asked.shown(first), "who is shown no key that is new does not notice until its time has come")
	require.Equal(t, fetched, asked.fetches("ok"))

	// In a hurry: all that was signed before is worth nothing.
	i.withdraw("two")
	i.rotate("three", jose.EdDSA)
	third := i.token("alice")
	for _, r := range both {
		r.becomes(taken, third)
		require.Equal(t, refused, r.shown(first))
		require.Equal(t, refused, r.shown(second))
	}
	i.withdraw("three") // no key at all is an answer, too
	watching.becomes(refused, third)
	for _, r := range both {
		i.silent(r)
	}
}

// While the issuer is away, or talks nonsense, what its keys have signed is good, and what cannot be checked is told to
// come again. Nobody has to do anything when it is back.
func TestAnIssuerIsAway(t *testing.T) {
	t.Parallel()
	i := startIssuer(t)
	db := newDB(t)
	var replicas []*replica
	for _, name := range []string{"a", "b"} {
		replicas = append(replicas, start(t, replicaOptions{Name: name, DB: db.url, Config: withTokens(i, often), Env: i.trust()}))
	}
	t.Cleanup(db.sound)
	seen, unseen := i.token("alice"), i.token("alice")
	for _, r := range replicas {
		require.Equal(t, taken, r.shown(seen))
	}
	outage := func(name string, begin, end func()) {
		begin()
		for _, r := range replicas {
			r.awaitFetch("error")
			require.Equal(t, taken, r.shown(seen), name)
			require.Equal(t, taken, r.shown(unseen), "%s: the last good keys check also what was not seen before", name)
			require.Equal(t, refused, r.shown(i.signWith(newKey(t, i.key("").KeyID, jose.RS256), i.claims("alice"))), name)
		}
		i.rotate("while-"+name, jose.RS256)
		newer := i.sign(i.claims("alice"))
		for _, r := range replicas {
			require.Equal(t, away, r.shown(newer), "%s: it may be good", name)
		}
		end()
		for _, r := range replicas {
			r.becomes(taken, newer)
			require.Equal(t, taken, r.shown(seen), name)
		}
		unseen = i.token("alice")
	}
	outage("killed", i.kill, i.run)
	for _, m := range moods {
		outage(string(m), func() { i.be(m) }, func() { i.be(well) })
	}
	require.Zero(t, i.count("/moved"), "redirects are not followed")
	for _, r := range replicas {
		require.Contains(t, string(r.logs.all()), "the issuer's keys could not be fetched")
		i.silent(r)
	}
}

// A replica starts without its issuer, tells everybody to come again, and lets them in when the issuer is there.
func TestAReplicaStartsWithoutItsIssuer(t *testing.T) {
	t.Parallel()
	i := startIssuer(t)
	token := i.token("alice")
	i.kill()
	db := newDB(t)
	a := start(t, replicaOptions{Name: "a", DB: db.url, Config: withTokens(i, ""), Env: i.trust()})
	doubting := start(t, replicaOptions{Name: "doubting", DB: db.url, Config: withTokens(i, often)})
	t.Cleanup(db.sound)
	for _, r := range []*replica{a, doubting} {
		require.Equal(t, away, r.shown(token))
		require.Equal(t, away, r.shown(i.signWith(newKey(t, "one", jose.RS256), i.claims("alice"))), "nobody can tell")
		require.Equal(t, refused, r.shown(i.sign(i.claims("alice", "iss", "https://id.example.com"))), "this needs no key")
		card, err := http.Get(r.url + "/.well-known/agent-card.json")
		require.NoError(t, err)
		require.NoError(t, card.Body.Close())
		require.Equal(t, http.StatusOK, card.StatusCode, "cards are for everybody")
	}
	require.Zero(t, one[int](db, "SELECT count(*) FROM holdfast.tasks"))
	i.run()
	a.becomes(taken, token)
	doubting.awaitFetch("error")
	require.Equal(t, away, doubting.shown(token), "who is at the issuer's address and cannot show that it is the issuer is not asked")
	i.silent(a)
	i.silent(doubting)
}
