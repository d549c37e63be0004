package protocol

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
)

// behindABalancer is the configuration of replicas that clients reach at one address.
const behindABalancer = "public_url: https://agents.example.com" + clustertest.Settings

// fetched is an answer to a GET.
type fetched struct{ body, tag string }

func fetch(r *clustertest.Replica, path string, headers ...string) *fetched {
	r.T.Helper()
	status, body, head := r.Exchange(http.MethodGet, path, nil, headers...)
	require.Equal(r.T, http.StatusOK, status, "%s: %s", path, body)
	return &fetched{body, head.Get("ETag")}
}

// verifyCard checks the signatures of a card as A2A 1.0 describes it, and returns the number of valid ones.
func verifyCard(t testing.TB, document, keySet string) (valid, all int) {
	t.Helper()
	var members map[string]jsontext.Value
	require.NoError(t, json.Unmarshal([]byte(document), &members))
	var signatures []struct{ Protected, Signature string }
	require.NoError(t, json.Unmarshal(members["signatures"], &signatures))
	delete(members, "signatures")
	unsigned, err := json.Marshal(members)
	require.NoError(t, err)
	payload := jsontext.Value(unsigned)
	require.NoError(t, payload.Canonicalize())
	var keys jose.JSONWebKeySet
	require.NoError(t, json.Unmarshal([]byte(keySet), &keys))
	for _, s := range signatures {
		compact := strings.Join([]string{s.Protected, base64.RawURLEncoding.EncodeToString(payload), s.Signature}, ".")
		signed, err := jose.ParseSignedCompact(compact, []jose.SignatureAlgorithm{jose.ES256})
		require.NoError(t, err)
		header := signed.Signatures[0].Protected
		require.Equal(t, "https://agents.example.com/.well-known/jwks.json", header.ExtraHeaders["jku"])
		require.NotEmpty(t, header.KeyID)
		if _, err := signed.Verify(keys); err == nil {
			valid++
		}
	}
	return valid, len(signatures)
}

// Replicas sign cards with keys of the database: every replica serves the same bytes and publishes all keys, and a
// rotation invalidates no card.
func TestReplicasShareCardSigningKeys(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: behindABalancer}) // both find a database without keys
	const path = "/agents/demo/.well-known/agent-card.json"
	keySet := func(r *clustertest.Replica) string { return r.Read("/.well-known/jwks.json") }
	kids := func(set string) (kids []string) {
		var keys jose.JSONWebKeySet
		require.NoError(t, json.Unmarshal([]byte(set), &keys))
		for _, k := range keys.Keys {
			require.True(t, k.IsPublic())
			kids = append(kids, k.KeyID)
		}
		return kids
	}
	require.Equal(t, keySet(a), keySet(b))
	require.Len(t, kids(keySet(a)), 1)
	old := map[string]string{}
	for version, holds := range map[string]int{"1.0": 1, "": 1} {
		one, other := fetch(a, path, "A2A-Version", version), fetch(b, path, "A2A-Version", version)
		require.Equal(t, one, other, "document and tag")
		valid, all := verifyCard(t, one.body, keySet(b))
		require.Equal(t, holds, valid)
		require.Equal(t, map[string]int{"1.0": 1, "": 2}[version], all, "the superset also has the signature of the 1.0 card")
		old[version] = one.body
		changed := strings.Replace(one.body, `"description":"`, `"description":"X`, 1)
		require.NotEqual(t, one.body, changed)
		valid, _ = verifyCard(t, changed, keySet(b))
		require.Zero(t, valid)
	}

	// The catalog contains the same documents, so their signatures are valid there.
	catalog := fetch(a, "/agents?tag=demo", "A2A-Version", "1.0")
	require.Equal(t, catalog, fetch(b, "/agents?tag=demo", "A2A-Version", "1.0"))
	var listed struct {
		Agents []struct{ Card json.RawMessage }
	}
	require.NoError(t, json.Unmarshal([]byte(catalog.body), &listed))
	require.Len(t, listed.Agents, 1)
	require.Equal(t, old["1.0"], string(listed.Agents[0].Card))

	// Replace both processes: first while the next key is published but not in use, then when it signs.
	age := func(by string) {
		db.Exec(fmt.Sprintf("UPDATE holdfast.signing_keys SET created_at = created_at - interval '%[1]s', active_at = active_at - interval '%[1]s'", by))
	}
	restart := func() {
		for _, r := range []*clustertest.Replica{a, b} {
			r.Kill()
			r.Run()
		}
	}
	first := kids(keySet(a))[0]
	age("90 days")
	restart()
	require.Len(t, kids(keySet(a)), 2)
	require.Equal(t, keySet(a), keySet(b))
	require.Equal(t, old["1.0"], fetch(a, path, "A2A-Version", "1.0").body, "the first key still signs")

	age("1 hour")
	restart()
	require.Equal(t, first, kids(keySet(b))[1], "the first key stays published")
	one, other := fetch(a, path, "A2A-Version", "1.0"), fetch(b, path, "A2A-Version", "1.0")
	require.Equal(t, one, other)
	require.NotEqual(t, old["1.0"], one.body)
	for _, document := range []string{old["1.0"], old[""], one.body} {
		valid, _ := verifyCard(t, document, keySet(b))
		require.Equal(t, 1, valid)
	}
}
