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
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/rpc/jsonrpc"
	"github.com/holdfast-a2a/holdfast/internal/rpc/rest"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/rpctest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// namer answers tasks/get with the name of the agent that was asked.
type namer struct {
	dispatch.Engine // no other method is called
	hold            chan struct{}
	agent           string
}

func (n namer) As(_ task.Caller, agent string) dispatch.Engine {
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

func newServer(publicURL string, e func(task.Caller, string) dispatch.Engine) *rpc.Server {
	return rpc.New(options(publicURL, e))
}

func options(publicURL string, e func(task.Caller, string) dispatch.Engine) rpc.Options {
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
func pending(t *testing.T) (s *rpc.Server, pipes *nettest.Listener, client net.Conn, hold chan struct{}, served chan error) {
	t.Helper()
	hold, served, pipes = make(chan struct{}), make(chan error, 1), new(nettest.Network).Listen()
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

// A request that no handler reads gets an answer even if its body never arrives. net/http would wait for the body first.
func TestUnreadBodyReleasesConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := options("", namer{}.As)
		o.HeaderTimeout = 5 * time.Minute
		s, pipes := rpc.New(o), new(nettest.Network).Listen()
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
			require.LessOrEqual(t, waittest.Elapsed(began), time.Minute, "%s: the connection stays open", target)
			require.Regexp(t, "^HTTP/1.1 40[45] ", string(all), target)
			require.NoError(t, client.Close())
		}
		require.NoError(t, s.Shutdown(t.Context()))
		require.NoError(t, <-served)
	})
}

// cardServer serves two agents, the second without an extended card.
func cardServer(t *testing.T, change func(*rpc.Options)) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(rpc.New(cardOptions(change)))
	t.Cleanup(s.Close)
	return s
}

