package jsonrpc_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/rpc"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/rpc/jsonrpc"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/rpctest"
	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/web/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is the whole public server on a listener.
type server struct {
	*httptest.Server
	logs *rpctest.Logs
}

// options are the options of a binding and of the operations behind it.
type options struct {
	Engine          func(task.Caller, string) dispatch.Engine
	fake            *rpctest.Recorder // used instead of Engine
	piped           bool              // for a bubble: a listener without a network
	MaxBody         int64
	Memory          *limit.Budgets
	Rates           *limit.Rates[task.Owner]
	MaxDepth        int
	BodyTimeout     time.Duration
	KeepAlive       time.Duration
	MaxStreams      int
	LegacyTaskIDs   bool
	EventNames      bool
	ReturnByDefault bool
	Ambiguous       dispatch.Ambiguous
	StrictVersion   bool
	Agents          []dispatch.Agent
	Observer        dispatch.Observer
	Log             *slog.Logger
}

func (o options) binding() *jsonrpc.Binding {
	if o.fake != nil {
		o.Engine = o.fake.As
	}
	return jsonrpc.New(jsonrpc.Options{
		Operations: dispatch.New(dispatch.Options{
			Engine: o.Engine, KeepAlive: o.KeepAlive, Streams: limit.NewPlaces[task.Owner](o.MaxStreams, 0), LegacyTaskIDs: o.LegacyTaskIDs, EventNames: o.EventNames,
			Memory: o.Memory, Rates: o.Rates, ReturnByDefault: o.ReturnByDefault, Ambiguous: o.Ambiguous, Agents: o.Agents, Observer: o.Observer,
		}),
		Limits: web.BodyLimits{Size: o.MaxBody, Depth: o.MaxDepth, Timeout: o.BodyTimeout}, StrictVersion: o.StrictVersion, Log: o.Log,
	})
}

func serve(t testing.TB, o options) *server {
	t.Helper()
	s := &server{logs: new(rpctest.Logs)}
	o.Log = slog.New(slog.NewTextHandler(s.logs, nil))
	h := rpc.New(rpc.Options{
		Agents:    []rpc.Agent{{Name: "demo", Default: true}, {Name: "other"}},
		PublicURL: "https://example.com", JSONRPC: o.binding(), Log: o.Log,
	})
	if o.piped {
		s.Server = rpctest.Piped(t, h)
		return s
	}
	s.Server = httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// answer is a JSON-RPC response with its HTTP status and headers.
type answer struct {
	*http.Response
	body   []byte
	ID     json.RawMessage
	Result json.RawMessage
	Error  *rpcError
}

type rpcError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// decode parses a response and checks what holds for every response.
func decode(t testing.TB, body []byte) *answer {
	t.Helper()
	var members map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(body, &members), "%s", body)
	require.JSONEq(t, `"2.0"`, string(members["jsonrpc"]))
	a := &answer{body: body, ID: members["id"], Result: members["result"]}
	require.NotEmpty(t, a.ID, "%s", body)
	require.Len(t, members, 3, "%s", body)
	if a.Result == nil {
		require.NoError(t, json.Unmarshal(members["error"], &a.Error), "%s", body)
		require.NotEmpty(t, a.Error.Message)
	}
	return a
}

// begin posts a body. headers are pairs of name and value.
func (s *server) begin(t testing.TB, path string, body io.Reader, headers ...string) *http.Response {
	t.Helper()
	if !slices.Contains(headers, "Content-Type") {
		headers = append([]string{"Content-Type", "application/json"}, headers...)
	}
	return rpctest.Begin(t, s.Server, http.MethodPost, path, body, headers...)
}

// post sends a body to the common endpoint.
func (s *server) post(t testing.TB, body string, headers ...string) *answer {
	t.Helper()
	return s.postAt(t, "/", body, headers...)
}

func (s *server) postAt(t testing.TB, path, body string, headers ...string) *answer {
	t.Helper()
	return whole(t, s.begin(t, path, strings.NewReader(body), headers...)) //nolint:bodyclose // in whole
}

// whole reads a response: a document, or a stream of one event.
func whole(t testing.TB, resp *http.Response) *answer {
	t.Helper()
	r := rpctest.Read(t, resp)
	document := r.Content
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		frames := strings.SplitAfter(string(document), "\n\n")
		require.Len(t, frames, 2, "one event: %s", document)
		require.Empty(t, frames[1])
		document = []byte(strings.TrimPrefix(frames[0], "data: "))
	}
	a := decode(t, document)
	a.Response = resp
	return a
}

