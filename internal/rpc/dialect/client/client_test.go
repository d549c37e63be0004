package client_test

import (
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/binary"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v01"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v03"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v03proto"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v10"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/tracing"
)

// served pairs each wire with the codec of our server that answers it.
var served = map[*client.Wire]dialect.Codec{
	client.Find("1.0", "JSONRPC"):   v10.Codec{},
	client.Find("1.0", "HTTP+JSON"): v10.Codec{},
	client.Find("0.3", "JSONRPC"):   v03.Codec{},
	client.Find("0.3", "HTTP+JSON"): v03proto.Codec{},
	client.Find("0.1", "JSONRPC"):   v01.Codec{},
	client.Find("1.0", "GRPC"):      binary.New10(depth),
	client.Find("0.3", "GRPC"):      binary.New03(depth),
}

const depth = 64

func eachWire(t *testing.T, do func(t *testing.T, w *client.Wire, c dialect.Codec)) {
	t.Helper()
	for w, c := range served {
		t.Run(w.Version+" "+w.Binding, func(t *testing.T) {
			t.Parallel()
			do(t, w, c)
		})
	}
}

// wrap makes an answer of a document.
func wrap(w *client.Wire, document []byte) []byte {
	if w.Binding == client.JSONRPC {
		return []byte(`{"jsonrpc":"2.0","id":1,"result":` + string(document) + `}`)
	}
	return document
}

func parts() []task.Part {
	return []task.Part{
		task.Text("he said \"hi\"\n"),
		{Kind: task.PartRaw, Raw: []byte("bytes"), MediaType: "a/b"},
		{Kind: task.PartURL, URL: "https://example.com/f", MediaType: "a/b"},
		{Kind: task.PartData, Data: json.RawMessage(`{"n":12345678901234567890,"f":1.0}`)},
		{Kind: task.PartData, Data: json.RawMessage(`[1,2]`)},
		{Kind: task.PartData, Data: json.RawMessage(`null`)},
	}
}

func ours() *task.Task {
	m := func(id string, role task.Role) task.Message {
		return task.Message{ID: id, Role: role, TaskID: "t-1", ContextID: "c-1", Parts: parts(), Metadata: []byte(`{"b":1,"a":2.0}`)}
	}
	asks := m("a-2", task.RoleAgent)
	return &task.Task{
		PublicID: "t-1", ContextID: "c-1", Metadata: []byte(`{"k":[]}`),
		Status:    task.Status{State: task.StateInputRequired, Message: &asks},
		History:   []task.Message{m("u-1", task.RoleUser), m("a-1", task.RoleAgent)},
		Artifacts: []task.Artifact{{ID: "artifact-0", Name: "n", Description: "d", Parts: parts(), Metadata: []byte(`{"x":1}`)}},
	}
}

// sees returns what a version can say of a task.
func sees(w *client.Wire, t *task.Task) *task.Task {
	if !w.ChoosesIDs() {
		return t
	}
	t.Status.Message.ID, t.Status.Message.TaskID, t.Status.Message.ContextID = "", "", ""
	for i := range t.History {
		t.History[i].ID, t.History[i].TaskID, t.History[i].ContextID = "", "", ""
	}
	return t
}

// same compares what a wire carries. Values over gRPC are Structs: their numbers are doubles, and their members have no order.
func same(w *client.Wire) cmp.Options {
	all := cmp.Options{cmpopts.IgnoreUnexported(task.Task{}), cmpopts.EquateEmpty()}
	if w.Binding == client.GRPC {
		some := func(a, b json.RawMessage) bool { return len(a)+len(b) > 0 }
		all = append(all, cmp.FilterValues(some, cmp.Transformer("doubles", func(raw json.RawMessage) (value any) {
			_ = json.Unmarshal(raw, &value)
			return value
		})))
	}
	return all
}

