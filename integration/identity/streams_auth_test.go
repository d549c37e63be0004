package identity

import (
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
)

// holdEverywhere opens a stream over every wire, also where paths name a version.
func holdEverywhere(r *clustertest.Replica, key string) (all []*a2atest.Reply) {
	r.T.Helper()
	for _, w := range a2atest.Wires {
		p := &r.Peer
		if w.Binding == a2atest.JSONRPC && w != a2atest.V02 { // 0.2 has no path
			p = p.Under("/v" + w.Version)
		}
		s := p.Stream(w, a2atest.Say("hold").With("X-API-Key", key))
		s.UntilState(w.Worded("working"))
		all = append(all, s)
	}
	return all
}

// endsRefused reads a stream to its end, and checks that it says the caller is not authenticated any more.
func endsRefused(t *testing.T, s *a2atest.Reply) {
	t.Helper()
	if s.Wire.Binding == a2atest.GRPC {
		s.More("")
		require.Equal(t, "Unauthenticated", s.Status, s.Wire)
		require.NotEmpty(t, s.Challenge, s.Wire)
		return
	}
	var refused *a2atest.Error
	_, err := s.UntilEnd()
	require.ErrorAs(t, err, &refused, s.Wire)
	switch s.Wire {
	case a2atest.V01:
		require.Equal(t, -32007, refused.Code)
	case a2atest.V10, a2atest.REST10:
		require.Equal(t, "UNAUTHENTICATED", refused.Reason)
	default:
		require.Equal(t, -32600, refused.Code)
	}
	_, err = s.Next()
	require.ErrorIs(t, err, io.EOF, "%s: the body is whole", s.Wire)
}

// A stream ends when its key is revoked, on every replica and in the terms of its version. With a valid key a client
// resumes it, and other callers' streams continue.
func TestStreamsEndWhenKeyIsRevoked(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: clustertest.WithKeys})
	operator := func(args ...string) string { return strings.TrimSpace(db.Operate(args...)) }
	old, next := operator("api-keys", "create", "--subject", "alice"), operator("api-keys", "create", "--subject", "alice")
	bobs := operator("api-keys", "create", "--subject", "bob")
	his := b.Stream(a2atest.V03, a2atest.Say("hold").With("X-API-Key", bobs))
	task := his.UntilState("working").Task()
	hers := a.Stream(a2atest.V03, a2atest.Say("chunks=6000 size=4 delay=50ms").With("X-API-Key", old))
	seen := hers.Take(3)
	all := append(holdEverywhere(a, old), holdEverywhere(b, old)...)

	operator("api-keys", "revoke", strings.Split(old, "_")[1])
	for _, s := range all {
		endsRefused(t, s)
	}
	_, err := hers.UntilEnd()
	var refused *a2atest.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, -32600, refused.Code)

	again := b.Subscribe(a2atest.V03, &a2atest.Args{
		Task: seen[0].Task(), After: strconv.FormatInt(a2atest.Last(seen).Seq, 10), Header: []string{"X-API-Key", next},
	})
	for _, key := range []string{next, bobs} {
		id := map[string]string{next: seen[0].Task(), bobs: task}[key]
		got := a.Ask("tasks/cancel", object{"id": id}, "X-API-Key", key)
		require.Nil(t, got.Error)
	}
	require.Equal(t, "canceled", a2atest.Last(again.Rest()).State())
	require.Equal(t, "canceled", a2atest.Last(his.Rest()).State(), "the stream of another key continues")
}

// The server knows when a key expires, and ends its streams without a hint.
func TestStreamsEndWhenKeyExpires(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	began := time.Now()
	r := clustertest.Start(t, clustertest.Options{Name: "r", DB: db.URL, Config: clustertest.WithKeys})
	// If a key expires earlier than the server knows, only the check of every minute finds it. Its stream ends later.
	other := strings.TrimSpace(db.Operate("api-keys", "create", "--subject", "bob"))
	bobs := r.Stream(a2atest.V03, a2atest.Say("hold").With("X-API-Key", other))
	bobs.UntilState("working")
	db.Exec("UPDATE holdfast.api_keys SET expires_at = now() WHERE key_id = $1", strings.Split(other, "_")[1])
	later := make(chan error, 1)
	go func() {
		_, err := bobs.UntilEnd()
		later <- err
	}()
	var made struct{ Key string }
	require.NoError(t, json.Unmarshal([]byte(db.Operate("api-keys", "create", "--subject", "alice", "--expires-in", "20s", "-o", "json")), &made))
	all := holdEverywhere(r, made.Key)
	early := time.Since(began) < 30*time.Second
	for _, s := range all {
		endsRefused(t, s)
	}
	if early {
		require.Empty(t, later, "the check of every minute has not run yet")
	}
}
