package integration

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	pb03 "github.com/a2aproject/a2a-go/a2apb"
	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
)

// held is a stream of a task that goes on, as somebody reads it.
type held struct {
	about string
	body  io.ReadCloser                        // over HTTP
	want  string                               // that its last document has
	call  func() (trailer []string, err error) // over gRPC
}

// holdEverywhere opens a stream in every version and binding, each to be read for so long.
func holdEverywhere(t *testing.T, r *replica, patience time.Duration, headers ...string) []*held {
	t.Helper()
	var all []*held
	for _, c := range []struct{ about, path, body, want string }{
		{"0.1", "/v0.1", string(request(v01.stream, v01.params("", "hold"))), `"error":{"code":-32007`},
		{"0.3", "/v0.3", string(request(v03.stream, v03.params("", "hold"))), `"error":{"code":-32600`},
		{"1.0", "/v1.0", string(request("SendStreamingMessage", object{"message": object{"messageId": "m", "role": "ROLE_USER", "parts": []any{object{"text": "hold"}}}})), `"UNAUTHENTICATED"`},
		{"0.3 over HTTP+JSON", "/v1/message:stream", `{"message":{"messageId":"m","role":"ROLE_USER","content":[{"text":"hold"}]}}`, `-32600`},
		{"1.0 over HTTP+JSON", "/message:stream", `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hold"}]}}`, `"UNAUTHENTICATED"`},
	} {
		resp, err := post( //nolint:bodyclose // endsRefused closes it
			short(t, patience), r.url+c.path, []byte(c.body), headers...)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode, c.about)
		all = append(all, &held{about: c.about, body: resp.Body, want: c.want})
	}
	ctx := metadata.AppendToOutgoingContext(short(t, patience), headers...)
	conn := r.connect(t)
	ten, err := pb10.NewA2AServiceClient(conn).SendStreamingMessage(metadata.AppendToOutgoingContext(ctx, "a2a-version", "1.0"), said10("hold"))
	require.NoError(t, err)
	three, err := pb03.NewA2AServiceClient(conn).SendStreamingMessage(ctx, said03("hold"))
	require.NoError(t, err)
	return append(all, &held{about: "1.0 over gRPC", call: drain(ten)}, &held{about: "0.3 over gRPC", call: drain(three)})
}

// drain reads a stream to its end.
func drain[M any](s grpc.ServerStreamingClient[M]) func() ([]string, error) {
	return func() ([]string, error) {
		for {
			if _, err := s.Recv(); err != nil {
				return s.Trailer().Get("www-authenticate"), err
			}
		}
	}
}

// endsRefused reads a stream to its end, which is that of somebody who is not let in any more.
func (h *held) endsRefused(t *testing.T) {
	t.Helper()
	if h.call != nil {
		trailer, err := h.call()
		require.Equal(t, codes.Unauthenticated, grpcstatus.Code(err), "%s: %v", h.about, err)
		require.NotEmpty(t, trailer, h.about)
		return
	}
	defer h.body.Close()
	b, err := io.ReadAll(h.body)
	require.NoError(t, err, "%s: the body is whole", h.about)
	documents := strings.Split(strings.TrimSpace(string(b)), "\n\n")
	last := documents[len(documents)-1]
	require.Contains(t, last, h.want, h.about)
	require.NotContains(t, last, "id: ", "%s: nothing to resume from that was not seen", h.about)
	require.Greater(t, len(documents), 1, h.about)
}

// A stream ends when its key is revoked, on every replica and in the words of its version; whoever comes back with a good
// key goes on where it was, and others have not noticed.
func TestStreamsEndWithTheirKey(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	a := start(t, replicaOptions{Name: "a", DB: db.url, Config: withKeys})
	b := start(t, replicaOptions{Name: "b", DB: db.url, Config: withKeys})
	operator := func(args ...string) string {
		res := command(t, t.TempDir(), []string{"HOLDFAST_DATABASE_URL=" + db.url}, args...)
		require.Zero(t, res.code, res.err)
		return strings.TrimSpace(res.out)
	}
	old, next := operator("keys", "create", "--subject", "alice"), operator("keys", "create", "--subject", "alice")
	bobs := operator("keys", "create", "--subject", "bob")
	his, err := openURL(t, b.url, v03.stream, v03.params("", "hold"), "X-API-Key", bobs)
	require.NoError(t, err)
	task := his.untilState("working").task()
	hers, err := openURL(t, a.url, v03.stream, v03.params("", "chunks=6000 size=4 delay=50ms"), "X-API-Key", old)
	require.NoError(t, err)
	seen := hers.take(3)
	all := append(holdEverywhere(t, a, patience, "X-API-Key", old), holdEverywhere(t, b, patience, "X-API-Key", old)...)

	operator("keys", "revoke", strings.Split(old, "_")[1])
	for _, h := range all {
		h.endsRefused(t)
	}
	_, err = hers.untilEnd()
	var refused *rpcError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, -32600, refused.Code)

	again, err := openURL(t, b.url, "tasks/resubscribe", object{"id": seen[0].task()}, "X-API-Key", next,
		"Last-Event-ID", strconv.FormatInt(last(seen).seq, 10))
	require.NoError(t, err)
	for _, key := range []string{next, bobs} {
		id := map[string]string{next: seen[0].task(), bobs: task}[key]
		got, err := ask(short(t, patience), a.url, request("tasks/cancel", object{"id": id}), "X-API-Key", key)
		require.NoError(t, err)
		require.Nil(t, got.Err)
	}
	require.Equal(t, "canceled", last(again.rest()).state())
	require.Equal(t, "canceled", last(his.rest()).state(), "the stream of another key was left alone")
}

// A key's expiry is known, so that nobody has to tell.
func TestStreamsEndWhenTheirKeyExpires(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	r := start(t, replicaOptions{Name: "r", DB: db.url, Config: withKeys})
	res := command(t, t.TempDir(), []string{"HOLDFAST_DATABASE_URL=" + db.url}, "keys", "create", "--subject", "alice", "--expires-in", "5s", "-o", "json")
	require.Zero(t, res.code, res.err)
	var made struct{ Key string }
	require.NoError(t, json.Unmarshal([]byte(res.out), &made))
	// The look of every minute would end them, too, but only then.
	for _, h := range holdEverywhere(t, r, patience/2, "X-API-Key", made.Key) {
		h.endsRefused(t)
	}
}