func TestReadsTasks(t *testing.T) {
	t.Parallel()
	eachWire(t, func(t *testing.T, w *client.Wire, c dialect.Codec) {
		t.Helper()
		for _, op := range []struct {
			ours   engine.Op
			theirs client.Op
		}{{engine.OpSend, client.Send}, {engine.OpGet, client.Get}, {engine.OpCancel, client.Cancel}} {
			document, err := c.Result(op.ours, ours(), dialect.View{History: engine.AllHistory})
			require.NoError(t, err)
			u, err := w.Answer(op.theirs, wrap(w, document), depth)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(sees(w, ours()), u.Task, same(w)))
			require.Equal(t, "t-1", u.TaskID)
			require.Equal(t, "c-1", u.ContextID)
		}
	})
}

func TestReadsEvents(t *testing.T) {
	t.Parallel()
	said := ours().Status.Message
	eachWire(t, func(t *testing.T, w *client.Wire, c dialect.Codec) {
		t.Helper()
		for _, want := range []task.Event{
			{Kind: task.EventStatus, State: task.StateWorking},
			{Kind: task.EventStatus, State: task.StateInputRequired, Message: said, Metadata: []byte(`{"m":1.0}`)},
			{Kind: task.EventStatus, State: task.StateCompleted},
			{Kind: task.EventArtifact, Artifact: &ours().Artifacts[0]},
			{Kind: task.EventArtifact, Artifact: &ours().Artifacts[0], Append: true, Last: true, Metadata: []byte(`{"m":1}`)},
		} {
			document, err := c.Event(ours(), &want, false)
			require.NoError(t, err)
			u, err := w.Answer(client.Stream, wrap(w, document), depth)
			require.NoError(t, err)
			if w.ChoosesIDs() && want.Message != nil {
				m := *want.Message
				m.ID, m.TaskID, m.ContextID = "", "", ""
				want.Message = &m
			}
			require.Empty(t, cmp.Diff(&want, u.Event, same(w)))
			require.Equal(t, "t-1", u.TaskID)
		}
	})
}

func TestReadsBareMessages(t *testing.T) {
	t.Parallel()
	eachWire(t, func(t *testing.T, w *client.Wire, c dialect.Codec) {
		t.Helper()
		if w.ChoosesIDs() {
			t.Skip("0.1 has no bare messages")
		}
		direct := ours()
		direct.Direct = true
		document, err := c.Result(engine.OpSend, direct, dialect.View{})
		require.NoError(t, err)
		u, err := w.Answer(client.Send, wrap(w, document), depth)
		require.NoError(t, err)
		require.Nil(t, u.Task)
		require.Empty(t, cmp.Diff(parts(), u.Message.Parts, same(w)))
		require.Empty(t, u.TaskID)
		require.Equal(t, "c-1", u.ContextID)
	})
}

// read is what our own server makes of a request. Over HTTP+JSON, it reads the body alone.
func read(t *testing.T, w *client.Wire, c dialect.Codec, op engine.Op, request *client.Request) *dialect.Call {
	t.Helper()
	method, params := request.Method[strings.LastIndexByte(request.Method, '/')+1:], request.Body
	if w.Binding == client.JSONRPC {
		var envelope struct {
			JSONRPC, Method string
			Params          json.RawMessage
		}
		require.NoError(t, json.Unmarshal(request.Body, &envelope))
		require.Equal(t, "2.0", envelope.JSONRPC)
		method, params = envelope.Method, envelope.Params
	}
	require.Equal(t, w.Binding != client.GRPC, json.Valid(params), string(params))
	if w.Binding != client.HTTPJSON {
		known, ok := c.Traits().Operations[method]
		require.True(t, ok, method)
		require.Equal(t, op, known)
	}
	call, err := c.Decode(op, params)
	require.NoError(t, err)
	return call
}