// request renders a request.
func request(id, method, params string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + `}`
}

const (
	message01 = `{"role":"user","parts":[{"type":"text","text":"hi"}]}`
	message10 = `{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"hi"}]}`
	message03 = `{"kind":"message","messageId":"m-1","role":"user","parts":[{"kind":"text","text":"hi"}]}`
)

// calls contains one valid call of each operation, by version.
var calls = map[string]map[string]string{
	"0.1": {
		"tasks/send":          `{"id":"t-1","message":` + message01 + `}`,
		"tasks/sendSubscribe": `{"id":"t-1","message":` + message01 + `}`,
		"tasks/get":           `{"id":"t-1"}`,
		"tasks/cancel":        `{"id":"t-1"}`,
		"tasks/resubscribe":   `{"id":"t-1"}`,
	},
	"0.3": {
		"message/send":      `{"message":` + message03 + `}`,
		"message/stream":    `{"message":` + message03 + `}`,
		"tasks/get":         `{"id":"t-1"}`,
		"tasks/cancel":      `{"id":"t-1"}`,
		"tasks/resubscribe": `{"id":"t-1"}`,
	},
	"1.0": {
		"SendMessage":          `{"message":` + message10 + `}`,
		"SendStreamingMessage": `{"message":` + message10 + `}`,
		"GetTask":              `{"id":"t-1"}`,
		"ListTasks":            `{"pageSize":5}`,
		"CancelTask":           `{"id":"t-1"}`,
		"SubscribeToTask":      `{"id":"t-1"}`,
	},
}

// call renders the valid call of a method, in the newest version that has it.
func call(method string) string {
	for _, version := range []string{"1.0", "0.3", "0.1"} {
		if params, ok := calls[version][method]; ok {
			return request("1", method, params)
		}
	}
	panic(method)
}

// wants answers every operation with a task of a version.
func wants(version string) *rpctest.Recorder { return &rpctest.Recorder{Task: rpctest.Sample(version)} }

// fails answers every operation with an error.
func fails(err error) *rpctest.Recorder { return &rpctest.Recorder{Err: err} }

var unknown = task.Errorf(task.NotFound, "no such task")

// spoken returns the version of an answer, found by its members.
func spoken(t testing.TB, a *answer) string {
	t.Helper()
	require.Nil(t, a.Error, "%s", a.body)
	switch result := string(a.Result); {
	case strings.Contains(result, `"TASK_STATE_`):
		return "1.0"
	case strings.Contains(result, `"kind":"task"`):
		require.NotContains(t, result, "sessionId")
		return "0.3"
	case strings.Contains(result, `"sessionId"`):
		return "0.1"
	default:
		t.Fatalf("no version: %s", result)
		return ""
	}
}

// Which versions fit a method, a header and a path is proven in package registry. Where several fit, the version of the task decides.
func TestVersions(t *testing.T) {
	t.Parallel()
	const refused = "-32009"
	for _, tt := range []struct {
		path, version, method, origin string
		want, strict                  string // strict: with StrictVersion
	}{
		{"/", " 0.3 ", "message/send", "0.3", "0.3", "0.3"},
		{"/", "1.0", "message/send", "0.3", "0.3", refused},
		{"/", "99.0", "GetTask", "1.0", refused, refused},
		{"/", "latest", "tasks/get", "0.3", refused, refused},
		{"/v0.1", "", "tasks/get", "0.3", "0.1", "0.1"},
		{"/agents/other/v0.3", "", "tasks/get", "0.1", "0.3", "0.3"},

		// The params of this method are the same in both versions.
		{"/", "", "tasks/get", "0.1", "0.1", "0.1"},
		{"/", "", "tasks/get", "0.3", "0.3", "0.3"},
		{"/", "", "tasks/get", "1.0", "0.3", "0.3"},
		{"/", "", "tasks/get", "0.2 of a future release", "0.3", "0.3"},
		{"/", "1.0", "tasks/get", "0.1", "0.1", refused},
		{"/", "0.1", "tasks/get", "0.3", "0.1", "0.1"},
		{"/", "0.2.1", "tasks/get", "0.1", "0.3", "0.3"},
	} {
		for strict, want := range map[bool]string{false: tt.want, true: tt.strict} {
			s := serve(t, options{fake: wants(tt.origin), StrictVersion: strict})
			query := "?x=%zz&A2A-Version=" + strings.ReplaceAll(tt.version, " ", "+")
			for _, a := range []*answer{s.postAt(t, tt.path, call(tt.method), "A2A-Version", tt.version), s.postAt(t, tt.path+query, call(tt.method))} {
				if want != refused {
					require.Equal(t, want, spoken(t, a), "%+v", tt)
					continue
				}
				require.NotNil(t, a.Error, "%+v: %s", tt, a.body)
				require.Equal(t, -32009, a.Error.Code)
				require.Contains(t, a.Error.Message, tt.version)
				require.Equal(t, "1", string(a.ID))
				require.Equal(t, http.StatusOK, a.StatusCode)
				if tt.method == "GetTask" {
					require.Equal(t, "VERSION_NOT_SUPPORTED", reasons(t, a)[0].Reason)
				} else {
					require.Nil(t, a.Error.Data)
				}
			}
		}
	}
}

