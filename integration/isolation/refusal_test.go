package isolation

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-a2a/holdfast/internal/auth"
	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/issuertest"
)

// How each version and binding refuses callers, as in docs/security.md and docs/protocol.md.

// wrong is how an answer reports an error.
type wrong struct {
	http          int
	old, code     int // of JSON-RPC: in 0.1, and later
	name, reason  string
	status, class string // of HTTP+JSON: 1.0, and 0.3
	grpc          codes.Code
	ofTheTask     bool // and not of the request: JSON-RPC answers with 200, and streams with an event
}

var (
	unauthenticated = &wrong{http: 401, old: -32007, code: -32600, name: "Authentication required", reason: "UNAUTHENTICATED", status: "UNAUTHENTICATED", class: "InvalidRequestError", grpc: codes.Unauthenticated}
	forbidden       = &wrong{http: 403, old: -32008, code: -32600, name: "Authorization failed", reason: "FORBIDDEN", status: "PERMISSION_DENIED", class: "InvalidRequestError", grpc: codes.PermissionDenied}
	notThere        = &wrong{http: 404, old: -32001, code: -32001, name: "Task not found", reason: "TASK_NOT_FOUND", status: "NOT_FOUND", class: "TaskNotFoundError", grpc: codes.NotFound, ofTheTask: true}
)