func TestWritesSends(t *testing.T) {
	t.Parallel()
	eachWire(t, func(t *testing.T, w *client.Wire, c dialect.Codec) {
		t.Helper()
		message := &task.Message{ID: "m-1", Role: task.RoleUser, TaskID: "t-1", ContextID: "c-1", Parts: parts(), Metadata: []byte(`{"a":1.0}`)}
		for theirs, op := range map[client.Op]engine.Op{client.Send: engine.OpSend, client.Stream: engine.OpStream} {
			request, err := w.Request("https://example.com/a2a/", theirs, &client.Params{
				TaskID: "t-1", Message: message, Metadata: []byte(`{"z":1}`), Modes: []string{"text/plain"}, Return: true,
				Push: client.Push{ID: "p-1", URL: "https://h/n", Token: "s3cret"},
			})
			require.NoError(t, err)
			send := read(t, w, c, op, request).Send
			require.Equal(t, "t-1", send.TaskID)
			require.Equal(t, "c-1", send.ContextID)
			require.Empty(t, cmp.Diff(parts(), send.Message.Parts, same(w)))
			require.JSONEq(t, `{"a":1.0}`, string(send.Message.Metadata))
			require.JSONEq(t, `{"z":1}`, string(send.Metadata))
			require.Equal(t, pushOf(w, "https://h/n"), send.Push.PushConfig)
			if !w.ChoosesIDs() {
				require.Equal(t, "m-1", send.Message.ID)
				require.Equal(t, []string{"text/plain"}, send.OutputModes)
				require.False(t, theirs == client.Send && send.Wait)
			}
		}
	})
}

// pushOf is a configuration as a version can say it.
func pushOf(w *client.Wire, url string) task.PushConfig {
	want := task.PushConfig{ID: "p-1", URL: url, Token: "s3cret", Schemes: []string{"Bearer"}, Credentials: "s3cret"}
	if w.ChoosesIDs() {
		want.ID = ""
	}
	return want
}

func TestWritesOtherOperations(t *testing.T) {
	t.Parallel()
	eachWire(t, func(t *testing.T, w *client.Wire, c dialect.Codec) {
		t.Helper()
		for theirs, op := range map[client.Op]engine.Op{
			client.Get: engine.OpGet, client.Cancel: engine.OpCancel, client.List: engine.OpList, client.Subscribe: engine.OpSubscribe, client.SetPush: engine.OpPushSet,
		} {
			request, err := w.Request("https://example.com/a2a", theirs, &client.Params{
				TaskID: "t 1/2", Context: "c&1", After: "17-9f", Push: client.Push{ID: "p-1", URL: "https://h/n?a=\"", Token: "s3cret"},
			})
			if !w.Has(theirs) {
				require.Error(t, err)
				continue
			}
			require.NoError(t, err)
			if theirs == client.Subscribe {
				require.Equal(t, "17-9f", request.Header.Get(map[bool]string{true: "A2A-Last-Event-ID", false: "Last-Event-ID"}[w.Binding == client.GRPC]))
			}
			if w.Binding == client.HTTPJSON {
				u, err := url.Parse(request.URL)
				require.NoError(t, err)
				if theirs == client.List {
					require.Equal(t, "c&1", u.Query().Get("contextId"))
					continue
				}
				require.Contains(t, u.EscapedPath(), "/tasks/t%201%2F2"+map[client.Op]string{client.Subscribe: ":subscribe", client.SetPush: "/pushNotificationConfigs"}[theirs])
				if theirs != client.SetPush {
					continue
				}
			}
			call := read(t, w, c, op, request)
			switch theirs {
			case client.List:
				require.Equal(t, "c&1", call.List.ContextID)
			case client.SetPush:
				require.Equal(t, "t 1/2", call.Push.TaskID)
				require.Equal(t, pushOf(w, "https://h/n?a=\""), call.Push.Set.PushConfig)
			default:
				require.Equal(t, "t 1/2", call.TaskID())
			}
		}
	})
}

func TestReadsNotifications(t *testing.T) {
	t.Parallel()
	eachWire(t, func(t *testing.T, w *client.Wire, _ dialect.Codec) {
		t.Helper()
		u, err := w.Notification([]byte(`{"id":"t-1","contextId":"c-1","status":{"state":"completed"}}`), depth)
		require.NoError(t, err)
		require.Equal(t, "t-1", u.TaskID)
		u, err = w.Notification([]byte(`{"statusUpdate":{"taskId":"t-2","status":{"state":"TASK_STATE_WORKING"}}}`), depth)
		require.NoError(t, err)
		require.Equal(t, "t-2", u.TaskID)
		_, err = w.Notification([]byte(`[]`), depth)
		require.Error(t, err)
	})
}

