package keys_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/secrets"
	"github.com/holdfast-a2a/holdfast/internal/server/keys"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// replica is a ring with connections of its own.
func replica(t *testing.T, url string) *keys.Ring {
	t.Helper()
	r, _ := sealing(t, url)
	return r
}

// exec changes the database without the rings.
func exec(t *testing.T, url, sql string) {
	t.Helper()
	_, err := storetest.Connect(t, url).Exec(t.Context(), sql)
	require.NoError(t, err)
}

// pass lets time pass on the database's clock.
func pass(t *testing.T, url, interval string) {
	t.Helper()
	exec(t, url, "UPDATE holdfast.signing_keys SET created_at = created_at - interval '"+interval+"', active_at = active_at - interval '"+interval+"'")
}

// published are the ids in the key set of a ring.
func published(t *testing.T, r *keys.Ring) []string {
	t.Helper()
	var set struct{ Keys []map[string]string }
	require.NoError(t, json.Unmarshal(r.Set(), &set))
	var ids []string
	for _, k := range set.Keys {
		require.NotContains(t, k, "d", "the set has no private part")
		require.Equal(t, "EC P-256 ES256 sig", strings.Join([]string{k["kty"], k["crv"], k["alg"], k["use"]}, " "))
		ids = append(ids, k["kid"])
	}
	return ids
}

func sign(t *testing.T, r *keys.Ring) string {
	t.Helper()
	compact, err := r.Sign([]byte(`{"a":1}`), "JOSE", "https://a/jwks.json")
	require.NoError(t, err)
	return compact
}

// verify checks a signature with the published set, as a client would.
func verify(t *testing.T, set []byte, compact string) error {
	t.Helper()
	parsed, err := jose.ParseSignedCompact(compact, []jose.SignatureAlgorithm{jose.ES256})
	require.NoError(t, err)
	header := parsed.Signatures[0].Protected
	require.Equal(t, "JOSE", header.ExtraHeaders[jose.HeaderType])
	require.Equal(t, "https://a/jwks.json", header.ExtraHeaders["jku"])
	var known jose.JSONWebKeySet
	require.NoError(t, json.Unmarshal(set, &known))
	_, err = parsed.Verify(known)
	return err
}

func TestReplicasShareFirstKey(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	var rings [8]*keys.Ring
	var done errgroup.Group
	for i := range rings {
		rings[i] = replica(t, url)
		require.Empty(t, rings[i].KeyID())
		require.Nil(t, rings[i].Set())
		_, err := rings[i].Sign(nil, "", "")
		require.ErrorContains(t, err, "no signing key")
	}
	for _, r := range rings {
		done.Go(func() error { return r.Refresh(t.Context()) })
	}
	require.NoError(t, done.Wait())
	first := sign(t, rings[0])
	require.NoError(t, verify(t, rings[0].Set(), first))
	require.Len(t, published(t, rings[0]), 1)
	for _, r := range rings {
		require.Equal(t, first, sign(t, r), "every replica serves the same bytes")
		require.Equal(t, rings[0].Set(), r.Set())
		require.Equal(t, published(t, rings[0])[0], r.KeyID())
	}
	require.Equal(t, first, sign(t, rings[0]), "the same bytes every time")
}

