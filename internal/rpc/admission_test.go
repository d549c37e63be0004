package rpc_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-a2a/holdfast/internal/auth"
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/binary"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/dialecttest"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/rpc/grpcapi"
	"github.com/holdfast-a2a/holdfast/internal/rpc/jsonrpc"
	"github.com/holdfast-a2a/holdfast/internal/rpc/rest"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/rpctest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// gated is a server with two agents. The agent gated requires tokens with the scope agents:use. The
// agent open requires nothing. The default agent is gated, or open if openDefault is set.
type gated struct {
	*httptest.Server
	issuer
	engine *rpctest.Recorder
	conn   *grpc.ClientConn
}

const issuerURL = "https://id.example.com"

// issuer signs tokens, and serves its key without a network.
type issuer struct{ key jose.JSONWebKey }

func newIssuer(t *testing.T) issuer {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return issuer{jose.JSONWebKey{Key: private, KeyID: "k", Algorithm: "ES256", Use: "sig"}}
}

// RoundTrip implements http.RoundTripper.
func (i issuer) RoundTrip(*http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	err := json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{i.key.Public()}})
	return w.Result(), err
}

func (i issuer) sign(t *testing.T, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: i.key}, nil)
	require.NoError(t, err)
	compact, err := jwt.Signed(signer).Claims(claims).Serialize()
	require.NoError(t, err)
	return compact
}

// bearer is the header of a token whose claims are the usual ones, changed by pairs.
func (i issuer) bearer(t *testing.T, pairs ...any) []string {
	t.Helper()
	c := map[string]any{"iss": issuerURL, "aud": "holdfast", "sub": "alice", "scope": "agents:use", "exp": time.Now().Add(time.Hour).Unix()}
	for n := 0; n < len(pairs); n += 2 {
		c[pairs[n].(string)] = pairs[n+1]
	}
	return []string{"Authorization", "Bearer " + i.sign(t, c)}
}

func accepting(keys http.RoundTripper) *auth.JWT {
	return auth.NewJWT(auth.JWTOptions{
		Name: "sso", Issuer: issuerURL, KeySetURL: issuerURL + "/keys", Audiences: []string{"holdfast"},
		Client: &http.Client{Transport: keys},
	})
}

func serveGated(t *testing.T, openDefault bool) *gated {
	t.Helper()
	g := &gated{issuer: newIssuer(t), engine: &rpctest.Recorder{Task: rpctest.Sample("1.0")}}
	sso := accepting(g.issuer)
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		_ = sso.Run(ctx)
	}()
	t.Cleanup(func() { stop(); <-ran })

	operations := dispatch.New(dispatch.Options{Engine: g.engine.As, Agents: []dispatch.Agent{{Name: "gated"}, {Name: "open"}}})
	about := func(name string) card.Card {
		return card.Card{Name: name, Version: "1", Capabilities: card.Capabilities{ExtendedCard: true, Streaming: true, PushNotifications: true}, Skills: []card.Skill{
			{ID: "plain", Name: "Plain", Tags: []string{"t"}}, {ID: "secret", Name: "Secret", Tags: []string{"t", "hush"}, Scope: "agents:secret"},
		}}
	}
	agents := []rpc.Agent{{Name: "gated", Card: about("Gated"), Gate: auth.Gate{Schemes: []string{"sso"}, Scope: "agents:use"}, Default: !openDefault}}
	if openDefault {
		agents = append(agents, rpc.Agent{Name: "open", Default: true, Card: card.Card{Name: "Open", Version: "1"}},
			rpc.Agent{Name: "listed", Card: about("Listed"), Gate: auth.Gate{Schemes: []string{"sso"}}})
	}
	log := slog.New(slog.DiscardHandler)
	s := rpc.New(rpc.Options{
		Agents: agents, PublicURL: "https://a2a.example.com", Log: log, Auth: auth.New(auth.Options{Schemes: []auth.Scheme{sso}}),
		JSONRPC: jsonrpc.New(jsonrpc.Options{Operations: operations}), REST: rest.New(rest.Options{Operations: operations}),
		GRPC: grpcapi.New(grpcapi.Options{Operations: operations, Log: log}),
	})
	g.Server = httptest.NewServer(s)
	t.Cleanup(g.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.ServeGRPC(l) }()
	t.Cleanup(func() {
		require.NoError(t, s.Shutdown(context.Background()))
		require.NoError(t, <-served)
	})
	g.conn, err = grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = g.conn.Close() })
	return g
}

