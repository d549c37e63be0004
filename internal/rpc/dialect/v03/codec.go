// Package v03 speaks A2A 0.2 and 0.3 on JSON-RPC. There they are one dialect: a request of a 0.2.1
// client looks the same as one of 0.3.0. The answers are those of 0.3.0, which contain those of the
// older versions.
package v03

import (
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v0"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web/fault"
)

// Version is the stored origin of tasks created in this dialect.
const Version = "0.3"

// Codec is the vocabulary of A2A 0.2 and 0.3.
type Codec struct{ v0.Codec }

var _ dialect.Codec = Codec{}

// ID returns dialect.V03.
func (Codec) ID() dialect.ID { return dialect.V03 }

// Version returns "0.3".
func (Codec) Version() string { return Version }

var traits = dialect.Traits{
	ContextMember: "message.contextId", PartsMember: "message.parts", Extensions: true, EchoHeader: dialect.OldExtensionsHeader, Interfaces: true, AdoptsTaskIDs: true,
	Card: card.RenderLegacy, WholeTasks: true, TokenHeaders: []string{"X-A2A-Notification-Token"},
}

// Traits returns the traits of 0.3.
func (Codec) Traits() *dialect.Traits { return &traits }

var operations = map[string]engine.Op{
	"message/send":                        engine.OpSend,
	"message/stream":                      engine.OpStream,
	"tasks/get":                           engine.OpGet,
	"tasks/cancel":                        engine.OpCancel,
	"tasks/resubscribe":                   engine.OpSubscribe,
	"tasks/pushNotificationConfig/set":    engine.OpPushSet,
	"tasks/pushNotificationConfig/get":    engine.OpPushGet,
	"tasks/pushNotificationConfig/list":   engine.OpPushList,
	"tasks/pushNotificationConfig/delete": engine.OpPushDelete,
	"agent/getAuthenticatedExtendedCard":  engine.OpExtendedCard,
}

// Operation maps a method name.
func (Codec) Operation(method string) (engine.Op, bool) {
	op, ok := operations[method]
	return op, ok
}

// Closes reports whether a status event with this state is final. The streams of a send and of a
// resubscription both end when the task has settled.
func (Codec) Closes(_ engine.Op, s task.State) bool { return s.Settled() }

// 0.3 has no code for the state of a task or for extensions: such a request has invalid parameters.
// The document of 0.3 leaves the statuses open. These are the statuses of official servers.
var faults = fault.Base.Override(map[task.Kind]fault.JSONRPC{
	task.ExtensionRequired: {Code: -32602},
	task.Terminal:          {Code: -32602, Message: "Invalid parameters"},
}).Statuses(map[task.Kind]fault.Status{
	task.NotCancelable:        {HTTP: 409, GRPC: fault.GRPCFailedPrecondition},
	task.PushUnsupported:      {HTTP: 501, GRPC: fault.GRPCUnimplemented},
	task.Unsupported:          {HTTP: 501, GRPC: fault.GRPCUnimplemented},
	task.StreamingUnsupported: {HTTP: 501, GRPC: fault.GRPCUnimplemented},
	task.ContentType:          {HTTP: 415, GRPC: fault.GRPCInvalidArgument},
	task.BadAgentReply:        {HTTP: 502, GRPC: fault.GRPCInternal},
	task.NoExtendedCard:       {HTTP: 404, GRPC: fault.GRPCNotFound},
	task.Version:              {HTTP: 400, GRPC: fault.GRPCUnimplemented},
	task.Busy:                 {HTTP: 409, GRPC: fault.GRPCFailedPrecondition},
})

// Faults returns the table of 0.3.
func (Codec) Faults(bool) *fault.Table { return faults }

// Error gives the code and the message of an error.
func (Codec) Error(err *task.Error) (code int, message string) { return faults.Describe(err) }