func TestWritesHeaders(t *testing.T) {
	t.Parallel()
	eachWire(t, func(t *testing.T, w *client.Wire, c dialect.Codec) {
		t.Helper()
		for _, op := range []client.Op{client.Send, client.Stream, client.Get, client.Cancel} {
			r, err := w.Request("https://h", op, &client.Params{
				TaskID: "t", Message: &task.Message{}, Extensions: []string{"urn:a", "urn:b"}, Trace: tracing.Context{Parent: "00-1"}, Key: "k",
				Forwarded: task.Forwarded{"X-Key": "v"},
			})
			require.NoError(t, err)
			require.Equal(t, "00-1", r.Header.Get("Traceparent"))
			require.Equal(t, "k", r.Header.Get("Idempotency-Key"))
			require.Equal(t, "v", r.Header.Get("X-Key"))
			require.Equal(t, op == client.Stream && w.Binding != client.GRPC, strings.HasPrefix(r.Header.Get("Accept"), "text/event-stream"))
			require.Equal(t, w.Binding == client.GRPC, r.Header.Get("Accept") == "")
			if w.ChoosesIDs() {
				require.NotContains(t, r.Header, "A2a-Version")
				require.Empty(t, r.Header.Get(c.Traits().EchoHeader))
				continue
			}
			require.Equal(t, w.Version, r.Header.Get("A2A-Version"))
			require.Equal(t, "urn:a, urn:b", r.Header.Get(c.Traits().EchoHeader))
		}
		r, err := w.Request("https://h", client.Get, &client.Params{TaskID: "t"})
		require.NoError(t, err)
		for _, name := range []string{"Traceparent", "Idempotency-Key", "A2a-Extensions", "X-A2a-Extensions"} {
			require.NotContains(t, r.Header, name)
		}
	})
}

func TestPathsOfHTTPJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		version, endpoint string
		op                client.Op
		tenant, want      string
	}{
		{"1.0", "https://h/a/", client.Send, "", "POST https://h/a/message:send"},
		{"1.0", "https://h", client.Stream, "x", "POST https://h/x/message:stream"},
		{"1.0", "https://h/a?k=v", client.Get, "", "GET https://h/a/tasks/t?k=v"},
		{"0.3", "https://h/a", client.Send, "", "POST https://h/a/v1/message:send"},
		{"0.3", "https://h/a/v1/", client.Cancel, "", "POST https://h/a/v1/tasks/t:cancel"},
		{"0.3", "https://h/a", client.ExtendedCard, "", "GET https://h/a/v1/card"},
		{"1.0", "https://h/a", client.ExtendedCard, "x", "GET https://h/a/x/extendedAgentCard"},
	} {
		r, err := client.Find(c.version, "http+json").Request(c.endpoint, c.op, &client.Params{
			Tenant: c.tenant, TaskID: "t", Message: &task.Message{},
		})
		require.NoError(t, err)
		require.Equal(t, c.want, r.Method+" "+r.URL)
	}
}

func TestExtendedCards(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"1.0": `{"jsonrpc":"2.0","id":1,"method":"GetExtendedAgentCard","params":{"tenant":"x"}}`,
		"0.3": `{"jsonrpc":"2.0","id":1,"method":"agent/getAuthenticatedExtendedCard","params":{}}`,
	} {
		w := client.Find(version, client.JSONRPC)
		r, err := w.Request("https://h", client.ExtendedCard, &client.Params{Tenant: "x"})
		require.NoError(t, err)
		require.Equal(t, want, string(r.Body))
		document, err := w.Document(client.ExtendedCard, []byte(`{"jsonrpc":"2.0","result":{"name":"n","x":1.0}}`), depth)
		require.NoError(t, err)
		require.JSONEq(t, `{"name":"n","x":1.0}`, string(document))
		_, err = w.Document(client.ExtendedCard, []byte(`{"error":{"code":-32007,"message":"none"}}`), depth)
		require.EqualError(t, err, "error -32007: none")
		for bad, want := range map[string]string{`{}`: "result: is missing", `[`: "", `[]`: "", strings.Repeat("[", depth+1) + strings.Repeat("]", depth+1): "deep"} {
			_, err = w.Document(client.ExtendedCard, []byte(bad), depth)
			require.ErrorContains(t, err, want, bad)
		}
	}
	require.False(t, client.Find("0.1", "").Has(client.ExtendedCard))
	document, err := client.Find("1.0", client.HTTPJSON).Document(client.ExtendedCard, []byte(`{"name":"n"}`), depth)
	require.NoError(t, err)
	require.JSONEq(t, `{"name":"n"}`, string(document))
}