// credentials returns credentials that the agent does not admit.
func (g *gated) credentials(t *testing.T) map[string][]string {
	t.Helper()
	good := g.bearer(t)
	return map[string][]string{
		"none":           nil,
		"bad":            {"Authorization", good[1][:len(good[1])-4] + "AAAA"},
		"expired":        g.bearer(t, "exp", time.Now().Add(-time.Hour).Unix()),
		"wrong audience": g.bearer(t, "aud", "else"),
		"missing scope":  g.bearer(t, "scope", "agents:other"),
		"two":            append(good, good...),
	}
}

// answer returns the part of an HTTP answer that golden files contain.
func answer(r *reply) string {
	challenges := strings.Join(r.Header.Values("WWW-Authenticate"), ", ")
	// 1.0 repeats the id in the path.
	body := strings.Replace(string(r.body), `,"metadata":{"taskId":"t-1"}`, "", 1)
	return fmt.Sprintf("%d; %s; %s", r.StatusCode, challenges, body)
}

// only returns the one answer that all requests of a kind must get.
func only(t *testing.T, about string, answers map[string]string) string {
	t.Helper()
	first := ""
	for request, a := range answers {
		if first == "" {
			first = a
		}
		require.Equal(t, first, a, "%s: %s is answered like every other request", about, request)
	}
	require.NotEmpty(t, first)
	return first
}

// A caller that is not admitted gets the same answer to every request, in the shape of the version, and the request has no effect.
func TestRefusedCredentials(t *testing.T) {
	t.Parallel()
	g := serveGated(t, false)
	for version, methods := range map[string][]string{
		"0.1": {"tasks/send", "tasks/sendSubscribe", "tasks/get", "tasks/cancel", "tasks/resubscribe", "tasks/pushNotification/set", "tasks/pushNotification/get", "no/such"},
		"0.3": {
			"message/send", "message/stream", "tasks/get", "tasks/cancel", "tasks/resubscribe", "tasks/pushNotificationConfig/set",
			"tasks/pushNotificationConfig/get", "tasks/pushNotificationConfig/list", "tasks/pushNotificationConfig/delete",
			"agent/getAuthenticatedExtendedCard", "no/such",
		},
		"1.0": {
			"SendMessage", "SendStreamingMessage", "GetTask", "ListTasks", "CancelTask", "SubscribeToTask", "CreateTaskPushNotificationConfig",
			"GetTaskPushNotificationConfig", "ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig", "GetExtendedAgentCard", "NoSuch",
		},
	} {
		got := map[string]string{}
		for credential, headers := range g.credentials(t) {
			answers := map[string]string{}
			for _, method := range methods {
				for _, path := range []string{"/v" + version, "/agents/gated/v" + version} {
					body := `{"jsonrpc":"2.0","id":"7","method":"` + method + `","params":{"no":"such"}}`
					answers[path+" "+method] = answer(do(t, g.Server, http.MethodPost, path, body, append(headers, "Content-Type", "application/json")...))
				}
			}
			got[credential] = only(t, version, answers)
		}
		golden(t, "admission-jsonrpc-"+version, got)
	}
	for version, requests := range map[string][]string{
		"0.3": {
			"POST /v1/message:send", "POST /v1/message:stream", "GET /v1/tasks/t-1", "POST /v1/tasks/t-1:cancel", "GET /v1/tasks/t-1:subscribe",
			"GET /v1/tasks/t-1/pushNotificationConfigs", "POST /v1/tasks/t-1/pushNotificationConfigs", "GET /v1/tasks/t-1/pushNotificationConfigs/p",
			"DELETE /v1/tasks/t-1/pushNotificationConfigs/p", "GET /v1/card", "GET /v1/tasks",
		},
		"1.0": {
			"POST /message:send", "POST /message:stream", "GET /tasks/t-1", "GET /tasks", "POST /tasks/t-1:cancel", "POST /tasks/t-1:subscribe",
			"GET /tasks/t-1/pushNotificationConfigs", "POST /tasks/t-1/pushNotificationConfigs", "GET /tasks/t-1/pushNotificationConfigs/p",
			"DELETE /tasks/t-1/pushNotificationConfigs/p", "GET /extendedAgentCard", "POST /gated/message:send",
		},
	} {
		got := map[string]string{}
		for credential, headers := range g.credentials(t) {
			answers := map[string]string{}
			for _, request := range requests {
				verb, path, _ := strings.Cut(request, " ")
				for _, base := range []string{"", "/agents/gated"} {
					answers[base+request] = answer(do(t, g.Server, verb, base+path, `{"no":"such"}`, headers...))
				}
			}
			got[credential] = only(t, version, answers)
		}
		golden(t, "admission-rest-"+version, got)
	}
	for version, codec := range map[string]*binary.Codec{"0.3": binary.New03(100), "1.0": binary.New10(100)} {
		got := map[string]string{}
		for credential, headers := range g.credentials(t) {
			answers := map[string]string{}
			for _, m := range codec.Methods() {
				answers[m.Name] = g.call(t, codec.Service(), m.Name, headers)
			}
			got[credential] = only(t, version, answers)
		}
		golden(t, "admission-grpc-"+version, got)
	}
	require.Nil(t, g.engine.Last(), "the engine got no request")
}

