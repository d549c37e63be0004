package rpc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/identity"
	"github.com/holdfast-a2a/holdfast/internal/rpc"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/rpc/jsonrpc"
	"github.com/holdfast-a2a/holdfast/internal/rpc/rest"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// namer answers tasks/get with the name of the agent that was asked.
type namer struct {
	dispatch.Engine // no other method is called
	hold            chan struct{}
	agent           string
}

func (n namer) As(_ identity.Caller, agent string) dispatch.Engine {
	n.agent = agent
	return n
}

func (n namer) Get(context.Context, *engine.GetRequest) (*task.Task, error) {
	if n.hold != nil {
		n.hold <- struct{}{}
		<-n.hold
	}
	return &task.Task{PublicID: n.agent, Dialect: "0.3"}, nil
}

func newServer(publicURL string, e func(identity.Caller, string) dispatch.Engine) *rpc.Server {
	return rpc.New(options(publicURL, e))
}

func options(publicURL string, e func(identity.Caller, string) dispatch.Engine) rpc.Options {
	operations := dispatch.New(dispatch.Options{Engine: e})
	return rpc.Options{
		Agents: []rpc.Agent{
			{Name: "demo", Default: true, Card: card.Card{Name: "Demo", Version: "1"}},
			{Name: "other", Card: card.Card{Name: "Other", Version: "1"}},
		},
		PublicURL: publicURL, JSONRPC: jsonrpc.New(jsonrpc.Options{Operations: operations}), REST: rest.New(rest.Options{Operations: operations}),
		Log: slog.New(slog.DiscardHandler),
	}
}

func serve(t *testing.T, publicURL string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(newServer(publicURL, namer{}.As))
	t.Cleanup(s.Close)
	s.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return s
}

type reply struct {
	*http.Response
	body []byte
}

func (r *reply) member(t *testing.T, name string) string {
	t.Helper()
	var members map[string]any
	require.NoError(t, json.Unmarshal(r.body, &members), "%s", r.body)
	s, _ := members[name].(string)
	return s
}

func do(t *testing.T, s *httptest.Server, method, path, body string, headers ...string) *reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	resp, err := s.Client().Do(r)
	require.NoError(t, err)
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return &reply{resp, b}
}

const get = `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"t-1"}}`

func TestCards(t *testing.T) {
	t.Parallel()
	s := serve(t, "https://a2a.example.com/base/")
	for base, want := range map[string]struct{ name, url string }{
		"":              {"Demo", "https://a2a.example.com/base/"},
		"/agents/demo":  {"Demo", "https://a2a.example.com/base/agents/demo/"},
		"/agents/other": {"Other", "https://a2a.example.com/base/agents/other/"},
	} {
		for _, path := range []string{"/.well-known/agent.json", "/.well-known/agent-card.json", "/.well-known/agent.json/", "/%2ewell-known/agent.json"} {
			r := do(t, s, http.MethodGet, base+path, "", "X-Forwarded-Proto", "http", "X-Forwarded-Host", "evil.example")
			require.Equal(t, http.StatusOK, r.StatusCode, base+path)
			require.Equal(t, "application/json", r.Header.Get("Content-Type"))
			require.Equal(t, want.name, r.member(t, "name"))
			require.Equal(t, want.url, r.member(t, "url"))
			require.Contains(t, string(r.body), `"capabilities"`)
			require.NotContains(t, string(r.body), `"stateTransitionHistory":true`, "no version lists the states that a task has had")
			if strings.Contains(path, "agent-card") {
				require.Equal(t, []string{"A2A-Version"}, r.Header.Values("Vary"))
			} else {
				require.Empty(t, r.Header.Values("Vary"))
			}
			require.NotEmpty(t, r.Header.Get("Cache-Control"))

			h := do(t, s, http.MethodHead, base+path, "")
			require.Equal(t, http.StatusOK, h.StatusCode)
			require.Empty(t, h.body)
			require.Equal(t, int64(len(r.body)), h.ContentLength)
			require.Equal(t, r.Header.Get("ETag"), h.Header.Get("ETag"))
		}
	}
	require.Equal(t, http.StatusNotFound, do(t, s, http.MethodGet, "/agents/nobody/.well-known/agent.json", "").StatusCode)
}

