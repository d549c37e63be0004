// Package v03 speaks A2A 0.2 and 0.3 on JSON-RPC, which are one dialect there: the
// request of a 0.2.1 client cannot be told from one of 0.3.0. Answers are those of
// 0.3.0, of which the older ones are a part.
package v03

import (
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v0"
	"github.com/holdfast-a2a/holdfast/internal/rpc/fault"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Version is what tasks created in this dialect keep as their origin.
const Version = "0.3"

// Codec is the vocabulary of A2A 0.2 and 0.3.
type Codec struct{ v0.Codec }

var _ dialect.Codec = Codec{}

// ID returns dialect.V03.
func (Codec) ID() dialect.ID { return dialect.V03 }

// Version returns "0.3".
func (Codec) Version() string { return Version }

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

// Closes reports whether a status event with this state is final: the stream of a
// send and of a resubscription alike end when the task has settled.
func (Codec) Closes(_ engine.Op, s task.State) bool { return s.Settled() }

// Error gives the code and the message of an error.
func (Codec) Error(err *task.Error) (code int, message string) {
	return fault.Table03.Describe(err)
}
