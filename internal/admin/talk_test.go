package admin_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/admin"
	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Headers that a browser adds to a request do not reach an agent, which may get headers of its clients. The caller is the one that the
// operator names, and a binding cannot take the connection away.
func TestTalkPassesOnlyHeadersOfA2A(t *testing.T) {
	t.Parallel()
	var (
		got  http.Header
		as   task.Caller
		path string
	)
	api := admin.New(admin.Options{
		Store: &store.Store{}, Signals: &signal.Bus{}, Agents: []admin.Agent{{Name: "a", Schemes: []string{"keys"}}},
		Admit: func(*http.Request) (*admin.Admitted, error) {
			return &admin.Admitted{Caller: task.Caller{Subject: "op", Tenant: "t", Scopes: []string{"s"}}, Right: admin.Act, Bound: true}, nil
		},
		SameOrigin: func(*http.Request, bool) error { return nil },
		Streams:    1, StreamsOfAddress: 1,
		Talk: &admin.Talk{Serve: func(w http.ResponseWriter, r *http.Request, _, below string, caller task.Caller) error {
			got, as, path = r.Header, caller, below
			_, _, err := http.NewResponseController(w).Hijack()
			require.ErrorIs(t, err, http.ErrNotSupported)
			raw, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			_, err = w.Write(raw)
			require.NoError(t, err)
			return http.NewResponseController(w).Flush()
		}},
	})
	defer api.Stop()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/admin/v1/talk/a/tasks/x%2Fy:cancel?a=b", strings.NewReader("hello"))
	r.Header = http.Header{
		"Cookie": {"session=1"}, "Authorization": {"Bearer secret"}, "X-Api-Key": {"k"}, "X-User": {"u"}, "User-Agent": {"b"}, "Sec-Fetch-Site": {"same-origin"},
		"A2a-Version": {"1.0"}, "Last-Event-Id": {"7"}, "Content-Type": {"application/json"}, "Idempotency-Key": {"k"},
		"Holdfast-Subject": {"al%20ice"}, "Holdfast-Scopes": {"s"},
	}
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	require.Equal(t, "hello", w.Body.String())
	require.Equal(t, http.Header{
		"A2a-Version": {"1.0"}, "Last-Event-Id": {"7"}, "Content-Type": {"application/json"}, "Idempotency-Key": {"operator\x1fk"},
	}, got)
	require.Equal(t, "tasks/x%2Fy:cancel", path)
	require.Equal(t, task.Caller{
		Tenant: "t", Subject: "al ice", Scopes: []string{"s"}, Method: task.MethodOperator, Credential: "op", Address: as.Address, Reason: "talk",
	}, as)
}
