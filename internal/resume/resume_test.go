package resume_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/resume"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

var (
	oldKey = []byte("an old key of thirty-two bytes..")
	newKey = []byte("a new key of thirty-two bytes...")
	one    = task.ID{0x01, 0x94, 15: 1}
	two    = task.ID{0x01, 0x94, 15: 2}
)

func links(keys ...[]byte) *resume.Links { return resume.New("https://agents.example", keys) }

func tokenOf(t *testing.T, url string) string {
	t.Helper()
	token, ok := strings.CutPrefix(url, "https://agents.example/resume/")
	require.True(t, ok, url)
	return token
}

func TestURLNamesItsTurn(t *testing.T) {
	t.Parallel()
	l := links(newKey)
	for _, turn := range []int{1, 2, math.MaxInt32} {
		url := l.URL(one, turn)
		require.Equal(t, url, links(newKey).URL(one, turn), "each replica and each try has the same URL")
		id, n, ok := l.Read(tokenOf(t, url))
		require.True(t, ok)
		require.Equal(t, one, id)
		require.Equal(t, turn, n)
	}
	require.NotEqual(t, l.URL(one, 1), l.URL(one, 2))
	require.NotEqual(t, l.URL(one, 1), l.URL(two, 1))
}

// Each bit of a token counts: with any other value it is another task, turn or MAC, and not valid.
func TestTamperedTokensAreRefused(t *testing.T) {
	t.Parallel()
	l := links(newKey, oldKey)
	token := tokenOf(t, l.URL(one, 1))
	raw, err := base64.RawURLEncoding.DecodeString(token)
	require.NoError(t, err)
	refused := func(token string) {
		t.Helper()
		id, turn, ok := l.Read(token)
		require.False(t, ok, token)
		require.Zero(t, id)
		require.Zero(t, turn)
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
	for _, other := range []string{"", "x", token + "=", token + "\n", token[:9] + "\r\n" + token[9:], token + "/", " " + token, "%" + token, strings.Repeat("A", 1<<16)} {
		refused(other)
	}
	// The MAC of one turn does not prove another one.
	foreign, err := base64.RawURLEncoding.DecodeString(tokenOf(t, l.URL(two, 2)))
	require.NoError(t, err)
	refused(base64.RawURLEncoding.EncodeToString(append(append([]byte{}, raw[:21]...), foreign[21:]...)))
}

// A token has one spelling, so that a filter of a proxy or a search in its logs finds it.
func TestATokenHasOneSpelling(t *testing.T) {
	t.Parallel()
	l := links(newKey)
	token := tokenOf(t, l.URL(one, 1))
	for i := range len(token) {
		for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" {
			if other := token[:i] + string(c) + token[i+1:]; other != token {
				_, _, ok := l.Read(other)
				require.False(t, ok, other)
			}
		}
	}
}

// The steps of a rotation: add the new key, make it the first one, remove the old one.
func TestKeysRotate(t *testing.T) {
	t.Parallel()
	before, added, first, removed := links(oldKey), links(oldKey, newKey), links(newKey, oldKey), links(newKey)
	reads := func(l *resume.Links, url string) bool {
		_, _, ok := l.Read(tokenOf(t, url))
		return ok
	}
	require.Equal(t, before.URL(one, 1), added.URL(one, 1))
	require.Equal(t, first.URL(one, 1), removed.URL(one, 1))
	for _, l := range []*resume.Links{before, added, first} {
		require.True(t, reads(l, before.URL(one, 1)))
	}
	for _, l := range []*resume.Links{added, first, removed} {
		require.True(t, reads(l, first.URL(one, 1)))
	}
	require.False(t, reads(removed, before.URL(one, 1)))
	require.False(t, reads(before, first.URL(one, 1)))
}

// The keys also seal: a MAC with the key itself is not one of a token.
func TestTheSigningKeyIsDerived(t *testing.T) {
	t.Parallel()
	raw, err := base64.RawURLEncoding.DecodeString(tokenOf(t, links(newKey).URL(one, 1)))
	require.NoError(t, err)
	mac := hmac.New(sha256.New, newKey)
	_, _ = mac.Write(raw[:21])
	_, _, ok := links(newKey).Read(base64.RawURLEncoding.EncodeToString(mac.Sum(raw[:21])[:len(raw)]))
	require.False(t, ok)
}
