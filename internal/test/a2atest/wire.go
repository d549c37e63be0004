// Package a2atest is a client of A2A for tests. It speaks every version over every binding, with one vocabulary: a
// Wire is a version over a binding, an Op is an operation, and Args are its arguments. It shares no code with the
// server's codecs.
//
// A test chooses how closely it looks at answers: Send and similar functions return results, Begin and Finish a Reply
// with everything that a client may act on, Show the bytes. Ask and Post send JSON-RPC bodies that no real client
// sends.
package a2atest

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"

	pb03 "github.com/a2aproject/a2a-go/a2apb"
	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Object is a JSON object to send.
type Object = map[string]any

// Binding is how the operations of a version travel.
type Binding string

// The bindings.
const (
	JSONRPC Binding = "JSON-RPC"
	REST    Binding = "HTTP+JSON"
	GRPC    Binding = "gRPC"
)

// Op is an operation of the protocol.
type Op string

// The operations. Head is Get without the body, and ClearHook is how 0.1 deletes a webhook.
const (
	Send       Op = "send"
	Stream     Op = "stream"
	Get        Op = "get"
	Head       Op = "head"
	List       Op = "list"
	Cancel     Op = "cancel"
	Subscribe  Op = "subscribe"
	SetHook    Op = "set a webhook"
	ClearHook  Op = "clear the webhook"
	GetHook    Op = "get a webhook"
	ListHooks  Op = "list webhooks"
	DeleteHook Op = "delete a webhook"
	Card       Op = "get the extended card"
)

// Streams reports whether the answer to the operation is a stream.
func (op Op) Streams() bool { return op == Stream || op == Subscribe }

// Wire is a version over a binding.
type Wire struct {
	Version string // as in A2A-Version; "" sends no such header
	Binding Binding
	// words returns the params of an operation, or its body or message.
	words func(op Op, a *Args) Object
	// methods are the names of the operations. For HTTP+JSON, prefix begins the paths instead.
	methods map[Op]string
	prefix  string
	service protoreflect.ServiceDescriptor // of gRPC
}

// The versions over JSON-RPC.
var (
	V01 = &Wire{Version: "0.1", Binding: JSONRPC, words: words01, methods: map[Op]string{
		Send: "tasks/send", Stream: "tasks/sendSubscribe", Get: "tasks/get", Cancel: "tasks/cancel", Subscribe: "tasks/resubscribe",
		SetHook: "tasks/pushNotification/set", ClearHook: "tasks/pushNotification/set", GetHook: "tasks/pushNotification/get",
	}}
	V02 = &Wire{Version: "0.2", Binding: JSONRPC, words: words03, methods: methods03("")}
	V03 = &Wire{Version: "0.3", Binding: JSONRPC, words: words03, methods: methods03("agent/getAuthenticatedExtendedCard")}
	V10 = &Wire{Version: "1.0", Binding: JSONRPC, words: words10, methods: methods10}
	// Unversioned has requests that are the same in 0.1 and 0.3. The server takes the version from the task.
	Unversioned = &Wire{Binding: JSONRPC, words: words03, methods: map[Op]string{Get: "tasks/get", Cancel: "tasks/cancel", Subscribe: "tasks/resubscribe"}}
)

// The versions over HTTP+JSON and gRPC.
var (
	REST03 = &Wire{Version: "0.3", Binding: REST, words: wordsProto03("content"), prefix: "/v1"}
	REST10 = &Wire{Version: "1.0", Binding: REST, words: words10}
	GRPC03 = &Wire{Version: "0.3", Binding: GRPC, words: messages03, service: pb03.File_a2a_proto.Services().Get(0), methods: map[Op]string{
		Send: "SendMessage", Stream: "SendStreamingMessage", Get: "GetTask", List: "ListTasks", Cancel: "CancelTask", Subscribe: "TaskSubscription",
		SetHook: "CreateTaskPushNotificationConfig", GetHook: "GetTaskPushNotificationConfig", ListHooks: "ListTaskPushNotificationConfig",
		DeleteHook: "DeleteTaskPushNotificationConfig", Card: "GetAgentCard",
	}}
	GRPC10 = &Wire{Version: "1.0", Binding: GRPC, words: messages10, service: pb10.File_a2av1_proto.Services().Get(0), methods: methods10}
)

// Wires are all versions over all bindings.
var Wires = []*Wire{V01, V02, V03, V10, REST03, REST10, GRPC03, GRPC10}

// Old are the two versions before 1.0 that differ most.
var Old = []*Wire{V01, V03}

// Operation is an operation over a wire.
type Operation struct {
	*Wire
	Op Op
}

func (o Operation) String() string { return o.Wire.String() + ", " + string(o.Op) }

// Sends are the ways to send a message: at once and as a stream, over every wire.
var Sends = func() (all []Operation) {
	for _, w := range Wires {
		all = append(all, Operation{w, Send}, Operation{w, Stream})
	}
	return all
}()

