// Package v03proto speaks A2A 0.3 in the shapes of its proto file, a2a.v1: over HTTP+JSON as
// ProtoJSON, and over gRPC. The document says that HTTP+JSON has the shapes of JSON-RPC, but no
// client uses them. The codec reads those shapes and never writes them.
package v03proto

import (
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v03"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Codec is the vocabulary of a2a.v1. Version, errors and the end of streams come from the codec of
// JSON-RPC.
type Codec struct {
	v03.Codec
	// Younger uses the names that the proto file got after 0.3.0, and its references between
	// tasks. gRPC does not send names, and the messages of the official library have these.
	Younger bool
}

var _ dialect.Codec = Codec{}

var traits = func() dialect.Traits {
	t := *v03.Codec{}.Traits()
	t.ID, t.Operations = dialect.V03Proto, operations
	t.PartsMember = "message.content"
	t.Card = card.RenderEither
	return t
}()

// Traits returns the traits of 0.3. The parts of a message have another name, and cards the members of the proto file, too.
func (Codec) Traits() *dialect.Traits { return &traits }

// ListTasks is missing in the proto file of 0.3.0. The official library's younger file has it, and
// the document has tasks/list for HTTP+JSON.
var operations = map[string]engine.Op{
	"SendMessage":                      engine.OpSend,
	"SendStreamingMessage":             engine.OpStream,
	"GetTask":                          engine.OpGet,
	"ListTasks":                        engine.OpList,
	"CancelTask":                       engine.OpCancel,
	"TaskSubscription":                 engine.OpSubscribe,
	"CreateTaskPushNotificationConfig": engine.OpPushSet,
	"GetTaskPushNotificationConfig":    engine.OpPushGet,
	"ListTaskPushNotificationConfig":   engine.OpPushList,
	"DeleteTaskPushNotificationConfig": engine.OpPushDelete,
	"GetAgentCard":                     engine.OpExtendedCard,
}

// Opening renders the task with all its history. If the task has settled, the final status event
// that a client waits for follows.
func (c Codec) Opening(op engine.Op, t *task.Task) ([][]byte, error) {
	documents := [][]byte{c.style().Opening(op, t)}
	bare := op == engine.OpStream && t.Direct && t.Status.Message != nil
	if t.Status.State.Settled() && !bare {
		e := &task.Event{Kind: task.EventStatus, State: t.Status.State, Message: t.Status.Message, At: t.Status.At}
		documents = append(documents, c.style().Event(t, e, true))
	}
	return documents, nil
}
