package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReportsFailures(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Test") == "" {
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"kind":"task","id":"t","contextId":"c","status":{"state":"`+r.URL.Path[1:]+`"}}}`)
	}))
	t.Cleanup(server.Close)
	for path, want := range map[string]struct {
		header, out string
		code        int
	}{
		"/completed": {"X-Test: x", `\n1 .* none\n2 .* none\n`, 0},
		"/failed":    {"X-Test: x", `\n1 +0 .* [1-9]\d* task failed\n`, 1},
		"/":          {"X-Other: x", `HTTP 401 Unauthorized`, 1},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), []string{"--url", server.URL + path, "-H", want.header, "--duration", "50ms", "--inflight", "1,2"}, &out, &errs)
		require.Equal(t, want.code, code, errs.String())
		require.Regexp(t, `(?s)`+want.out, out.String())
	}
	require.Equal(t, 2, run(t.Context(), []string{"--mode", "push"}, io.Discard, io.Discard))
}
