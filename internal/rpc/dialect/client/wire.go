package client

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/binary"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v01"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v03"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v03proto"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v10"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/tracing"
)

// Op is an operation of A2A.
type Op = engine.Op

// The operations of clients. Fronts do not subscribe: see the package a2a of executors.
const (
	Send   = engine.OpSend
	Stream = engine.OpStream
	Get    = engine.OpGet
	Cancel = engine.OpCancel
	List   = engine.OpList
	// The answers to these are documents: see Document.
	ExtendedCard = engine.OpExtendedCard
	SetPush      = engine.OpPushSet
	Subscribe    = engine.OpSubscribe
)

// The bindings that a Wire may have, by their names in cards.
const (
	JSONRPC  = "JSONRPC"
	HTTPJSON = "HTTP+JSON"
	GRPC     = "GRPC"
)

// Wire is a version on a binding.
type Wire struct {
	Version string // of A2A, as in cards and in A2A-Version
	Binding string

	methods map[Op]string // by their names over JSON-RPC and gRPC
	prefix  string        // of paths
	card    string        // the last path of the extended card
	service *binary.Codec // over gRPC
	message func(dst []byte, m *task.Message) []byte
	data    bool // a data part is an object in an object
	// clientIDs says that clients choose the ids of tasks.
	clientIDs bool
	modern    bool // members of 1.0
}

// pushConfigs is the path of the push configurations of a task, below that of the task.
const pushConfigs = "/pushNotificationConfigs"

// wires are the versions and bindings, the preferred one first. gRPC comes last: a card that offers something else, too, is
// called as it was before Holdfast spoke gRPC.
var wires = []*Wire{
	{Version: v10.Version, Binding: JSONRPC, methods: methods(v10.Codec{}), message: v10.AppendMessage, modern: true},
	{Version: v10.Version, Binding: HTTPJSON, methods: methods(v10.Codec{}), message: v10.AppendMessage, modern: true, card: "extendedAgentCard"},
	{Version: v03.Version, Binding: JSONRPC, methods: methods(v03.Codec{}), message: v03.AppendMessage},
	{Version: v03.Version, Binding: HTTPJSON, methods: methods(v03proto.Codec{}), message: v03proto.AppendMessage, prefix: "/v1", data: true, card: "card"},
	{Version: v01.Version, Binding: JSONRPC, methods: methods(v01.Codec{}), message: v01.AppendMessage, clientIDs: true},
	{Version: v10.Version, Binding: GRPC, methods: methods(v10.Codec{}), message: v10.AppendMessage, modern: true, service: binary.New10(0)},
	{Version: v03.Version, Binding: GRPC, methods: methods(v03proto.Codec{}), message: v03proto.AppendYoungerMessage, data: true, service: binary.New03(0)},
}

// methods returns the names of a version's methods by their operations.
func methods(c dialect.Codec) map[Op]string {
	names := map[Op]string{}
	for name, op := range c.Traits().Operations {
		names[op] = name
	}
	return names
}

// Oldest returns the wire of 0.1.
func Oldest() *Wire { return Find(v01.Version, JSONRPC) }

// Find returns the preferred wire of a version and binding. Either may be "", for any. 0.2 is 0.3 on the wire, and a
// patch number changes nothing. It returns nil for another version or binding.
func Find(version, binding string) *Wire {
	if version != "" {
		major, minor, _ := strings.Cut(version, ".")
		minor, _, _ = strings.Cut(minor, ".")
		if version = major + "." + minor; version == "0.2" {
			version = v03.Version
		}
	}
	for _, w := range wires {
		if (version == "" || w.Version == version) && (binding == "" || strings.EqualFold(w.Binding, binding)) {
			return w
		}
	}
	return nil
}

// ChoosesIDs reports whether the client names its new tasks.
func (w *Wire) ChoosesIDs() bool { return w.clientIDs }

// Has reports whether the version has an operation. Few servers of 0.3 have lists: its document and its proto file disagree on them.
func (w *Wire) Has(op Op) bool { return w.methods[op] != "" && (op != List || w.modern) }

// ExtendedCardURLs returns where servers of 0.2 have their extended card: beside their endpoint, some below it.
func (w *Wire) ExtendedCardURLs(endpoint string) (all []string) {
	u, err := url.Parse(endpoint)
	if err != nil || w.Binding != JSONRPC || w.Version != v03.Version {
		return nil
	}
	u.RawQuery = ""
	for _, path := range []string{"../agent/authenticatedExtendedCard", "agent/authenticatedExtendedCard"} {
		all = append(all, u.JoinPath(path).String())
	}
	return all
}

