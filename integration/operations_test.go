package integration

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	pb03 "github.com/a2aproject/a2a-go/a2apb"
	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Every operation of every version over every binding, as data: what is asked, and the whole of what is answered.

// tongue is a version over a binding.
type tongue struct {
	version, binding string
	// words are the params of an operation, or its message.
	words func(op string, a *about) object
	// names are those of its methods, by operation.
	names map[string]string
	// service has the methods of gRPC.
	service protoreflect.ServiceDescriptor
	// prefix begins the paths of HTTP+JSON.
	prefix string
}

var tongues = []*tongue{
	{version: "0.1", binding: onJSONRPC, words: words01, names: map[string]string{
		"send": "tasks/send", "stream": "tasks/sendSubscribe", "get": "tasks/get", "cancel": "tasks/cancel", "subscribe": "tasks/resubscribe",
		"push set": "tasks/pushNotification/set", "push clear": "tasks/pushNotification/set", "push get": "tasks/pushNotification/get",
	}},
	{version: "0.2", binding: onJSONRPC, words: words03, names: names03("")},
	{version: "0.3", binding: onJSONRPC, words: words03, names: names03("agent/getAuthenticatedExtendedCard")},
	{version: "1.0", binding: onJSONRPC, words: words10, names: names10},
	// What reads the same in 0.1 and 0.3, when the client does not say its version: the task's decides.
	{binding: onJSONRPC, words: words03, names: map[string]string{"get": "tasks/get", "cancel": "tasks/cancel", "subscribe": "tasks/resubscribe"}},
	{version: "0.3", binding: onREST, words: words03, prefix: "/v1"},
	{version: "1.0", binding: onREST, words: words10},
	{version: "0.3", binding: onGRPC, words: messages03, service: pb03.File_a2a_proto.Services().Get(0), names: map[string]string{
		"send": "SendMessage", "stream": "SendStreamingMessage", "get": "GetTask", "list": "ListTasks", "cancel": "CancelTask", "subscribe": "TaskSubscription",
		"push set": "CreateTaskPushNotificationConfig", "push get": "GetTaskPushNotificationConfig", "push list": "ListTaskPushNotificationConfig",
		"push delete": "DeleteTaskPushNotificationConfig", "card": "GetAgentCard",
	}},
	{version: "1.0", binding: onGRPC, words: messages10, service: pb10.File_a2av1_proto.Services().Get(0), names: names10},
}

// names03 are the methods of 0.2, which has no method for the extended card, and of 0.3.
func names03(card string) map[string]string {
	return map[string]string{
		"send": "message/send", "stream": "message/stream", "get": "tasks/get", "cancel": "tasks/cancel", "subscribe": "tasks/resubscribe",
		"push set": "tasks/pushNotificationConfig/set", "push get": "tasks/pushNotificationConfig/get",
		"push list": "tasks/pushNotificationConfig/list", "push delete": "tasks/pushNotificationConfig/delete", "card": card,
	}
}

var names10 = map[string]string{
	"send": "SendMessage", "stream": "SendStreamingMessage", "get": "GetTask", "list": "ListTasks", "cancel": "CancelTask", "subscribe": "SubscribeToTask",
	"push set": "CreateTaskPushNotificationConfig", "push get": "GetTaskPushNotificationConfig", "push list": "ListTaskPushNotificationConfigs",
	"push delete": "DeleteTaskPushNotificationConfig", "card": "GetExtendedAgentCard",
}

func (w *tongue) String() string { return strings.TrimSpace(w.version + " " + w.binding) }

// reaches reports whether there is a way to an agent: gRPC of 0.3 has one to the default agent only.
func (w *tongue) reaches(agent string) bool {
	return agent == guarded || w.service == nil || w.version != "0.3"
}

// doing is what a caller may do in every version that has the operation.
type doing struct {
	name, op  string
	ofTask    bool   // it names a task, and so somebody's
	inContext bool   // and its context
	position  string // Last-Event-ID
	to        string // how the task stands that its owner does it to
}

var doings = []*doing{
	{name: "send", op: "send"},
	{name: "send and follow", op: "stream"},
	{name: "continue", op: "send", ofTask: true, to: "parked"},
	{name: "continue in its context", op: "send", ofTask: true, inContext: true, to: "parked"},
	{name: "continue and follow", op: "stream", ofTask: true, to: "parked"},
	{name: "get", op: "get", ofTask: true, to: "ended"},
	{name: "ask for the headers", op: "head", ofTask: true, to: "ended"},
	{name: "list", op: "list"},
	{name: "cancel", op: "cancel", ofTask: true, to: "running"},
	{name: "subscribe", op: "subscribe", ofTask: true, to: "running"},
	{name: "resume", op: "subscribe", ofTask: true, position: "1", to: "running"},
	{name: "resume behind its end", op: "subscribe", ofTask: true, position: "1000", to: "running"},
	{name: "set a webhook", op: "push set", ofTask: true, to: "parked"},
	{name: "clear the webhook", op: "push clear", ofTask: true, to: "parked"},
	{name: "get a webhook", op: "push get", ofTask: true, to: "parked"},
	{name: "list webhooks", op: "push list", ofTask: true, to: "parked"},
	{name: "delete a webhook", op: "push delete", ofTask: true, to: "parked"},
	{name: "get the extended card", op: "card"},
}

