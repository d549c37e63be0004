package rest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
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
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/dialecttest"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/rpc/rest"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/rpctest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is the whole public server on a real listener.
type server struct {
	*httptest.Server
	logs *rpctest.Logs
}

func serve(t testing.TB, e *rpctest.Recorder, o rest.Options) *server {
	t.Helper()
	return serveEngine(t, e.As, o)
}

func serveEngine(t testing.TB, as func(task.Caller, string) dispatch.Engine, o rest.Options) *server {
	t.Helper()
	s := &server{logs: new(rpctest.Logs)}
	s.Server = httptest.NewServer(handler(as, o, s.logs))
	t.Cleanup(s.Close)
	return s
}

func handler(as func(task.Caller, string) dispatch.Engine, o rest.Options, logs io.Writer) http.Handler {
	o.Log = slog.New(slog.NewTextHandler(logs, nil))
	o.Operations = dispatch.New(dispatch.Options{Engine: as, Agents: []dispatch.Agent{
		{Name: "demo", Extensions: []dispatch.Extension{{URI: "urn:a"}}}, {Name: "other"},
	}})
	return rpc.New(rpc.Options{Agents: []rpc.Agent{{Name: "demo", Default: true}, {Name: "other"}}, REST: rest.New(o), Log: o.Log})
}

func recorder() *rpctest.Recorder { return &rpctest.Recorder{Task: rpctest.Sample("0.1")} }

type answer struct {
	*http.Response
	body []byte
}

// do sends a request. headers are pairs of name and value.
func (s *server) do(t testing.TB, verb, path, body string, headers ...string) *answer {
	t.Helper()
	r := rpctest.Do(t, s.Server, verb, path, body, headers...)
	return &answer{r.Response, r.Content}
}

// fault is an error body of either version.
type fault struct {
	Code    int
	Status  string
	Message string
	Details []struct {
		Reason          string
		FieldViolations []struct{ Field, Description string }
	}
}

// fault10 reads an error of 1.0 and checks what holds for every such error.
func (a *answer) fault10(t testing.TB) *fault {
	t.Helper()
	var members struct{ Error *fault }
	require.NoError(t, json.Unmarshal(a.body, &members), "%s", a.body)
	require.NotNil(t, members.Error, "%s", a.body)
	require.Equal(t, a.StatusCode, members.Error.Code)
	require.Equal(t, "application/json", a.Header.Get("Content-Type"))
	require.NotEmpty(t, members.Error.Status)
	require.NotEmpty(t, members.Error.Message)
	require.NotEmpty(t, members.Error.Details, "%s", a.body)
	return members.Error
}

// fault03 reads an error of 0.3.
func (a *answer) fault03(t testing.TB) (class string, code int, message string) {
	t.Helper()
	var members struct {
		Error   string
		Code    int
		Message string
	}
	require.NoError(t, json.Unmarshal(a.body, &members), "%s", a.body)
	require.Equal(t, "application/json", a.Header.Get("Content-Type"))
	require.NotEmpty(t, members.Error)
	return members.Error, members.Code, members.Message
}

const (
	send10 = `{"message":{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"hi"}]}}`
	send03 = `{"message":{"messageId":"m-1","role":"ROLE_USER","content":[{"text":"hi"}]}}`
)

