package identity

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
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

// A key that an operator creates works on every replica until it is revoked. Then its streams end, on every replica and in the
// terms of their versions. With a valid key a client resumes them, and other callers' streams continue.
func TestRevokedKey(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: clustertest.Replace(clustertest.WithKeys, "lease_ttl: 6s", "lease_ttl: 10m")})
	operator := func(args ...string) string { return strings.TrimSpace(db.Operate(args...)) }
	old, next := operator("api-keys", "create", "--subject", "alice"), operator("api-keys", "create", "--subject", "alice")
	bobs := operator("api-keys", "create", "--subject", "bob")
	his := b.Stream(a2atest.V03, a2atest.Say("hold").With("X-API-Key", bobs))
	his.UntilState("working")
	all := append(holdEverywhere(a, old), holdEverywhere(b, old)...)

	id := strings.Split(old, "_")[1]
	operator("api-keys", "revoke", id)
	for _, s := range all {
		endsRefused(t, s)
	}
	hers := all[0]
	for _, r := range []*clustertest.Replica{a, b} {
		waittest.Eventually(t, "the key is refused", func() error {
			got := r.Ask("tasks/get", object{"id": hers.Task}, "X-API-Key", old)
			return waittest.Unless(got.HTTP == http.StatusUnauthorized, "%d", got.HTTP)
		})
	}
	listed := operator("api-keys", "list")
	require.Regexp(t, id+`\s+alice\s+revoked`, listed)
	require.NotContains(t, listed, strings.Split(old, "_")[2])

	again := b.Subscribe(a2atest.V01, &a2atest.Args{Task: hers.Task, After: hers.LastID, Header: []string{"X-API-Key", next}})
	for key, task := range map[string]string{next: hers.Task, bobs: his.Task} {
		require.Nil(t, a.Ask("tasks/cancel", object{"id": task}, "X-API-Key", key).Error)
	}
	require.Equal(t, "canceled", a2atest.Last(again.Rest()).State())
	require.Equal(t, "canceled", a2atest.Last(his.Rest()).State(), "the stream of another key continues")
}
