package task_test

import (
	"encoding/base64"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

var (
	oldKey = []byte("an old key of thirty-two bytes..")
	newKey = []byte("a new key of thirty-two bytes...")
	one    = task.ID{0x01, 0x94, 15: 1}
	two    = task.ID{0x01, 0x94, 15: 2}
)

func tokens(keys ...[]byte) *task.Tokens { return task.NewTokens(keys) }

func TestATokenNamesItsTaskAndNumber(t *testing.T) {
	t.Parallel()
	from := tokens(newKey)
	for _, number := range []int64{0, 1, 2, math.MaxInt64} {
		made := from.Make(one, number)
		require.Equal(t, made, tokens(newKey).Make(one, number), "each replica and each try makes the same token")
		id, n, ok := from.Read(made)
		require.True(t, ok)
		require.Equal(t, one, id)
		require.Equal(t, number, n)
	}
	require.NotEqual(t, from.Make(one, 1), from.Make(one, 2))
	require.NotEqual(t, from.Make(one, 1), from.Make(two, 1))
}

// Each bit of a token counts: with any other value it is another task, number or MAC, and not valid.
func TestTamperedTokensAreRefused(t *testing.T) {
	t.Parallel()
	from := tokens(newKey, oldKey)
	made := from.Make(one, 1)
	raw, err := base64.RawURLEncoding.DecodeString(made)
	require.NoError(t, err)
	refused := func(text string) {
		t.Helper()
		id, number, ok := from.Read(text)
		require.False(t, ok, text)
		require.Zero(t, id)
		require.Zero(t, number)
	}
	for bit := range len(raw) * 8 {
		forged := append([]byte{}, raw...)
		forged[bit/8] ^= 1 << (bit % 8)
		refused(base64.RawURLEncoding.EncodeToString(forged))
	}
	for n := range len(raw) {
		refused(base64.RawURLEncoding.EncodeToString(raw[:n]))
	}
	refused(base64.RawURLEncoding.EncodeToString(append(raw, 0)))
	for _, other := range []string{
		"", "x", made + "=", made + "\n", made[:9] + "\r\n" + made[9:], made[:44] + "\r\n\r\n", made + "/", " " + made, "%" + made, strings.Repeat("A", 1<<16),
	} {
		refused(other)
	}
	// The MAC of one token does not prove another one.
	foreign, err := base64.RawURLEncoding.DecodeString(from.Make(two, 2))
	require.NoError(t, err)
	refused(base64.RawURLEncoding.EncodeToString(append(append([]byte{}, raw[:24]...), foreign[24:]...)))
}

// A token has one spelling, so that a filter of a proxy or a search in its logs finds it.
func TestATokenHasOneSpelling(t *testing.T) {
	t.Parallel()
	from := tokens(newKey)
	made := from.Make(one, 1)
	for i := range len(made) {
		for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" {
			if other := made[:i] + string(c) + made[i+1:]; other != made {
				_, _, ok := from.Read(other)
				require.False(t, ok, other)
			}
		}
	}
}

// The steps of a rotation: add the new key, make it the first one, remove the old one.
func TestKeysRotate(t *testing.T) {
	t.Parallel()
	before, added, first, removed := tokens(oldKey), tokens(oldKey, newKey), tokens(newKey, oldKey), tokens(newKey)
	reads := func(at *task.Tokens, text string) bool {
		_, _, ok := at.Read(text)
		return ok
	}
	require.Equal(t, before.Make(one, 1), added.Make(one, 1))
	require.Equal(t, first.Make(one, 1), removed.Make(one, 1))
	for _, at := range []*task.Tokens{before, added, first} {
		require.True(t, reads(at, before.Make(one, 1)))
	}
	for _, at := range []*task.Tokens{added, first, removed} {
		require.True(t, reads(at, first.Make(one, 1)))
	}
	require.False(t, reads(removed, before.Make(one, 1)))
	require.False(t, reads(before, first.Make(one, 1)))
}