// methods03 are the methods of 0.3, and of 0.2, which has none for the extended card.
func methods03(card string) map[Op]string {
	return map[Op]string{
		Send: "message/send", Stream: "message/stream", Get: "tasks/get", Cancel: "tasks/cancel", Subscribe: "tasks/resubscribe",
		SetHook: "tasks/pushNotificationConfig/set", GetHook: "tasks/pushNotificationConfig/get",
		ListHooks: "tasks/pushNotificationConfig/list", DeleteHook: "tasks/pushNotificationConfig/delete", Card: card,
	}
}

var methods10 = map[Op]string{
	Send: "SendMessage", Stream: "SendStreamingMessage", Get: "GetTask", List: "ListTasks", Cancel: "CancelTask", Subscribe: "SubscribeToTask",
	SetHook: "CreateTaskPushNotificationConfig", GetHook: "GetTaskPushNotificationConfig", ListHooks: "ListTaskPushNotificationConfigs",
	DeleteHook: "DeleteTaskPushNotificationConfig", Card: "GetExtendedAgentCard",
}

func (w *Wire) String() string { return strings.TrimSpace(w.Version + " over " + string(w.Binding)) }

// Has reports whether the version has the operation over the binding.
func (w *Wire) Has(op Op) bool {
	if w.Binding == REST {
		verb, _, _ := w.request(op, &Args{})
		return verb != ""
	}
	return w.methods[op] != ""
}

// Method is the name of an operation in JSON-RPC.
func (w *Wire) Method(op Op) string { return w.methods[op] }

// Params returns the params of an operation.
func (w *Wire) Params(op Op, a *Args) Object {
	if a.Params == nil {
		return w.words(op, a)
	}
	if w == GRPC10 {
		return given(maps.Clone(a.Params), "tenant", a.Agent)
	}
	return a.Params
}

// Worded is a state as the wire names it. 0.1 has no auth-required.
func (w *Wire) Worded(state string) string {
	switch {
	case w.Version == "0.1" && state == "auth-required":
		return "input-required"
	case w.Version == "0.3" && w.Binding != JSONRPC && state == "canceled":
		return "TASK_STATE_CANCELLED"
	case w.Version == "1.0", w.Binding != JSONRPC:
		return "TASK_STATE_" + strings.ToUpper(strings.ReplaceAll(state, "-", "_"))
	}
	return state
}

// Plain is a state of any wire as 0.3 over JSON-RPC names it.
func Plain(state string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(state, "TASK_STATE_"), "_", "-"))
}

// Args are the arguments of an operation. Unused ones are empty.
type Args struct {
	Agent         string // "" is the agent at the root
	Task, Context string // a send without a task creates one
	Texts         []string
	ID            string   // of the message; "" is a new one
	NoWait        bool     // the client does not wait for the task
	Hook          string   // URL of a webhook, of the new task or to be set
	Config        string   // id of a webhook
	More          Object   // members of the webhook
	Page          string   // token of a page of two tasks
	After         string   // the event to resume after
	Header        []string // names and values; a name may come twice
	Params        Object   // replaces all params; over HTTP+JSON the query of Get, and a body of Cancel and Subscribe
}

// Say makes the Args of a message.
func Say(texts ...string) *Args { return &Args{Texts: texts} }

// To sends it to a task.
func (a Args) To(task string) *Args { a.Task = task; return &a }

// At sends it to an agent.
func (a Args) At(agent string) *Args { a.Agent = agent; return &a }

// Hooked sends it with a webhook.
func (a Args) Hooked(url string, more Object) *Args { a.Hook, a.More = url, more; return &a }

// With sends it with headers, which are metadata over gRPC.
func (a Args) With(header ...string) *Args {
	a.Header = append(a.Header[:len(a.Header):len(a.Header)], header...)
	return &a
}

// As sends it with a message id.
func (a Args) As(id string) *Args { a.ID = id; return &a }

// Detached sends it without waiting for the task.
func (a Args) Detached() *Args { a.NoWait = true; return &a }

// given leaves out empty members.
func given(o Object, pairs ...string) Object {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			o[pairs[i]] = pairs[i+1]
		}
	}
	return o
}

func (a *Args) parts(members Object) []any {
	out := make([]any, len(a.Texts))
	for i, text := range a.Texts {
		p := Object{"text": text}
		maps.Copy(p, members)
		out[i] = p
	}
	return out
}

// hook is the webhook, or nil.
func (a *Args) hook() Object {
	if a.Hook == "" {
		return nil
	}
	o := given(Object{"url": a.Hook}, "id", a.Config)
	maps.Copy(o, a.More)
	return o
}

// sent is a message with its configuration, which names the webhook.
func (a *Args) sent(message, configuration Object, hook string) Object {
	given(message, "messageId", cmp.Or(a.ID, rand.Text()), "taskId", a.Task, "contextId", a.Context)
	if h := a.hook(); h != nil {
		configuration[hook] = h
	}
	if len(configuration) == 0 {
		return Object{"message": message}
	}
	return Object{"message": message, "configuration": configuration}
}

