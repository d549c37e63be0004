package integration

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"

	pb03 "github.com/a2aproject/a2a-go/a2apb"
	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// way is a version on a binding, to say the same thing in every one of them.
type way struct {
	name    string
	version string
	binding string
	streams bool
	// path is behind the agent's, over HTTP.
	path string
	// method is that of JSON-RPC, or of gRPC with its service.
	method string
	// body words an utterance: params, a body or a message.
	body func(u *utterance) object
	// in and out are the messages of gRPC.
	in, out func() proto.Message
}

// The bindings.
const (
	onJSONRPC = "JSON-RPC"
	onREST    = "HTTP+JSON"
	onGRPC    = "gRPC"
)

var ways = []*way{
	{version: "0.1", binding: onJSONRPC, method: "tasks/send", body: say01},
	{version: "0.1", binding: onJSONRPC, method: "tasks/sendSubscribe", body: say01, streams: true},
	{version: "0.2", binding: onJSONRPC, method: "message/send", body: say03},
	{version: "0.2", binding: onJSONRPC, method: "message/stream", body: say03, streams: true},
	{version: "0.3", binding: onJSONRPC, method: "message/send", body: say03},
	{version: "0.3", binding: onJSONRPC, method: "message/stream", body: say03, streams: true},
	{version: "1.0", binding: onJSONRPC, method: "SendMessage", body: say10},
	{version: "1.0", binding: onJSONRPC, method: "SendStreamingMessage", body: say10, streams: true},
	{version: "0.3", binding: onREST, path: "/v1/message:send", body: sayProto03("content")},
	{version: "0.3", binding: onREST, path: "/v1/message:stream", body: sayProto03("content"), streams: true},
	{version: "1.0", binding: onREST, path: "/message:send", body: say10},
	{version: "1.0", binding: onREST, path: "/message:stream", body: say10, streams: true},
	inMessages[pb03.SendMessageRequest, pb03.SendMessageResponse](&way{version: "0.3", method: "/a2a.v1.A2AService/SendMessage", body: sayProto03("parts")}),
	inMessages[pb03.SendMessageRequest, pb03.StreamResponse](&way{version: "0.3", method: "/a2a.v1.A2AService/SendStreamingMessage", body: sayProto03("parts"), streams: true}),
	inMessages[pb10.SendMessageRequest, pb10.SendMessageResponse](&way{version: "1.0", method: "/lf.a2a.v1.A2AService/SendMessage", body: say10}),
	inMessages[pb10.SendMessageRequest, pb10.StreamResponse](&way{version: "1.0", method: "/lf.a2a.v1.A2AService/SendStreamingMessage", body: say10, streams: true}),
}

func init() {
	for _, w := range ways {
		w.name = w.version + " on " + w.binding
		if w.streams {
			w.name = w.version + " stream on " + w.binding
		}
	}
}

func inMessages[In, Out any, PI interface {
	*In
	proto.Message
}, PO interface {
	*Out
	proto.Message
}](w *way) *way {
	w.binding, w.in, w.out = onGRPC, func() proto.Message { return PI(new(In)) }, func() proto.Message { return PO(new(Out)) }
	return w
}

// utterance is what is said, to the agent at the root of a replica.
type utterance struct {
	texts []string // a part each
	task  string   // "": a new one
	hook  string   // "": none; a webhook of a new task
	// header has pairs, which are metadata over gRPC.
	header []string
}

func say(text string, header ...string) *utterance {
	return &utterance{texts: []string{text}, header: header}
}

func say01(u *utterance) object {
	p := v01.params(u.task, "")
	p["message"].(object)["parts"] = u.parts(object{"type": "text"})
	if u.hook != "" {
		p["pushNotification"] = object{"url": u.hook}
	}
	return p
}

func say03(u *utterance) object {
	p := v03.params(u.task, "")
	p["message"].(object)["parts"] = u.parts(object{"kind": "text"})
	if u.hook != "" {
		p["configuration"] = object{"pushNotificationConfig": object{"url": u.hook}}
	}
	return p
}

func say10(u *utterance) object {
	return u.inProto("parts", "taskPushNotificationConfig")
}

func sayProto03(parts string) func(u *utterance) object {
	return func(u *utterance) object {
		p := u.inProto(parts, "pushNotification")
		// Where 1.0 waits unless it is told not to, this is the other way round.
		p["configuration"].(object)["blocking"] = true
		return p
	}
}

func (u *utterance) inProto(parts, hook string) object {
	m := object{"messageId": rand.Text(), "role": "ROLE_USER", parts: u.parts(nil)}
	if u.task != "" {
		m["taskId"] = u.task
	}
	c := object{}
	if u.hook != "" {
		c[hook] = object{"url": u.hook}
	}
	return object{"message": m, "configuration": c}
}

func (u *utterance) parts(members object) []any {
	out := make([]any, len(u.texts))
	for i, text := range u.texts {
		p := object{"text": text}
		for name, v := range members {
			p[name] = v
		}
		out[i] = p
	}
	return out
}