// Params are what an operation says. Each operation uses only its own.
type Params struct {
	Tenant   string          // that the interface of the card names
	TaskID   string          // Get, Cancel, SetPush; of a send where clients choose ids
	Context  string          // List
	Page     string          // List: the token of the page; "": the first
	PageSize int             // List; 0: 50
	Message  *task.Message   // Send, Stream; with the ids of its task and context
	Metadata json.RawMessage // Send, Stream, Cancel: of the request
	Modes    []string        // Send, Stream: accepted media types
	Return   bool            // Send: do not wait for the task's end
	Push     Push            // SetPush; Send and Stream with a URL

	// After is the id of the event after which a subscription begins. Only some servers, such as another Holdfast, have ids.
	After string

	// Headers of any operation.
	Extensions []string // URIs of the extensions to use
	Trace      tracing.Context
	Forwarded  task.Forwarded
	Key        string // not of A2A, but some servers, such as another Holdfast, find the task of an earlier send by it
}

// Push is where a server sends its notifications about a task, and the token that it shows there. Another configuration of
// the same task with the same ID takes its place.
type Push struct{ ID, URL, Token string }

// Request is a request as HTTP or gRPC carries it.
type Request struct {
	Method string // over gRPC the full name of the method
	URL    string
	Header http.Header // over gRPC metadata
	Body   []byte      // nil: none. Over gRPC a message
}

// header returns the headers of an operation.
func (w *Wire) header(op Op, p *Params) http.Header {
	h := http.Header{}
	switch {
	case w.service != nil:
	case op.Streams():
		h.Set("Accept", "text/event-stream, "+dialect.TypeJSON)
	default:
		h.Set("Accept", dialect.TypeJSON)
	}
	set := func(name, value string) {
		if value != "" {
			h.Set(name, value)
		}
	}
	for name, value := range p.Forwarded {
		h.Set(name, value)
	}
	p.Trace.Headers(h)
	set("Idempotency-Key", p.Key)
	if op == Subscribe && w.service != nil {
		set("A2A-Last-Event-ID", p.After)
	} else if op == Subscribe {
		set("Last-Event-ID", p.After)
	}
	if !w.clientIDs { // 0.1 has no such header
		set("A2A-Version", w.Version)
	}
	name := dialect.OldExtensionsHeader
	if w.modern {
		name = dialect.ExtensionsHeader
	}
	set(name, strings.Join(p.Extensions, ", "))
	return h
}