func words01(op Op, a *Args) Object {
	o := Object{"id": a.Task}
	switch op {
	case Send, Stream:
		o["id"] = cmp.Or(a.Task, "task-"+rand.Text())
		o["message"] = Object{"role": "user", "parts": a.parts(Object{"type": "text"})}
		if h := a.hook(); h != nil {
			o["pushNotification"] = h
		}
		given(o, "sessionId", a.Context)
	case SetHook:
		h := a.hook()
		delete(h, "id") // a task of 0.1 has at most one webhook
		o["pushNotificationConfig"] = h
	case ClearHook:
		o["pushNotificationConfig"] = nil
	default:
	}
	return o
}

func words03(op Op, a *Args) Object {
	switch op {
	case Send, Stream:
		configuration := Object{}
		if a.NoWait {
			configuration["blocking"] = false
		}
		return a.sent(Object{"kind": "message", "role": "user", "parts": a.parts(Object{"kind": "text"})}, configuration, "pushNotificationConfig")
	case SetHook:
		return Object{"taskId": a.Task, "pushNotificationConfig": a.hook()}
	case GetHook, DeleteHook:
		return given(Object{"id": a.Task}, "pushNotificationConfigId", a.Config)
	case Card:
		return Object{}
	default:
		return Object{"id": a.Task}
	}
}

func words10(op Op, a *Args) Object {
	switch op {
	case Send, Stream:
		configuration := Object{}
		if a.NoWait {
			configuration["returnImmediately"] = true
		}
		return a.sent(Object{"role": "ROLE_USER", "parts": a.parts(nil)}, configuration, "taskPushNotificationConfig")
	case List:
		return given(Object{"pageSize": 2}, "contextId", a.Context, "pageToken", a.Page)
	case SetHook:
		o := a.hook()
		o["taskId"] = a.Task
		return o
	case GetHook, DeleteHook:
		return Object{"taskId": a.Task, "id": a.Config}
	case ListHooks:
		return Object{"taskId": a.Task}
	case Card:
		return Object{}
	default:
		return Object{"id": a.Task}
	}
}

// wordsProto03 are the params of the proto file of 0.3, of which two editions exist that name parts differently. 1.0
// waits unless the request says otherwise; these wait only if the request says so.
func wordsProto03(parts string) func(op Op, a *Args) Object {
	return func(op Op, a *Args) Object {
		switch op {
		case Send, Stream:
			return a.sent(Object{"role": "ROLE_USER", parts: a.parts(nil)}, Object{"blocking": !a.NoWait}, "pushNotification")
		case SetHook:
			return words03(op, a)
		default:
			return words10(op, a)
		}
	}
}

func messages10(op Op, a *Args) Object { return given(words10(op, a), "tenant", a.Agent) }

func messages03(op Op, a *Args) Object {
	name := "tasks/" + a.Task
	config := name + "/pushNotificationConfigs/" + a.Config
	switch op {
	case SetHook:
		return Object{"parent": name, "configId": a.Config, "config": Object{"name": config, "pushNotificationConfig": a.hook()}}
	case GetHook, DeleteHook:
		return Object{"name": config}
	case ListHooks:
		return Object{"parent": name}
	case Get, Cancel, Subscribe:
		return Object{"name": name}
	default:
		return wordsProto03("parts")(op, a)
	}
}

// request is the verb and the path of HTTP+JSON, and the body if there is one.
func (w *Wire) request(op Op, a *Args) (verb, path string, body Object) {
	task := "/tasks/" + url.PathEscape(a.Task)
	configs := task + "/pushNotificationConfigs"
	switch op {
	case Send, Stream:
		return http.MethodPost, "/message:" + string(op), w.Params(op, a)
	case Get:
		return http.MethodGet, task + query(a.Params), nil
	case Head:
		return http.MethodHead, task, nil
	case List:
		return http.MethodGet, "/tasks" + query(w.Params(op, a)), nil
	case Cancel:
		return http.MethodPost, task + ":cancel", a.Params
	case Subscribe:
		return http.MethodGet, task + ":subscribe", a.Params
	case SetHook:
		if a.Hook == "" { // for tests that check whether the method exists
			return http.MethodPost, configs, nil
		}
		return http.MethodPost, configs, w.Params(op, a)
	case GetHook:
		return http.MethodGet, configs + "/" + url.PathEscape(a.Config), nil
	case ListHooks:
		return http.MethodGet, configs, nil
	case DeleteHook:
		return http.MethodDelete, configs + "/" + url.PathEscape(a.Config), nil
	case Card:
		return http.MethodGet, map[string]string{"0.3": "/card", "1.0": "/extendedAgentCard"}[w.Version], nil
	default:
		return "", "", nil
	}
}

// query encodes params as the query of a path.
func query(params Object) string {
	values := url.Values{}
	for name, value := range params {
		values.Set(name, fmt.Sprint(value))
	}
	if len(values) == 0 {
		return ""
	}
	return "?" + values.Encode()
}

// JSON encodes a value that cannot fail to encode.
func JSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
