package v0

import (
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web/fault"
)

// Codec is the common part of these versions' codecs.
type Codec struct{}

// Page is never called: no method of these versions lists tasks.
func (Codec) Page(*engine.Page, dialect.View) ([]byte, error) {
	return nil, &task.Error{Kind: task.Unsupported}
}

// Closes reports whether a status event with this state is final. The streams of a send and of a
// resubscription both end when the task has settled.
func (Codec) Closes(_ engine.Op, s task.State) bool { return s.Settled() }

// Details renders the id that leads an operator to the log line. These versions define nothing
// else.
func (Codec) Details(_ *task.Error, in fault.Incident) []byte {
	if in.ID == "" {
		return nil
	}
	return []byte(`{"errorId":"` + in.ID + `"}`)
}
