package identity

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/issuertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// withTokens are the usual settings, for callers with tokens of an issuer; more is added to the scheme's jwt.
func withTokens(i *issuertest.Issuer, more string) string {
	return clustertest.Settings + "limits: {max_block: 1h}\nauth:\n  schemes:\n    - " + i.Scheme("sso", more) + "\n"
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

// Two replicas find an issuer's keys by its metadata. Tokens of its token endpoint work on every binding of both replicas.
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
	require.Equal(t, 2*len(a2atest.Sends), clustertest.One[int](db, "SELECT count(*) FROM holdfast.tasks"))
	i.Silent(a)
	i.Silent(b)
}

// A replica that starts without its issuer asks all clients to retry, and lets them in when the issuer is there. It finds a new
// key with the first token that it signs. While the issuer is down again, tokens of its known keys stay valid, and clients with
// tokens that cannot be checked are asked to retry. When it is back, nobody has to act.
func TestIssuerOutage(t *testing.T) {
	t.Parallel()
	i := issuertest.Start(t)
	first := i.Token("alice")
	i.Kill()
	db := clustertest.NewDB(t)
	both := clustertest.Together(t,
		clustertest.Options{Name: "a", DB: db.URL, Config: withTokens(i, often), Env: i.Trust()},
		clustertest.Options{Name: "doubting", DB: db.URL, Config: withTokens(i, often)})
	a, doubting := both[0], both[1]
	for _, r := range both {
		require.Equal(t, away, shown(r, first))
		require.Equal(t, away, shown(r, i.SignWith(issuertest.NewKey(t, "one", jose.RS256), i.Claims("alice"))), "the token cannot be checked")
		require.Equal(t, refused, shown(r, i.Sign(i.Claims("alice", "iss", "https://id.example.com"))), "a malformed token needs no key")
		require.True(t, r.ShowHTTP(http.MethodGet, "/.well-known/agent-card.json", nil).OK, "cards need no credentials")
	}
	require.Zero(t, clustertest.One[int](db, "SELECT count(*) FROM holdfast.tasks"))
	i.Run()
	becomes(a, taken, first)
	awaitFetch(doubting, "error")
	require.Equal(t, away, shown(doubting, first), "a server at the issuer's address without its certificate is not trusted")

	i.Rotate("two", jose.ES256)
	second := i.Token("alice")
	becomes(a, taken, second)
	require.Equal(t, taken, shown(a, first), "both are published")
	i.Withdraw("one")
	becomes(a, refused, first)

	i.Kill()
	awaitFetch(a, "error")
	require.Equal(t, taken, shown(a, second))
	require.Equal(t, taken, shown(a, i.Sign(i.Claims("bob"))), "the last good keys also check new tokens")
	require.Equal(t, refused, shown(a, i.SignWith(issuertest.NewKey(t, "two", jose.ES256), i.Claims("alice"))))
	i.Rotate("three", jose.EdDSA)
	third := i.Sign(i.Claims("alice"))
	require.Equal(t, away, shown(a, third), "the token may be valid")
	i.Run()
	becomes(a, taken, third)
	require.Equal(t, taken, shown(a, second))
	require.Contains(t, a.Log(), "issuer keys not fetched")
	for _, r := range both {
		i.Silent(r)
	}
}