// Tests every operation of both versions. The answers are golden files.
func TestOperations(t *testing.T) {
	t.Parallel()
	e := recorder()
	s := serve(t, e, rest.Options{})
	for _, tt := range []struct {
		golden, verb, path, body string
		want                     any
	}{
		{"1.0/send", "POST", "/message:send", send10, new(engine.SendRequest)},
		{"1.0/get", "GET", "/tasks/t-1", "", new(engine.GetRequest)},
		{"1.0/get-no-history", "GET", "/tasks/t-1?historyLength=0", "", new(engine.GetRequest)},
		{"1.0/list", "GET", "/tasks?pageSize=7", "", new(engine.ListRequest)},
		{"1.0/cancel", "POST", "/tasks/t-1:cancel", "", new(engine.CancelRequest)},
		{"1.0/push-set", "POST", "/tasks/t-1/pushNotificationConfigs", `{"url":"http://x"}`, new(engine.PushRequest)},
		{"1.0/push-get", "GET", "/tasks/t-1/pushNotificationConfigs/p", "", new(engine.PushRequest)},
		{"1.0/push-list", "GET", "/tasks/t-1/pushNotificationConfigs", "", new(engine.PushRequest)},
		{"1.0/push-delete", "DELETE", "/tasks/t-1/pushNotificationConfigs/p", "", new(engine.PushRequest)},
		{"1.0/card", "GET", "/extendedAgentCard", "", nil},
		{"0.3/send", "POST", "/v1/message:send", send03, new(engine.SendRequest)},
		{"0.3/get", "GET", "/v1/tasks/t-1", "", new(engine.GetRequest)},
		{"0.3/get-no-history", "GET", "/v1/tasks/t-1?history_length=0", "", new(engine.GetRequest)},
		{"0.3/list", "GET", "/v1/tasks?pageSize=7", "", new(engine.ListRequest)},
		{"0.3/cancel", "POST", "/v1/tasks/t-1:cancel", `{"name":"tasks/t-1"}`, new(engine.CancelRequest)},
		{"0.3/push-set", "POST", "/v1/tasks/t-1/pushNotificationConfigs", `{"config":{"pushNotificationConfig":{"url":"http://x"}}}`, new(engine.PushRequest)},
		{"0.3/push-get", "GET", "/v1/tasks/t-1/pushNotificationConfigs/p", "", new(engine.PushRequest)},
		{"0.3/push-list", "GET", "/v1/tasks/t-1/pushNotificationConfigs", "", new(engine.PushRequest)},
		{"0.3/push-delete", "DELETE", "/v1/tasks/t-1/pushNotificationConfigs/p", "", new(engine.PushRequest)},
		{"0.3/card", "GET", "/v1/card", "", nil},
	} {
		for _, base := range []string{"", "/agents/demo", "/agents/%6fther"} {
			echo := map[string]string{"1.0": "A2A-Extensions", "0.3": "X-A2A-Extensions"}[tt.golden[:3]]
			a := s.do(t, tt.verb, base+tt.path, tt.body, "Content-Type", "application/json", echo, "urn:z, urn:a")
			asked := e.Last()
			if tt.want == nil {
				require.Nil(t, asked)
				require.GreaterOrEqual(t, a.StatusCode, 400)
			} else {
				require.Equal(t, http.StatusOK, a.StatusCode, "%s", a.body)
				require.IsType(t, tt.want, asked)
				require.Equal(t, map[bool]string{true: "urn:a"}[base != "/agents/%6fther"], a.Header.Get(echo))
			}
			require.Equal(t, "no-store", a.Header.Get("Cache-Control"))
			require.EqualValues(t, len(a.body), a.ContentLength)
			dialecttest.Golden(t, tt.golden, a.body)
		}
	}
}

func TestStreamsOfUnknownTasks(t *testing.T) {
	t.Parallel()
	e := &rpctest.Recorder{Err: &task.Error{Kind: task.NotFound}}
	s := serve(t, e, rest.Options{})
	for _, prefix := range []string{"", "/v1"} {
		for _, verb := range []string{"GET", "POST"} {
			a := s.do(t, verb, prefix+"/tasks/t-9:subscribe", "", "Last-Event-ID", "7")
			require.Equal(t, http.StatusNotFound, a.StatusCode, "an HTTP status, and no stream")
			asked, ok := e.Last().(*engine.SubscribeRequest)
			require.True(t, ok)
			require.Equal(t, "t-9", asked.TaskID)
			require.True(t, asked.Resume)
			require.EqualValues(t, 7, asked.After.Seq)
			require.Equal(t, prefix == "", asked.Live)
		}
		a := s.do(t, "POST", prefix+"/message:stream", map[string]string{"": send10, "/v1": send03}[prefix], "Idempotency-Key", "k")
		require.Equal(t, http.StatusNotFound, a.StatusCode)
		asked, ok := e.Last().(*engine.SendRequest)
		require.True(t, ok)
		require.Equal(t, "k", asked.IdempotencyKey)
	}
	a := s.do(t, "GET", "/tasks/t-9:subscribe", "", "Last-Event-ID", "x")
	require.Equal(t, http.StatusBadRequest, a.StatusCode)
	require.Contains(t, a.fault10(t).Message, "Last-Event-ID: must be an id")
}

