package rpc_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/rpc"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// listening starts a server on a port, with limits that keep net/http's own from applying.
func listening(t *testing.T, wrap func(net.Listener) net.Listener) (addr string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	o := options("", namer{}.As)
	o.HeaderTimeout, o.IdleTimeout = time.Hour, time.Hour
	s := rpc.New(o)
	served := make(chan error, 1)
	go func() { served <- s.Serve(wrap(l)) }()
	t.Cleanup(func() {
		require.NoError(t, s.Shutdown(context.WithoutCancel(t.Context())))
		require.NoError(t, <-served)
	})
	return l.Addr().String()
}

func plain(l net.Listener) net.Listener { return l }

// raw sends what no client library would send, and returns the answer. It returns nil without an answer.
func raw(t *testing.T, addr, request string) *reply {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	require.NoError(t, c.SetDeadline(time.Now().Add(waittest.Patience)))
	// The server may answer and close before it has read everything.
	go func() { _, _ = io.WriteString(c, request) }()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return &reply{resp, b}
}

// call returns a request for a task. A test may replace its parts.
func call(target string, headers ...string) string {
	return "POST " + target + " HTTP/1.1\r\nHost: agents.example\r\nContent-Type: application/json\r\nConnection: close\r\n" +
		strings.Join(append(headers, ""), "\r\n") + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(get), get)
}