// call makes a call without a message and returns its status.
func (g *gated) call(t *testing.T, service, method string, headers []string) string {
	t.Helper()
	ctx := metadata.AppendToOutgoingContext(waittest.Context(t), headers...)
	stream, err := g.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/"+service+"/"+method)
	require.NoError(t, err)
	_ = stream.SendMsg(&emptypb.Empty{}) // the answer may come first
	_ = stream.CloseSend()
	err = stream.RecvMsg(&emptypb.Empty{})
	s, _ := status.FromError(err)
	details := ""
	for _, d := range s.Proto().GetDetails() {
		b, err := protojson.Marshal(d)
		require.NoError(t, err)
		var plain any
		require.NoError(t, json.Unmarshal(b, &plain))
		b, err = json.Marshal(plain)
		require.NoError(t, err)
		details += string(b)
	}
	return fmt.Sprintf("%s; %s; %s; %s", s.Code(), strings.Join(stream.Trailer().Get("www-authenticate"), ", "), s.Message(), details)
}

func golden(t *testing.T, name string, got map[string]string) {
	t.Helper()
	b, err := json.Marshal(got)
	require.NoError(t, err)
	dialecttest.Golden(t, name, b)
}

// Unreadable requests also get an answer, and the server does not read a long body.
func TestUnreadableRequestsWithoutCredentials(t *testing.T) {
	t.Parallel()
	g := serveGated(t, false)
	for about, c := range map[string]struct{ path, body, id, code string }{
		"not JSON":             {"/", "{", "null", "-32600"},
		"empty":                {"/", "", "null", "-32600"},
		"a batch":              {"/", "[]", "null", "-32600"},
		"too long":             {"/", `{"id":1,"x":"` + strings.Repeat("x", 64<<10) + `"}`, "null", "-32600"},
		"of 0.1, by its path":  {"/v0.1", "{", "null", "-32007"},
		"of 0.1, by its name":  {"/", `{"jsonrpc":"2.0","id":3,"method":"tasks/send"}`, "3", "-32007"},
		"of 1.0, by its name":  {"/", `{"jsonrpc":"2.0","id":3,"method":"SendMessage"}`, "3", "-32600"},
		"of two versions":      {"/", `{"jsonrpc":"2.0","id":3,"method":"tasks/get"}`, "3", "-32600"},
		"a version that is no": {"/?A2A-Version=9", `{"jsonrpc":"2.0","id":3,"method":"tasks/send"}`, "3", "-32007"},
	} {
		r := do(t, g.Server, http.MethodPost, c.path, c.body, "Content-Type", "text/plain")
		require.Equal(t, http.StatusUnauthorized, r.StatusCode, about)
		require.Contains(t, string(r.body), `"id":`+c.id+`,"error":{"code":`+c.code, about)
	}
	require.Equal(t, http.StatusNotFound, do(t, g.Server, http.MethodGet, "/tasks/a/b/c", "").StatusCode)
	require.Equal(t, http.StatusNoContent, do(t, g.Server, http.MethodOptions, "/tasks", "").StatusCode)
}