func cardOptions(change func(*rpc.Options)) rpc.Options {
	operations := dispatch.New(dispatch.Options{Engine: namer{}.As, Agents: []dispatch.Agent{{Name: "demo"}, {Name: "plain"}}})
	o := rpc.Options{
		Agents: []rpc.Agent{
			{Name: "demo", Default: true, Card: card.Card{
				Name: "Demo", Version: "1", Capabilities: card.Capabilities{Streaming: true, ExtendedCard: true},
				Skills: []card.Skill{{ID: "s", Name: "S", Description: "s", Tags: []string{"t"}}},
			}},
			{Name: "plain", Card: card.Card{Name: "Plain", Version: "1"}},
		},
		PublicURL: "https://a2a.example.com", JSONRPC: jsonrpc.New(jsonrpc.Options{Operations: operations}),
		REST: rest.New(rest.Options{Operations: operations}),
		Log:  slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	return o
}

// shape returns the kind of rendering, found by its members.
func shape(t *testing.T, document []byte) string {
	t.Helper()
	var members map[string]any
	require.NoError(t, json.Unmarshal(document, &members), "%s", document)
	_, old := members["protocolVersion"]
	_, current := members["supportedInterfaces"]
	switch {
	case old && current:
		return "superset"
	case old:
		return "legacy"
	case current:
		return "strict10"
	}
	return "none"
}

// Package card has the versions.
func TestPathAndVersionSelectRendering(t *testing.T) {
	t.Parallel()
	for unversioned, rendering := range map[card.Rendering]string{card.RenderSuperset: "superset", card.RenderStrict: "strict10", card.RenderLegacy: "legacy"} {
		s := cardServer(t, func(o *rpc.Options) { o.Unversioned = unversioned })
		tags := map[string]string{}
		for version, want := range map[string]string{"": rendering, "1.0": "strict10", "0.3": "superset", "garbage": rendering} {
			for _, base := range []string{"", "/agents/demo"} {
				r := do(t, s, http.MethodGet, base+"/.well-known/agent-card.json?A2A-Version=0.3", "", "A2A-Version", version)
				if version != "" { // the header overrides the query
					require.Equal(t, want, shape(t, r.body), "%q", version)
				}
				r = do(t, s, http.MethodGet, base+"/.well-known/agent-card.json?A2A-Version="+version, "")
				require.Equal(t, want, shape(t, r.body), "%q in the query", version)
				require.Equal(t, "A2A-Version", r.Header.Get("Vary"))
				require.Equal(t, "max-age=60", r.Header.Get("Cache-Control"))
				if base == "" {
					tags[want] = r.Header.Get("ETag")
				}
				r = do(t, s, http.MethodGet, base+"/.well-known/agent.json", "", "A2A-Version", version)
				require.Equal(t, "legacy", shape(t, r.body))
				require.Empty(t, r.Header.Get("Vary"))
			}
		}
		for of, tag := range tags { // a tag belongs to one rendering
			for _, method := range []string{http.MethodGet, http.MethodHead} {
				r := do(t, s, method, "/.well-known/agent-card.json", "", "If-None-Match", tag)
				require.Equal(t, of == rendering, r.StatusCode == http.StatusNotModified, of)
				require.Equal(t, "A2A-Version", r.Header.Get("Vary"))
			}
		}
	}
}

func TestExtendedCardOf02(t *testing.T) {
	t.Parallel()
	s := cardServer(t, nil)
	for _, base := range []string{"", "/agents/demo"} {
		r := do(t, s, http.MethodGet, base+"/agent/authenticatedExtendedCard", "")
		require.Equal(t, http.StatusOK, r.StatusCode)
		require.Equal(t, do(t, s, http.MethodGet, base+"/.well-known/agent.json", "").body, r.body)
		require.Equal(t, "private, no-cache", r.Header.Get("Cache-Control"))
	}
	require.Equal(t, http.StatusNotFound, do(t, s, http.MethodGet, "/agents/plain/agent/authenticatedExtendedCard", "").StatusCode)
}

func TestExtendedCardOnJSONRPC(t *testing.T) {
	t.Parallel()
	s := cardServer(t, nil)
	ask := func(s *httptest.Server, path, method, params string) (result json.RawMessage, code int) {
		r := do(t, s, http.MethodPost, path, `{"jsonrpc":"2.0","id":1,"method":"`+method+`"`+params+`}`, "Content-Type", "application/json")
		require.Equal(t, http.StatusOK, r.StatusCode)
		var answer struct {
			Result json.RawMessage
			Error  struct{ Code int }
		}
		require.NoError(t, json.Unmarshal(r.body, &answer), "%s", r.body)
		return answer.Result, answer.Error.Code
	}
	const of03, of10 = "agent/getAuthenticatedExtendedCard", "GetExtendedAgentCard"
	public := do(t, s, http.MethodGet, "/.well-known/agent.json", "").body
	for _, path := range []string{"/", "/v0.3", "/agents/demo"} {
		result, _ := ask(s, path, of03, "")
		require.JSONEq(t, string(public), string(result), path)
	}
	public = do(t, s, http.MethodGet, "/.well-known/agent-card.json", "", "A2A-Version", "1.0").body
	for path, params := range map[string]string{
		"/": "", "/v1.0": `,"params":{}`, "/agents/demo": `,"params":{"tenant":"demo","more":[1]}`,
	} {
		result, _ := ask(s, path, of10, params)
		require.JSONEq(t, string(public), string(result), path)
	}

	unnamed := cardServer(t, func(o *rpc.Options) { o.PublicURL = "" })
	for _, tt := range []struct {
		s                    *httptest.Server
		path, method, params string
		code                 int
	}{
		{s, "/agents/plain", of03, "", -32007},
		{s, "/v0.1", of03, "", -32601},
		{s, "/agents/plain", of10, "", -32004}, // not declared
		{s, "/", of10, `,"params":{"tenant":"plain"}`, -32004},
		{s, "/", of10, `,"params":{"tenant":"none"}`, -32602},
		{s, "/", of10, `,"params":{"tenant":1}`, -32602},
		{unnamed, "/", of03, "", -32007},
		{unnamed, "/", of10, "", -32007}, // declared, but missing
	} {
		_, code := ask(tt.s, tt.path, tt.method, tt.params)
		require.Equal(t, tt.code, code, "%s %s %s", tt.path, tt.method, tt.params)
	}
}

func TestExtendedCardOnHTTPJSON(t *testing.T) {
	t.Parallel()
	s := cardServer(t, nil)
	legacy := do(t, s, http.MethodGet, "/.well-known/agent.json", "").body
	strict := do(t, s, http.MethodGet, "/.well-known/agent-card.json", "", "A2A-Version", "1.0").body
	for path, want := range map[string][]byte{
		"/v1/card": legacy, "/agents/demo/v1/card": legacy,
		"/extendedAgentCard": strict, "/demo/extendedAgentCard": strict, "/agents/demo/extendedAgentCard": strict,
	} {
		r := do(t, s, http.MethodGet, path, "")
		require.Equal(t, http.StatusOK, r.StatusCode, path)
		require.JSONEq(t, string(want), string(r.body), path)
	}
	require.Equal(t, http.StatusNotFound, do(t, s, http.MethodGet, "/agents/plain/v1/card", "").StatusCode)
	require.Equal(t, http.StatusBadRequest, do(t, s, http.MethodGet, "/plain/extendedAgentCard", "").StatusCode)
}

// The card lists every binding, with the version that it serves and an address that a client can use.
func TestCardListsServedInterfaces(t *testing.T) {
	t.Parallel()
	s := cardServer(t, nil)
	type served struct{ ProtocolBinding, ProtocolVersion, URL string }
	for base, want := range map[string]string{"": "https://a2a.example.com", "/agents/plain": "https://a2a.example.com/agents/plain"} {
		var c struct{ SupportedInterfaces []served }
		require.NoError(t, json.Unmarshal(do(t, s, http.MethodGet, base+"/.well-known/agent-card.json", "", "A2A-Version", "1.0").body, &c))
		require.Equal(t, []served{
			{"JSONRPC", "1.0", want + "/"},
			{"HTTP+JSON", "1.0", want},
			{"JSONRPC", "0.3", want + "/"},
			{"HTTP+JSON", "0.3", want},
		}, c.SupportedInterfaces)
		for _, i := range c.SupportedInterfaces {
			path := strings.TrimPrefix(i.URL, "https://a2a.example.com")
			var r *reply
			switch {
			case i.ProtocolBinding == "HTTP+JSON" && i.ProtocolVersion == "1.0":
				r = do(t, s, http.MethodGet, path+"/tasks/t-1", "")
			case i.ProtocolBinding == "HTTP+JSON":
				r = do(t, s, http.MethodGet, path+"/v1/tasks/t-1", "")
			default:
				method := map[string]string{"1.0": "GetTask", "0.3": "tasks/get"}[i.ProtocolVersion]
				r = do(t, s, http.MethodPost, path, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{"id":"t-1"}}`,
					"Content-Type", "application/json")
			}
			require.Equal(t, http.StatusOK, r.StatusCode, "%s", r.body)
		}
	}
}

func TestNoKeySetWithoutKeys(t *testing.T) {
	t.Parallel()
	s := cardServer(t, nil)
	require.Equal(t, http.StatusNotFound, do(t, s, http.MethodGet, "/.well-known/jwks.json", "").StatusCode)
	require.NotContains(t, string(do(t, s, http.MethodGet, "/.well-known/agent-card.json", "", "A2A-Version", "1.0").body), "signatures")
}

func TestCardsChange(t *testing.T) {
	t.Parallel()
	server := rpc.New(cardOptions(nil))
	s := httptest.NewServer(server)
	t.Cleanup(s.Close)
	const public, old, extended = "/agents/plain/.well-known/agent-card.json", "/agents/plain/.well-known/agent.json", "/agents/plain/agent/authenticatedExtendedCard"
	operation := func() []byte {
		return do(t, s, http.MethodPost, "/agents/plain", `{"jsonrpc":"2.0","id":1,"method":"GetExtendedAgentCard"}`, "A2A-Version", "1.0").body
	}
	first := do(t, s, http.MethodGet, public, "")
	require.Contains(t, string(first.body), `"name":"Plain"`)
	require.Equal(t, http.StatusNotFound, do(t, s, http.MethodGet, extended, "").StatusCode)
	require.Contains(t, string(operation()), "error")

	changed := card.Card{Name: "Changed", Version: "2", Capabilities: card.Capabilities{ExtendedCard: true}}
	more := changed
	more.Name = "More"
	for range 2 { // the second time from the publisher's cache
		server.SetCards("plain", changed, &more)
		for range 2 {
			r := do(t, s, http.MethodGet, public, "", "If-None-Match", first.Header.Get("ETag"))
			require.Equal(t, http.StatusOK, r.StatusCode)
			require.NotEqual(t, first.Header.Get("ETag"), r.Header.Get("ETag"))
			require.Contains(t, string(r.body), `"name":"Changed"`)
			require.Contains(t, string(do(t, s, http.MethodGet, old, "").body), `"name":"Changed"`)
			require.Contains(t, string(do(t, s, http.MethodGet, extended, "").body), `"name":"More"`)
			require.Contains(t, string(operation()), `"name":"More"`)
			catalog := string(do(t, s, http.MethodGet, "/agents", "").body)
			require.Contains(t, catalog, `"name":"Changed"`)
			require.Contains(t, catalog, `"name":"Demo"`, "other agents stay")
			require.NotContains(t, catalog, `"name":"More"`)
		}
	}
	server.SetCards("plain", card.Card{Name: "Plain", Version: "1"}, nil)
	require.Equal(t, first.Header.Get("ETag"), do(t, s, http.MethodGet, public, "").Header.Get("ETag"))
	require.Equal(t, http.StatusNotFound, do(t, s, http.MethodGet, extended, "").StatusCode)
	require.Contains(t, string(operation()), "error")
	server.SetCards("unknown", changed, nil)
}

type page struct {
	Agents []struct {
		Name    string
		Default bool
		CardURL string
		Card    json.RawMessage
	}
	NextPageToken       *string
	PageSize, TotalSize int
}

func readCatalog(t *testing.T, s *httptest.Server, query string, headers ...string) (*page, []string) {
	t.Helper()
	r := do(t, s, http.MethodGet, "/agents"+query, "", headers...)
	require.Equal(t, http.StatusOK, r.StatusCode, "%s: %s", query, r.body)
	require.Equal(t, "application/json", r.Header.Get("Content-Type"))
	require.Equal(t, "A2A-Version", r.Header.Get("Vary"))
	require.Equal(t, "max-age=60", r.Header.Get("Cache-Control"))
	var p page
	require.NoError(t, json.Unmarshal(r.body, &p))
	require.NotNil(t, p.NextPageToken)
	names := []string{}
	for _, a := range p.Agents {
		names = append(names, a.Name)
	}
	return &p, names
}

func polyglots(o *rpc.Options) {
	o.Agents = []rpc.Agent{
		{Name: "translator", Default: true, Card: card.Card{
			Name: "Translator", Version: "1", InputModes: []string{"text/plain"},
			Skills: []card.Skill{{ID: "translate", Name: "Translate", Description: "<d>", Tags: []string{"language"}}},
		}},
		{Name: "speaker", Card: card.Card{
			Name: "Speaker", Version: "1", OutputModes: []string{"audio/mpeg"},
			Skills: []card.Skill{{ID: "speak", Name: "Speak", Description: "d", Tags: []string{"language", "audio"}}},
		}},
		{Name: "mute", Card: card.Card{Name: "Mute", Version: "1"}},
	}
}

func TestCatalog(t *testing.T) {
	t.Parallel()
	s := cardServer(t, polyglots)
	p, names := readCatalog(t, s, "")
	require.Equal(t, []string{"mute", "speaker", "translator"}, names)
	require.Empty(t, *p.NextPageToken)
	require.Equal(t, 50, p.PageSize)
	require.Equal(t, 3, p.TotalSize)
	for _, a := range p.Agents {
		require.Equal(t, a.Name == "translator", a.Default)
		path, ok := strings.CutPrefix(a.CardURL, "https://a2a.example.com")
		require.True(t, ok, a.CardURL)
		require.Equal(t, string(do(t, s, http.MethodGet, path, "").body), string(a.Card), "the same bytes as at the card's own URL")
	}
	for version, want := range map[string]string{"": "superset", "1.0": "strict10", "0.3": "superset"} {
		p, _ := readCatalog(t, s, "", "A2A-Version", version)
		require.Equal(t, want, shape(t, p.Agents[0].Card))
		p, _ = readCatalog(t, s, "?A2A-Version="+version)
		require.Equal(t, want, shape(t, p.Agents[0].Card))
	}
}

func TestCatalogFilters(t *testing.T) {
	t.Parallel()
	s := cardServer(t, polyglots)
	for query, want := range map[string][]string{
		"?skill=Speak&tag=audio":                  {"speaker"},
		"?tag=language&tag=audio":                 {"speaker"},
		"?inputMode=text%2Fplain&tag=bird":        {},
		"/?tag=audio":                             {"speaker"},
		"?capability=extendedagentcard&tag=audio": {},
	} {
		p, names := readCatalog(t, s, query)
		require.Equal(t, want, names, query)
		require.Equal(t, len(want), p.TotalSize)
	}
}

func TestCatalogPages(t *testing.T) {
	t.Parallel()
	s := cardServer(t, func(o *rpc.Options) {
		o.Agents = nil
		for i := range 7 {
			o.Agents = append(o.Agents, rpc.Agent{Name: fmt.Sprintf("a%d", 6-i), Card: card.Card{
				Name: "A", Version: "1", Skills: []card.Skill{{ID: "s", Tags: []string{[]string{"even", "odd"}[i%2]}}},
			}})
		}
	})
	all := func(query string) (pages [][]string) {
		token := ""
		for {
			p, names := readCatalog(t, s, query+"&pageToken="+url.QueryEscape(token))
			pages = append(pages, names)
			require.Equal(t, map[string]int{"?pageSize=3": 7, "?pageSize=7": 7, "?pageSize=2&tag=even": 4}[query], p.TotalSize)
			if token = *p.NextPageToken; token == "" {
				return pages
			}
		}
	}
	require.Equal(t, [][]string{{"a0", "a1", "a2"}, {"a3", "a4", "a5"}, {"a6"}}, all("?pageSize=3"))
	require.Equal(t, [][]string{{"a0", "a1", "a2", "a3", "a4", "a5", "a6"}}, all("?pageSize=7"))
	require.Equal(t, [][]string{{"a0", "a2"}, {"a4", "a6"}}, all("?pageSize=2&tag=even"))
	_, names := readCatalog(t, s, "?pageToken=a4x")
	require.Equal(t, []string{"a5", "a6"}, names, "after an agent that does not exist any more")
}

func TestCatalogNotModified(t *testing.T) {
	t.Parallel()
	s := cardServer(t, polyglots)
	tag := do(t, s, http.MethodGet, "/agents?tag=audio", "").Header.Get("ETag")
	for query, want := range map[string]int{"?tag=audio": 304, "": 200, "?tag=audio&A2A-Version=1.0": 200} {
		require.Equal(t, want, do(t, s, http.MethodGet, "/agents"+query, "", "If-None-Match", tag).StatusCode, query)
	}
}

func TestCatalogRefusals(t *testing.T) {
	t.Parallel()
	s := cardServer(t, polyglots)
	for query, says := range map[string]string{
		"?skills=translate":            `unknown parameter "skills"; use provider, capability, skill, tag,`,
		"?capability=stream":           `capability: "stream" is none; use streaming, pushNotifications, extendedAgentCard, or`,
		"?tag=%zz":                     `query: invalid URL escape "%zz"`,
		"?tag=a;skill=b":               "query: invalid semicolon",
		"?tag=":                        "tag: must not be empty",
		"?tag=a&tag=":                  "tag: must not be empty",
		"?skill":                       "skill: must not be empty",
		"?pageSize=0":                  "pageSize: must be a number from 1 to 100",
		"?pageSize=101":                "pageSize: must be a number from 1 to 100",
		"?pageSize=many":               "pageSize: must be a number from 1 to 100",
		"?pageSize=":                   "pageSize: must not be empty",
		"?pageSize=1&pageSize=2":       "pageSize: must be given once",
		"?pageToken=a&pageToken=b":     "pageToken: must be given once",
		"?inputMode=text":              `inputMode: "text" is not a media type such as text/plain or text/*`,
		"?outputMode=a/b&outputMode=/": `outputMode: "/" is not a media type`,
	} {
		r := do(t, s, http.MethodGet, "/agents"+query, "")
		require.Equal(t, http.StatusBadRequest, r.StatusCode, query)
		require.Equal(t, "Bad Request", r.member(t, "error"))
		require.Contains(t, r.member(t, "detail"), says, query)
		require.Empty(t, r.Header.Get("ETag"))
	}
}
