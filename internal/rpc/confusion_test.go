package rpc_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/rpc"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
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

// raw sends what no client library would send, and returns the answer. It returns nil without an
// answer.
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
		"/":                                  "demo",
		"/?x=1":                              "demo",
		"//":                                 "demo",
		"/v0.1":                              "demo",
		"/v0%2E3":                            "demo",
		"/agents/other":                      "other",
		"/agents/other/v0.3":                 "other",
		"/agents/%6fther":                    "other",
		"/agents/other%2F":                   "other",
		"/%61gents/other/v0.1/":              "other",
		"/agents/nobody":                     "",
		"/agents/other//":                    "",
		"/agents//other":                     "",
		"/agents/other/v0.2":                 "",
		"/agents/other/v9":                   "",
		"/v1":                                "",
		"/%00":                               "",
		"/agents/%ff":                        "",
		"http://agents.example/agents/other": "other", // absolute form
		"http://elsewhere.example/":          "demo",
		"//agents/other":                     "",
		"//elsewhere.example/agents/other":   "",
		"/agents/demo/../other":              "",
		"/agents/demo/%2e%2e/other":          "",
		"/agents/demo/..%2fother":            "",
		"/agents/demo%2f..%2fother":          "",
		"/agents\\other":                     "",
		"/agents/other%5c":                   "",
		"/agents/other%00":                   "",
		"/agents/other%0d%0aX:%20y":          "",
		"/agents/other%2520":                 "",
		"/agents/%6f%74%68%65%72":            "other",
		"/agents/ot\u200bher":                "",
		"/agents/%c0%afother":                "",
		"/agents/other?agent=demo":           "other",
		"/agents/other#/agents/demo":         "",
		"/" + strings.Repeat("a/", 20000):    "",
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
			"/agents/other/v1/tasks/t":             "other",
			"/agents/demo/../other/v1/tasks/t":     "",
			"/agents/demo/%2e%2e/other/v1/tasks/t": "",
			"/agents/demo%2f../other/v1/tasks/t":   "",
			"/v1/../agents/other/v1/tasks/t":       "",
			"/v1/tasks/..%2f..%2fagents%2fother":   "demo", // an id like any other
			"/v1/tasks/%2e%2e":                     "demo",
			"//v1/tasks/t":                         "demo", "//agents/other/v1/tasks/t": "",
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
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp := raw(t, addr, tt.request)
			require.NotNil(t, resp)
			require.Equal(t, tt.status, resp.StatusCode, string(resp.body))
			require.Contains(t, string(resp.body), tt.says)
		})
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
