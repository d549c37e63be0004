package isolation

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// Requests that a proxy, or another parser, might read in another way than the server does.

// raw sends a request as written, over HTTP/1.1.
func (e *estate) raw(request string) a2atest.Shown {
	e.T.Helper()
	conn, err := net.Dial("tcp", a2atest.Host(e.URL))
	require.NoError(e.T, err)
	defer func() { _ = conn.Close() }()
	require.NoError(e.T, conn.SetDeadline(time.Now().Add(waittest.Patience)))
	_, err = conn.Write([]byte(strings.ReplaceAll(request, "\n", "\r\n")))
	require.NoError(e.T, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(e.T, err)
	defer resp.Body.Close()
	content, _ := a2atest.ShowBody(e.T, resp)
	return a2atest.Shown{Whole: fmt.Sprintf("%d\n\n%s", resp.StatusCode, content), OK: resp.StatusCode == http.StatusOK}
}

// whichCredential: the server takes a credential only from where a scheme reads it, in any spelling.
func (e *estate) whichCredential() {
	a := e.task(guarded, "parked", false)
	key, token := e.alice[1], e.aliceToken[1]
	const none, refused = "none", "refused"
	for lines, want := range map[string]string{
		"x-api-key: " + key:           "",
		"X-API-KEY:" + key:            "",
		"X-API-Key:  \t" + key + "  ": "",
		"authorization: " + token:     "",
		"AUTHORIZATION: " + strings.Replace(token, "Bearer", "bEaReR", 1): "",
		"Authorization: " + strings.Replace(token, " ", "   ", 1):         "",

		"X-API-Key: " + key + "\nx-api-key: " + key:               refused,
		"X-API-Key: " + e.mallory[1] + "\nX-API-KEY: " + key:      refused,
		"X-API-Key: " + key + "\nX-API-Key:":                      refused,
		"X-API-Key: " + key + "\nAuthorization:":                  refused,
		"Authorization:\nX-API-Key: " + key:                       refused,
		"authorization: " + token + "\nAuthorization: " + token:   refused,
		"Authorization: " + token + "\nAuthorization: Basic eA==": refused,
		"Authorization: " + token + " x":                          refused,
		"Authorization: " + token + "\n x":                        refused, // a folded line
		"Authorization: Bearer\t" + token[len("Bearer "):]:        refused,
		"X-API-Key: " + strings.ToUpper(key):                      refused,
		"X-API-Key: \"" + key + "\"":                              refused,
		"X-API-Key: " + key + "\x7f":                              refused,

		"X_API_Key: " + key:                   none,
		"X-API-Key-2: " + key:                 none,
		"API-Key: " + key:                     none,
		"Cookie: X-API-Key=" + key:            none,
		"Proxy-Authorization: " + token:       none,
		"X-Authorization: " + token:           none,
		"X-Forwarded-Authorization: " + token: none,
		"X-Forwarded-User: alice\nX-Remote-User: alice\nRemote-User: alice\nX-User: alice":             none,
		"X-Forwarded-For: 127.0.0.1\nForwarded: for=127.0.0.1;by=alice":                                none,
		"X-Forwarded-Client-Cert: Subject=\"CN=alice\"\nX-Client-Cert: x\nX-SSL-Client-S-DN: CN=alice": none,
		"X-Tenant: acme\nX-Subject: alice\nX-Scopes: " + bothScopes:                                    none,
	} {
		got := e.raw("GET /agents/guarded/tasks/" + a.task + " HTTP/1.1\nHost: x\nConnection: close\nA2A-Version: 1.0\n" + lines + "\n\n")
		switch want {
		case "":
			require.True(e.T, got.OK, "%q: %s", lines, got.Whole)
			require.Contains(e.T, got.Whole, secret)
			continue
		case none:
			require.Contains(e.T, got.Whole, `"message":"Authentication required","`, "%q", lines)
		default:
			if strings.Contains(lines, "\x7f") { // an invalid header
				require.Regexp(e.T, "^400\n", got.Whole, "%q", lines)
				continue
			}
			require.Contains(e.T, got.Whole, "the credentials were not accepted", "%q", lines)
		}
		require.Regexp(e.T, "^401\n", got.Whole, "%q", lines)
	}
	for _, query := range []string{"X-API-Key=" + key, "api_key=" + key, "access_token=" + token[len("Bearer "):], "Authorization=" + strings.ReplaceAll(token, " ", "+")} {
		got := e.raw("GET /agents/guarded/tasks/" + a.task + "?" + query + " HTTP/1.1\nHost: x\nConnection: close\n\n")
		require.Regexp(e.T, "(?s)^401\n.*Authentication required\"", got.Whole, query)
	}
	for name, request := range map[string]string{
		"behind the body": "POST /agents/guarded HTTP/1.1\nHost: x\nConnection: close\nContent-Type: application/json\nTransfer-Encoding: chunked\n" +
			"Trailer: X-API-Key\n\n2\n{}\n0\nX-API-Key: " + key + "\n\n",
		"in the user information": "GET http://alice:" + key + "@x/agents/guarded/tasks/" + a.task + " HTTP/1.1\nHost: x\nConnection: close\n\n",
	} {
		got := e.raw(request)
		require.Regexp(e.T, "(?s)^401\n.*Authentication required\"", got.Whole, name)
	}
}

// whichAgent: the agent that a request reaches is the one whose scope the caller needs. The caller owns the task in
// all cases; only the scope is missing.
func (e *estate) whichAgent() {
	a := e.task(guarded, "parked", false)
	both, half := e.alice, e.key("acme", "alice", "shared:use")
	get := func(params string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":%q%s}}`, a.task, params)
	}
	ask := func(verb, target, body string, shows []string) a2atest.Shown {
		e.T.Helper()
		return e.raw(fmt.Sprintf("%s %s HTTP/1.1\nHost: x\nConnection: close\nA2A-Version: 1.0\nContent-Type: application/json\n%s: %s\nContent-Length: %d\n\n%s",
			verb, target, shows[0], shows[1], len(body), body))
	}
	for _, c := range []struct {
		verb, target, body string
		both, half         string // the beginning of the answer to a caller with both scopes, and to one with only one
	}{
		{"POST", "/", get(``), "200", "403"},
		{"POST", "/", get(`,"tenant":""`), "200", "403"},
		{"POST", "/", get(`,"tenant":"guarded"`), "200", "403"},
		{"POST", "/", get(`,"tenant":"shared"`), "-32001", "-32001"},
		{"POST", "/", get(`,"tenant":"acme"`), "-32602", "-32602"},
		{"POST", "/", get(`,"tenant":"Guarded"`), "-32602", "-32602"},
		{"POST", "/", get(`,"tenant":"guarded "`), "-32602", "-32602"},
		{"POST", "/", get(`,"tenant":"shared/../guarded"`), "-32602", "-32602"},
		{"POST", "/", get(`,"tenant":"shared","tenant":"guarded"`), "-32602", "-32600"},
		{"POST", "/", get(`,"tenant":"shared","\u0074enant":"guarded"`), "-32602", "-32600"},
		{"POST", "/", get(`,"Tenant":"shared"`), "200", "403"},
		{"POST", "/", get(`,"agent":"shared","metadata":{"tenant":"shared"}`), "200", "403"},
		{"POST", "/?tenant=shared", get(``), "200", "403"},
		{"POST", "/agents/shared", get(`,"tenant":"guarded"`), "-32602", "-32602"},
		{"POST", "/agents/shared", get(``), "-32001", "-32001"},
		{"POST", "/agents/guarded", get(`,"tenant":"shared"`), "-32602", "403"},
		{"POST", "/agents/guarded", get(`,"tenant":"guarded"`), "200", "403"},
		{"POST", "/agents/%67uarded", get(``), "200", "403"},
		{"POST", "/agents/guarded/", get(``), "200", "403"},
		{"POST", "/agents/guarded/v1.0", get(``), "200", "403"},
		{"POST", "http://elsewhere.example/agents/guarded", get(``), "200", "403"},
		{"POST", "/agents/shared?agent=guarded#/agents/guarded", get(``), "-32001", "-32001"},

		{"GET", "/tasks/ID", "", "200", "403"},
		{"GET", "/guarded/tasks/ID", "", "200", "403"},
		{"GET", "/guarded/tasks/ID?tenant=shared", "", "200", "403"},
		{"GET", "/agents/guarded/tasks/ID?tenant=guarded", "", "200", "403"},
		{"GET", "/agents/guarded/guarded/tasks/ID", "", "200", "403"},
		{"GET", "/agents/guarded/tasks/ID?tenant=shared", "", "400", "403"},
		{"GET", "/agents/guarded/shared/tasks/ID", "", "400", "403"},
		{"GET", "/shared/tasks/ID?tenant=guarded", "", "404", "404"},
		{"GET", "/agents/shared/tasks/ID", "", "404", "404"},
		{"GET", "/agents/shared/tasks/ID?tenant=guarded", "", "400", "400"},
		{"GET", "/agents/shared/guarded/tasks/ID", "", "400", "400"},
		{"GET", "/agents/shared/agents/guarded/tasks/ID", "", "404", "404"},
		{"GET", "/shared/agents/guarded/tasks/ID", "", "404", "404"},
		{"GET", "/agents/shared/../guarded/tasks/ID", "", "404", "404"},
		{"GET", "/agents/shared/%2e%2e/guarded/tasks/ID", "", "404", "404"},
		{"GET", "/agents/shared%2f..%2fguarded/tasks/ID", "", "404", "404"},
		{"GET", "/agents/shared/tasks/..%2f..%2fguarded%2ftasks%2fID", "", "404", "404"},
		{"GET", "/agents/shared/tasks/%2e%2e/%2e%2e/guarded/tasks/ID", "", "404", "404"},
		{"GET", "/acme/tasks/ID", "", "400", "400"},
		{"GET", "/tasks/ID?tenant=acme", "", "400", "400"},
		{"GET", "/tasks/ID?tenant=shared&tenant=guarded", "", "400", "403"},
		{"GET", "//agents/guarded/tasks/ID", "", "404", "404"},
		{"GET", "/./agents/guarded/tasks/ID", "", "404", "404"},
		{"GET", "/agents/guarded;x/tasks/ID", "", "404", "404"},
		{"GET", "/agents/guarded%00/tasks/ID", "", "404", "404"},
		{"GET", "/agents/GUARDED/tasks/ID", "", "404", "404"},
		{"GET", "/agents/guarded/tasks/./ID", "", "404", "404"},
		{"GET", "/agents/guarded/tasks/%2e/ID", "", "404", "404"},
		{"GET", "/agents/guarded/tasks/ID%2f", "", "404", "403"},
		{"GET", "/agents/guarded/tasks/ID%00", "", "400", "403"},
		{"GET", "/agents/guarded/tasks/%20ID", "", "404", "403"},
	} {
		target := strings.ReplaceAll(c.target, "ID", a.task)
		for want, shows := range map[string][]string{"both " + c.both: both, "half " + c.half: half} {
			got := ask(c.verb, target, c.body, shows)
			what := fmt.Sprintf("%s %s %s: %s: %s", c.verb, c.target, c.body, want, got.Whole)
			_, want, _ := strings.Cut(want, " ")
			if strings.HasPrefix(want, "-") {
				require.Contains(e.T, got.Whole, `"code":`+want, what)
			} else {
				require.Regexp(e.T, "^"+want+"\n", got.Whole, what)
			}
			require.Equal(e.T, want == "200", strings.Contains(got.Whole, secret), what)
		}
	}
	for tenant, want := range map[string]string{"": "PermissionDenied", "guarded": "PermissionDenied", "shared": "NotFound", "acme": "InvalidArgument", "GUARDED": "InvalidArgument"} {
		w := wires[len(wires)-1]
		got := e.ShowGRPC(w, "GetTask", a2atest.JSON(object{"id": a.task, "tenant": tenant}), append([]string{"a2a-version", "1.0"}, half...)...)
		require.Regexp(e.T, "^"+want+"\n", got.Whole, tenant)
		if want == "NotFound" {
			want = "InvalidArgument" // which no other agent says
		}
		got = e.ShowGRPC(w, "GetTask", a2atest.JSON(object{"id": a.task, "tenant": tenant, "historyLength": -1}), append([]string{"a2a-version", "1.0"}, half...)...)
		require.Regexp(e.T, "^"+want+"\n", got.Whole, tenant)
	}
}

// whichTask: a request that names two tasks is about the one that was looked up for the caller, or about none.
func (e *estate) whichTask() {
	alices := e.task(guarded, "parked", false)
	e.db.NothingIsDue()
	before := e.rowsOf("acme", "alice")
	const both, none = "mine", "none"
	for _, c := range []struct{ version, request, params, want string }{
		// JSON-RPC
		{"0.1", "tasks/get", `{"id":"MINE","sessionId":"HER CONTEXT","taskId":"HERS"}`, both},
		{"0.1", "tasks/get", `{"id":"MINE","id":"HERS"}`, none},
		{"0.1", "tasks/get", `{"id":"HERS","id":"MINE"}`, none},
		{"0.1", "tasks/get", `{"id":["MINE","HERS"]}`, none},
		{"0.1", "tasks/pushNotification/get", `{"id":"MINE","taskId":"HERS","pushNotificationConfig":{"id":"HERS"}}`, both},
		{"0.3", "tasks/get", `{"id":"MINE","taskId":"HERS","name":"tasks/HERS"}`, both},
		{"0.3", "tasks/get", `{"ID":"HERS","id":"MINE","Id":"HERS"}`, both},
		{"0.3", "tasks/get", `{"id":"MINE","\u0069d":"HERS"}`, none},
		{"0.3", "tasks/cancel", `{"id":"MINE","metadata":{"id":"HERS"}}`, both},
		{"0.3", "tasks/pushNotificationConfig/set", `{"taskId":"MINE","id":"HERS","pushNotificationConfig":{"id":"hook","url":"THIEF","taskId":"HERS"}}`, both},
		{"0.3", "tasks/pushNotificationConfig/get", `{"id":"MINE","taskId":"HERS","pushNotificationConfigId":"hook"}`, both},
		{"0.3", "tasks/pushNotificationConfig/list", `{"id":"MINE","taskId":"HERS"}`, both},
		{"0.3", "tasks/pushNotificationConfig/delete", `{"id":"MINE","taskId":"HERS","pushNotificationConfigId":"hook"}`, both},
		{"0.3", "message/send", `{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}],"taskId":"MINE","contextId":"HER CONTEXT"}}`, none},
		{"0.3", "message/send", `{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}],"taskId":"MINE","taskId":"HERS"}}`, none},
		{"0.3", "message/send", `{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}],"taskId":"MINE","referenceTaskIds":["HERS"]},"taskId":"HERS","id":"HERS"}`, both},
		{"1.0", "GetTask", `{"id":"MINE","task_id":"HERS","name":"tasks/HERS"}`, both},
		{"1.0", "GetTaskPushNotificationConfig", `{"taskId":"MINE","id":"hook","name":"tasks/HERS/pushNotificationConfigs/hook"}`, both},
		{"1.0", "GetTaskPushNotificationConfig", `{"taskId":"MINE","task_id":"HERS","id":"hook"}`, none},
		{"1.0", "CreateTaskPushNotificationConfig", `{"taskId":"MINE","task_id":"HERS","id":"hook","url":"THIEF"}`, none},
		{"1.0", "CreateTaskPushNotificationConfig", `{"taskId":"MINE","parent":"tasks/HERS","id":"hook","url":"THIEF"}`, both},
		{"1.0", "SendMessage", `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}],"taskId":"MINE","task_id":"HERS"}}`, none},
		{"1.0", "SendMessage", `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}],"taskId":"MINE","contextId":"HER CONTEXT"}}`, none},
		{
			"1.0", "SendMessage", `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}],"taskId":"MINE"},
			"configuration":{"taskPushNotificationConfig":{"taskId":"HERS","id":"hook","url":"THIEF"}}}`, both,
		},
		// HTTP+JSON
		{"1.0", "GET /tasks/MINE?id=HERS&taskId=HERS&task_id=HERS", ``, both},
		{"1.0", "POST /tasks/MINE:cancel", `{"id":"HERS","taskId":"HERS","name":"tasks/HERS"}`, both},
		{"1.0", "POST /tasks/MINE:cancel?id=HERS", ``, both},
		{"1.0", "POST /tasks/MINE/pushNotificationConfigs", `{"taskId":"HERS","task_id":"HERS","id":"hook","url":"THIEF"}`, both},
		{"1.0", "GET /tasks/MINE/pushNotificationConfigs/hook?taskId=HERS&task_id=HERS", ``, both},
		{"1.0", "GET /tasks/MINE/pushNotificationConfigs?taskId=HERS", ``, both},
		{"1.0", "GET /tasks/MINE/pushNotificationConfigs/..%2f..%2fHERS%2fpushNotificationConfigs%2fhook", ``, none},
		{"1.0", "GET /tasks/MINE/../HERS", ``, none},
		{"1.0", "GET /tasks/MINE%2f..%2fHERS", ``, none},
		{"1.0", "GET /tasks/HERS:get", ``, none},
		{"1.0", "DELETE /tasks/MINE/pushNotificationConfigs/hook?taskId=HERS", `{"taskId":"HERS"}`, both},
		{"1.0", "POST /tasks/HERS:cancel", `{"id":"MINE"}`, none},
		{"1.0", "POST /tasks/HERS/pushNotificationConfigs", `{"taskId":"MINE","id":"hook","url":"THIEF"}`, none},
		{"0.3", "GET /v1/tasks/MINE?id=HERS&name=tasks/HERS", ``, both},
		{"0.3", "POST /v1/tasks/MINE:cancel", `{"id":"HERS","name":"tasks/HERS"}`, both},
		{
			"0.3", "POST /v1/tasks/MINE/pushNotificationConfigs", `{"parent":"tasks/HERS","taskId":"HERS","task_id":"HERS","configId":"hook","config":{
			"name":"tasks/HERS/pushNotificationConfigs/hook","taskId":"HERS","pushNotificationConfig":{"id":"hook","url":"THIEF"}}}`, both,
		},
		{"0.3", "POST /v1/tasks/MINE/pushNotificationConfigs", `{"name":"tasks/HERS/pushNotificationConfigs/hook","pushNotificationConfig":{"url":"THIEF"}}`, both},
		{"0.3", "GET /v1/tasks/MINE/pushNotificationConfigs/hook?name=tasks/HERS/pushNotificationConfigs/hook&parent=tasks/HERS", ``, both},
		{"0.3", "DELETE /v1/tasks/MINE/pushNotificationConfigs/hook?name=tasks/HERS/pushNotificationConfigs/hook", ``, both},
		{"0.3", "POST /v1/tasks/HERS/pushNotificationConfigs", `{"parent":"tasks/MINE","taskId":"MINE","config":{"pushNotificationConfig":{"url":"THIEF"}}}`, none},
		// gRPC
		{"0.3", "gRPC GetTask", `{"name":"tasks/MINE/../HERS"}`, none},
		{"0.3", "gRPC GetTask", `{"name":"tasks/MINE/tasks/HERS"}`, none},
		{"0.3", "gRPC CreateTaskPushNotificationConfig", `{"parent":"tasks/MINE","configId":"hook","config":{"name":"tasks/HERS/pushNotificationConfigs/hook","pushNotificationConfig":{"id":"hook","url":"THIEF"}}}`, both},
		{"0.3", "gRPC CreateTaskPushNotificationConfig", `{"parent":"tasks/HERS","configId":"hook","config":{"name":"tasks/MINE/pushNotificationConfigs/hook","pushNotificationConfig":{"id":"hook","url":"THIEF"}}}`, none},
		{"0.3", "gRPC CreateTaskPushNotificationConfig", `{"config":{"name":"tasks/HERS/pushNotificationConfigs/hook","pushNotificationConfig":{"id":"hook","url":"THIEF"}}}`, none},
		{"0.3", "gRPC GetTaskPushNotificationConfig", `{"name":"tasks/MINE/pushNotificationConfigs/../../HERS/pushNotificationConfigs/hook"}`, none},
		{"0.3", "gRPC DeleteTaskPushNotificationConfig", `{"name":"tasks/HERS/pushNotificationConfigs/hook/tasks/MINE/pushNotificationConfigs/hook"}`, none},
		{"1.0", "gRPC SendMessage", `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}],"taskId":"MINE","contextId":"HER CONTEXT"}}`, none},
		{"1.0", "gRPC GetTaskPushNotificationConfig", `{"taskId":"MINE","id":"hook"}`, both},
	} {
		sent := e.do(current, &clientOp{op: a2atest.Send}, &about{agent: guarded, text: "ask:mine"}, e.mallory...)
		mine, _ := idsIn(e.T, sent)
		require.True(e.T, e.do(current, &clientOp{op: a2atest.SetHook}, &about{agent: guarded, task: mine, config: "hook", hook: e.thief}, e.mallory...).OK)
		fill := strings.NewReplacer("MINE", mine, "HERS", alices.task, "HER CONTEXT", alices.context, "THIEF", e.thief)
		request, params := fill.Replace(c.request), fill.Replace(c.params)
		headers := append([]string{"A2A-Version", c.version}, e.mallory...)
		var got a2atest.Shown
		verb, path, spaced := strings.Cut(request, " ")
		switch {
		case !spaced:
			got = e.ShowHTTP(http.MethodPost, "/agents/guarded", fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, request, params), headers...)
		case verb == "gRPC":
			w := map[string]*a2atest.Wire{"0.3": a2atest.GRPC03, "1.0": a2atest.GRPC10}[c.version]
			got = e.ShowGRPC(w, path, []byte(params), headers...)
		default:
			got = e.ShowHTTP(verb, "/agents/guarded"+path, []byte(params), headers...)
		}
		what := fmt.Sprintf("%s %s %s: %s", c.version, c.request, c.params, got.Whole)
		require.Equal(e.T, c.want == both, got.OK, what)
		for _, hers := range []string{secret, e.hook, alices.context} {
			require.NotContains(e.T, got.Whole, hers, what)
		}
	}
	require.Equal(e.T, before, e.rowsOf("acme", "alice"))
}