// A stream that has begun cannot send another status.
func TestStreamErrorIsLastEvent(t *testing.T) {
	t.Parallel()
	working := rpctest.Sample("0.1")
	working.Status.State = task.StateWorking
	for _, tt := range []struct{ golden, path, body string }{
		{"1.0", "/message:stream", send10},
		{"1.0", "/tasks/t-1:subscribe", "null"},
		{"0.3", "/v1/message:stream", send03},
		{"0.3", "/v1/tasks/t-1:subscribe", ""},
	} {
		s := serve(t, &rpctest.Recorder{Task: working}, rest.Options{})
		a := s.do(t, "POST", tt.path, tt.body)
		require.Equal(t, http.StatusOK, a.StatusCode)
		require.Equal(t, "text/event-stream", a.Header.Get("Content-Type"))
		frames := strings.Split(string(a.body), "\n\n")
		require.Len(t, frames, 3, "%s", a.body)
		opening, whole := strings.CutPrefix(frames[0], "id: 2\ndata: ")
		require.True(t, whole, frames[0])
		dialecttest.Golden(t, tt.golden+"/stream-opening", []byte(opening))
		fault, whole := strings.CutPrefix(frames[1], "data: ")
		require.True(t, whole, frames[1])
		require.Empty(t, frames[2])
		if tt.golden == "1.0" {
			require.Contains(t, fault, `{"error":{"code":500,"status":"INTERNAL","message":"Internal error","details":[{`)
		} else {
			require.Contains(t, fault, `{"error":"InternalError","code":-32603,"message":"Internal error","data":{"errorId":`)
		}
	}
}

// faults compares every kind of error with one golden file.
func TestFaults(t *testing.T) {
	t.Parallel()
	for golden, tt := range map[string]struct {
		path string
		opt  rest.Options
	}{
		"0.3/faults": {path: "/v1/tasks/t-1"}, "1.0/faults": {path: "/tasks/t-1"},
		"1.0/faults-of-1.0.0": {path: "/tasks/t-1", opt: rest.Options{FormerStatuses: true}},
	} {
		all := map[string]json.RawMessage{}
		for k := range task.Kind(task.KindCount) {
			if k == task.Internal || k == task.LeaseLost {
				continue // their ids differ each time
			}
			s := serve(t, &rpctest.Recorder{Err: task.Errorf(k, "the detail")}, tt.opt)
			a := s.do(t, "GET", tt.path, "")
			all[fmt.Sprintf("%s: %d", k.Error(), a.StatusCode)] = a.body
			require.Equal(t, k == task.Unavailable || k == task.RateLimited, a.Header.Get("Retry-After") == "1", k.Error())
		}
		dump, err := json.Marshal(all)
		require.NoError(t, err)
		dialecttest.Golden(t, golden, dump)
	}
}