func TestErrorPrecedence(t *testing.T) {
	t.Parallel()
	s := serve(t, options{fake: new(rpctest.Recorder)})
	for _, tt := range []struct {
		path, method, params, version string
		code                          int
	}{
		{"/", "SendMassage", `{}`, "99.0", -32601},
		{"/v0.1", "message/send", `{}`, "", -32601},
		{"/", "message/send", `[]`, "99.0", -32009},
		{"/", "message/send", `{"a":1,"a":1}`, "99.0", -32009},
		{"/", "message/send", `[]`, "1.0", -32602},
		// Some clients write null where they have nothing to say.
		{"/", "GetExtendedAgentCard", `null`, "", -32004},
		{"/", "SendMessage", `null`, "", -32602},
		{"/", "GetTask", `null`, "", -32602},
	} {
		a := s.postAt(t, tt.path, request("1", tt.method, tt.params), "A2A-Version", tt.version)
		require.Equal(t, tt.code, a.Error.Code, "%+v", tt)
		require.Equal(t, tt.params == "[]" && tt.code == -32602, strings.Contains(a.Error.Message, "must be an object"), a.Error.Message)
	}
}

// The operator chooses the format of answers to requests without a version. Requests with a version get its format.
func TestAmbiguousResults(t *testing.T) {
	t.Parallel()
	const only01, only03, both = "0.1", "0.3", "both"
	shape := func(document string) string {
		switch old, current := strings.Contains(document, `"type":"text"`), strings.Contains(document, `"kind":"text"`); {
		case old && current:
			return both
		case old:
			return only01
		case current:
			return only03
		}
		return document
	}
	for _, tt := range []struct {
		choice                 dispatch.Ambiguous
		of01, of03, of10, sent string
	}{
		{dispatch.AsOrigin, only01, only03, only03, only01},
		{dispatch.AsUnion, both, only03, only03, only01},
		{dispatch.AsNewest, only03, only03, only03, only01},
	} {
		s := serveStreams(t, options{Ambiguous: tt.choice})
		artifact := task.Event{Kind: task.EventArtifact, Artifact: &task.Artifact{ID: "a", Parts: []task.Part{task.Text("x")}}}
		for origin, want := range map[string]string{"0.1": tt.of01, "0.3": tt.of03, "1.0": tt.of10} {
			id := s.log.Task(origin, artifact, status(task.StateInputRequired)).String()
			for _, asked := range []struct{ path, header, want string }{
				{"/", "", want}, {"/v0.1", "", only01}, {"/v0.3", "", only03}, {"/", "0.1", only01}, {"/", "0.3", only03},
			} {
				a := s.postAt(t, asked.path, request("1", "tasks/get", `{"id":"`+id+`"}`), "A2A-Version", asked.header)
				require.Equal(t, asked.want, shape(string(a.Result)), "%d: a task of %s, asked %+v", tt.choice, origin, asked)
				// Also the defaults are those of the version: 0.1 shows the history on request only.
				require.Equal(t, asked.want != only01, strings.Contains(string(a.Result), `"history"`), "%d: %s, %+v", tt.choice, origin, asked)
			}
			c := s.open(t, request("1", "tasks/resubscribe", `{"id":"`+id+`"}`), "Last-Event-ID", "1")
			require.Equal(t, want, shape(string(c.next(t).answer.Result)), "%d: the stream of a task of %s", tt.choice, origin)
		}
		// Unambiguous requests are not affected.
		go func() { s.log.Add(<-s.created, artifact, status(task.StateCompleted)) }()
		require.Equal(t, tt.sent, shape(string(s.post(t, call("tasks/send")).Result)))
	}
}