func TestFind(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]string{
		{"", "", "1.0 JSONRPC"},
		{"0.2", "", "0.3 JSONRPC"},
		{"0.2.5", "HTTP+JSON", "0.3 HTTP+JSON"},
		{"1.0.1", "", "1.0 JSONRPC"},
		{"0.1.0", "", "0.1 JSONRPC"},
		{"", "grpc", "1.0 GRPC"},
		{"0.2", "grpc", "0.3 GRPC"},
	} {
		w := client.Find(c[0], c[1])
		require.Equal(t, c[2], w.Version+" "+w.Binding)
	}
	for _, c := range [][2]string{{"0.1", "HTTP+JSON"}, {"0.1", "GRPC"}, {"2.0", ""}, {"1", "GRPC"}, {"x", ""}} {
		require.Nil(t, client.Find(c[0], c[1]), c)
	}
}

// Servers of the field differ from the documents.
func TestReadsLeniently(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		version string
		op      client.Op
		in      string
		want    func(t *testing.T, u *client.Update)
	}{
		"an unknown state": {"0.3", client.Get, `{"id":"t","status":{"state":"unknown"}}`, func(t *testing.T, u *client.Update) {
			t.Helper()
			require.Equal(t, task.StateUnspecified, u.Task.Status.State)
		}},
		"no kind": {"0.3", client.Stream, `{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_CANCELLED"}}`, func(t *testing.T, u *client.Update) {
			t.Helper()
			require.Equal(t, task.StateCanceled, u.Event.State)
		}},
		"NUL and half a pair": {"1.0", client.Send, `{"message":{"messageId":"m","parts":[{"text":"a\u0000b\ud800c\\u0000"}]}}`, func(t *testing.T, u *client.Update) {
			t.Helper()
			require.Equal(t, "a\ufffdb\ufffdc\\u0000", u.Message.Parts[0].Text)
		}},
		"names of the proto file": {"1.0", client.Stream, `{"status_update":{"task_id":"t","status":{"state":2}}}`, func(t *testing.T, u *client.Update) {
			t.Helper()
			require.Equal(t, "t", u.TaskID)
			require.Equal(t, task.StateWorking, u.Event.State)
		}},
		"nulls": {"0.3", client.Get, `{"kind":"task","id":"t","status":{"state":"working","message":null},"artifacts":null,"metadata":null}`, func(t *testing.T, u *client.Update) {
			t.Helper()
			require.Equal(t, "t", u.Task.PublicID)
		}},
	} {
		w := client.Find(c.version, "JSONRPC")
		u, err := w.Answer(c.op, wrap(w, []byte(c.in)), depth)
		require.NoError(t, err, name)
		c.want(t, u)
	}
}

