// Package dialect defines a version of A2A for the bindings: a codec between the version's wire
// shapes and the domain. A codec is pure: bytes to values and back, no network, no clock, no state.
// The subpackages are the versions.
package dialect

import (
	"cmp"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web/fault"
)

// ID is a small number for a version, used by caches of encoded events.
type ID uint8

// The served versions, oldest first, then further forms of some of them.
const (
	V01 ID = iota
	V03
	V10
	V03Proto  // 0.3 in the shapes of its proto file
	V03Binary // the same as binary messages, for gRPC
	V03Union  // 0.3 plus members that a client of 0.1 looks for
	V10Binary
)

// View is how much of a task a reply shows, as the request asked.
type View struct {
	History int // engine.AllHistory, 0 for none, or the number of newest messages
	// ShowEmpty keeps the history member even when it is empty.
	ShowEmpty bool
	// ShowArtifacts keeps the artifacts member even when it is empty.
	ShowArtifacts bool
}

// Messages is the part of the history that the reply shows.
func (v View) Messages(t *task.Task) []task.Message {
	if v.History == engine.AllHistory {
		return t.History
	}
	return t.Tail(v.History)
}

// Call is a decoded request: the operation, the one request that belongs to it, and the view of its
// reply.
type Call struct {
	Op        engine.Op
	Send      *engine.SendRequest // OpSend, OpStream
	Get       *engine.GetRequest
	List      *engine.ListRequest
	Cancel    *engine.CancelRequest
	Subscribe *engine.SubscribeRequest
	Push      *engine.PushRequest // OpPushSet, OpPushGet, OpPushList, OpPushDelete
	View      View
	// Tenant names the agent of the request, in versions with such a member.
	Tenant string
	// PushTenant names it again, in the configuration that comes with a message.
	PushTenant string
}

// TaskID returns the public id that the call names, or "".
func (c *Call) TaskID() string {
	switch {
	case c.Send != nil:
		return c.Send.TaskID
	case c.Get != nil:
		return c.Get.TaskID
	case c.Cancel != nil:
		return c.Cancel.TaskID
	case c.Subscribe != nil:
		return c.Subscribe.TaskID
	case c.Push != nil:
		return c.Push.TaskID
	}
	return ""
}

// The headers that name extensions, as canonical HTTP headers. Clients of every version may use
// either.
const (
	ExtensionsHeader    = "A2a-Extensions"
	OldExtensionsHeader = "X-A2a-Extensions"
)

// Traits are the properties of a version that operations and bindings ask for, besides its
// messages. Code above the codecs asks for traits and never compares versions.
type Traits struct {
	ID ID
	// Version is the value of A2A-Version, such as "0.3". A task's origin stores it.
	Version string
	// Operations are those of JSON-RPC or gRPC by the names of their methods.
	Operations map[string]engine.Op
	// Faults is the error table. Former is the edition before the newest, if the newest changed some statuses.
	Faults, Former *fault.Table
	// ContextMember is the request member that names the context, for error messages.
	ContextMember string
	// PartsMember is the request member that holds the parts of a message, for error messages.
	PartsMember string
	// Extensions says that the version has extensions, and that agents may require some.
	Extensions bool
	// EchoHeader is the header in which answers name the extensions in force.
	EchoHeader string
	// Card is the rendering of the extended card.
	Card card.Rendering
	// UndeclaredCards says that the version has two errors for a missing extended card. One is for
	// agents whose card does not declare it, the other for agents whose card does.
	UndeclaredCards bool
	// Interfaces says that cards list interfaces of this version.
	Interfaces bool
	// Tenants says that a request can name its agent.
	Tenants bool
	// AdoptsTaskIDs says that a message with an unknown task id may create that task, if the
	// operator allows it.
	AdoptsTaskIDs bool
	// ReopensTasks says that a message may restart a task that has ended, if the operator allows
	// it.
	ReopensTasks bool
	// WholeTasks says that notifications show the whole task and not only the event.
	WholeTasks bool
	// IDsOnRequest says that events have ids only for clients that resume or name the extension: an official client of
	// the version overlooks an event that does not begin with its data.
	IDsOnRequest bool
	// TokenHeaders are the headers that carry the token of a webhook's configuration. There may be
	// several: a receiver written for one document knows only that document's name.
	TokenHeaders []string
	// EventNames are the names that early clients of the version expect of the events of a stream, or
	// nil. The first document of an Opening is then a status, the others are artifacts.
	EventNames *EventNames
	// AuthorizesKeys says that API keys of a webhook also go into Authorization.
	AuthorizesKeys bool
}

// Statuses returns the error table for bindings with statuses: of the newest edition, or of the former one.
func (t *Traits) Statuses(former bool) *fault.Table {
	if former {
		return cmp.Or(t.Former, t.Faults)
	}
	return t.Faults
}

// EventNames are the names of server-sent events.
type EventNames struct{ Status, Artifact string }

// Notify chooses a form of notifications where the A2A documents leave it open.
type Notify struct {
	PlainJSON bool // application/json instead of the version's own type
}

// TypeJSON is the media type of JSON.
const TypeJSON = "application/json"

// Direct reports whether an event is an agent's bare message. Without an event it reports this of
// the current task.
func Direct(t *task.Task, e *task.Event) bool {
	if e == nil {
		return t.Direct && t.Status.Message != nil
	}
	return e.Direct && e.Message != nil
}

// Codec is one version's vocabulary: its messages as JSON, whatever the binding.
type Codec interface {
	Traits() *Traits
	// Decode reads the params of an operation. params is valid JSON without duplicate
	// names, or empty when the request had none. Errors are *task.Error of kind Invalid
	// (or PushUnsupported, Unsupported …) whose message names the member, as in
	// "message.parts[1].file: …".
	Decode(op engine.Op, params []byte) (*Call, error)
	// Result renders a task as the answer of OpSend, OpGet or OpCancel.
	Result(op engine.Op, t *task.Task, v View) ([]byte, error)
	// Page renders the answer of OpList.
	Page(p *engine.Page, v View) ([]byte, error)
	// Pushes renders the answer of an operation on push notification configurations.
	Pushes(op engine.Op, p *engine.Pushes) ([]byte, error)
	// Opening renders the first documents of a stream: the current task. Each element is one
	// document.
	Opening(op engine.Op, t *task.Task) ([][]byte, error)
	// Event renders a streamed event of the task t. It reads only the identity of t. It returns
	// nil for events that this version does not show. passed says that the event is a status that ended
	// earlier streams, and the stream continues after it: the client resumes before it, and the task has
	// moved on. Here it is not final.
	Event(t *task.Task, e *task.Event, passed bool) ([]byte, error)
	// Direct renders a bare Message reply (an event with Direct set) on a stream that has not
	// shown the task yet.
	Direct(t *task.Task, e *task.Event) ([]byte, error)
	// Notification renders an event of the task t for a webhook. If the version shows whole tasks,
	// t is the task as of the event. Otherwise Notification reads only the identity of t. Without
	// an event it renders the current t. The body is nil if the version cannot express the event:
	// some versions have no form for an agent's bare message.
	Notification(t *task.Task, e *task.Event, n Notify) (body []byte, mediaType string, err error)
	// Closes reports whether a stream of op ends after a status event with this state.
	Closes(op engine.Op, s task.State) bool
	// Details renders the machine-readable part of an error besides its code: a JSON value, or
	// nil.
	Details(err *task.Error, in fault.Incident) []byte
}