// asked checks the type of the engine's last request and returns its caller. It clears the address,
// because each request comes from another port.
func (g *gated) asked(t *testing.T, request any) task.Caller {
	t.Helper()
	require.IsType(t, request, g.engine.Last())
	by, _ := g.engine.LastBy()
	require.NotEmpty(t, by.Address)
	by.Address = ""
	return by
}

// The engine sees the admitted caller, over every binding.
func TestAdmittedCallerReachesEngine(t *testing.T) {
	t.Parallel()
	g := serveGated(t, false)
	token := g.bearer(t, "jti", "j")
	want := task.Caller{Subject: "alice", Scopes: []string{"agents:use"}, Method: "jwt", Credential: "sso/j"}
	r := do(t, g.Server, http.MethodPost, "/", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"t-1"}}`, token...)
	require.Equal(t, http.StatusOK, r.StatusCode)
	require.Equal(t, want, g.asked(t, new(engine.GetRequest)))
	do(t, g.Server, http.MethodGet, "/tasks/t-1", "", token...)
	require.Equal(t, want, g.asked(t, new(engine.GetRequest)))
	do(t, g.Server, http.MethodPost, "/v1/message:stream", `{"message":{"messageId":"m","role":"ROLE_USER","content":[{"text":"x"}]}}`, token...)
	require.Equal(t, want, g.asked(t, new(engine.SendRequest)))
	require.Contains(t, g.call(t, "lf.a2a.v1.A2AService", "ListTasks", token), "OK")
	require.Equal(t, want, g.asked(t, new(engine.ListRequest)))
}

// On an endpoint for all agents, the agent that the request names admits the caller.
func TestNamedAgentChecksCredentials(t *testing.T) {
	t.Parallel()
	g := serveGated(t, true)
	send := func(tenant string, headers ...string) *reply {
		return do(t, g.Server, http.MethodPost, "/", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"tenant":"`+tenant+
			`","message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}}}`, headers...)
	}
	token := g.bearer(t)
	require.Equal(t, http.StatusOK, send("").StatusCode)
	require.Zero(t, g.asked(t, new(engine.SendRequest)))
	require.Equal(t, http.StatusOK, send("", token...).StatusCode)
	require.Zero(t, g.asked(t, new(engine.SendRequest)), "an open agent sees no caller")
	r := send("gated")
	require.Equal(t, http.StatusUnauthorized, r.StatusCode)
	require.Equal(t, `Bearer realm="holdfast"`, r.Header.Get("WWW-Authenticate"))
	require.Equal(t, http.StatusForbidden, send("gated", g.bearer(t, "scope", "")...).StatusCode)
	require.Nil(t, g.engine.Last())
	require.Equal(t, http.StatusOK, send("gated", token...).StatusCode)
	require.Equal(t, "alice", g.asked(t, new(engine.SendRequest)).Subject)
	require.Equal(t, http.StatusUnauthorized, do(t, g.Server, http.MethodPost, "/gated/message:send", `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}}`).StatusCode)
	require.Nil(t, g.engine.Last())
	require.Equal(t, http.StatusUnauthorized, do(t, g.Server, http.MethodPost, "/agents/gated", "{}").StatusCode)
}

