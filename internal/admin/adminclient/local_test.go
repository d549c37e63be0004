package adminclient_test

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/admin/adminclient"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// A handler in this process gets requests and answers as by a connection: documents, problems, streams, and the end of a request.
func TestLocal(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /admin/v1/echo", func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	mux.HandleFunc("GET /admin/v1/nothing", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"title":"Not Found","reason":"not_found"}`)
	})
	mux.HandleFunc("GET /admin/v1/tasks/{id}/webhooks/{config}", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"a":"`+r.PathValue("id")+" "+r.PathValue("config")+`"}`)
	})
	left := make(chan struct{}, 1)
	mux.HandleFunc("GET /admin/v1/stream", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "event: "+r.URL.Query().Get("say")+"\nid: 7\ndata: {}\n\n")
		<-r.Context().Done()
		left <- struct{}{}
	})
	api := adminclient.Local(mux)
	var said map[string]string
	require.NoError(t, api.Post(t.Context(), "/echo", map[string]string{"a": "b"}, &said))
	require.Equal(t, map[string]string{"a": "b"}, said)
	require.ErrorIs(t, api.Get(t.Context(), "/nothing", nil, &said), task.NotFound)
	require.NoError(t, api.Get(t.Context(), adminclient.OfTask("..", "webhooks", "."), nil, &said))
	require.Equal(t, ".. .", said["a"])

	ctx, cancel := context.WithCancel(t.Context())
	err := api.Stream(ctx, "/stream", url.Values{"say": {"hello"}}, func(name, id string, _ []byte) error {
		require.Equal(t, "hello 7", name+" "+id)
		cancel()
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	waittest.Within(t, "the handler learns it", left)
	require.ErrorIs(t, api.Get(ctx, "/nothing", nil, &said), context.Canceled)
}