// reason is an ErrorInfo, or a BadRequest.
type reason struct {
	Type            string `json:"@type"`
	Reason          string
	Domain          string
	Metadata        map[string]string
	FieldViolations []struct{ Field, Description string }
}

func reasons(t testing.TB, a *answer) []reason {
	t.Helper()
	require.NotNil(t, a.Error, "%s", a.body)
	var all []reason
	require.NoError(t, json.Unmarshal(a.Error.Data, &all), "%s", a.body)
	require.NotEmpty(t, all)
	require.Equal(t, "type.googleapis.com/google.rpc.ErrorInfo", all[0].Type)
	require.Equal(t, "a2a-protocol.org", all[0].Domain)
	return all
}

// The codes are proven with the codecs. The HTTP status is 200 for most kinds.
func TestErrorsOfEveryKind(t *testing.T) {
	t.Parallel()
	statuses := map[task.Kind]int{
		task.Unauthenticated: 401, task.Forbidden: 403, task.RateLimited: 429, task.Unavailable: 503, task.TooLarge: 413,
	}
	for kind := range task.Kind(task.KindCount) {
		err := &task.Error{Kind: kind, Cause: errors.New("dial 10.0.0.1"), RetryAfter: 1500 * time.Millisecond}
		s := serve(t, options{fake: fails(err)})
		for version, methods := range map[string][]string{
			"0.1": {"tasks/send", "tasks/sendSubscribe"}, "0.3": {"tasks/get", "tasks/resubscribe"}, "1.0": {"ListTasks", "SendStreamingMessage"},
		} {
			codec := registry.ByVersion(version)
			for _, method := range methods {
				about := fmt.Sprintf("%s, %s of %s", kind, method, version)
				a := s.postAt(t, "/v"+version, request(`"x"`, method, calls[version][method]))
				status := statuses[kind]
				if status == 0 {
					status = http.StatusOK
				}
				require.Equal(t, status, a.StatusCode, about)
				require.Equal(t, `"x"`, string(a.ID), about)
				require.NotNil(t, a.Error, about)
				code, _ := codec.Traits().Faults.Describe(err)
				require.Equal(t, code, a.Error.Code, about)
				if version == "1.0" {
					require.Equal(t, fault.Base.Row(kind).Reason, reasons(t, a)[0].Reason, about)
				}
				require.NotContains(t, string(a.body), "10.0.0.1", about)
				content, retry := "application/json", ""
				if op := codec.Traits().Operations[method]; op.Streams() && status == http.StatusOK {
					content = "text/event-stream"
				}
				if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
					retry = "2"
				}
				require.Equal(t, content, a.Header.Get("Content-Type"), about)
				require.Equal(t, retry, a.Header.Get("Retry-After"), about)
			}
		}
		if kind != task.Internal && kind != task.LeaseLost {
			require.Empty(t, s.logs.String(), kind)
		}
	}
	s := serve(t, options{fake: fails(&task.Error{Kind: task.Unavailable})})
	require.Equal(t, "1", s.post(t, call("tasks/get")).Header.Get("Retry-After"), "it is never 0")
}

func TestErrorDetails(t *testing.T) {
	t.Parallel()
	s := serve(t, options{fake: fails(unknown)})
	a := s.post(t, request("1", "GetTask", `{"id":"t-9"}`))
	require.Equal(t, []reason{{
		Type: "type.googleapis.com/google.rpc.ErrorInfo", Reason: "TASK_NOT_FOUND", Domain: "a2a-protocol.org",
		Metadata: map[string]string{"taskId": "t-9"},
	}}, reasons(t, a))
	a = s.post(t, request("1", "ListTasks", `{"pageSize":101}`))
	require.Equal(t, -32602, a.Error.Code)
	require.Equal(t, "pageSize", reasons(t, a)[1].FieldViolations[0].Field)
	require.Equal(t, "must be a number from 1 to 100", reasons(t, a)[1].FieldViolations[0].Description)
	for params, field := range map[string]string{
		`{"message":{"messageId":"a","messageId":"b"}}`: "message.messageId",
		`{"message":` + message10 + `,"configuration":{"taskPushNotificationConfig":{"tenant":"other","url":"https://a.example"}}}`: "configuration.taskPushNotificationConfig.tenant",
		`{"message":{"parts":[{"text":"\u0000"}]}}`:                                      "message.parts[0].text",
		`{"metadata":{"a":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}}`: "metadata.a" + strings.Repeat("[0]", rawjson.MaxDepth-3),
	} {
		a = s.post(t, request("1", "SendStreamingMessage", params))
		require.Equal(t, -32602, a.Error.Code)
		require.Equal(t, field, reasons(t, a)[1].FieldViolations[0].Field)
		require.Equal(t, "text/event-stream", a.Header.Get("Content-Type"), "the Go client reads nothing else")
	}
}