// A target reaches one agent or none, however a proxy in front reads it.
func TestAmbiguousTargets(t *testing.T) {
	t.Parallel()
	addr := listening(t, plain)
	for target, want := range map[string]string{
		"/": "demo", "/?x=1": "demo", "//": "demo", "/v0.1": "demo", "/v0%2E3": "demo", "/agents/other": "other",
		"/agents/other/v0.3": "other", "/agents/%6fther": "other", "/agents/other%2F": "other", "/%61gents/other/v0.1/": "other",
		"/agents/nobody": "", "/agents/other//": "", "/agents//other": "", "/agents/other/v0.2": "", "/agents/other/v9": "", "/v1": "",
		"/%00": "", "/agents/%ff": "",
		"http://agents.example/agents/other": "other", // absolute form
		"http://elsewhere.example/":          "demo", "//agents/other": "", "//elsewhere.example/agents/other": "", "/agents/demo/../other": "",
		"/agents/demo/%2e%2e/other": "", "/agents/demo/..%2fother": "", "/agents/demo%2f..%2fother": "", "/agents\\other": "",
		"/agents/other%5c": "", "/agents/other%00": "", "/agents/other%0d%0aX:%20y": "", "/agents/other%2520": "",
		"/agents/%6f%74%68%65%72": "other", "/agents/ot\u200bher": "", "/agents/%c0%afother": "", "/agents/other?agent=demo": "other",
		"/agents/other#/agents/demo":      "",
		"/" + strings.Repeat("a/", 20000): "",
	} {
		t.Run(fmt.Sprintf("%.40s", target), func(t *testing.T) {
			t.Parallel()
			resp := raw(t, addr, call(target))
			require.NotNil(t, resp)
			if want == "" {
				require.GreaterOrEqual(t, resp.StatusCode, 400, string(resp.body))
				require.Less(t, resp.StatusCode, 500, string(resp.body))
				require.NotContains(t, string(resp.body), `"result"`)
				if resp.StatusCode == http.StatusNotFound {
					require.Equal(t, "Not Found", resp.member(t, "error"))
					require.Contains(t, resp.member(t, "detail"), "/agents/{name}")
				}
				return
			}
			require.Equal(t, http.StatusOK, resp.StatusCode, string(resp.body))
			require.Contains(t, string(resp.body), `"id":"`+want+`"`)
		})
	}
	t.Run("HTTP+JSON", func(t *testing.T) {
		t.Parallel()
		for target, want := range map[string]string{
			"/agents/other/v1/tasks/t": "other", "/agents/demo/../other/v1/tasks/t": "", "/agents/demo/%2e%2e/other/v1/tasks/t": "",
			"/agents/demo%2f../other/v1/tasks/t": "", "/v1/../agents/other/v1/tasks/t": "",
			"/v1/tasks/..%2f..%2fagents%2fother": "demo", // an id like any other
			"/v1/tasks/%2e%2e":                   "demo",
			"//v1/tasks/t":                       "demo", "//agents/other/v1/tasks/t": "",
		} {
			resp := raw(t, addr, "GET "+target+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
			require.NotNil(t, resp)
			if want == "" {
				require.Equal(t, http.StatusNotFound, resp.StatusCode, "%s %s", target, string(resp.body))
				continue
			}
			// The engine in this test answers for any id, with the agent's name as the id.
			require.Equal(t, http.StatusOK, resp.StatusCode, "%s %s", target, string(resp.body))
			require.Contains(t, string(resp.body), `"id":"`+want+`"`, target)
		}
	})
	t.Run("no path at all", func(t *testing.T) {
		t.Parallel()
		for request, status := range map[string]int{
			"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n":                          http.StatusOK,
			"POST * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n":                             http.StatusNotFound,
			"CONNECT elsewhere.example:443 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n":      http.StatusNotFound,
			"POST /agents/%zz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n":                   http.StatusBadRequest,
			"GET /" + strings.Repeat("a", 80<<10) + " HTTP/1.1\r\nHost: x\r\n\r\n":                http.StatusRequestHeaderFieldsTooLarge,
			"BREW /agents/other HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n":                 http.StatusMethodNotAllowed,
			"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: close, Upgrade\r\n\r\n":     http.StatusMethodNotAllowed,
			"TRACE / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\nConnection: close\r\n\r\n": http.StatusMethodNotAllowed,
		} {
			resp := raw(t, addr, request)
			require.NotNil(t, resp, "%.60q", request)
			require.Equal(t, status, resp.StatusCode, "%.60q %s", request, string(resp.body))
			require.NotContains(t, string(resp.body), "Bearer")
		}
	})
}

// The server refuses requests that two readers might understand differently.
func TestAmbiguousHeaders(t *testing.T) {
	t.Parallel()
	addr := listening(t, plain)
	length := fmt.Sprintf("Content-Length: %d", len(get))
	for name, tt := range map[string]struct {
		request string
		status  int
		says    string
	}{
		"two lengths":                  {call("/", "Content-Length: 5"), 400, ""},
		"a length twice":               {call("/", length), 200, `"result"`},
		"two encodings":                {call("/", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), 501, ""},
		"an unknown encoding":          {call("/", "Transfer-Encoding: chunked, identity"), 501, ""},
		"a folded line":                {call("/", "A2A-Version:\r\n 0.3"), 200, `"result"`},
		"a bare line feed in a value":  {call("/", "A2A-Version: 0.3\nX-Y: z"), 200, `"result"`},
		"a name with an underscore":    {call("/", "A2A_Version: 9.9"), 200, `"result"`},
		"a version in other letters":   {call("/", "a2a-VERSION: 9.9"), 200, "-32009"},
		"two versions":                 {call("/", "A2A-Version: 0.3", "A2A-Version: 1.0"), 200, "A2A-Version: is given more than once"},
		"a version twice":              {call("/", "A2A-Version: 0.3", "A2A-Version: 0.3"), 200, `"result"`},
		"two keys":                     {call("/", "Idempotency-Key: a", "Idempotency-Key: b"), 200, "Idempotency-Key: is given more than once"},
		"two positions":                {call("/", "Last-Event-ID: 1", "Last-Event-ID: 2"), 200, "Last-Event-ID: is given more than once"},
		"X-HTTP-Method-Override":       {call("/", "X-HTTP-Method-Override: DELETE"), 200, `"result"`},
		"X-Original-URL":               {call("/agents/other", "X-Original-URL: /agents/demo", "X-Rewrite-URL: /agents/demo"), 200, `"id":"other"`},
		"headers that are too many":    {call("/", strings.Repeat("X-Y: z\r\n", 12000)+"X: y"), 431, ""},
		"a body that is said to be gz": {call("/", "Content-Encoding: gzip"), 200, `"result"`},
		"a body that is gz": {
			"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00",
			415, "Content-Encoding: the body must not be compressed",
		},
		"a body of HTTP+JSON that is gz": {
			"POST /message:send HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00",
			415, "Content-Encoding: the body must not be compressed",
		},
	} {
		resp := raw(t, addr, tt.request)
		require.NotNil(t, resp, name)
		require.Equal(t, tt.status, resp.StatusCode, string(resp.body))
		require.Contains(t, string(resp.body), tt.says, name)
	}
}

func TestHTTP2RequiresTLS(t *testing.T) {
	t.Parallel()
	resp := raw(t, listening(t, plain), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	require.NotNil(t, resp)
	require.GreaterOrEqual(t, resp.StatusCode, 400, "an upgrade in plain text is ignored")

	lent := httptest.NewTLSServer(http.NotFoundHandler()) // provides a certificate, and a client that trusts it
	defer lent.Close()
	addr := listening(t, func(l net.Listener) net.Listener {
		return tls.NewListener(l, &tls.Config{Certificates: lent.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}})
	})
	client := lent.Client()
	client.Transport.(*http.Transport).ForceAttemptHTTP2 = true
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+addr+"/agents/other", strings.NewReader(get))
	require.NoError(t, err)
	answer, err := client.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, 2, answer.ProtoMajor)
	require.Contains(t, string(body), `"id":"other"`)
	require.Equal(t, "nosniff", answer.Header.Get("X-Content-Type-Options"))
}

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
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "https://agents.example/agents", nil)
	s.Config.Handler.ServeHTTP(w, r)
	require.Equal(t, "max-age=31536000", w.Header().Get("Strict-Transport-Security"))
	card := do(t, s, http.MethodGet, "/.well-known/agent-card.json", "")
	require.Empty(t, card.Header.Get("Strict-Transport-Security"), "without TLS")
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
