package rpc_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/rpc"
)

func withCORS(t *testing.T, publicURL string, c rpc.CORS) *httptest.Server {
	t.Helper()
	o := options(publicURL, namer{}.As)
	o.CORS = c
	s := httptest.NewServer(rpc.New(o))
	t.Cleanup(s.Close)
	return s
}

// preflight sends the request with which a browser asks whether a page may send JSON.
func preflight(t *testing.T, s *httptest.Server, path, origin string) *reply {
	t.Helper()
	return do(t, s, http.MethodOptions, path, "", "Origin", origin, "Access-Control-Request-Method", "POST",
		"Access-Control-Request-Headers", "authorization,content-type,a2a-version,idempotency-key")
}

func TestAnswersForbidCachingAndSniffing(t *testing.T) {
	t.Parallel()
	s := serve(t, "https://a2a.example.com")
	for name, r := range map[string]*reply{
		"a result":           do(t, s, http.MethodPost, "/", get, "Content-Type", "application/json"),
		"an error":           do(t, s, http.MethodPost, "/", "{", "Content-Type", "application/json"),
		"of HTTP+JSON":       do(t, s, http.MethodGet, "/tasks/t-1", "", "A2A-Version", "1.0"),
		"no such path":       do(t, s, http.MethodGet, "/nothing", ""),
		"no such verb":       do(t, s, http.MethodPut, "/", ""),
		"OPTIONS":            do(t, s, http.MethodOptions, "/", ""),
		"a page's request":   do(t, s, http.MethodPost, "/", get, "Origin", "https://evil.example"),
		"OPTIONS of a page":  preflight(t, s, "/", "https://evil.example"),
		"no such agent":      do(t, s, http.MethodPost, "/agents/nobody", get),
		"no such task route": do(t, s, http.MethodPost, "/tasks/x:fly", ""),
	} {
		require.Equal(t, "no-store", r.Header.Get("Cache-Control"), name)
		require.Equal(t, "nosniff", r.Header.Get("X-Content-Type-Options"), name)
		require.Empty(t, r.Header.Values("Server"), name)
		require.Empty(t, r.Header.Values("X-Powered-By"), name)
	}
	card := do(t, s, http.MethodGet, "/.well-known/agent-card.json", "")
	require.Equal(t, "max-age=60", card.Header.Get("Cache-Control"), "public documents may be cached")
	require.Equal(t, "nosniff", card.Header.Get("X-Content-Type-Options"))
}

func TestPagesOfOtherOriginsAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, "https://a2a.example.com")
	const evil = "https://evil.example"
	asked := preflight(t, s, "/", evil)
	for name := range asked.Header {
		require.NotContains(t, name, "Access-Control")
	}
	// Browsers send a body without a type, such as a Blob, without a preflight.
	for _, headers := range [][]string{
		{"Origin", evil},
		{"Origin", "null"},
		{"Origin", evil, "Sec-Fetch-Site", "cross-site"},
		{"Origin", evil, "Sec-Fetch-Site", "same-site"},
	} {
		for _, path := range []string{"/", "/agents/other", "/v0.3", "/tasks/t-1:cancel", "/nothing"} {
			r := do(t, s, http.MethodPost, path, get, headers...)
			require.Equal(t, http.StatusForbidden, r.StatusCode, "%s %v", path, headers)
			require.Contains(t, r.member(t, "detail"), "cors.allowed_origins")
			require.Empty(t, r.Header.Get("Access-Control-Allow-Origin"))
		}
	}
	for name, headers := range map[string][]string{
		"no browser":                         nil,
		"a page of this server":              {"Origin", s.URL, "Sec-Fetch-Site", "same-origin"},
		"one in an older browser":            {"Origin", s.URL},
		"one behind a proxy that hides Host": {"Origin", "https://a2a.example.com"},
		"a user at the address bar":          {"Sec-Fetch-Site", "none"},
	} {
		r := do(t, s, http.MethodPost, "/", get, headers...)
		require.Equal(t, http.StatusOK, r.StatusCode, name)
		require.Contains(t, string(r.body), `"result"`, name)
	}
}