// closed is the admission of a server whose default agent requires a credential, and whose others do not.
type closed struct{ rpctest.Open }

func (closed) Admit(agent string) (task.Caller, error) {
	if agent == "demo" {
		return task.Caller{}, &task.Error{Kind: task.Unauthenticated}
	}
	return task.Caller{}, nil
}

// A caller whom an agent does not admit learns nothing else, whatever is wrong with the request.
func TestBadRequestsWithoutCredential(t *testing.T) {
	t.Parallel()
	b := options{Engine: rpctest.ForAll(new(rpctest.Echo))}.binding()
	for body, want := range map[string]int{
		request("1", "tasks/send", `{}`): http.StatusUnauthorized, request("1", "nope", `{}`): http.StatusUnauthorized, `{`: http.StatusUnauthorized,
		request("1", "GetTask", `{"id":"a","id":"b"}`): http.StatusUnauthorized, request("1", "GetTask", `{"tenant":"other"}`): http.StatusOK,
	} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		b.Serve(w, r, jsonrpc.Endpoint{Endpoint: dispatch.Endpoint{Agent: "demo", Common: true, Admission: closed{}}})
		require.Equal(t, want, w.Code, body)
	}
}

func TestInternalErrorIsLoggedOnceAndHidden(t *testing.T) {
	t.Parallel()
	secret := errors.New("password=hunter2")
	for name, e := range map[string]*rpctest.Recorder{
		"an unclassified error": fails(secret),
		"an internal error":     fails(&task.Error{Kind: task.Internal, Msg: "pool password=hunter2", Cause: secret}),
		"a panic":               {Call: func(context.Context) { panic(secret) }},
		"a nil pointer":         {}, // no task, no error
	} {
		for _, method := range []string{"tasks/get", "message/stream"} {
			s := serve(t, options{fake: e})
			a := s.post(t, call(method))
			require.Equal(t, http.StatusOK, a.StatusCode, name)
			require.Equal(t, -32603, a.Error.Code, name)
			require.Equal(t, "Internal error", a.Error.Message)
			require.NotContains(t, string(a.body), "hunter2")
			require.Equal(t, 1, strings.Count(s.logs.String(), "level="), "%s: %s", name, s.logs)
			if name != "a nil pointer" {
				require.Contains(t, s.logs.String(), "hunter2")
			}
			id := strings.Trim(string(a.Error.Data), `{}"`)
			id = id[strings.LastIndexByte(id, '"')+1:]
			require.Len(t, id, 36)
			require.Contains(t, s.logs.String(), "error_id="+id, "the error id in the answer is in the log")
			require.Equal(t, -32601, s.post(t, request("1", "x", "{}")).Error.Code, "the server still answers")
		}
	}
}