// Request writes an operation for an endpoint.
func (w *Wire) Request(endpoint string, op Op, p *Params) (*Request, error) {
	if !w.Has(op) {
		return nil, fmt.Errorf("A2A %s has no such operation", w.Version)
	}
	r := &Request{Method: http.MethodPost, URL: endpoint, Header: w.header(op, p)}
	if w.Binding == JSONRPC {
		r.Body = append(r.Body, `{"jsonrpc":"2.0","id":1,"method":"`+w.methods[op]+`","params":`...)
		r.Body = append(w.appendParams(r.Body, op, p), '}')
		return r, nil
	}
	if w.service != nil {
		var err error
		r.Method = "/" + w.service.Service() + "/" + w.methods[op]
		r.Body, err = w.service.Request(op, w.appendParams(nil, op, p))
		return r, err
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	base := strings.TrimSuffix(u.EscapedPath(), "/")
	if w.prefix != "" {
		base = strings.TrimSuffix(base, w.prefix) + w.prefix // cards name the URL with and without it
	}
	if p.Tenant != "" {
		base += "/" + url.PathEscape(p.Tenant)
	}
	id := url.PathEscape(p.TaskID)
	switch op {
	case Send:
		r.Body = w.appendParams(nil, op, p)
		base += "/message:send"
	case Stream:
		r.Body = w.appendParams(nil, op, p)
		base += "/message:stream"
	case Get:
		r.Method = http.MethodGet
		base += "/tasks/" + id
	case Cancel:
		r.Body = []byte("{}")
		base += "/tasks/" + id + ":cancel"
	case SetPush:
		r.Body = w.appendParams(nil, op, p)
		base += "/tasks/" + id + pushConfigs
	case Subscribe:
		r.Method = http.MethodGet
		base += "/tasks/" + id + ":subscribe"
	case ExtendedCard:
		r.Method = http.MethodGet
		base += "/" + w.card
	case List:
		r.Method = http.MethodGet
		base += "/tasks"
		query := url.Values{"contextId": {p.Context}, "pageSize": {strconv.Itoa(cmp.Or(p.PageSize, pageSize))}}
		if p.Page != "" {
			query.Set("pageToken", p.Page)
		}
		u.RawQuery = query.Encode()
	default: // clients do not ask for the others
	}
	if u.Path, err = url.PathUnescape(base); err != nil {
		return nil, err
	}
	u.RawPath = base
	r.URL = u.String()
	return r, nil
}

// pageSize is how many tasks of a context a list asks for: the newest come first.
const pageSize = 50

func (w *Wire) appendParams(dst []byte, op Op, p *Params) []byte {
	dst = append(dst, '{')
	open := len(dst)
	if p.Tenant != "" && w.modern && w.Binding != HTTPJSON {
		dst = rawjson.AppendStringMember(dst, "tenant", p.Tenant)
	}
	switch op {
	case Send, Stream:
		dst = w.appendSend(dst, op, p)
	case List:
		dst = rawjson.AppendStringMember(dst, "contextId", p.Context)
		dst = strconv.AppendInt(rawjson.AppendMember(dst, "pageSize"), int64(cmp.Or(p.PageSize, pageSize)), 10)
		dst = rawjson.AppendStringMember(dst, "pageToken", p.Page)
	case Cancel:
		dst = w.appendTask(dst, p)
		dst = rawjson.AppendRawMember(dst, "metadata", p.Metadata) // 0.3 over gRPC has no place for it
	case SetPush:
		dst = w.appendSetPush(dst, p)
	case ExtendedCard:
	default:
		dst = w.appendTask(dst, p)
	}
	if len(dst) > open {
		dst = append(dst[:open:open], dst[open+1:]...) // without the first comma
	}
	return append(dst, '}')
}

// appendTask names the task of the request.
func (w *Wire) appendTask(dst []byte, p *Params) []byte {
	if w.service != nil && !w.modern {
		return rawjson.AppendString(rawjson.AppendMember(dst, "name"), "tasks/"+p.TaskID)
	}
	return rawjson.AppendString(rawjson.AppendMember(dst, "id"), p.TaskID)
}

func (w *Wire) appendSend(dst []byte, op Op, p *Params) []byte {
	if w.clientIDs {
		dst = rawjson.AppendString(rawjson.AppendMember(dst, "id"), p.TaskID)
		dst = rawjson.AppendStringMember(dst, "sessionId", p.Message.ContextID)
		dst = w.message(rawjson.AppendMember(dst, "message"), p.Message)
		dst = append(dst, `,"historyLength":1000`...)
		if p.Push.URL != "" {
			dst = append(w.appendPush(append(rawjson.AppendMember(dst, "pushNotification"), '{'), p), '}')
		}
		return rawjson.AppendRawMember(dst, "metadata", p.Metadata)
	}
	dst = w.message(rawjson.AppendMember(dst, "message"), p.Message)
	dst = append(rawjson.AppendMember(dst, "configuration"), '{')
	open := len(dst)
	dst = rawjson.AppendStringsMember(dst, "acceptedOutputModes", p.Modes)
	if op == Send {
		if w.modern {
			dst = strconv.AppendBool(rawjson.AppendMember(dst, "returnImmediately"), p.Return)
		} else {
			dst = strconv.AppendBool(rawjson.AppendMember(dst, "blocking"), !p.Return)
		}
	}
	if p.Push.URL != "" {
		dst = append(w.appendPush(append(rawjson.AppendMember(dst, w.pushMember()), '{'), p), '}')
	}
	if len(dst) > open {
		dst = append(dst[:open:open], dst[open+1:]...)
	}
	dst = append(dst, '}')
	return rawjson.AppendRawMember(dst, "metadata", p.Metadata)
}

// pushMember is the member of the configuration of a send that asks for notifications.
func (w *Wire) pushMember() string {
	switch {
	case w.modern:
		return "taskPushNotificationConfig"
	case w.data:
		return "pushNotification"
	}
	return "pushNotificationConfig"
}

// appendSetPush writes the members of a request for notifications. Of the shapes that servers of 0.3 know over HTTP+JSON it
// writes that of the RPC, which the official ones read.
func (w *Wire) appendSetPush(dst []byte, p *Params) []byte {
	switch {
	case w.modern:
		dst = rawjson.AppendStringMember(dst, "taskId", p.TaskID)
		return w.appendPush(append(dst, ','), p)
	case w.data:
		parent := "tasks/" + p.TaskID
		dst = rawjson.AppendStringMember(dst, "parent", parent)
		dst = rawjson.AppendStringMember(dst, "configId", p.Push.ID)
		dst = append(rawjson.AppendMember(dst, "config"), `{"name":`...)
		dst = rawjson.AppendString(dst, parent+pushConfigs+"/"+p.Push.ID)
		dst = append(rawjson.AppendMember(dst, "pushNotificationConfig"), '{')
		return append(w.appendPush(dst, p), "}}"...)
	case w.clientIDs:
		dst = rawjson.AppendStringMember(dst, "id", p.TaskID)
	default:
		dst = rawjson.AppendStringMember(dst, "taskId", p.TaskID)
	}
	dst = append(rawjson.AppendMember(dst, "pushNotificationConfig"), '{')
	return append(w.appendPush(dst, p), '}')
}

// appendPush writes the members of a configuration. The token is there twice: some servers send it as the credential, some in
// a header of its own, and some in both.
func (w *Wire) appendPush(dst []byte, p *Params) []byte {
	dst = rawjson.AppendString(append(dst, `"url":`...), p.Push.URL)
	if !w.clientIDs {
		dst = rawjson.AppendStringMember(dst, "id", p.Push.ID)
	}
	dst = rawjson.AppendStringMember(dst, "token", p.Push.Token)
	dst = append(rawjson.AppendMember(dst, "authentication"), '{')
	if w.modern {
		dst = append(dst, `"scheme":"Bearer"`...)
	} else {
		dst = append(dst, `"schemes":["Bearer"]`...)
	}
	dst = rawjson.AppendStringMember(dst, "credentials", p.Push.Token)
	return append(dst, '}')
}
