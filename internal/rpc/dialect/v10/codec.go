// Package v10 speaks A2A 1.0: the ProtoJSON of the package lf.a2a.v1, in every
// binding. JSON-RPC carries it in envelopes, HTTP+JSON bare, and gRPC converts its
// messages to it and back.
package v10

import (
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/fault"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Version is what tasks created in this dialect keep as their origin.
const Version = "1.0"

// Codec is the vocabulary of A2A 1.0.
type Codec struct{}

var _ dialect.Codec = Codec{}

// ID returns dialect.V10.
func (Codec) ID() dialect.ID { return dialect.V10 }

// Version returns "1.0".
func (Codec) Version() string { return Version }

var operations = map[string]engine.Op{
	"SendMessage":                      engine.OpSend,
	"SendStreamingMessage":             engine.OpStream,
	"GetTask":                          engine.OpGet,
	"ListTasks":                        engine.OpList,
	"CancelTask":                       engine.OpCancel,
	"SubscribeToTask":                  engine.OpSubscribe,
	"CreateTaskPushNotificationConfig": engine.OpPushSet,
	"GetTaskPushNotificationConfig":    engine.OpPushGet,
	"ListTaskPushNotificationConfigs":  engine.OpPushList,
	"DeleteTaskPushNotificationConfig": engine.OpPushDelete,
	"GetExtendedAgentCard":             engine.OpExtendedCard,
}

// Operation maps a method name, which is that of the gRPC method too.
func (Codec) Operation(method string) (engine.Op, bool) {
	op, ok := operations[method]
	return op, ok
}

// Closes reports whether a stream ends after a status. A task that waits for input
// ends the stream of the send, since the next message opens another; one that waits
// for credentials goes on by itself once it has them. A subscription lives as long as
// the task.
func (Codec) Closes(op engine.Op, s task.State) bool {
	return s.Terminal() || op == engine.OpStream && s == task.StateInputRequired
}

// Error gives the code and the message of an error.
func (Codec) Error(err *task.Error) (code int, message string) { return fault.Base.Describe(err) }

// Details renders the google.rpc objects that say to programs what the error is.
func (Codec) Details(err *task.Error, in fault.Incident) []byte { return fault.Base.Details(err, in) }
