// Package dialect names what a version of A2A is to the bindings: a codec between
// its wire shapes and the domain. A codec is pure: bytes to values and back, no
// network, no clock, no state. Versions are its subpackages.
package dialect

import (
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/fault"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// ID is a small number for a version, for caches of encoded events.
type ID uint8

// The versions served, oldest first, and then what is spoken besides of one of them.
const (
	V01 ID = iota
	V03
	V10
	V03Proto  // 0.3 in the shapes of its proto file
	V03Binary // the same as its messages are on the wire, for gRPC
	V03Union  // 0.3 with what a client of 0.1 looks for
	V10Binary
)

// View is how much of a task a reply shows, as its request asked for.
type View struct {
	History int // engine.AllHistory, 0 for none, or the number of newest messages
	// ShowEmpty keeps the history member even when it is empty.
	ShowEmpty bool
}

// Call is a decoded request: the operation, the one request that belongs to it, and
// how its reply is to be shown.
type Call struct {
	Op        engine.Op
	Send      *engine.SendRequest // OpSend, OpStream
	Get       *engine.GetRequest
	List      *engine.ListRequest
	Cancel    *engine.CancelRequest
	Subscribe *engine.SubscribeRequest
	Push      *engine.PushRequest // OpPushSet, OpPushGet, OpPushList, OpPushDelete
	View      View
	// Tenant routes the request to an agent, where the version has such a member.
	Tenant string
}

// TaskID is the public id that the call names, or "".
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

// Codec is one version's vocabulary: its messages as JSON, whatever the binding.
type Codec interface {
	ID() ID
	// Version is what A2A-Version says, such as "0.3", and what a task's origin stores.
	Version() string
	// Operation maps a JSON-RPC method name of this version.
	Operation(method string) (engine.Op, bool)
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
	// Opening renders what a stream begins with: the task as it stands. Each element is
	// one document.
	Opening(op engine.Op, t *task.Task) ([][]byte, error)
	// Event renders a streamed event of the task t, of which only the identity is read.
	// It returns nil for what this version does not show.
	Event(t *task.Task, e *task.Event) ([]byte, error)
	// Passed renders a status that once ended streams, on one that goes on after it: the
	// client resumes before it and the task has moved on. It is not final there.
	Passed(t *task.Task, e *task.Event) ([]byte, error)
	// Direct renders a bare Message reply (an event with Direct set) on a stream that has
	// not shown the task yet.
	Direct(t *task.Task, e *task.Event) ([]byte, error)
	// Closes reports whether a stream of op ends after a status event with this state.
	Closes(op engine.Op, s task.State) bool
	// Error gives the code and message of an error of this version.
	Error(err *task.Error) (code int, message string)
	// Details renders what an error of this version says to programs beside its code: a JSON
	// value, or nil.
	Details(err *task.Error, in fault.Incident) []byte
}
