package rpc_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
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
	"github.com/holdfast-a2a/holdfast/internal/rpctest"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
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
	r := rpctest.Do(t, s, method, path, body, headers...)
	return &reply{r.Response, r.Content}
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

// pending serves in a bubble, with a request whose answer waits until hold receives.
func pending(t *testing.T) (s *rpc.Server, pipes *rpctest.Pipes, client net.Conn, hold chan struct{}, served chan error) {
	t.Helper()
	hold, served, pipes = make(chan struct{}), make(chan error, 1), rpctest.NewPipes()
	s = newServer("", namer{hold: hold}.As)
	go func() { served <- s.Serve(pipes) }()
	client, err := pipes.Dial(t.Context())
	require.NoError(t, err)
	_, err = fmt.Fprintf(client, "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(get), get)
	require.NoError(t, err)
	<-hold
	return s, pipes, client, hold, served
}

func TestShutdownWaitsForRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, pipes, client, hold, served := pending(t)
		stopped := make(chan error, 1)
		go func() { stopped <- s.Shutdown(t.Context()) }()
		require.NoError(t, <-served, "a requested stop is no error")
		_, err := pipes.Dial(t.Context())
		require.Error(t, err, "the server refuses new connections")
		waittest.Advance(time.Hour)
		require.Empty(t, stopped)
		hold <- struct{}{}
		all, err := io.ReadAll(client)
		require.NoError(t, err)
		require.Contains(t, string(all), `"result"`)
		require.NoError(t, <-stopped)
	})
}

func TestShutdownTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _, client, hold, served := pending(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, s.Shutdown(ctx), context.Canceled)
		_, err := client.Read(make([]byte, 1))
		require.Error(t, err)
		require.NoError(t, client.Close())
		require.NoError(t, <-served)
		hold <- struct{}{}
	})
}

// A request that no handler reads gets an answer even if its body never arrives. net/http would wait for the body
// first.
func TestUnreadBodyReleasesConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := options("", namer{}.As)
		o.HeaderTimeout = 10 * time.Second
		s, pipes := rpc.New(o), rpctest.NewPipes()
		served := make(chan error, 1)
		go func() { served <- s.Serve(pipes) }()
		for _, target := range []string{"POST /nowhere", "PUT /", "DELETE /agents/demo", "POST /agents"} {
			began := time.Now()
			client, err := pipes.Dial(t.Context())
			require.NoError(t, err)
			_, err = io.WriteString(client, target+" HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
			require.NoError(t, err)
			all, err := io.ReadAll(client)
			require.NoError(t, err, target)
			require.LessOrEqual(t, waittest.Elapsed(began), o.HeaderTimeout+time.Second, "%s: the connection stays open", target)
			require.Regexp(t, "^HTTP/1.1 40[45] ", string(all), target)
			require.NoError(t, client.Close())
		}
		require.NoError(t, s.Shutdown(t.Context()))
		require.NoError(t, <-served)
	})
}