// reply is what came of it.
type reply struct {
	status     string // of HTTP, its number; of gRPC, its name
	message    string // of an error
	code       int    // of an error, in its body; 0 where there is none
	reason     string // of an error's ErrorInfo
	retryAfter string
	challenge  string
	body       string // the last of it
	task       string
	states     []string // one, or those that a stream has told

	t     testing.TB
	next  func() bool // reads the next of a stream, or the only one; false: there is none
	close func()
}

// more reads on: until a state, or to the end.
func (a *reply) more(until string) {
	a.t.Helper()
	for a.next() {
		if until != "" && a.state() == until {
			return
		}
	}
	require.Empty(a.t, until, "that was all: %+v", a.rejection())
}

// state is the last one.
func (a *reply) state() string {
	if len(a.states) == 0 {
		return ""
	}
	return a.states[len(a.states)-1]
}

// send says something and waits for the answer, of a stream for all of it.
func (w *way) send(t testing.TB, r *replica, u *utterance) *reply {
	t.Helper()
	a := w.begin(t, r, u)
	a.more("")
	return a
}

// begin is send without reading a stream.
func (w *way) begin(t testing.TB, r *replica, u *utterance) *reply {
	t.Helper()
	if w.binding == onGRPC {
		return w.call(t, r, u)
	}
	body := mustMarshal(w.body(u))
	if w.binding == onJSONRPC {
		body = request(w.method, w.body(u))
	}
	resp, err := post(short(t, patience), r.url+w.path, body, append([]string{"A2A-Version", w.version}, u.header...)...) //nolint:bodyclose // close does
	require.NoError(t, err, w.name)
	a := &reply{
		status: strconv.Itoa(resp.StatusCode), retryAfter: resp.Header.Get("Retry-After"), challenge: resp.Header.Get("WWW-Authenticate"),
		t: t, next: func() bool { return false }, close: func() { _ = resp.Body.Close() },
	}
	t.Cleanup(a.close)
	if resp.Header.Get("Content-Type") != "text/event-stream" {
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		a.read(t, b)
		return a
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	a.next = func() bool {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				a.read(t, []byte(data))
				return true
			}
		}
		require.NoError(t, lines.Err(), w.name)
		return false
	}
	return a
}

// call is begin over gRPC.
func (w *way) call(t testing.TB, r *replica, u *utterance) *reply {
	t.Helper()
	in := w.in()
	require.NoError(t, protojson.Unmarshal(mustMarshal(w.body(u)), in))
	ctx, cancel := context.WithCancel(short(t, patience))
	ctx = metadata.AppendToOutgoingContext(ctx, append([]string{"a2a-version", w.version}, u.header...)...)
	conn := r.connect(t)
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, w.method)
	require.NoError(t, err, w.name)
	if err := s.SendMsg(in); err != nil {
		require.ErrorIs(t, err, io.EOF, w.name) // Recv knows why
	}
	require.NoError(t, s.CloseSend())
	a := &reply{t: t, close: func() { cancel(); _ = conn.Close() }}
	a.next = func() bool {
		out := w.out()
		if err := s.RecvMsg(out); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			a.told(err, s.Trailer())
			a.close()
			return false
		}
		b, err := protojson.Marshal(out)
		require.NoError(t, err)
		a.read(t, b)
		return true
	}
	return a
}

// told takes how a call over gRPC has ended.
func (a *reply) told(err error, trailer metadata.MD) {
	s := grpcstatus.Convert(err)
	a.status, a.message = s.Code().String(), s.Message()
	a.challenge = strings.Join(trailer.Get("www-authenticate"), "")
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			a.retryAfter = strconv.FormatInt(d.GetRetryDelay().GetSeconds(), 10)
		case *errdetails.ErrorInfo:
			a.reason = d.GetReason()
		}
	}
}

// read takes a document.
func (a *reply) read(t testing.TB, document []byte) {
	t.Helper()
	a.body = string(document)
	var doc object
	require.NoError(t, json.Unmarshal(document, &doc), "%s", document)
	if result, ok := doc["result"].(object); ok {
		doc = result
	}
	switch e := doc["error"].(type) {
	case object: // JSON-RPC, and HTTP+JSON of 1.0
		doc = e
	case nil:
		for _, wrapper := range []string{"task", "statusUpdate", "artifactUpdate"} {
			if inner, ok := doc[wrapper].(object); ok {
				doc = inner
			}
		}
		for _, member := range []string{"id", "taskId"} {
			if id, ok := doc[member].(string); ok {
				a.task = id
			}
		}
		status, _ := doc["status"].(object)
		if state, ok := status["state"].(string); ok {
			a.states = append(a.states, state)
		}
		return
	}
	code, _ := doc["code"].(float64)
	a.code = int(code)
	a.message, _ = doc["message"].(string)
	for _, in := range []string{"details", "data"} {
		details, _ := doc[in].([]any)
		for _, d := range details {
			if info, ok := d.(object); ok && info["reason"] != nil {
				a.reason, _ = info["reason"].(string)
			}
		}
	}
}