func TestRefusesWhatIsNoAnswer(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		``:                                   "",
		`[]`:                                 "must be an object",
		`{"jsonrpc":"2.0","id":1}`:           "result: is missing",
		`{"result":{}}`:                      "is no task, message",
		`{"result":{"task":{"id":"t"}}}`:     "result.task.status: is required",
		`{"result":{"task":{"status":{}}}}`:  "result.task.id: is required",
		`{"result":{"task":{"id":7}}}`:       "result.task.id: must be a string",
		`{"result":{"message":{"parts":7}}}`: "result.message.parts: must be an array",
		`{"result":{"id":"a","id":"b"}}`:     "id",
		`{"result":{"task":{"id":"` + strings.Repeat("x", 1025) + `"}}}`:                                 "result.task.id: is longer than 1024 bytes",
		`{"result":{"task":{"contextId":"` + strings.Repeat("x", 1025) + `"}}}`:                          "result.task.contextId: is longer",
		`{"result":{"message":{"messageId":"` + strings.Repeat("x", 1025) + `"}}}`:                       "result.message.messageId: is longer",
		`{"result":{"artifactUpdate":{"taskId":"` + strings.Repeat("x", 1025) + `"}}}`:                   "result.artifactUpdate.taskId: is longer",
		`{"result":{"artifactUpdate":{"artifact":{"artifactId":"` + strings.Repeat("x", 1025) + `"}}}}`:  "artifactId: is longer",
		`{"result":{"statusUpdate":{}}}`:                                                                 "has neither a status nor an artifact",
		`{"result":{"artifactUpdate":{"artifact":{"parts":[{"text":"a","url":"b"}],"artifactId":"x"}}}}`: "must have one of",
		`{"result":{"task":{"id":"t","status":{"state":"dreaming"}}}}`:                                   "is not a state",
		`{"result":` + strings.Repeat(`{"task":`, 200) + `1` + strings.Repeat(`}`, 200) + `}`:            "deep",
	} {
		_, err := client.Find("1.0", "JSONRPC").Answer(client.Get, []byte(in), depth)
		require.ErrorContains(t, err, want, in)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	rpc, rest := client.Find("1.0", "JSONRPC"), client.Find("1.0", "HTTP+JSON")
	for body, kind := range map[string]task.Kind{
		`{"error":{"code":-32001,"message":"Task not found"}}`:     task.NotFound,
		`{"error":{"code":-32002,"message":"no"}}`:                 task.NotCancelable,
		`{"error":{"code":-32004,"message":"no"}}`:                 task.Unsupported,
		`{"id":null,"error":{"code":-32601,"message":"unknown"}}`:  task.Unsupported,
		`{"error":{"code":-32603,"message":"no","data":{"x":[]}}}`: task.Internal,
		`{"error":{}}`: task.Internal,
	} {
		_, err := rpc.Answer(client.Get, []byte(body), depth)
		var e *client.Error
		require.ErrorAs(t, err, &e, body)
		require.ErrorIs(t, err, kind, body)
	}
	for _, c := range []struct {
		status int
		body   string
		kind   error
		text   string
	}{
		{404, `{"error":{"code":404,"status":"NOT_FOUND","message":"Task not found","details":[{"reason":"TASK_NOT_FOUND"}]}}`, task.NotFound, "404 Not Found: Task not found"},
		{404, `{"message":"Task not found"}`, task.NotFound, "404 Not Found: Task not found"},
		{404, `<html>`, task.NotFound, "404 Not Found"},
		{400, `{"error":"TaskNotCancelableError","code":-32002,"message":"no"}`, task.NotCancelable, "400 Bad Request: no"},
		{400, `{"error":{"code":400,"details":[{"@type":"x","reason":"UNSUPPORTED_OPERATION"}]}}`, task.Unsupported, "400 Bad Request"},
		{501, ``, task.Unsupported, "501 Not Implemented"},
	} {
		err := rest.Failure(c.status, []byte(c.body), depth)
		require.ErrorIs(t, err, c.kind, c.body)
		require.EqualError(t, err, c.text)
	}
	u, err := rest.Answer(client.Stream, []byte(`{"error":{"code":-32603,"message":"broke"}}`), depth)
	require.Nil(t, u)
	require.ErrorContains(t, err, "broke")
}