// answer is a whole answer. Details of 1.0 name the task, if there is one.
func (x *wrong) answer(w *a2atest.Wire, d *clientOp, detail, task string, challenges ...string) string {
	message := x.name
	if detail != "" {
		message += ": " + detail
	}
	info := `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"` + x.reason + `","domain":"a2a-protocol.org"`
	if task != "" {
		info += `,"metadata":{"taskId":"` + task + `"}`
	}
	info += "}"
	status, body := x.http, ""
	switch {
	case w.Binding == a2atest.GRPC:
		var plain any
		if err := json.Unmarshal([]byte(info), &plain); err != nil {
			panic(err)
		}
		trailer := `content-type: ["application/grpc"]` + "\n"
		if challenges != nil {
			trailer += fmt.Sprintf("www-authenticate: %q\n", challenges)
		}
		return fmt.Sprintf("%s\n%s\n%s\n%s", x.grpc, trailer, message, a2atest.JSON(plain))
	case w.Binding == a2atest.REST && w.Version == "1.0":
		body = fmt.Sprintf(`{"error":{"code":%d,"status":%q,"message":%q,"details":[%s]}}`, x.http, x.status, message, info)
	case w.Binding == a2atest.REST:
		body = fmt.Sprintf(`{"error":%q,"code":%d,"message":%q}`, x.class, x.code, message)
	default:
		code, data := x.code, ""
		if w.Version == "0.1" {
			code = x.old
		}
		if w.Version == "1.0" {
			data = `,"data":[` + info + `]`
		}
		body = fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"error":{"code":%d,"message":%q%s}}`, code, message, data)
		if x.ofTheTask {
			status = http.StatusOK
		}
		if x.ofTheTask && d.op.Streams() {
			return "200\nCache-Control: no-cache\nContent-Type: text/event-stream\nX-Accel-Buffering: no\nX-Content-Type-Options: nosniff\n\ndata: " + body + "\n\n"
		}
	}
	head := fmt.Sprintf("Cache-Control: no-store\nContent-Length: %d\nContent-Type: application/json\n", len(body))
	for _, c := range challenges {
		head += "Www-Authenticate: " + c + "\n"
	}
	if d.op == a2atest.Head {
		body = ""
	}
	return fmt.Sprintf("%d\n%sX-Content-Type-Options: nosniff\n\n%s", status, head, body)
}

// Challenges of 401, and what 403 says to the bearer of a token.
const (
	askKey     = `ApiKey realm="holdfast", header="X-API-Key"`
	askToken   = `Bearer realm="holdfast"`
	badToken   = `Bearer realm="holdfast", error="invalid_token"`
	wantsScope = `Bearer realm="holdfast", error="insufficient_scope", scope="guarded:use"`
)

// refusedCaller is a caller without access, and the answer that it gets.
type refusedCaller struct {
	shows      []string
	x          *wrong
	detail     string
	challenges []string
	// elsewhere reports whether the caller may use another agent: then the server reads the request.
	elsewhere func(w *a2atest.Wire, agent string) bool
}

// strangers are all callers without access to the guarded agent. The answers do not say what is wrong with their
// credentials.
func (e *estate) strangers() map[string]*refusedCaller {
	e.T.Helper()
	bad := func(challenge string, shows ...string) *refusedCaller {
		return &refusedCaller{shows: shows, x: unauthenticated, detail: "the credentials were not accepted", challenges: []string{askKey, challenge}}
	}
	lacking := func(shows []string, challenges ...string) *refusedCaller {
		return &refusedCaller{shows: shows, x: forbidden, detail: "the scope guarded:use is needed", challenges: challenges}
	}
	dead := func(column string) []string {
		key := e.key("acme", "alice")
		e.db.Exec("UPDATE holdfast.api_keys SET "+column+" = now() - interval '1 s' WHERE key_id = $1", strings.Split(key[1], "_")[1])
		return key
	}
	now := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	token := func(claims ...any) *refusedCaller { return bad(badToken, e.token(claims...)...) }
	nobodys, _, _ := auth.NewAPIKey()
	half := lacking(e.key("acme", "alice", "shared:use"))
	half.elsewhere = func(w *a2atest.Wire, agent string) bool { return agent == "" || w.Binding == a2atest.GRPC }
	good := strings.TrimPrefix(e.aliceToken[1], "Bearer ")
	parts := strings.Split(good, ".")
	claims := e.issuer.Claims("alice", "scope", bothScopes, "org", "acme")
	private := e.issuer.Key("")
	published := private.Public()
	public, err := json.Marshal(published)
	require.NoError(e.T, err)
	symmetric := jose.JSONWebKey{Key: public, KeyID: published.KeyID, Algorithm: string(jose.HS256)}
	return map[string]*refusedCaller{
		"no credentials":                     {x: unauthenticated, challenges: []string{askKey, askToken}},
		"an empty key":                       bad(askToken, "X-API-Key", ""),
		"a malformed key":                    bad(askToken, "X-API-Key", "hfk_x"),
		"an unknown key":                     bad(askToken, "X-API-Key", nobodys),
		"an expired key":                     bad(askToken, dead("expires_at")...),
		"a revoked key":                      bad(askToken, dead("revoked_at")...),
		"one key twice":                      bad(askToken, slices.Concat(e.alice, e.alice)...),
		"two keys":                           bad(askToken, slices.Concat(e.alice, e.mallory)...),
		"keys in one header":                 bad(askToken, "X-API-Key", e.alice[1]+", "+e.alice[1]),
		"a key and a token":                  bad(askToken, slices.Concat(e.alice, e.aliceToken)...),
		"a key and a malformed token":        bad(askToken, slices.Concat(e.alice, []string{"Authorization", "x"})...),
		"one token twice":                    bad(askToken, slices.Concat(e.aliceToken, e.aliceToken)...),
		"two tokens":                         bad(askToken, slices.Concat(e.aliceToken, e.eve)...),
		"tokens in one header":               bad(askToken, "Authorization", e.aliceToken[1]+", "+e.aliceToken[1]),
		"a key as a token":                   bad(askToken, bearer(e.alice[1])...),
		"a token as a key":                   bad(askToken, "X-API-Key", good),
		"a password":                         bad(askToken, "Authorization", "Basic YWxpY2U6YWxpY2U="),
		"a token without its scheme":         bad(askToken, "Authorization", good),
		"a malformed token":                  bad(badToken, bearer("x")...),
		"a spoiled token":                    bad(badToken, bearer(good[:len(good)-6]+"AAAAAA")...),
		"a token without a signature":        bad(badToken, bearer("eyJhbGciOiJub25lIn0."+parts[1]+".")...),
		"a token signed with the public key": bad(badToken, bearer(e.issuer.SignWith(symmetric, claims))...),
		"a token of another's key":           bad(badToken, bearer(e.issuer.SignWith(issuertest.NewKey(e.T, published.KeyID, jose.RS256), claims))...),
		"a token for another use":            bad(badToken, bearer(e.issuer.Sign(claims, "typ", "logout+jwt"))...),
		"an expired token":                   token("exp", now(-time.Hour)),
		"a token that never expires":         token("exp", nil),
		"an early token":                     token("nbf", now(time.Hour)),
		"a token for another audience":       token("aud", "https://else.example"),
		"a token without an audience":        token("aud", nil),
		"a token of another issuer":          token("iss", "https://id.example"),
		"a token of no tenant":               token("org", nil),
		"a token of no subject":              token("sub", nil),
		"a token without the scope":          lacking(e.token("scope", "other:use"), wantsScope),
		"a token without scopes":             lacking(e.token("scope", nil), wantsScope),
		"a key without the scope":            lacking(e.key("acme", "alice", "other:use")),
		"a key for the other agent":          half,
		"a scope that begins alike":          lacking(e.key("acme", "alice", "guarded:use2", "guarded:us", "GUARDED:USE")),
	}
}

// named is the task in the details of an error: the one in the path and, if the server read the request, the one in
// it.
func named(w *a2atest.Wire, d *clientOp, a *about, read bool) string {
	switch {
	case !d.ofTask:
		return ""
	case w.Binding == a2atest.REST:
		if d.op == a2atest.Send || d.op == a2atest.Stream {
			return ""
		}
		return a.task
	case !read:
		return ""
	}
	return a.task
}

// refusedCallers gets one answer for every operation, and nothing changes.
func (e *estate) refusedCallers() {
	parked := e.task(guarded, "parked", false)
	strangers := e.strangers()
	e.db.NothingIsDue()
	before := e.rows()
	n, names := 0, slices.Sorted(maps.Keys(strangers))
	require.Equal(e.T, 1, len(names)%2, "so each caller uses both names of the agent")
	for _, w := range wires {
		for _, d := range clientOps {
			if !w.Has(d.op) {
				continue
			}
			for _, name := range names {
				s := strangers[name]
				agent := []string{guarded, ""}[n%2] // the same agent
				a := *parked
				a.agent, a.text, a.hook = agent, "echo:x", e.thief
				if !d.ofTask {
					a.task, a.context = "", ""
				}
				got := e.do(w, d, &a, s.shows...)
				named := named(w, d, &a, s.elsewhere != nil && s.elsewhere(w, agent))
				require.Equal(e.T, s.x.answer(w, d, s.detail, named, s.challenges...), got.Whole, "%s: %s: %s at %q", w, d.name, name, agent)
				n++
			}
		}
	}
	e.T.Logf("%d requests", n)
	require.Equal(e.T, before, e.rows())
}

// cards are visible to callers with the scope, where an agent requires one.
func (e *estate) cards() {
	strangers := e.strangers()
	for _, path := range []string{"/.well-known/agent-card.json", "/.well-known/agent.json", "/agent/authenticatedExtendedCard"} {
		for _, base := range []string{"", "/agents/" + guarded} {
			for name, s := range strangers {
				says := map[*wrong]string{unauthenticated: "Unauthorized", forbidden: "Forbidden"}[s.x]
				body := fmt.Sprintf("{\"error\":%q}\n", says)
				head := fmt.Sprintf("Cache-Control: no-store\nContent-Length: %d\nContent-Type: application/json\n", len(body))
				if strings.HasSuffix(path, "agent-card.json") {
					head += "Vary: A2A-Version\n"
				}
				for _, c := range s.challenges {
					head += "Www-Authenticate: " + c + "\n"
				}
				got := e.ShowHTTP(http.MethodGet, base+path, nil, s.shows...)
				require.Equal(e.T, fmt.Sprintf("%d\n%sX-Content-Type-Options: nosniff\n\n%s", s.x.http, head, body), got.Whole, "%s%s: %s", base, path, name)
			}
			require.True(e.T, e.ShowHTTP(http.MethodGet, base+path, nil, e.alice...).OK, base+path)
		}
	}
	for name, s := range strangers {
		listed := e.ShowHTTP(http.MethodGet, "/agents", nil, s.shows...)
		require.True(e.T, listed.OK, name)
		require.NotContains(e.T, listed.Whole, `"`+guarded+`"`, name)
		require.Equal(e.T, name == "a key for the other agent", strings.Contains(listed.Whole, `"`+shared+`"`), name)
	}
	require.Contains(e.T, e.ShowHTTP(http.MethodGet, "/agents", nil, e.eve...).Whole, `"`+guarded+`"`)
}
