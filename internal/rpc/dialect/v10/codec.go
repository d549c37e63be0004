// Package v10 speaks A2A 1.0: the ProtoJSON of the package lf.a2a.v1, in every binding. JSON-RPC
// carries it in envelopes, HTTP+JSON carries it bare, and gRPC converts its messages to and from
// it.
package v10

import (
	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web/fault"
)

// Version is the stored origin of tasks created in this dialect.
const Version = "1.0"

// MediaType is the media type of its documents, besides that of JSON.
const MediaType = "application/a2a+json"

// Codec is the vocabulary of A2A 1.0.
type Codec struct{}

var _ dialect.Codec = Codec{}

var traits = dialect.Traits{
	ID: dialect.V10, Version: Version, Operations: operations, Faults: &fault.Base, Former: former,
	ContextMember: "message.contextId", PartsMember: "message.parts", Extensions: true, EchoHeader: dialect.ExtensionsHeader, Interfaces: true, Tenants: true,
	Card: card.RenderStrict, UndeclaredCards: true,
	TokenHeaders: []string{"X-A2A-Notification-Token", "A2A-Notification-Token"}, AuthorizesKeys: true,
}

// Traits returns the traits of 1.0.
func (Codec) Traits() *dialect.Traits { return &traits }

// operations have the names of the gRPC methods.
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

// Closes reports whether a stream ends after a status. A task that waits for input or credentials
// ends the stream of the send (§11.7): only a message resumes the task, and that message opens
// another stream. A subscription lives as long as the task.
func (Codec) Closes(op engine.Op, s task.State) bool {
	return s.Terminal() || op == engine.OpStream && s.Settled()
}

// The statuses of 1.0.0 that 1.0.1 has changed. Clients read the reason; conformance suites read
// the number.
var former = fault.Base.Statuses(map[task.Kind]fault.Status{
	task.NotCancelable:        {HTTP: 409, GRPC: code.Code_FAILED_PRECONDITION},
	task.PushUnsupported:      {HTTP: 400, GRPC: code.Code_UNIMPLEMENTED},
	task.Unsupported:          {HTTP: 400, GRPC: code.Code_UNIMPLEMENTED},
	task.StreamingUnsupported: {HTTP: 400, GRPC: code.Code_UNIMPLEMENTED},
	task.ContentType:          {HTTP: 415, GRPC: code.Code_INVALID_ARGUMENT},
	task.BadAgentReply:        {HTTP: 502, GRPC: code.Code_INTERNAL},
	task.Version:              {HTTP: 400, GRPC: code.Code_UNIMPLEMENTED},
})

// Details renders the google.rpc objects that describe an error to programs.
func (Codec) Details(err *task.Error, in fault.Incident) []byte { return fault.Base.Details(err, in) }