func TestInternalErrorIsLoggedOnce(t *testing.T) {
	t.Parallel()
	for says, e := range map[string]*rpctest.Recorder{"hunter2": {Err: errors.New("password=hunter2")}, "panic": {}} { // {}: without a task
		for _, path := range []string{"/tasks/t-1", "/v1/tasks/t-1"} {
			s := serve(t, e, rest.Options{})
			a := s.do(t, "GET", path, "")
			require.Equal(t, http.StatusInternalServerError, a.StatusCode)
			require.NotContains(t, string(a.body), says)
			_, id, found := strings.Cut(string(a.body), `"errorId":"`)
			require.True(t, found)
			id, _, _ = strings.Cut(id, `"`)
			require.Equal(t, 1, strings.Count(s.logs.String(), "error_id="+id))
			require.Contains(t, s.logs.String(), says)
		}
	}
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	e := recorder()
	s := serve(t, e, rest.Options{Limits: web.BodyLimits{Size: 4096, Depth: 10}})
	deep := strings.Repeat(`{"a":`, 11) + "1" + strings.Repeat("}", 11)
	for _, tt := range []struct {
		name, verb, path, body string
		headers                []string
		status                 int
		reason, class          string
		message                string
	}{
		{name: "no body", verb: "POST", path: "/message:send", status: 400, reason: "PARSE_ERROR", class: "JSONParseError", message: "empty body"},
		{name: "a string", verb: "POST", path: "/message:send", body: `"x"`, status: 400, reason: "INVALID_PARAMS", class: "InvalidParamsError", message: "body: must be an object"},
		{name: "a member twice", verb: "POST", path: "/message:send", body: `{"message":{"role":1,"role":1}}`, status: 400, reason: "INVALID_PARAMS", class: "InvalidParamsError", message: "message.role: the member appears twice"},
		{name: "too deep", verb: "POST", path: "/message:send", body: deep, status: 400, reason: "INVALID_PARAMS", class: "InvalidParamsError", message: "nested more than 10 deep"},
		{name: "no message", verb: "POST", path: "/message:send", body: `{}`, status: 400, reason: "INVALID_PARAMS", class: "InvalidParamsError", message: "message: is required"},
		{name: "too large", verb: "POST", path: "/message:send", body: strings.Repeat(" ", 5000), status: 413, reason: "REQUEST_TOO_LARGE", class: "InvalidRequestError", message: "the limit is 4096 bytes"},
		{name: "another content type", verb: "POST", path: "/message:send", body: send10, headers: []string{"Content-Type", "text/plain"}, status: 415, reason: "CONTENT_TYPE_NOT_SUPPORTED", class: "ContentTypeNotSupportedError", message: "application/json"},
		{name: "only unsupported media types", verb: "GET", path: "/tasks/t-1", headers: []string{"Accept", "text/html, application/xml, application/json;q=0.0"}, status: 406, reason: "CONTENT_TYPE_NOT_SUPPORTED", class: "ContentTypeNotSupportedError", message: "Accept"},
		{name: "an invalid number", verb: "GET", path: "/tasks/t-1?historyLength=x", status: 400, reason: "INVALID_PARAMS", class: "InvalidParamsError", message: "historyLength: must be an integer"},
		{name: "a parameter twice", verb: "GET", path: "/tasks?pageSize=1&page_size=2", status: 400, reason: "INVALID_PARAMS", class: "InvalidParamsError", message: "pageSize: the member appears twice"},
		{name: "an invalid flag", verb: "GET", path: "/tasks?includeArtifacts=yes", status: 400, reason: "INVALID_PARAMS", class: "InvalidParamsError", message: "includeArtifacts: must be true or false"},
		{name: "an invalid query", verb: "GET", path: "/tasks?status=%zz", status: 400, reason: "INVALID_PARAMS", class: "InvalidParamsError", message: "query: invalid URL escape"},
		{name: "a NUL in an id", verb: "GET", path: "/tasks/a%00", status: 400, reason: "INVALID_PARAMS", class: "InvalidParamsError", message: "id: NUL"},
		{name: "an unknown version", verb: "GET", path: "/tasks/t-1", headers: []string{"A2A-Version", "99.0"}, status: 400, reason: "VERSION_NOT_SUPPORTED", class: "VersionNotSupportedError", message: "99.0"},
		{name: "a version in the query", verb: "GET", path: "/tasks/t-1?A2A-Version=latest", status: 400, reason: "VERSION_NOT_SUPPORTED", class: "VersionNotSupportedError", message: "latest"},
		{name: "an unknown action", verb: "POST", path: "/message:sing", body: `{}`, status: 404, reason: "METHOD_NOT_FOUND", class: "MethodNotFoundError", message: "no such path"},
		{name: "no id", verb: "POST", path: "/tasks/:cancel", status: 404, reason: "METHOD_NOT_FOUND", class: "MethodNotFoundError", message: "no such path"},
		{name: "another verb", verb: "PUT", path: "/tasks/t-1", body: `{}`, status: 405, reason: "METHOD_NOT_FOUND", class: "MethodNotFoundError", message: "this path accepts GET, HEAD"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := s.do(t, tt.verb, tt.path, tt.body, tt.headers...)
			require.Equal(t, tt.status, f.StatusCode, "%s", f.body)
			require.Contains(t, f.fault10(t).Message, tt.message)
			require.Equal(t, tt.reason, f.fault10(t).Details[0].Reason)
			old := s.do(t, tt.verb, "/v1"+tt.path, strings.Replace(tt.body, "parts", "content", 1), tt.headers...)
			require.Equal(t, tt.status, old.StatusCode, "%s", old.body)
			class, code, message := old.fault03(t)
			require.Equal(t, tt.class, class)
			require.Negative(t, code)
			require.Contains(t, message, tt.message)
			require.Nil(t, e.Last())
		})
	}
}

func TestIncompleteBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := rpctest.Piped(t, handler(recorder().As, rest.Options{Limits: web.BodyLimits{Timeout: time.Minute}}, io.Discard))
		began := time.Now()
		got, err := io.ReadAll(rpctest.Dial(t, s, "POST /message:send HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"))
		require.NoError(t, err)
		require.Equal(t, time.Minute, waittest.Elapsed(began))
		require.True(t, strings.HasPrefix(string(got), "HTTP/1.1 408 "), string(got))
		require.Contains(t, string(got), `"status":"DEADLINE_EXCEEDED"`)
	})
}

func TestVerbs(t *testing.T) {
	t.Parallel()
	e := recorder()
	s := serve(t, e, rest.Options{})
	for path, want := range map[string]string{
		"/message:send": "OPTIONS, POST", "/message:stream": "OPTIONS, POST", "/tasks": "OPTIONS, GET, HEAD",
		"/tasks/t": "OPTIONS, GET, HEAD", "/tasks/t:cancel": "OPTIONS, POST", "/tasks/t:subscribe": "OPTIONS, GET, POST",
		"/tasks/t/pushNotificationConfigs":   "OPTIONS, GET, HEAD, POST",
		"/tasks/t/pushNotificationConfigs/p": "OPTIONS, DELETE, GET, HEAD",
	} {
		for _, prefix := range []string{"", "/other", "/v1", "/agents/demo", "/agents/demo/v1"} {
			a := s.do(t, "OPTIONS", prefix+path, "")
			require.Equal(t, http.StatusNoContent, a.StatusCode)
			require.Equal(t, want, a.Header.Get("Allow"))
			a = s.do(t, "PATCH", prefix+path, "")
			require.Equal(t, http.StatusMethodNotAllowed, a.StatusCode)
			require.Equal(t, want, a.Header.Get("Allow"))
		}
	}
	full, head := s.do(t, "GET", "/tasks/t", ""), s.do(t, "HEAD", "/tasks/t", "")
	require.Equal(t, http.StatusOK, head.StatusCode)
	require.Empty(t, head.body)
	require.EqualValues(t, len(full.body), head.ContentLength)
	e.Last()
	require.Equal(t, http.StatusMethodNotAllowed, s.do(t, "HEAD", "/tasks/t:subscribe", "").StatusCode)
	require.Nil(t, e.Last(), "only a stream may lack a body")
}

func TestMediaTypes(t *testing.T) {
	t.Parallel()
	s := serve(t, recorder(), rest.Options{})
	const own, plain = "application/a2a+json", "application/json"
	for _, tt := range []struct{ content, accept, want string }{
		{"", "", plain},
		{plain, "", plain},
		{own, "", own},
		{own + "; charset=utf-8", "", own},
		{plain, own, own},
		{own, plain, plain},
		{own, "*/*", own},
		{plain, "text/event-stream", plain},
		{plain, "application/*;q=0.5", plain},
		{plain, plain + ", " + own + ";q=0.9", own},
		{own, own + ";q=0, " + plain, plain},
		{"application/merge-patch+json", "", plain},
	} {
		headers := []string{"Content-Type", tt.content, "Accept", tt.accept}
		if tt.accept == "" {
			headers = headers[:2]
		}
		a := s.do(t, "POST", "/message:send", send10, headers...)
		require.Equal(t, http.StatusOK, a.StatusCode, "%+v: %s", tt, a.body)
		require.Equal(t, tt.want, a.Header.Get("Content-Type"), "%+v", tt)
		a = s.do(t, "POST", "/v1/message:send", send03, headers...)
		require.Equal(t, plain, a.Header.Get("Content-Type"), "0.3 has no media type of its own")
	}
	a := s.do(t, "POST", "/message:send", `{}`, "Content-Type", own, "Accept", own)
	require.Equal(t, plain, a.Header.Get("Content-Type"), "clients read errors of this type only")
}