// Details decide, and names before the message, as the official Python server of 0.3 writes them; otherwise the status does.
func TestErrorsOfGRPC(t *testing.T) {
	t.Parallel()
	kinds := []task.Kind{task.NotFound, task.NotCancelable, task.Unsupported, task.Internal}
	for _, c := range []struct {
		code            codes.Code
		reason, message string
		want            []task.Kind
	}{
		{codes.NotFound, "TASK_NOT_FOUND", "no", []task.Kind{task.NotFound}},
		{codes.NotFound, "", "no", []task.Kind{task.NotFound}},
		{codes.NotFound, "METHOD_NOT_FOUND", "no", []task.Kind{task.Unsupported}},
		{codes.NotFound, "", "MethodNotFoundError: no", []task.Kind{task.Unsupported}},
		{codes.FailedPrecondition, "TASK_NOT_CANCELABLE", "no", []task.Kind{task.NotCancelable}},
		{codes.FailedPrecondition, "", "no", []task.Kind{task.NotCancelable}},
		{codes.FailedPrecondition, "UNSUPPORTED_OPERATION", "no", []task.Kind{task.Unsupported}},
		{codes.FailedPrecondition, "VERSION_NOT_SUPPORTED", "no", nil},
		{codes.Unimplemented, "", "no", []task.Kind{task.Unsupported}},
		{codes.Unimplemented, "", "TaskNotCancelableError: no", []task.Kind{task.NotCancelable}},
		{codes.Internal, "INTERNAL_ERROR", "no", []task.Kind{task.Internal}},
		{codes.Unknown, "", "no", []task.Kind{task.Internal}},
		{codes.InvalidArgument, "INVALID_PARAMS", "no", nil},
	} {
		s := status.New(c.code, c.message)
		if c.reason != "" {
			var err error
			s, err = s.WithDetails(&errdetails.ErrorInfo{Reason: c.reason})
			require.NoError(t, err)
		}
		err := client.StatusError(s)
		var is []task.Kind
		for _, kind := range kinds {
			if errors.Is(err, kind) {
				is = append(is, kind)
			}
		}
		require.Equal(t, c.want, is, "%s %s %s", c.code, c.reason, c.message)
		require.EqualError(t, err, c.code.String()+": "+c.message)
	}
}

func TestListsOverGRPC(t *testing.T) {
	t.Parallel()
	w := client.Find("1.0", "grpc")
	document, err := binary.New10(depth).Page(&engine.Page{Tasks: []*task.Task{ours()}}, dialect.View{History: engine.AllHistory})
	require.NoError(t, err)
	u, err := w.Answer(client.List, document, depth)
	require.NoError(t, err)
	require.Len(t, u.Tasks, 1)
	require.Empty(t, cmp.Diff(ours().History, u.Tasks[0].History, same(w)))
	u, err = w.Answer(client.List, nil, depth) // ProtoJSON has no empty list
	require.NoError(t, err)
	require.Empty(t, u.Tasks)
	require.NotNil(t, u.Tasks)
}

func TestRefusesWhatIsNoMessage(t *testing.T) {
	t.Parallel()
	nested := []byte{}
	for range 200_001 { // empty tasks: 2 bytes each
		nested = append(nested, 0x0a, 0)
	}
	for name, c := range map[string]struct {
		op   client.Op
		in   []byte
		want string
	}{
		"random bytes":         {client.Get, []byte("\xff\xff\xff"), "cannot be parsed"},
		"not UTF-8":            {client.Get, []byte("\x0a\x02\xc3\x28"), "cannot be parsed"},
		"many empty messages":  {client.List, nested, "more than 200000 parts"},
		"nothing":              {client.Get, nil, "is no task"},
		"an event of no kind":  {client.Stream, nil, "is no task"},
		"a task without state": {client.Get, []byte("\x0a\x01t"), "is no task"},
	} {
		_, err := client.Find("1.0", "grpc").Answer(c.op, c.in, depth)
		require.ErrorContains(t, err, c.want, name)
	}
}

func FuzzAnswer(f *testing.F) {
	for w, c := range served {
		document, _ := c.Result(engine.OpGet, ours(), dialect.View{History: engine.AllHistory})
		f.Add(wrap(w, document))
		event, _ := c.Event(ours(), &task.Event{Kind: task.EventArtifact, Artifact: &ours().Artifacts[0]}, false)
		f.Add(wrap(w, event))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		for w := range served {
			for _, op := range []client.Op{client.Send, client.Stream, client.Get, client.List} {
				if u, err := w.Answer(op, in, depth); err == nil && u.Task == nil && u.Message == nil && u.Event == nil && u.Tasks == nil {
					t.Fatal("an answer without content")
				}
			}
			_ = w.Failure(500, in, depth).Error()
		}
	})
}

