// Package v01 speaks A2A 0.1: the texts before the first numbered document, and
// both editions of 0.1.0. Clients choose the ids of tasks, artifacts are known by
// their index, messages have no ids, and a send is never answered by a bare message.
package v01

import (
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v0"
	"github.com/holdfast-a2a/holdfast/internal/rpc/fault"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Version is what tasks created in this dialect keep as their origin.
const Version = "0.1"

// Codec is the vocabulary of A2A 0.1.
type Codec struct{ v0.Codec }

var _ dialect.Codec = Codec{}

// ID returns dialect.V01.
func (Codec) ID() dialect.ID { return dialect.V01 }

// Version returns "0.1".
func (Codec) Version() string { return Version }

var operations = map[string]engine.Op{
	"tasks/send":                 engine.OpSend,
	"tasks/sendSubscribe":        engine.OpStream,
	"tasks/get":                  engine.OpGet,
	"tasks/cancel":               engine.OpCancel,
	"tasks/resubscribe":          engine.OpSubscribe,
	"tasks/pushNotification/set": engine.OpPushSet,
	"tasks/pushNotification/get": engine.OpPushGet,
}

// Operation maps a method name.
func (Codec) Operation(method string) (engine.Op, bool) {
	op, ok := operations[method]
	return op, ok
}

// Closes reports whether a status event with this state is final: the stream of a
// send and of a resubscription alike end when the task has settled.
func (Codec) Closes(_ engine.Op, s task.State) bool { return s.Settled() }

// The second edition numbers conditions that no other version has codes for, and
// numbers from -32006 on mean something else in every later one.
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

// Error gives the code and the message of an error.
func (Codec) Error(err *task.Error) (code int, message string) { return faults.Describe(err) }
