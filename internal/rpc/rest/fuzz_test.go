package rest_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/rpc/body"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/rpc/rest"
	"github.com/holdfast-a2a/holdfast/internal/rpctest"
)

// FuzzRequest sends arbitrary paths, queries and bodies. The answer is one document. An error has the format of its
// version, and is never internal.
func FuzzRequest(f *testing.F) {
	for _, seed := range []struct{ verb, path, query, body string }{
		{"POST", "/message:send", "", send10},
		{"POST", "/v1/message:stream", "", send03},
		{"GET", "/tasks", "pageSize=7&status=working&includeArtifacts=true&statusTimestampAfter=2026-01-05T10:00:02Z", ""},
		{"GET", "/demo/tasks/t%2F1", "history_length=3&tenant=demo", ""},
		{"POST", "/tasks/t:cancel", "", `{"id":"x","metadata":{"a":1}}`},
		{"GET", "/v1/tasks/t:subscribe", "A2A-Version=0.3", ""},
		{"DELETE", "/tasks/t/pushNotificationConfigs/%00", "", ""},
		{"POST", "/v1/v1/tasks/%ff/pushNotificationConfigs", "", `{"parent":"p","config":{}}`},
		{"PUT", "/tasks/a:b:cancel", "%zz", "\xff"},
	} {
		f.Add(seed.verb, seed.path, seed.query, seed.body)
	}
	b := rest.New(rest.Options{Limits: body.Limits{Size: 1 << 16}, Operations: dispatch.New(dispatch.Options{Engine: rpctest.ForAll(new(rpctest.Echo))})})
	f.Fuzz(func(t *testing.T, verb, path, query, content string) {
		u, err := url.Parse("http://x/" + strings.TrimLeft(path, "/"))
		if err != nil {
			return
		}
		target := rest.Match(u.EscapedPath())
		if target == nil {
			return
		}
		u.RawQuery = query
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(content))
		r.Method, r.URL = verb, u
		w := httptest.NewRecorder()
		b.Serve(w, r, dispatch.Endpoint{Agent: "demo", Common: true, Admission: rpctest.Open{}}, target)
		if verb == http.MethodOptions && w.Code == http.StatusNoContent {
			return
		}
		var document map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &document), "%s", w.Body)
		require.NotContains(t, w.Body.String(), "\n")
		require.NotEqual(t, http.StatusInternalServerError, w.Code, "%s", w.Body)
		require.Equal(t, w.Code != http.StatusOK, document["error"] != nil, "%s", w.Body)
	})
}
