package v03

import (
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Union reads as Codec does. It writes the same documents and adds the members that 0.1 looks for.
// These are sessionId, the type of a part and the index of an artifact. In events they are the id
// and the marks of a chunk. Clients ignore members that they do not know. Union is for requests
// that read the same in both versions. States keep their names of 0.3.
type Union struct{ Codec }

var _ dialect.Codec = Union{}

// ID returns dialect.V03Union.
func (Union) ID() dialect.ID { return dialect.V03Union }

// Result renders the task.
func (Union) Result(op engine.Op, t *task.Task, v dialect.View) ([]byte, error) {
	return union.result(op, t, v), nil
}

// Opening renders the task with all its history, and the final status if it has settled.
func (Union) Opening(op engine.Op, t *task.Task) ([][]byte, error) { return union.opening(op, t), nil }

// Event renders a status or artifact event.
func (Union) Event(t *task.Task, e *task.Event) ([]byte, error) {
	return union.event(t, e, e.State.Settled()), nil
}

// Passed renders a status event that is not marked as final.
func (Union) Passed(t *task.Task, e *task.Event) ([]byte, error) {
	return union.event(t, e, false), nil
}
