package engine

import (
	"bytes"
	"encoding/base64"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/identity"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

var (
	listed = &ListRequest{ContextID: "c"}
	at     = position{place: store.Place{At: time.UnixMicro(1_767_607_202_120_987), ID: task.ID{1, 2, 3}}, total: 7}
)

func viewOf(key string, c identity.Caller, agent string) *View {
	return New(Options{PageKey: []byte(key), Store: func(identity.Caller, store.Visibility) Store { return nil }}).As(c, agent)
}

// A token is good for the same list of the same caller only, but for lists that show other parts of the tasks.
func TestPageTokens(t *testing.T) {
	t.Parallel()
	alice := identity.Caller{Tenant: "t", Subject: "alice"}
	v := viewOf("key", alice, "a")
	token := v.token(listed, at)
	got, ok := v.readToken(listed, token)
	require.True(t, ok)
	require.True(t, at.place.At.Equal(got.place.At))
	require.Equal(t, at.place.ID, got.place.ID)
	require.Equal(t, at.total, got.total)
	_, ok = v.readToken(&ListRequest{ContextID: "c", PageSize: 3, WithArtifacts: true, WithHistory: true, ExactTotal: true}, token)
	require.True(t, ok)
	for name, at := range map[string]struct {
		*View
		*ListRequest
	}{
		"another caller":   {viewOf("key", identity.Caller{Tenant: "t", Subject: "bob"}, "a"), listed},
		"another tenant":   {viewOf("key", identity.Caller{Tenant: "u", Subject: "alice"}, "a"), listed},
		"another agent":    {viewOf("key", alice, "strict"), listed},
		"another page key": {viewOf("another", alice, "a"), listed},
		"another context":  {v, &ListRequest{ContextID: "d"}},
		"another state":    {v, &ListRequest{ContextID: "c", State: task.StateCompleted}},
		"another since":    {v, &ListRequest{ContextID: "c", Since: time.Unix(1, 0)}},
	} {
		_, ok := at.readToken(at.ListRequest, token)
		require.False(t, ok, name)
	}
}

// FuzzPageToken: the server accepts only tokens that it issued, bit for bit.
func FuzzPageToken(f *testing.F) {
	v := viewOf("key", identity.Caller{}, "a")
	token := v.token(listed, at)
	raw, err := base64.RawURLEncoding.DecodeString(token)
	require.NoError(f, err)
	for i := range raw {
		forged := bytes.Clone(raw)
		forged[i] ^= 1
		f.Add(base64.RawURLEncoding.EncodeToString(forged))
	}
	for _, seed := range []string{"", token, token[1:], token[:len(token)/2], token + "=", token + "A", "AAAA", "\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		if p, ok := v.readToken(listed, token); ok {
			require.Equal(t, token, v.token(listed, p))
		}
	})
}
