// Package v03 speaks A2A 0.2 and 0.3 on JSON-RPC. There they are one dialect: a request of a 0.2.1
// client looks the same as one of 0.3.0. The answers are those of 0.3.0, which contain those of the
// older versions.
package v03

import (
	"google.golang.org/genproto/googleapis/rpc/code"

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
type Codec struct {
	v0.Codec
	// Union adds to the documents what a client of 0.1 looks for: sessionId, the type of a part and the index of an artifact, and
	// in events the id and the marks of a chunk. Clients ignore members that they do not know. It is for requests that read the
	// same in both versions. States keep their names of 0.3.
	Union bool
}

var _ dialect.Codec = Codec{}

var traits = dialect.Traits{
	ID: dialect.V03, Version: Version, Operations: operations, Faults: faults,
	ContextMember: "message.contextId", PartsMember: "message.parts", Extensions: true, EchoHeader: dialect.OldExtensionsHeader, Interfaces: true, AdoptsTaskIDs: true,
	Card: card.RenderLegacy, WholeTasks: true, TokenHeaders: []string{"X-A2A-Notification-Token"},
}

// unionTraits differ in the ID alone: caches keep the two forms of an event apart.
var unionTraits = func() dialect.Traits {
	t := traits
	t.ID = dialect.V03Union
	return t
}()

// Traits returns the traits of 0.3.
func (c Codec) Traits() *dialect.Traits {
	if c.Union {
		return &unionTraits
	}
	return &traits
}

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

// 0.3 has no code for the state of a task or for extensions: such a request has invalid parameters.
// The document of 0.3 leaves the statuses open. These are the statuses of official servers.
var faults = fault.Base.Override(map[task.Kind]fault.JSONRPC{
	task.ExtensionRequired: {Code: -32602},
	task.Terminal:          {Code: -32602, Message: "Invalid parameters"},
}).Statuses(map[task.Kind]fault.Status{
	task.NotCancelable:        {HTTP: 409, GRPC: code.Code_FAILED_PRECONDITION},
	task.PushUnsupported:      {HTTP: 501, GRPC: code.Code_UNIMPLEMENTED},
	task.Unsupported:          {HTTP: 501, GRPC: code.Code_UNIMPLEMENTED},
	task.StreamingUnsupported: {HTTP: 501, GRPC: code.Code_UNIMPLEMENTED},
	task.ContentType:          {HTTP: 415, GRPC: code.Code_INVALID_ARGUMENT},
	task.BadAgentReply:        {HTTP: 502, GRPC: code.Code_INTERNAL},
	task.NoExtendedCard:       {HTTP: 404, GRPC: code.Code_NOT_FOUND},
	task.Version:              {HTTP: 400, GRPC: code.Code_UNIMPLEMENTED},
	task.Busy:                 {HTTP: 409, GRPC: code.Code_FAILED_PRECONDITION},
})
