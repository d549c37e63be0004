package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/identity"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// FuzzPageToken: the server accepts only tokens that it issued, bit for bit.
func FuzzPageToken(f *testing.F) {
	v := New(Options{PageKey: []byte("key"), Store: func(identity.Caller, store.Visibility) Store { return nil }}).As(identity.Caller{}, "a")
	r := &ListRequest{ContextID: "c"}
	at := position{place: store.Place{At: time.UnixMicro(1_767_607_202_120_987), ID: task.ID{1, 2, 3}}, total: 7}
	token := v.token(r, at)
	got, ok := v.readToken(r, token)
	require.True(f, ok)
	require.True(f, at.place.At.Equal(got.place.At))
	require.Equal(f, at.place.ID, got.place.ID)
	require.Equal(f, at.total, got.total)
	for _, seed := range []string{"", token, token[1:], token + "=", "AAAA", "\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		if p, ok := v.readToken(r, token); ok {
			require.Equal(t, token, v.token(r, p))
		}
	})
}