func TestRotation(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	a, b := replica(t, url), replica(t, url)
	refresh := func(rings ...*keys.Ring) {
		t.Helper()
		for _, r := range rings {
			require.NoError(t, r.Refresh(t.Context()))
		}
	}
	made, due := a.Times()
	require.True(t, made.IsZero() && due.IsZero(), "nothing is loaded")
	// signsSince checks, by the rows and to the hour, that the key that signs was made so long ago, and that the next one is due 90 days
	// after the newest.
	signsSince := func(age string) {
		t.Helper()
		made, due := a.Times()
		var signs, comes bool
		require.NoError(t, storetest.Connect(t, url).QueryRow(t.Context(), `SELECT
			bool_or(abs(extract(epoch FROM created_at - $1)) < 7200 AND abs(extract(epoch FROM now() - $2::text::interval - created_at)) < 7200),
			abs(extract(epoch FROM max(created_at) + interval '90 days' - $3)) < 7200
			FROM holdfast.signing_keys`, made, age, due).Scan(&signs, &comes))
		require.True(t, signs && comes, "%s %s", made, due)
	}
	refresh(a, b)
	signsSince("0 days")
	old, signed := a.KeyID(), sign(t, a)
	pass(t, url, "89 days")
	refresh(a, b)
	require.Equal(t, []string{old}, published(t, a))
	signsSince("89 days")

	pass(t, url, "1 day")
	refresh(a)
	signsSince("90 days")
	require.Len(t, published(t, a), 2)
	require.Equal(t, old, a.KeyID(), "the new key is published before it signs")
	require.Equal(t, []string{old}, published(t, b), "b has not read the new key")
	require.NoError(t, verify(t, b.Set(), sign(t, a)), "b does not need it yet")
	refresh(b)
	require.Equal(t, a.Set(), b.Set())

	pass(t, url, "1 hour")
	require.Equal(t, old, a.KeyID(), "b has read the new key")
	refresh(a, b)
	next := a.KeyID()
	require.NotEqual(t, old, next)
	require.Equal(t, []string{next, old}, published(t, b))
	require.NoError(t, verify(t, b.Set(), signed), "signatures of the old key are still valid")
	require.NoError(t, verify(t, b.Set(), sign(t, a)))
	require.Equal(t, sign(t, a), sign(t, b))

	pass(t, url, "29 days")
	refresh(a)
	require.Equal(t, []string{next, old}, published(t, a))
	pass(t, url, "1 day")
	refresh(a, b)
	require.Equal(t, []string{next}, published(t, a))
	require.Equal(t, []string{next}, published(t, b))
	require.Error(t, verify(t, a.Set(), signed))
}

func TestFailedRefreshKeepsRing(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	r := replica(t, url)
	require.NoError(t, r.Refresh(t.Context()))
	before := sign(t, r)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, r.Refresh(gone), task.Unavailable)
	require.Equal(t, before, sign(t, r))
	exec(t, url, `UPDATE holdfast.signing_keys SET private_key = '\x00'`)
	require.ErrorContains(t, r.Refresh(t.Context()), "signing key "+r.KeyID())
	require.Equal(t, before, sign(t, r))
}

// Whichever keys are withdrawn, one signs after the next refresh.
func TestWithdrawnKeys(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	r := replica(t, url)
	// refreshed refreshes the ring, and returns the key that signs. So many keys are published.
	refreshed := func(keys int) string {
		t.Helper()
		require.NoError(t, r.Refresh(t.Context()))
		require.Len(t, published(t, r), keys)
		require.NoError(t, verify(t, r.Set(), sign(t, r)))
		return r.KeyID()
	}
	withdraw := func(id string) { exec(t, url, "DELETE FROM holdfast.signing_keys WHERE key_id = '"+id+"'") }
	first := refreshed(1)
	withdraw(first)
	second := refreshed(1)
	require.NotEqual(t, first, second, "a new one, after all are withdrawn")

	pass(t, url, "90 days")
	require.Equal(t, second, refreshed(2))
	withdraw(second)
	third := refreshed(1)
	require.NotEqual(t, second, third, "its successor, although it was not in use yet; and no further key is made")

	pass(t, url, "90 days")
	require.Equal(t, third, refreshed(2))
	pass(t, url, "1 hour")
	fourth := refreshed(2)
	require.NotEqual(t, third, fourth)
	withdraw(fourth)
	require.Equal(t, third, refreshed(2), "the earlier one, and a new successor is made")
}

// sealing is a replica with secret keys, each of one repeated byte.
func sealing(t *testing.T, url string, fill ...byte) (*keys.Ring, *store.Store) {
	t.Helper()
	var raw [][]byte
	for _, b := range fill {
		raw = append(raw, bytes.Repeat([]byte{b}, secrets.KeySize))
	}
	s, err := store.Open(t.Context(), store.Options{URL: url, APIConns: 2, SecretKeys: raw})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close(context.WithoutCancel(t.Context())) })
	return keys.New(keys.Options{Store: s, Log: slog.New(slog.DiscardHandler)}), s
}