func TestReadsOurCards(t *testing.T) {
	t.Parallel()
	c := &card.Card{
		Name: "n", Description: "d", Version: "7", Provider: &card.Provider{Organization: "o", URL: "https://o"},
		Skills:       []card.Skill{{ID: "s", Name: "S", Description: "x", Tags: []string{"t"}, InputModes: []string{"a/b"}, OutputModes: []string{"c/d"}}},
		Capabilities: card.Capabilities{Streaming: true, ExtendedCard: true, Extensions: []card.Extension{{URI: "https://x", Required: true, Params: json.RawMessage(`{"a":[1.0]}`)}}},
		InputModes:   []string{"text/plain"}, OutputModes: []string{"text/plain"},
	}
	interfaces := []card.Interface{
		{Binding: "JSONRPC", Version: "1.0", URL: "https://h/a"},
		{Binding: "HTTP+JSON", Version: "1.0", URL: "https://h/a", Tenant: "x"},
		{Binding: "JSONRPC", Version: "0.3", URL: "https://h/a"},
		{Binding: "HTTP+JSON", Version: "0.3", URL: "https://h/a"},
	}
	strict, err := card.Strict(c, interfaces, nil)
	require.NoError(t, err)
	superset, err := card.Superset(c, interfaces, nil)
	require.NoError(t, err)
	legacy, err := card.Legacy(c, interfaces)
	require.NoError(t, err)
	for name, document := range map[string][]byte{"strict": strict, "superset": superset, "legacy": legacy} {
		got, err := client.ReadCard(document, depth)
		require.NoError(t, err, name)
		require.Equal(t, *c, got.Card, name)
		w, _, err := got.Choose("", "")
		require.NoError(t, err)
		if name == "legacy" {
			require.Equal(t, "0.3", w.Version)
			continue
		}
		require.Equal(t, "1.0", w.Version)
		w, at, err := got.Choose("1.0.1", "http+json")
		require.NoError(t, err)
		require.Equal(t, "HTTP+JSON", w.Binding)
		require.Equal(t, "x", at.Tenant)
	}
}

func TestChoosesAnInterface(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]string{
		`{"name":"n","url":"https://h"}`:                                                            "0.3 JSONRPC",
		`{"name":"n","url":"https://h","authentication":{"schemes":["Bearer"]}}`:                    "0.1 JSONRPC",
		`{"name":"n","url":"https://h","protocolVersion":"0.2.6","preferredTransport":"HTTP+JSON"}`: "0.3 HTTP+JSON",
		`{"name":"n","url":"https://h","protocolVersion":"0.3.0","preferredTransport":"GRPC","additionalInterfaces":[{"url":"https://i","transport":"JSONRPC"}]}`: "0.3 JSONRPC",
		`{"name":"n","url":"https://h","supportedInterfaces":[{"url":"grpc://h","protocolBinding":"GRPC","protocolVersion":"1.0"}]}`:                              "0.3 JSONRPC",
		`{"name":"n","url":"h:1","preferredTransport":"GRPC"}`: "0.3 GRPC",
		`{"name":"n","supportedInterfaces":[{"url":"h:1","protocolBinding":"GRPC","protocolVersion":"0.3"},{"url":"h:1","protocolBinding":"GRPC","protocolVersion":"1.0"}]}`: "1.0 GRPC",
	} {
		c, err := client.ReadCard([]byte(document), depth)
		require.NoError(t, err, document)
		w, _, err := c.Choose("", "")
		require.NoError(t, err, document)
		require.Equal(t, want, w.Version+" "+w.Binding, document)
	}
	c, err := client.ReadCard([]byte(`{"name":"n","url":"https://h","preferredTransport":"SLIMRPC"}`), depth)
	require.NoError(t, err)
	_, _, err = c.Choose("", "")
	require.ErrorContains(t, err, "the card offers SLIMRPC 0.3")
	for document, want := range map[string]string{
		`[]`: "", `{}`: "name: is required", `{"name":7}`: "name: is a JSON number", `{"name":"n"}`: "names no URL",
		`{"name":"n","skills":{}}`: "skills: is a JSON object",
	} {
		_, err := client.ReadCard([]byte(document), depth)
		require.ErrorContains(t, err, want, document)
	}
}