// streams reports whether the answer is one.
func (d *doing) streams() bool { return d.op == "stream" || d.op == "subscribe" }

// has reports whether the version has the operation over the binding.
func (w *tongue) has(d *doing) bool {
	if w.binding == onREST {
		verb, _, _ := w.path(d.op, &about{})
		return verb != ""
	}
	return w.names[d.op] != ""
}

// creates reports whether a client names the tasks that it makes: then to continue an unknown one is to make it.
func (w *tongue) creates(d *doing) bool {
	return w.version == "0.1" && (d.op == "send" || d.op == "stream")
}

// about is what a doing is about. What is not needed is empty.
type about struct {
	agent         string
	task, context string
	config, hook  string // of a webhook: its id and its URL
	text          string // of the message
	token         string // of a page
}

// given leaves out what is empty.
func given(o object, pairs ...string) object {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			o[pairs[i]] = pairs[i+1]
		}
	}
	return o
}

func words01(op string, a *about) object {
	switch op {
	case "send", "stream":
		o := object{"id": cmp.Or(a.task, "task-"+rand.Text()), "message": object{"role": "user", "parts": []any{object{"type": "text", "text": a.text}}}}
		return given(o, "sessionId", a.context)
	case "push set":
		return object{"id": a.task, "pushNotificationConfig": object{"url": a.hook}}
	case "push clear":
		return object{"id": a.task, "pushNotificationConfig": nil}
	}
	return object{"id": a.task}
}

func words03(op string, a *about) object {
	switch op {
	case "send", "stream":
		m := object{"kind": "message", "messageId": "m", "role": "user", "parts": []any{object{"kind": "text", "text": a.text}}}
		return object{"message": given(m, "taskId", a.task, "contextId", a.context)}
	case "push set":
		return object{"taskId": a.task, "pushNotificationConfig": object{"id": a.config, "url": a.hook}}
	case "push get", "push delete":
		return object{"id": a.task, "pushNotificationConfigId": a.config}
	case "card":
		return object{}
	}
	return object{"id": a.task}
}

func words10(op string, a *about) object {
	switch op {
	case "send", "stream":
		m := object{"messageId": "m", "role": "ROLE_USER", "parts": []any{object{"text": a.text}}}
		return object{"message": given(m, "taskId", a.task, "contextId", a.context)}
	case "list":
		return page(a)
	case "push set":
		return object{"taskId": a.task, "id": a.config, "url": a.hook}
	case "push get", "push delete":
		return object{"taskId": a.task, "id": a.config}
	case "push list":
		return object{"taskId": a.task}
	case "card":
		return object{}
	}
	return object{"id": a.task}
}

// page asks for the first two, or with a token for what follows.
func page(a *about) object {
	return given(object{"pageSize": 2}, "contextId", a.context, "pageToken", a.token)
}

func messages10(op string, a *about) object { return given(words10(op, a), "tenant", a.agent) }

func messages03(op string, a *about) object {
	name := "tasks/" + a.task
	switch op {
	case "send", "stream", "list", "card":
		return words10(op, a)
	case "push set":
		return object{"parent": name, "configId": a.config, "config": object{
			"name": name + "/pushNotificationConfigs/" + a.config, "pushNotificationConfig": object{"id": a.config, "url": a.hook},
		}}
	case "push get", "push delete":
		return object{"name": name + "/pushNotificationConfigs/" + a.config}
	case "push list":
		return object{"parent": name}
	}
	return object{"name": name}
}

// path is the verb and the path of HTTP+JSON, and the body if there is one.
func (w *tongue) path(op string, a *about) (verb, path string, body object) {
	task := "/tasks/" + url.PathEscape(a.task)
	configs := task + "/pushNotificationConfigs"
	switch op {
	case "send", "stream":
		o := words10(op, a)
		if m := o["message"].(object); w.version == "0.3" {
			m["content"] = m["parts"]
			delete(m, "parts")
		}
		return http.MethodPost, "/message:" + op, o
	case "get":
		return http.MethodGet, task, nil
	case "head":
		return http.MethodHead, task, nil
	case "list":
		query := url.Values{}
		for name, value := range page(a) {
			query.Set(name, fmt.Sprint(value))
		}
		return http.MethodGet, "/tasks?" + query.Encode(), nil
	case "cancel":
		return http.MethodPost, task + ":cancel", nil
	case "subscribe":
		return http.MethodGet, task + ":subscribe", nil
	case "push set":
		return http.MethodPost, configs, w.words(op, a)
	case "push get":
		return http.MethodGet, configs + "/" + url.PathEscape(a.config), nil
	case "push list":
		return http.MethodGet, configs, nil
	case "push delete":
		return http.MethodDelete, configs + "/" + url.PathEscape(a.config), nil
	case "card":
		return http.MethodGet, map[string]string{"0.3": "/card", "1.0": "/extendedAgentCard"}[w.version], nil
	}
	return "", "", nil
}