// dump is all data of the database, as text.
func dump(t *testing.T, url string) string {
	t.Helper()
	c := storetest.Connect(t, url)
	rows, err := c.Query(t.Context(), "SELECT tablename FROM pg_tables WHERE schemaname = 'holdfast'")
	require.NoError(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Contains(t, tables, "signing_keys")
	var all strings.Builder
	for _, table := range tables {
		var text string
		require.NoError(t, c.QueryRow(t.Context(), fmt.Sprintf("SELECT coalesce(string_agg(t::text, E'\n'), '') FROM holdfast.%q t", table)).Scan(&text))
		all.WriteString(text)
	}
	return all.String()
}

// scalars are the private numbers of the keys in the database, as a dump would show them.
func scalars(t *testing.T, s *store.Store) (all []string) {
	t.Helper()
	rows, err := s.SigningKeys(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, rows)
	for _, r := range rows {
		parsed, err := x509.ParsePKCS8PrivateKey(r.Private)
		require.NoError(t, err)
		number, err := parsed.(*ecdsa.PrivateKey).Bytes()
		require.NoError(t, err)
		all = append(all, hex.EncodeToString(number))
	}
	return all
}

func TestDumpHasNoPrivateKey(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	r, s := sealing(t, url, 1)
	require.NoError(t, r.Refresh(t.Context()))
	pass(t, url, "90 days")
	require.NoError(t, r.Refresh(t.Context()))
	private := scalars(t, s)
	require.Len(t, private, 2)
	for _, number := range private {
		require.NotContains(t, dump(t, url), number)
	}

	open := storetest.New(t).URL
	r, s = sealing(t, open)
	require.NoError(t, r.Refresh(t.Context()))
	require.Contains(t, dump(t, open), scalars(t, s)[0], "without secret keys they are plain, and this test would notice")
}

// Servers of earlier versions, and servers without secret keys, have left plain keys. The next server with secret keys seals
// them when it starts. A server without the secret key keeps what it has read, and does not start again.
func TestPlainKeysAreSealedAtTheNextStart(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	earlier, s := sealing(t, url)
	require.NoError(t, earlier.Refresh(t.Context()))
	signature, number := sign(t, earlier), scalars(t, s)[0]

	next, _ := sealing(t, url, 1)
	require.NoError(t, next.Refresh(t.Context()))
	require.NotContains(t, dump(t, url), number)
	require.Equal(t, signature, sign(t, next))
	require.Equal(t, earlier.Set(), next.Set())

	require.ErrorIs(t, earlier.Refresh(t.Context()), secrets.ErrKey)
	require.Equal(t, signature, sign(t, earlier))
	again, _ := sealing(t, url)
	require.ErrorIs(t, again.Refresh(t.Context()), secrets.ErrKey)

	// A sealed key is of use in its row only.
	exec(t, url, "UPDATE holdfast.signing_keys SET key_id = 'other'")
	require.ErrorContains(t, next.Refresh(t.Context()), "signing key other: not a value that was sealed for this place")
}

// Secret keys are replaced in the steps of docs/operations.md, while replicas with the old and the new list run.
func TestSecretKeyRotation(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	old, _ := sealing(t, url, 1)
	require.NoError(t, old.Refresh(t.Context()))
	signature := sign(t, old)
	staged, _ := sealing(t, url, 1, 2)
	front, s := sealing(t, url, 2, 1)
	require.NoError(t, staged.Refresh(t.Context()))
	require.NoError(t, front.Refresh(t.Context()))
	require.NoError(t, old.Refresh(t.Context()), "until rekey, the old key seals")

	sealed, err := s.Reseal(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, sealed)
	sealed, err = s.Reseal(t.Context())
	require.NoError(t, err)
	require.Zero(t, sealed)
	after, _ := sealing(t, url, 2)
	for _, r := range []*keys.Ring{staged, front, after} {
		require.NoError(t, r.Refresh(t.Context()))
		require.Equal(t, signature, sign(t, r))
	}
	require.ErrorIs(t, old.Refresh(t.Context()), secrets.ErrKey)
	require.Equal(t, signature, sign(t, old), "a replica that was left behind signs on")

	lost, other := sealing(t, url, 3)
	require.ErrorIs(t, lost.Refresh(t.Context()), secrets.ErrKey)
	_, err = other.Reseal(t.Context())
	require.ErrorIs(t, err, secrets.ErrKey)
}
