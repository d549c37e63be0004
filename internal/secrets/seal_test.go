package secrets

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func ring(t *testing.T, fill ...byte) *Keys {
	t.Helper()
	raw := make([][]byte, len(fill))
	for i, b := range fill {
		raw[i] = bytes.Repeat([]byte{b}, KeySize)
	}
	k, err := NewKeys(raw...)
	require.NoError(t, err)
	return k
}

func TestSealedValueOpensInItsPlaceOnly(t *testing.T) {
	t.Parallel()
	k := ring(t, 1)
	sealed := k.Seal([]byte("secret"), "here")
	require.NotContains(t, string(sealed), "secret")
	value, err := k.Open(sealed, "here")
	require.NoError(t, err)
	require.Equal(t, "secret", string(value))
	require.NotEqual(t, sealed, k.Seal([]byte("secret"), "here"), "each value has its own nonce")

	_, err = k.Open(sealed, "there")
	require.ErrorIs(t, err, errForged)
	for i := range sealed {
		bad := bytes.Clone(sealed)
		bad[i] ^= 1
		_, err = k.Open(bad, "here")
		require.Error(t, err, "byte %d", i)
	}
	for n := range sealed {
		_, err = k.Open(sealed[:n], "here")
		require.Error(t, err, "%d bytes", n)
	}
}

func TestKeyRotation(t *testing.T) {
	t.Parallel()
	old := ring(t, 1).Seal([]byte("secret"), "x")
	both := ring(t, 2, 1)
	value, err := both.Open(old, "x")
	require.NoError(t, err)
	require.Equal(t, "secret", string(value))
	require.False(t, both.Fresh(old))
	require.Equal(t, 1, both.Key(old[:HeadSize]))
	require.Equal(t, -1, ring(t, 3).Key(old))
	require.Equal(t, -1, both.Key(old[:HeadSize-1]))
	fresh := both.Seal(value, "x")
	require.True(t, both.Fresh(fresh))
	value, err = ring(t, 2).Open(fresh, "x")
	require.NoError(t, err)
	require.Equal(t, "secret", string(value))
	_, err = ring(t, 2).Open(old, "x")
	require.ErrorIs(t, err, ErrKey)
}

// A key that is derived for one purpose helps against no other one, nor against what is sealed.
func TestDerivedKeysDiffer(t *testing.T) {
	t.Parallel()
	k := ring(t, 2, 1)
	one, err := k.Derive("one")
	require.NoError(t, err)
	require.Len(t, one, 2)
	other, err := k.Derive("other")
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, key := range append(append(one, other...), bytes.Repeat([]byte{2}, KeySize), bytes.Repeat([]byte{1}, KeySize)) {
		require.Len(t, key, KeySize)
		require.False(t, seen[string(key)])
		seen[string(key)] = true
	}
	rotated, err := ring(t, 3, 2).Derive("one")
	require.NoError(t, err)
	require.Equal(t, one[0], rotated[1], "it depends on its own key alone")
}

func TestNewKeys(t *testing.T) {
	t.Parallel()
	_, err := NewKeys()
	require.Error(t, err)
	_, err = NewKeys(bytes.Repeat([]byte{1}, KeySize-1))
	require.Error(t, err)
}