func TestCardNotModified(t *testing.T) {
	t.Parallel()
	s := serve(t, "https://a2a.example.com")
	tag := do(t, s, http.MethodGet, "/.well-known/agent.json", "").Header.Get("ETag")
	require.NotEqual(t, tag, do(t, s, http.MethodGet, "/agents/other/.well-known/agent.json", "").Header.Get("ETag"))
	for value, want := range map[string]int{
		tag: 304, "W/" + tag: 304, `"x", ` + tag + ` , "y"`: 304, "*": 304,
		`"x"`: 200, strings.Trim(tag, `"`): 200, `""`: 200,
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			r := do(t, s, method, "/.well-known/agent.json", "", "If-None-Match", value)
			require.Equal(t, want, r.StatusCode, value)
			require.Equal(t, tag, r.Header.Get("ETag"))
			require.NotEmpty(t, r.Header.Get("Cache-Control"))
			if want == 304 {
				require.Empty(t, r.body)
			}
		}
	}
	require.Equal(t, 304, do(t, s, http.MethodGet, "/.well-known/agent.json", "", "If-None-Match", `"x"`, "If-None-Match", tag).StatusCode)
}

func TestCardURLFromRequest(t *testing.T) {
	t.Parallel()
	s := newServer("", namer{}.As)
	for _, tt := range []struct {
		name, peer string
		headers    []string
		want       string
	}{
		{"plain", "203.0.113.9:1", nil, "http://agents.example/"},
		{"a proxy nearby ends TLS", "10.0.0.2:1", []string{"X-Forwarded-Proto", "https"}, "https://agents.example/"},
		{"a remote client sets the header", "203.0.113.9:1", []string{"X-Forwarded-Proto", "https"}, "http://agents.example/"},
		{"an unknown scheme", "10.0.0.2:1", []string{"X-Forwarded-Proto", "javascript"}, "http://agents.example/"},
		{"another host", "10.0.0.2:1", []string{"X-Forwarded-Host", "evil.example"}, "http://agents.example/"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(http.MethodGet, "http://agents.example/.well-known/agent-card.json", nil)
			r.RemoteAddr = tt.peer
			for i := 0; i < len(tt.headers); i += 2 {
				r.Header.Set(tt.headers[i], tt.headers[i+1])
			}
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			got := &reply{body: w.Body.Bytes()}
			require.Equal(t, tt.want, got.member(t, "url"))
			require.Equal(t, []string{"A2A-Version", "X-Forwarded-Proto"}, w.Header().Values("Vary"), "caches distinguish them")
		})
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	s := serve(t, "https://a2a.example.com")
	for path, agent := range map[string]string{
		"":                        "demo",
		"/":                       "demo",
		"/?x=1":                   "demo",
		"//":                      "demo",
		"/v0.1":                   "demo",
		"/v0.3/":                  "demo",
		"/v0%2E3":                 "demo",
		"/agents/demo":            "demo",
		"/agents/demo/":           "demo",
		"/agents/other":           "other",
		"/agents/other/":          "other",
		"/agents/other/v0.3":      "other",
		"/agents/%6fther":         "other",
		"/agents/other%2F":        "other",
		"/%61gents/other/v0.1/":   "other",
		"/agents/other/#fragment": "other",

		"/agents/nobody":        "",
		"/agents/Other":         "",
		"/agents/other//":       "",
		"/agents//other":        "",
		"/agents/other/v0.2":    "",
		"/agents/other/v9":      "",
		"/agents/../agents/dem": "",
		"/v1":                   "",
		"/a2a":                  "",
		"/%00":                  "",
		"/agents/%ff":           "",
		"/*":                    "",
		"/agents/:name":         "",
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			r := do(t, s, http.MethodPost, path, get, "Content-Type", "application/json")
			if agent == "" {
				require.Equal(t, http.StatusNotFound, r.StatusCode)
				require.Equal(t, "application/json", r.Header.Get("Content-Type"))
				require.Equal(t, "Not Found", r.member(t, "error"))
				require.Contains(t, r.member(t, "detail"), "/agents/{name}")
				return
			}
			require.Equal(t, http.StatusOK, r.StatusCode)
			require.Contains(t, string(r.body), `"id":"`+agent+`"`, "a path is never redirected and never reaches another agent")
		})
	}
}