func TestTenantsAreAgents(t *testing.T) {
	t.Parallel()
	e := recorder()
	s := serve(t, e, rest.Options{})
	for _, tt := range []struct{ path, agent string }{
		{"/tasks/t", "demo"},
		{"/demo/tasks/t", "demo"},
		{"/other/tasks/t", "other"},
		{"/o%74her/tasks/t", "other"},
		{"/tasks/t?tenant=other", "other"},
		{"/demo/tasks/t?tenant=other", "demo"},
		{"/agents/other/tasks/t", "other"},
		{"/agents/other/other/tasks/t", "other"},
		{"/v1/tasks/t", "demo"},
		{"/v1/tasks/t?tenant=other", "demo"},
		{"/agents/other/v1/tasks/t", "other"},
		{"/nobody/tasks/t", ""},
		{"/agents/other/demo/tasks/t", ""},
	} {
		a := s.do(t, "GET", tt.path, "")
		if tt.agent == "" {
			require.Equal(t, http.StatusBadRequest, a.StatusCode, tt.path)
			require.Equal(t, "tenant", a.fault10(t).Details[1].FieldViolations[0].Field)
			continue
		}
		require.Equal(t, http.StatusOK, a.StatusCode, "%s: %s", tt.path, a.body)
		require.IsType(t, new(engine.GetRequest), e.Last())
		_, agent := e.LastBy()
		require.Equal(t, tt.agent, agent, tt.path)
	}
	a := s.do(t, "POST", "/other/message:send", strings.Replace(send10, "{", `{"tenant":"demo",`, 1))
	require.Equal(t, http.StatusOK, a.StatusCode, "the path's agent counts: %s", a.body)
	require.IsType(t, new(engine.SendRequest), e.Last())
	_, agent := e.LastBy()
	require.Equal(t, "other", agent)
}