func TestCardsByIdentity(t *testing.T) {
	t.Parallel()
	g := serveGated(t, true)
	bearer := func(scopes string) []string {
		return g.bearer(t, "scope", scopes)
	}
	skills := func(r *reply) []string {
		var c struct{ Skills []struct{ ID string } }
		require.NoError(t, json.Unmarshal(r.body, &c), "%s", r.body)
		var ids []string
		for _, s := range c.Skills {
			ids = append(ids, s.ID)
		}
		return ids
	}
	all := []string{"plain", "secret"}
	for _, path := range []string{"/.well-known/agent-card.json", "/.well-known/agent.json"} {
		r := do(t, g.Server, http.MethodGet, "/agents/gated"+path, "")
		require.Equal(t, http.StatusUnauthorized, r.StatusCode)
		require.Equal(t, `Bearer realm="holdfast"`, r.Header.Get("WWW-Authenticate"))
		require.Equal(t, http.StatusForbidden, do(t, g.Server, http.MethodGet, "/agents/gated"+path, "", bearer("x")...).StatusCode)
		require.Equal(t, all[:1], skills(do(t, g.Server, http.MethodGet, "/agents/gated"+path, "", bearer("agents:use")...)))
		r = do(t, g.Server, http.MethodGet, "/agents/gated"+path, "", bearer("agents:use agents:secret")...)
		require.Equal(t, all, skills(r))
		require.Equal(t, "private, no-cache", r.Header.Get("Cache-Control"))

		require.Equal(t, all[:1], skills(do(t, g.Server, http.MethodGet, "/agents/listed"+path, "")))
		require.Equal(t, all[:1], skills(do(t, g.Server, http.MethodGet, "/agents/listed"+path, "", "Authorization", "Bearer old")), "it says where to get a new token")
		require.Equal(t, all, skills(do(t, g.Server, http.MethodGet, "/agents/listed"+path, "", bearer("agents:secret")...)))
		require.Equal(t, "max-age=60", do(t, g.Server, http.MethodGet, path, "").Header.Get("Cache-Control"))
	}
	extended := "/agents/listed/agent/authenticatedExtendedCard"
	require.Equal(t, http.StatusUnauthorized, do(t, g.Server, http.MethodGet, extended, "").StatusCode)
	require.Equal(t, all, skills(do(t, g.Server, http.MethodGet, extended, "", bearer("agents:secret")...)))
	for method, path := range map[string]string{"agent/getAuthenticatedExtendedCard": "/v1/card", "GetExtendedAgentCard": "/extendedAgentCard"} {
		require.Equal(t, http.StatusUnauthorized, do(t, g.Server, http.MethodGet, "/agents/listed"+path, "").StatusCode)
		require.Equal(t, all[:1], skills(do(t, g.Server, http.MethodGet, "/agents/listed"+path, "", bearer("x")...)))
		require.Equal(t, all, skills(do(t, g.Server, http.MethodGet, "/agents/listed"+path, "", bearer("agents:secret")...)))
		r := do(t, g.Server, http.MethodPost, "/agents/listed", `{"jsonrpc":"2.0","id":1,"method":"`+method+`"}`, bearer("agents:secret")...)
		var result struct{ Result json.RawMessage }
		require.NoError(t, json.Unmarshal(r.body, &result))
		require.Equal(t, all, skills(&reply{r.Response, result.Result}))
	}

	catalog := func(query string, headers ...string) map[string][]string {
		var page struct {
			Agents []struct {
				Name string
				Card json.RawMessage
			}
			TotalSize int
		}
		r := do(t, g.Server, http.MethodGet, "/agents"+query, "", headers...)
		require.NoError(t, json.Unmarshal(r.body, &page), "%s", r.body)
		require.Len(t, page.Agents, page.TotalSize)
		found := map[string][]string{}
		for _, a := range page.Agents {
			found[a.Name] = skills(&reply{r.Response, a.Card})
		}
		return found
	}
	require.Equal(t, map[string][]string{"listed": all[:1], "open": nil}, catalog(""))
	require.Equal(t, []string{"listed", "open"}, slices.Sorted(maps.Keys(catalog("", bearer("x")...))))
	require.Equal(t, map[string][]string{"gated": all, "listed": all, "open": nil}, catalog("", bearer("agents:use agents:secret")...))
	require.Empty(t, catalog("?skill=secret"), "a hidden card is not found by its name")
	require.Len(t, catalog("?tag=hush", bearer("agents:secret")...), 1)
}

