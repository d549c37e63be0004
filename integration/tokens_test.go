package integration

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// withTokens are the usual settings, for callers with tokens of an issuer.
func withTokens(i *issuer, more string) string {
	return settings + "auth:\n  schemes:\n    - " + i.scheme("sso", more) + "\n"
}

// A token that the issuer gives a client works.
func TestATokenOfAnIssuer(t *testing.T) {
	t.Parallel()
	i := startIssuer(t)
	r := start(t, replicaOptions{Name: "a", DB: newDB(t).url, Config: withTokens(i, ""), Env: i.trust()})
	ask1 := func(token string) *answer {
		got, err := ask(short(t, patience), r.url, request(v03.send, v03.params("", "echo:hi")), "Authorization", "Bearer "+token)
		require.NoError(t, err)
		return got
	}
	require.Nil(t, ask1(i.token("alice")).Err)
	require.Nil(t, ask1(i.sign(i.claims("alice"))).Err)
	require.Equal(t, 401, ask1(i.sign(i.claims("alice", "aud", "x"))).HTTP)
	i.silent(r)
}
