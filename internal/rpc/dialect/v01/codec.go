// Package v01 speaks A2A 0.1: the texts before the first numbered document, and both editions of
// 0.1.0. Clients choose the ids of tasks, artifacts have an index instead of an id, and messages
// have no ids. A bare message never answers a send.
package v01

import (
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v0"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web/fault"
)

// Version is the stored origin of tasks created in this dialect.
const Version = "0.1"

// Codec is the vocabulary of A2A 0.1.
type Codec struct{ v0.Codec }

var _ dialect.Codec = Codec{}

var traits = dialect.Traits{
	ID: dialect.V01, Version: Version, Operations: operations, Faults: faults,
	ContextMember: "sessionId", PartsMember: "message.parts", EchoHeader: dialect.ExtensionsHeader, ReopensTasks: true,
	Card: card.RenderLegacy, WholeTasks: true, TokenHeaders: []string{"X-A2A-Notification-Token", "X-A2A-Token"},
	IDsOnRequest: true,                                                                                // samples/js
	EventNames:   &dialect.EventNames{Status: "task_status_update", Artifact: "task_artifact_update"}, // of trpc-a2a-go 0.0.x
}

// Traits returns the traits of 0.1.
func (Codec) Traits() *dialect.Traits { return &traits }

var operations = map[string]engine.Op{
	"tasks/send":                 engine.OpSend,
	"tasks/sendSubscribe":        engine.OpStream,
	"tasks/get":                  engine.OpGet,
	"tasks/cancel":               engine.OpCancel,
	"tasks/resubscribe":          engine.OpSubscribe,
	"tasks/pushNotification/set": engine.OpPushSet,
	"tasks/pushNotification/get": engine.OpPushGet,
}

// The second edition has codes for conditions that no other version has codes for. Later versions
// use the numbers from -32006 on for something else.
var faults = fault.Base.Override(map[task.Kind]fault.JSONRPC{
	task.StreamingUnsupported: {Code: -32006},
	task.BadAgentReply:        {Code: -32603},
	task.NoExtendedCard:       {Code: -32004},
	task.ExtensionRequired:    {Code: -32602},
	task.Terminal:             {Code: -32009, Message: "Invalid task state for operation"},
	task.Busy:                 {Code: -32009, Message: "Invalid task state for operation"},
	task.Unauthenticated:      {Code: -32007},
	task.Forbidden:            {Code: -32008},
	task.RateLimited:          {Code: -32010},
	task.Unavailable:          {Code: -32011},
})