func TestSendRequests(t *testing.T) {
	t.Parallel()
	e := wants("0.3")
	for _, switched := range []bool{false, true} {
		s := serve(t, options{fake: e, LegacyTaskIDs: switched, ReturnByDefault: switched})
		for _, tt := range []struct {
			method, dialect, member string
			wait, create            bool
		}{
			{"tasks/send", "0.1", "sessionId", !switched, true},
			{"message/send", "0.3", "message.contextId", !switched, switched},
			{"SendMessage", "1.0", "message.contextId", true, false}, // the switches of older versions do not apply
		} {
			require.Nil(t, s.postAt(t, "/agents/other", call(tt.method), "Idempotency-Key", "k-1").Error)
			got := e.Last().(*engine.SendRequest)
			require.Equal(t, []any{"k-1", tt.dialect, tt.member, tt.wait, tt.create},
				[]any{got.IdempotencyKey, got.Dialect, got.ContextMember, got.Wait, got.MayCreate}, "%+v", tt)
			_, agent := e.LastBy()
			require.Equal(t, "other", agent)
		}
		send := func(more string) *answer {
			return s.post(t, request("1", "message/send", `{"message":{"messageId":"m","role":"user","parts":[{"text":"x"}]`+more+`}`))
		}
		require.Nil(t, send(`},"configuration":{"blocking":true}`).Error)
		require.True(t, e.Last().(*engine.SendRequest).Wait)
		require.Nil(t, send(`,"taskId":"urn:a/b"}`).Error)
		for _, id := range []string{strings.Repeat("x", 257), `a\nb`} {
			a := send(`,"taskId":"` + id + `"}`)
			require.Equal(t, switched, a.Error != nil && strings.Contains(a.Error.Message, "message.taskId"), "%s", a.body)
		}
		for key, says := range map[string]string{strings.Repeat("é", 128): "Idempotency-Key", "\xff": "Idempotency-Key", strings.Repeat("k", 255): ""} {
			a := s.post(t, call("message/send"), "Idempotency-Key", key)
			require.Equal(t, says == "", a.Error == nil, "%s", a.body)
			require.Contains(t, string(a.body), says)
		}
		for prefer, exact := range map[string]bool{"respond-async, count=exact": true, "count=estimated": false} {
			require.Nil(t, s.post(t, call("ListTasks"), "Prefer", prefer).Error)
			require.Equal(t, exact, e.Last().(*engine.ListRequest).ExactTotal)
		}
	}
}

func TestRequestsAreCounted(t *testing.T) {
	t.Parallel()
	counts := make(chan string, 10)
	s := serve(t, options{
		fake:     fails(unknown),
		Observer: dispatch.Observer{Answered: func(a dispatch.Answer) { counts <- strings.Join([]string{a.Operation, a.Version, a.Outcome}, " ") }},
	})
	for body, want := range map[string]string{
		"{":                               "none  refused",
		call("tasks/send"):                "send 0.1 TASK_NOT_FOUND",
		call("message/stream"):            "stream 0.3 TASK_NOT_FOUND",
		request("1", "tasks/get", `{}`):   "get 0.3 INVALID_PARAMS",
		request("1", "SendMassage", `{}`): "none  refused",
	} {
		s.post(t, body)
		require.Equal(t, want, <-counts)
	}
}

func TestTenantsAreAgents(t *testing.T) {
	t.Parallel()
	e := wants("1.0")
	s := serve(t, options{fake: e, Agents: []dispatch.Agent{{Name: "demo"}, {Name: "other"}}})
	for _, tt := range []struct{ path, tenant, agent string }{
		{"/", "", "demo"},
		{"/", "demo", "demo"},
		{"/", "other", "other"},
		{"/v1.0", "other", "other"},
		{"/agents/other", "", "other"},
		{"/agents/other", "other", "other"},
		{"/", "nobody", ""},
		{"/agents/other", "demo", ""},
		{"/agents/demo", "other", ""},
	} {
		for _, method := range []string{"SendMessage", "GetTask", "ListTasks", "CancelTask"} {
			params := strings.Replace(calls["1.0"][method], "{", `{"tenant":"`+tt.tenant+`",`, 1)
			a := s.postAt(t, tt.path, request("1", method, params))
			if tt.agent == "" {
				require.Equal(t, -32602, a.Error.Code)
				require.Equal(t, "tenant", reasons(t, a)[1].FieldViolations[0].Field)
				continue
			}
			require.Nil(t, a.Error, "%s", a.body)
			_, agent := e.LastBy()
			require.Equal(t, tt.agent, agent)
		}
	}
}