func TestOtherVerbs(t *testing.T) {
	t.Parallel()
	s := serve(t, "https://a2a.example.com")
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete, "BREW"} {
		for path, says := range map[string]string{
			"/":                                   "GET its card at /.well-known/agent-card.json",
			"/agents/other/":                      "GET its card at /agents/other/.well-known/agent-card.json",
			"/v0.3":                               "JSON-RPC by POST",
			"/.well-known/agent.json":             "cards and keys accept only GET",
			"/agents/":                            "cards and keys accept only GET",
			"/agents/demo/.well-known/agent.json": "cards and keys accept only GET",
		} {
			readable := strings.HasPrefix(says, "cards")
			if method == http.MethodGet && readable {
				continue
			}
			r := do(t, s, method, path, "")
			require.Equal(t, http.StatusMethodNotAllowed, r.StatusCode, "%s %s", method, path)
			require.Contains(t, r.member(t, "detail"), says)
			if readable {
				require.Equal(t, "OPTIONS, GET, HEAD", r.Header.Get("Allow"))
			} else {
				require.Equal(t, "OPTIONS, POST", r.Header.Get("Allow"))
			}
		}
	}
	require.Equal(t, http.StatusMethodNotAllowed, do(t, s, http.MethodPost, "/.well-known/agent.json", get).StatusCode)
	r := do(t, s, http.MethodOptions, "/", "")
	require.Equal(t, http.StatusNoContent, r.StatusCode)
	require.Equal(t, "OPTIONS, POST", r.Header.Get("Allow"))
	require.Empty(t, do(t, s, http.MethodHead, "/", "").body)
}

func TestShutdownWaitsForRequests(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	hold := make(chan struct{})
	s := newServer("", namer{hold: hold}.As)
	served, stopped := make(chan error, 1), make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	answered := make(chan string, 1)
	go func() {
		resp, err := http.Post("http://"+l.Addr().String(), "application/json", bytes.NewReader([]byte(get)))
		if err != nil {
			answered <- err.Error()
			return
		}
		b, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		answered <- string(b)
	}()
	<-hold
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		stopped <- s.Shutdown(ctx)
	}()
	require.NoError(t, <-served, "a requested stop is no error")
	_, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	require.Error(t, err, "the server refuses new connections")
	hold <- struct{}{}
	require.Contains(t, <-answered, `"result"`)
	require.NoError(t, <-stopped)
	http.DefaultClient.CloseIdleConnections()
}

// A request that no handler reads gets an answer even if its body never arrives. net/http would wait for the body
// first.
func TestUnreadBodyReleasesConnection(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	operations := dispatch.New(dispatch.Options{Engine: namer{}.As})
	s := rpc.New(rpc.Options{
		Agents:  []rpc.Agent{{Name: "demo", Default: true, Card: card.Card{Name: "Demo", Version: "1"}}},
		JSONRPC: jsonrpc.New(jsonrpc.Options{Operations: operations}), REST: rest.New(rest.Options{Operations: operations}),
		HeaderTimeout: 2 * time.Second, Log: slog.New(slog.DiscardHandler),
	})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	for _, target := range []string{"POST /nowhere", "PUT /", "DELETE /agents/demo", "POST /agents"} {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
		require.NoError(t, err)
		require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
		_, err = io.WriteString(c, target+" HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
		require.NoError(t, err)
		all, err := io.ReadAll(c)
		require.NoError(t, err, "%s: the connection stays open", target)
		require.Regexp(t, "^HTTP/1.1 40[45] ", string(all), target)
		require.NoError(t, c.Close())
	}
	require.NoError(t, s.Shutdown(t.Context()))
	require.NoError(t, <-served)
}

func TestShutdownTimeout(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	hold := make(chan struct{})
	s := newServer("", namer{hold: hold}.As)
	go func() { _ = s.Serve(l) }()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	require.NoError(t, err)
	_, err = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 67\r\n\r\n"+get)
	require.NoError(t, err)
	<-hold
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Shutdown(ctx), context.DeadlineExceeded)
	_, err = c.Read(make([]byte, 1))
	require.Error(t, err)
	require.NoError(t, c.Close())
	hold <- struct{}{}
}
