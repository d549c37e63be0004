package console

import (
	"archive/zip"
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDocumentsComeOutOfTheArchive(t *testing.T) {
	t.Parallel()
	page := "<!doctype html>" + strings.Repeat("a page ", 100)
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, text := range map[string]string{"index.html": page, "agents/go.html": page, "images/a.svg": "<svg/>", "run-api.yaml": "openapi: 3.1.0"} {
		f, err := w.Create(name)
		require.NoError(t, err)
		_, err = f.Write([]byte(text))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	z, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	require.NoError(t, err)
	h := documents(z.File)

	for _, path := range []string{"/docs/", "/docs/index.html", "/docs/agents/go.html"} {
		for _, encoding := range []string{"gzip", ""} {
			res, body := get(t, h, path, encoding)
			require.Equal(t, http.StatusOK, res.Code, path)
			require.Equal(t, page, body, path)
			require.Equal(t, encoding, res.Header().Get("Content-Encoding"))
			require.Equal(t, "text/html; charset=utf-8", res.Header().Get("Content-Type"))
			require.Equal(t, policy, res.Header().Get("Content-Security-Policy"))
		}
	}
	for path, media := range map[string]string{"/docs/images/a.svg": "image/svg+xml", "/docs/run-api.yaml": "text/plain; charset=utf-8"} {
		res, _ := get(t, h, path, "gzip")
		require.Equal(t, media, res.Header().Get("Content-Type"))
	}

	res, _ := get(t, h, "/docs/", "gzip")
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/docs/", nil)
	r.Header.Set("If-None-Match", res.Header().Get("ETag"))
	again := httptest.NewRecorder()
	h.ServeHTTP(again, r)
	require.Equal(t, http.StatusNotModified, again.Code)

	res, body := get(t, h, "/docs/none.html", "")
	require.Equal(t, http.StatusNotFound, res.Code)
	require.Contains(t, body, "/docs/")
	res, body = get(t, documents(nil), "/docs/", "")
	require.Equal(t, http.StatusNotFound, res.Code)
	require.Contains(t, body, "make site")

	own, err := Documents()
	require.NoError(t, err)
	res, _ = get(t, own, "/docs/", "")
	require.Equal(t, HasDocuments(), res.Code == http.StatusOK)
}