// away is an issuer that nobody reaches.
type away struct{}

func (away) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("away") }

// A reader whose credentials cannot be checked must not conclude that there is no more to see.
func TestCardsDuringOutageOfIssuer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // the server waits for the keys
		asks := auth.Gate{Schemes: []string{"sso"}}
		s := rpctest.Piped(t, rpc.New(rpc.Options{
			Agents: []rpc.Agent{
				{Name: "personal", Gate: asks, Card: card.Card{Name: "Personal", Version: "1", Skills: []card.Skill{{ID: "secret", Name: "Secret", Scope: "x"}}}},
				{Name: "plain", Gate: asks, Card: card.Card{Name: "Plain", Version: "1"}},
			},
			PublicURL: "https://a2a.example.com", Log: slog.New(slog.DiscardHandler), Auth: auth.New(auth.Options{Schemes: []auth.Scheme{accepting(away{})}}),
		}))
		token := newIssuer(t).bearer(t, "scope", "x")
		for _, path := range []string{"/agents/personal/.well-known/agent-card.json", "/agents"} {
			r := do(t, s, http.MethodGet, path, "", token...)
			require.Equal(t, http.StatusServiceUnavailable, r.StatusCode, "%s: %s", path, r.body)
			require.NotEmpty(t, r.Header.Get("Retry-After"), path)
			require.Equal(t, "no-store", r.Header.Get("Cache-Control"), path)
			r = do(t, s, http.MethodGet, path, "")
			require.Equal(t, http.StatusOK, r.StatusCode, "%s: a client without credentials sees the public cards", path)
		}
		require.Equal(t, http.StatusOK, do(t, s, http.MethodGet, "/agents/plain/.well-known/agent-card.json", "", token...).StatusCode)
	})
}

// The server reads few bodies of callers without a credential at a time, and reserves nothing for a body that does not
// arrive. Beyond that it answers without the id.
func TestBodiesWithoutCredentialsAreLimited(t *testing.T) {
	t.Parallel()
	g := serveGated(t, false)
	const each = 32 // of one address
	ask := func() (id string) {
		r := do(t, g.Server, http.MethodPost, "/", `{"jsonrpc":"2.0","id":3,"method":"SendMessage"}`)
		require.Equal(t, http.StatusUnauthorized, r.StatusCode)
		var a struct{ ID json.RawMessage }
		require.NoError(t, json.Unmarshal(r.body, &a))
		return string(a.ID)
	}
	require.Equal(t, "3", ask())
	var held []net.Conn
	hold := func() {
		c, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, err = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 65536\r\n\r\n")
		require.NoError(t, err)
		held = append(held, c)
	}
	for range each {
		hold()
	}
	// The question takes a place too, for a moment. A body that finds no place then is replaced by another one.
	waittest.Eventually(t, "no place is left", func() error {
		id := ask()
		if id != "null" && len(held) < each+8 {
			hold()
		}
		return waittest.Unless(id == "null", "%d bodies are unfinished, and an answer has the id %s", len(held), id)
	})
	for _, c := range held {
		require.NoError(t, c.Close())
	}
	waittest.Eventually(t, "the places are free again", func() error {
		id := ask()
		return waittest.Unless(id == "3", "an answer has the id %s", id)
	})
}