// An agent gets only the headers of clients that its operator names.
func TestForwardedHeaders(t *testing.T) {
	t.Parallel()
	e := wants("1.0")
	s := serve(t, options{fake: e, Agents: []dispatch.Agent{{Name: "demo", Forward: []string{"Authorization", "X-Key"}}, {Name: "other"}}})
	long := strings.Repeat("x", 10<<10)
	for _, tt := range []struct {
		path    string
		headers []string
		want    task.Forwarded
		refused string
	}{
		{path: "/", headers: []string{"X-Other", "1"}},
		{path: "/", headers: []string{"x-key", "1", "X-Key", "1", "X-Other", "1"}, want: task.Forwarded{"X-Key": "1"}},
		{path: "/", headers: []string{"Authorization", "Bearer a", "X-Key", long}, want: task.Forwarded{"Authorization": "Bearer a", "X-Key": long}},
		{path: "/agents/other", headers: []string{"X-Key", "1"}},
		{path: "/", headers: []string{"X-Key", "1", "X-Key", "2"}, refused: "X-Key: is given more than once"},
		{path: "/", headers: []string{"X-Key", "\xff"}, refused: "X-Key: is forwarded to the agent, so it must be UTF-8"},
		{
			path: "/", headers: []string{"Authorization", long, "X-Key", long},
			refused: "X-Key: is forwarded to the agent, and makes the forwarded headers longer than 16384 bytes",
		},
	} {
		a := s.postAt(t, tt.path, call("SendMessage"), tt.headers...)
		if tt.refused != "" {
			require.NotNil(t, a.Error)
			require.Contains(t, a.Error.Message, tt.refused)
			require.NotContains(t, a.Error.Message, "xxx")
			continue
		}
		require.Nil(t, a.Error, "%s", a.body)
		require.Equal(t, tt.want, e.Last().(*engine.SendRequest).Forwarded)
	}
}

func TestExtensions(t *testing.T) {
	t.Parallel()
	s := serve(t, options{fake: wants("1.0"), Agents: []dispatch.Agent{
		{Name: "demo", Extensions: []dispatch.Extension{{URI: "urn:a"}, {URI: "urn:b"}}},
		{Name: "other", Extensions: []dispatch.Extension{{URI: "urn:must", Required: true}, {URI: "urn:may"}}},
	}})
	for _, tt := range []struct {
		path, method, header, value string
		echoed, echo                string
		refused                     int
	}{
		{path: "/", method: "GetTask"},
		{path: "/", method: "GetTask", header: "A2A-Extensions", value: "urn:z, urn:b,urn:a", echoed: "A2A-Extensions", echo: "urn:a, urn:b"},
		{path: "/", method: "GetTask", header: "X-A2A-Extensions", value: "urn:b", echoed: "A2A-Extensions", echo: "urn:b"},
		{path: "/", method: "message/send", header: "X-A2A-Extensions", value: "urn:b", echoed: "X-A2A-Extensions", echo: "urn:b"},
		{path: "/", method: "message/send", header: "A2A-Extensions", value: "urn:b", echoed: "X-A2A-Extensions", echo: "urn:b"},
		{path: "/agents/other", method: "SendMessage", header: "A2A-Extensions", value: "urn:must", echoed: "A2A-Extensions", echo: "urn:must"},
		{path: "/agents/other", method: "SendMessage", header: "A2A-Extensions", value: "urn:may", refused: -32008},
		{path: "/agents/other", method: "SendMessage", refused: -32008},
		{path: "/agents/other", method: "SendStreamingMessage", refused: -32008},
		{path: "/agents/other", method: "message/send", refused: -32602},
		{path: "/agents/other", method: "tasks/send"}, // 0.1 has no extensions
	} {
		a := s.postAt(t, tt.path, call(tt.method), cmp.Or(tt.header, "X-Other"), tt.value)
		if tt.refused != 0 {
			require.Equal(t, tt.refused, a.Error.Code, "%+v", tt)
			require.Contains(t, a.Error.Message, "urn:must")
			continue
		}
		require.Nil(t, a.Error, "%+v: %s", tt, a.body)
		for _, name := range []string{"A2A-Extensions", "X-A2A-Extensions"} {
			want := ""
			if name == tt.echoed {
				want = tt.echo
			}
			require.Equal(t, want, a.Header.Get(name), "%+v", tt)
		}
	}
}

// Every version refuses the streams of an agent whose card declares none. Sends are served.
func TestAgentWithoutStreams(t *testing.T) {
	t.Parallel()
	for version, code := range map[string]int{"0.1": -32006, "0.3": -32004, "1.0": -32004} {
		s := serve(t, options{fake: wants(version), Agents: []dispatch.Agent{{Name: "demo", NoStreams: true}, {Name: "other"}}})
		for method, params := range calls[version] {
			op := registry.ByVersion(version).Traits().Operations[method]
			if !op.Streams() {
				continue
			}
			a := s.post(t, request("1", method, params), "A2A-Version", version)
			require.NotNil(t, a.Error, "%s: %s", method, a.body)
			require.Equal(t, code, a.Error.Code, method)
		}
	}
}