// heard is all that a caller gets to see of an answer but its date, and whether it is none of an error. Of a stream that
// goes on it is the first event.
type heard struct {
	whole string
	ok    bool
}

// asker calls a replica.
type asker struct {
	t    testing.TB
	r    *replica
	grpc *grpc.ClientConn
}

func newAsker(t testing.TB, r *replica) *asker {
	t.Helper()
	return &asker{t, r, r.connect(t)}
}

// do does a doing. Headers are names and values; a name may come twice.
func (c *asker) do(w *tongue, d *doing, a *about, headers ...string) heard {
	c.t.Helper()
	headers = slices.Clone(headers)
	if w.version != "" {
		headers = append(headers, "A2A-Version", w.version)
	}
	if w.service != nil {
		if d.position != "" {
			headers = append(headers, "a2a-last-event-id", d.position)
		}
		return c.invoke(w, w.names[d.op], mustMarshal(w.words(d.op, a)), headers)
	}
	if d.position != "" {
		headers = append(headers, "Last-Event-ID", d.position)
	}
	base := ""
	if a.agent != "" {
		base = "/agents/" + a.agent
	}
	if w.binding == onJSONRPC {
		return c.send(http.MethodPost, base, request(w.names[d.op], w.words(d.op, a)), headers)
	}
	verb, path, body := w.path(d.op, a)
	if body == nil {
		return c.send(verb, base+w.prefix+path, nil, headers)
	}
	return c.send(verb, base+w.prefix+path, mustMarshal(body), headers)
}

// send makes a request over HTTP.
func (c *asker) send(verb, path string, body []byte, headers []string) heard {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, verb, c.r.url+path, bytes.NewReader(body))
	require.NoError(c.t, err)
	if body != nil {
		q.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		q.Header.Add(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(q)
	require.NoError(c.t, err, "%s %s", verb, path)
	defer resp.Body.Close()
	content, going := shownOf(c.t, resp)
	resp.Header.Del("Date")
	var head bytes.Buffer
	require.NoError(c.t, resp.Header.Write(&head))
	return heard{
		fmt.Sprintf("%d\n%s\n%s", resp.StatusCode, strings.ReplaceAll(head.String(), "\r", ""), content),
		resp.StatusCode < 300 && (going || !bytes.Contains(content, []byte(`"error":`))),
	}
}

// shownOf is the body of an answer; of a stream that does not begin with an error the first event.
func shownOf(t testing.TB, resp *http.Response) (content []byte, going bool) {
	t.Helper()
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		lines := bufio.NewReader(resp.Body)
		for !bytes.HasSuffix(content, []byte("\n\n")) {
			line, err := lines.ReadBytes('\n')
			content = append(content, line...)
			if errors.Is(err, io.EOF) {
				return content, false
			}
			require.NoError(t, err)
		}
		if !bytes.Contains(content, []byte(`"error":`)) {
			return content, true
		}
		resp.Body = io.NopCloser(lines)
	}
	rest, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return append(content, rest...), false
}

// invoke makes a call over gRPC.
func (c *asker) invoke(w *tongue, method string, message []byte, headers []string) heard {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), headers...), patience)
	defer cancel()
	m := w.service.Methods().ByName(protoreflect.Name(method))
	require.NotNil(c.t, m, method)
	in, out := newMessage(c.t, m.Input()), newMessage(c.t, m.Output())
	require.NoError(c.t, protojson.Unmarshal(message, in), "%s", message)
	s, err := c.grpc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, fmt.Sprintf("/%s/%s", w.service.FullName(), method))
	require.NoError(c.t, err)
	if err := s.SendMsg(in); !errors.Is(err, io.EOF) { // which says that the answer is there before
		require.NoError(c.t, err)
	}
	require.NoError(c.t, s.CloseSend())
	err = s.RecvMsg(out)
	var b strings.Builder
	if err == nil {
		content, err := protojson.Marshal(out)
		require.NoError(c.t, err)
		fmt.Fprintf(&b, "OK\n\n%s", content)
		return heard{b.String(), true}
	}
	status := grpcstatus.Convert(err)
	header, err := s.Header()
	require.NoError(c.t, err)
	fmt.Fprintf(&b, "%s\n", status.Code())
	for _, md := range []metadata.MD{header, s.Trailer()} {
		for _, name := range slices.Sorted(maps.Keys(md)) {
			if !strings.HasSuffix(name, "-bin") { // the details, which follow
				fmt.Fprintf(&b, "%s: %q\n", name, md[name])
			}
		}
	}
	fmt.Fprintf(&b, "\n%s\n", status.Message())
	for _, d := range status.Proto().GetDetails() {
		content, err := protojson.Marshal(d)
		require.NoError(c.t, err)
		var plain any // the library's blanks are at random
		require.NoError(c.t, json.Unmarshal(content, &plain))
		b.Write(mustMarshal(plain))
	}
	return heard{b.String(), false}
}

func newMessage(t testing.TB, d protoreflect.MessageDescriptor) proto.Message {
	t.Helper()
	m, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	require.NoError(t, err)
	return m.New().Interface()
}