func TestPagesOfAllowedOrigins(t *testing.T) {
	t.Parallel()
	const app = "https://app.example"
	s := withCORS(t, "", rpc.CORS{Origins: []string{app, "http://localhost:3000"}, Headers: []string{"X-Mine"}, MaxAge: time.Minute})
	for _, path := range []string{"/", "/agents/other", "/tasks/t-1:cancel", "/message:stream", "/.well-known/agent-card.json", "/agents"} {
		r := preflight(t, s, path, app)
		require.Equal(t, http.StatusNoContent, r.StatusCode)
		require.Equal(t, app, r.Header.Get("Access-Control-Allow-Origin"), path)
		require.Equal(t, "GET,HEAD,POST,DELETE", r.Header.Get("Access-Control-Allow-Methods"))
		for _, name := range []string{
			"Authorization", "Content-Type", "A2A-Version", "A2A-Extensions", "X-A2A-Extensions", "Idempotency-Key", "Last-Event-ID", "X-Mine",
		} {
			require.Contains(t, r.Header.Get("Access-Control-Allow-Headers"), name)
		}
		require.Equal(t, "60", r.Header.Get("Access-Control-Max-Age"))
		require.Empty(t, r.Header.Get("Access-Control-Allow-Credentials"), "pages set credentials in headers themselves")
	}
	for _, headers := range [][]string{{"Origin", app}, {"Origin", app, "Sec-Fetch-Site", "cross-site"}} {
		r := do(t, s, http.MethodPost, "/", get, headers...)
		require.Equal(t, http.StatusOK, r.StatusCode)
		require.Equal(t, app, r.Header.Get("Access-Control-Allow-Origin"))
		require.Contains(t, r.Header.Get("Access-Control-Expose-Headers"), "A2A-Extensions")
		require.Contains(t, r.Header.Get("Access-Control-Expose-Headers"), "Retry-After")
		require.Contains(t, r.Header.Values("Vary"), "Origin")
	}
	require.Equal(t, app, do(t, s, http.MethodPost, "/nothing", get, "Origin", app).Header.Get("Access-Control-Allow-Origin"),
		"a page sees errors, too")
	for _, other := range []string{"https://evil.example", "https://app.example.evil", "http://app.example", "https://app.example:8443", "null"} {
		require.Empty(t, preflight(t, s, "/", other).Header.Get("Access-Control-Allow-Origin"), other)
		require.Equal(t, http.StatusForbidden, do(t, s, http.MethodPost, "/", get, "Origin", other).StatusCode, other)
	}
	require.Equal(t, "OPTIONS, POST", do(t, s, http.MethodOptions, "/", "").Header.Get("Allow"), "as without CORS")
	s = withCORS(t, "", rpc.CORS{Origins: []string{"*"}})
	require.Equal(t, "*", do(t, s, http.MethodPost, "/", get, "Origin", "https://anywhere.example").Header.Get("Access-Control-Allow-Origin"))
}

// The operator learns of a page that may not use the server: its user sees an error without a reason.
func TestRefusedOriginsAreCountedAndLogged(t *testing.T) {
	t.Parallel()
	const app, evil = "https://app.example", "https://evil.example"
	for name, tt := range map[string]struct {
		cors    rpc.CORS
		refused int
	}{
		"without CORS": {rpc.CORS{}, 3 + 3}, "with CORS": {rpc.CORS{Origins: []string{app}}, 3}, "with any": {rpc.CORS{Origins: []string{"*"}}, 0},
	} {
		var logs strings.Builder
		refused := 0
		o := options("https://a2a.example.com", namer{}.As)
		o.CORS, o.OriginRefused, o.Log = tt.cors, func() { refused++ }, slog.New(slog.NewTextHandler(&logs, nil))
		s := httptest.NewServer(rpc.New(o))
		for _, origin := range []string{evil, app} {
			preflight(t, s, "/", origin)
			do(t, s, http.MethodPost, "/", get, "Origin", origin)
			do(t, s, http.MethodGet, "/tasks/t-1:subscribe?A2A-Version=1.0", "", "Origin", origin)
		}
		for _, origin := range []string{s.URL, "https://a2a.example.com", ""} {
			do(t, s, http.MethodPost, "/", get, "Origin", origin)
		}
		s.Close()
		require.Equal(t, tt.refused, refused, name)
		require.Equal(t, min(1, tt.refused), strings.Count(logs.String(), "cors.allowed_origins"), "%s: %s", name, &logs)
	}
}

func TestLoopbackServerChecksHost(t *testing.T) {
	t.Parallel()
	ask := func(o rpc.Options, method, path, host string) int {
		r := httptest.NewRequest(method, path, strings.NewReader(get))
		r.Host = host
		// As a page sends it after its DNS name was changed to this server.
		r.Header.Set("Origin", "http://"+host)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		rpc.New(o).ServeHTTP(w, r)
		return w.Code
	}
	local := options("https://a2a.example.com", namer{}.As)
	local.LocalOnly = true
	anywhere := options("https://a2a.example.com", namer{}.As)
	for _, host := range []string{"evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example:8080", "xlocalhost"} {
		for method, path := range map[string]string{
			http.MethodPost: "/", http.MethodGet: "/.well-known/agent-card.json", http.MethodHead: "/agents", http.MethodDelete: "/tasks/t-1",
		} {
			require.Equal(t, http.StatusForbidden, ask(local, method, path, host), "%s %s of %s", method, path, host)
		}
		require.Equal(t, http.StatusOK, ask(anywhere, http.MethodPost, "/", host), "a public server accepts any host")
	}
	for _, host := range []string{
		"localhost", "LOCALHOST:8080", "localhost.:8080", "a2a.localhost:8080", "127.0.0.1", "127.0.0.2:8080", "[::1]", "[::1]:8080",
		"a2a.example.com", "A2A.example.com:443",
	} {
		require.Equal(t, http.StatusOK, ask(local, http.MethodPost, "/", host), host)
	}
}
