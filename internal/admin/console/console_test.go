package console

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// get returns the answer with its body as a browser reads it.
func get(t *testing.T, h http.Handler, path, encoding string) (res *httptest.ResponseRecorder, text string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	r.Header.Set("Accept-Encoding", encoding)
	res = httptest.NewRecorder()
	h.ServeHTTP(res, r)
	var body io.Reader = res.Body
	if res.Header().Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		require.NoError(t, err)
		body = z
	}
	raw, err := io.ReadAll(body)
	require.NoError(t, err)
	return res, string(raw)
}

func TestPagesGetTheIndexAndAssetsAreImmutable(t *testing.T) {
	t.Parallel()
	script := "export const a = 1;" + string(make([]byte, 1000))
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write([]byte(script))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	h, err := handler(fstest.MapFS{
		"index.html":              {Data: []byte("<!doctype html>the index")},
		"theme.js":                {Data: []byte("theme")},
		"assets/main-abc.js":      {Data: []byte(script)},
		"assets/worker-abc.js.gz": {Data: packed.Bytes()},
	})
	require.NoError(t, err)

	for _, page := range []string{"/console/", "/console/tasks", "/console/tasks/a%2Fb.c"} {
		res, body := get(t, h, page, "")
		require.Equal(t, http.StatusOK, res.Code, page)
		require.Contains(t, body, "the index", page)
		require.Equal(t, "no-cache", res.Header().Get("Cache-Control"))
		require.Equal(t, "text/html; charset=utf-8", res.Header().Get("Content-Type"))
	}

	for _, asset := range []string{"/console/assets/main-abc.js", "/console/assets/worker-abc.js"} {
		res, body := get(t, h, asset, "br, gzip")
		require.Equal(t, script, body, asset)
		require.Equal(t, "gzip", res.Header().Get("Content-Encoding"))
		require.Equal(t, "Accept-Encoding", res.Header().Get("Vary"))
		require.Equal(t, "public, max-age=31536000, immutable", res.Header().Get("Cache-Control"))
		require.Equal(t, "text/javascript; charset=utf-8", res.Header().Get("Content-Type"))

		res, body = get(t, h, asset, "gzip;q=0")
		require.Equal(t, script, body, asset)
		require.Empty(t, res.Header().Get("Content-Encoding"))
	}

	// A page that was open during an upgrade must not take the index for a script.
	for _, gone := range []string{"/console/assets/main-old.js", "/console/gone.js"} {
		res, body := get(t, h, gone, "")
		require.Equal(t, http.StatusNotFound, res.Code, gone)
		require.Contains(t, body, "must be loaded again")
	}
}

func TestHeadersAllowNothingForeign(t *testing.T) {
	t.Parallel()
	h, err := Handler()
	require.NoError(t, err)
	for _, path := range []string{"/console/", "/console/assets/none.js"} {
		res, _ := get(t, h, path, "")
		require.Equal(t, policy, res.Header().Get("Content-Security-Policy"))
		require.NotContains(t, policy, "unsafe")
		require.Equal(t, "nosniff", res.Header().Get("X-Content-Type-Options"))
		require.Equal(t, "no-referrer", res.Header().Get("Referrer-Policy"))
		require.Equal(t, "same-origin", res.Header().Get("Cross-Origin-Opener-Policy"))
	}
}