func TestIDs(t *testing.T) {
	t.Parallel()
	e := recorder()
	s := serve(t, e, rest.Options{})
	for _, id := range []string{"t-1", "a b", "a/b", "a/pushNotificationConfigs", "a:cancel", "x:y", "ü😀", `"quoted\`, "..", "100%", "a?b#c", "tasks"} {
		for _, prefix := range []string{"", "/demo", "/v1", "/agents/demo", "/agents/demo/v1"} {
			escaped := strings.NewReplacer(":", "%3A", ".", "%2E").Replace(url.PathEscape(id))
			require.Equal(t, http.StatusOK, s.do(t, "GET", prefix+"/tasks/"+escaped, "").StatusCode, id)
			got, ok := e.Last().(*engine.GetRequest)
			require.True(t, ok)
			require.Equal(t, id, got.TaskID)
			s.do(t, "GET", prefix+"/tasks/"+escaped+"/pushNotificationConfigs/"+escaped, "")
			webhook, ok := e.Last().(*engine.PushRequest)
			require.True(t, ok)
			require.Equal(t, []string{id, id}, []string{webhook.TaskID, webhook.ConfigID})
			for _, body := range []string{"", "null", " {} ", `{"id":"another","name":"tasks/another","metadata":{"a":1.0}}`} {
				a := s.do(t, "POST", prefix+"/tasks/"+escaped+":cancel", body)
				require.Equal(t, http.StatusOK, a.StatusCode, "%s", a.body)
				canceled, ok := e.Last().(*engine.CancelRequest)
				require.True(t, ok)
				require.Equal(t, id, canceled.TaskID)
				if strings.Contains(body, "metadata") {
					require.Equal(t, `{"a":1.0}`, string(canceled.Metadata))
				}
			}
		}
	}
	s.do(t, "GET", "/tasks/a:b", "")
	got, ok := e.Last().(*engine.GetRequest)
	require.True(t, ok)
	require.Equal(t, "a:b", got.TaskID, "a suffix that is no action belongs to the id")
}

// A client whose strings are UTF-16 may cut one in the middle of a character.
func TestHalfPairsAreRepaired(t *testing.T) {
	t.Parallel()
	e := recorder()
	s := serve(t, e, rest.Options{})
	for path, parts := range map[string]string{"/message:send": "parts", "/v1/message:send": "content"} {
		a := s.do(t, "POST", path, `{"message":{"messageId":"m","role":"ROLE_USER","`+parts+`":[{"text":"cut \ud83d"}]}}`)
		require.Equal(t, http.StatusOK, a.StatusCode, "%s", a.body)
		sent, ok := e.Last().(*engine.SendRequest)
		require.True(t, ok)
		require.Equal(t, "cut \uFFFD", sent.Message.Parts[0].Text)
	}
}

// The EventSource of a browser connects again after every stream that ends. Only 204 tells it that nothing will follow.
func TestEventSourceOfAnEndedTask(t *testing.T) {
	t.Parallel()
	l := rpctest.NewLog()
	id := l.Task("1.0", rpctest.Status(task.StateWorking), rpctest.Status(task.StateCompleted)).String()
	s := serveEngine(t, l.Engine(), rest.Options{})
	for _, path := range []string{"/tasks/" + id + ":subscribe?A2A-Version=1.0", "/v1/tasks/" + id + ":subscribe"} {
		rest := s.do(t, "GET", path, "", "Last-Event-ID", "2", "Accept", "text/event-stream")
		require.Equal(t, http.StatusOK, rest.StatusCode, "%s", rest.body)
		require.Contains(t, string(rest.body), "id: 3-")
		over := s.do(t, "GET", path, "", "Last-Event-ID", "3", "Accept", "text/event-stream")
		require.Equal(t, http.StatusNoContent, over.StatusCode)
		require.Empty(t, over.body)
		// Official clients take only 200, and connect again only if they want to.
		require.Equal(t, http.StatusOK, s.do(t, "POST", path, "", "Last-Event-ID", "3").StatusCode)
	}
	require.Zero(t, l.Hub.Topics())
}

func TestQueries(t *testing.T) {
	t.Parallel()
	e := recorder()
	s := serve(t, e, rest.Options{})
	at := time.Date(2026, 1, 5, 10, 0, 2, 120_000_000, time.UTC)
	for _, query := range []string{
		"contextId=c%2F1&status=TASK_STATE_AUTH_REQUIRED&pageSize=7&pageToken=p&historyLength=0&statusTimestampAfter=2026-01-05T10:00:02.120Z&includeArtifacts=true",
		"context_id=c/1&status=auth-required&page_size=7&page_token=p&history_length=0&status_timestamp_after=2026-01-05T11:00:02.120%2B01:00&include_artifacts=true&x=1&A2A-Version=1.0",
		"contextId=c/1&status=auth_required&pageSize=7&pageToken=p&historyLength=0&lastUpdatedAfter=2026-01-05T10:00:02.120Z&includeArtifacts=true",
	} {
		for _, path := range []string{"/tasks?", "/demo/tasks/?", "/v1/tasks?"} {
			a := s.do(t, "GET", path+query, "", "Prefer", "count=exact")
			require.Equal(t, http.StatusOK, a.StatusCode, "%s", a.body)
			asked, ok := e.Last().(*engine.ListRequest)
			require.True(t, ok)
			require.True(t, at.Equal(asked.Since))
			require.Equal(t, &engine.ListRequest{
				ContextID: "c/1", State: task.StateAuthRequired, Since: asked.Since,
				PageSize: 7, PageToken: "p", WithArtifacts: true, ExactTotal: true,
			}, asked)
			_, agent := e.LastBy()
			require.Equal(t, "demo", agent)
		}
	}
}

// Package registry has the cases.
func TestVersionHeader(t *testing.T) {
	t.Parallel()
	lenient, strict := serve(t, recorder(), rest.Options{}), serve(t, recorder(), rest.Options{StrictVersion: true})
	for path, right := range map[string]string{"/tasks/t": "1.0.1", "/v1/tasks/t": "0.3.0"} {
		wrong := map[string]string{"/tasks/t": "0.3", "/v1/tasks/t": "1.0"}[path]
		require.Equal(t, http.StatusOK, lenient.do(t, "GET", path, "", "A2A-Version", wrong).StatusCode)
		require.Equal(t, http.StatusOK, strict.do(t, "GET", path, "", "A2A-Version", right).StatusCode)
		require.Equal(t, http.StatusBadRequest, strict.do(t, "GET", path, "", "A2A-Version", wrong).StatusCode)
	}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"", "/", "/v1", "/v1/", "/v1.0", "/v0.3/", "/agents/demo", "/.well-known/agent-card.json", "/Tasks", "/a/b/tasks",
		"/task/x", "/extendedagentcard", "/messages:send", "/a%2Ftasks/x", "/demo/v1/tasks",
		// The first segments of other paths are not tenants. (An agent may have such a name; its path is /agents/{name}.)
		"/agents/tasks", "/agents/message:send", "/.well-known/tasks", "/v1.0/tasks", "/v0.3/message:send", "/v0.1/tasks/x", "/v2/tasks",
	} {
		require.Nil(t, rest.Match(path), path)
	}
	for _, path := range []string{
		"/message:send", "message:stream", "/tasks", "/tasks/", "//tasks", "/tasks/x", "/tasks/x:cancel", "/demo/tasks/x:subscribe",
		"/tasks/x/pushNotificationConfigs/y", "/extendedAgentCard", "/demo/extendedAgentCard", "/tenant%2Fodd/tasks",
		"/v1/message:send", "/v1/v1/message:send", "//v1/tasks", "/v1/card",
		// Unknown paths get an answer in the format of their version.
		"/message:sing", "/tasks/x/y", "/tasks//pushNotificationConfigs", "/tasks/:cancel", "/v1/nothing", "/v1/v1", "/v1/v1/v1/tasks",
		"/tasks/x/pushNotificationConfigs/y/z",
	} {
		require.NotNil(t, rest.Match(path), path)
	}
}

// FuzzRequest sends arbitrary paths, queries and bodies. The answer is one document. An error has the format of its
// version, and is never internal.
func FuzzRequest(f *testing.F) {
	for _, seed := range []struct{ verb, path, query, body string }{
		{"POST", "/message:send", "", send10},
		{"POST", "/v1/message:stream", "", send03},
		{"GET", "/tasks", "pageSize=7&status=working&includeArtifacts=true&statusTimestampAfter=2026-01-05T10:00:02Z", ""},
		{"GET", "/demo/tasks/t%2F1", "history_length=3&tenant=demo", ""},
		{"POST", "/tasks/t:cancel", "", `{"id":"x","metadata":{"a":1}}`},
		{"GET", "/v1/tasks/t:subscribe", "A2A-Version=0.3", ""},
		{"DELETE", "/tasks/t/pushNotificationConfigs/%00", "", ""},
		{"POST", "/v1/v1/tasks/%ff/pushNotificationConfigs", "", `{"parent":"p","config":{}}`},
		{"PUT", "/tasks/a:b:cancel", "%zz", "\xff"},
	} {
		f.Add(seed.verb, seed.path, seed.query, seed.body)
	}
	b := rest.New(rest.Options{Limits: web.BodyLimits{Size: 1 << 16}, Operations: dispatch.New(dispatch.Options{Engine: rpctest.ForAll(new(rpctest.Echo))})})
	f.Fuzz(func(t *testing.T, verb, path, query, content string) {
		u, err := url.Parse("http://x/" + strings.TrimLeft(path, "/"))
		if err != nil {
			return
		}
		target := rest.Match(u.EscapedPath())
		if target == nil {
			return
		}
		u.RawQuery = query
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(content))
		r.Method, r.URL = verb, u
		w := httptest.NewRecorder()
		b.Serve(w, r, dispatch.Endpoint{Agent: "demo", Common: true, Admission: rpctest.Open{}}, target)
		if verb == http.MethodOptions && w.Code == http.StatusNoContent {
			return
		}
		var document map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &document), "%s", w.Body)
		require.NotContains(t, w.Body.String(), "\n")
		require.NotEqual(t, http.StatusInternalServerError, w.Code, "%s", w.Body)
		require.Equal(t, w.Code != http.StatusOK, document["error"] != nil, "%s", w.Body)
	})
}
