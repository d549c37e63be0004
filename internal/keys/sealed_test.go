package keys_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/keys"
	"github.com/holdfast-a2a/holdfast/internal/seal"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
)

// sealing is a replica with secret keys, each of one repeated byte.
func sealing(t *testing.T, url string, fill ...byte) (*keys.Ring, *store.Store) {
	t.Helper()
	var raw [][]byte
	for _, b := range fill {
		raw = append(raw, bytes.Repeat([]byte{b}, seal.KeySize))
	}
	s, err := store.Open(t.Context(), store.Options{URL: url, APIConns: 2, SecretKeys: raw})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close(context.WithoutCancel(t.Context())) })
	return keys.New(keys.Options{Store: s, RotateEvery: 90 * day, Overlap: 30 * day, Log: slog.New(slog.DiscardHandler)}), s
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

	require.ErrorIs(t, earlier.Refresh(t.Context()), seal.ErrKey)
	require.Equal(t, signature, sign(t, earlier))
	again, _ := sealing(t, url)
	require.ErrorIs(t, again.Refresh(t.Context()), seal.ErrKey)

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
	require.ErrorIs(t, old.Refresh(t.Context()), seal.ErrKey)
	require.Equal(t, signature, sign(t, old), "a replica that was left behind signs on")

	lost, other := sealing(t, url, 3)
	require.ErrorIs(t, lost.Refresh(t.Context()), seal.ErrKey)
	_, err = other.Reseal(t.Context())
	require.ErrorIs(t, err, seal.ErrKey)
}
