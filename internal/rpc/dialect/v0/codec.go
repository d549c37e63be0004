package v0

import (
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/fault"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Codec is what these versions answer alike.
type Codec struct{}

// Page is never asked for: no method of these versions lists tasks.
func (Codec) Page(*engine.Page, dialect.View) ([]byte, error) {
	return nil, &task.Error{Kind: task.Unsupported}
}

// Details renders what leads an operator to the log. These versions define no more.
func (Codec) Details(_ *task.Error, in fault.Incident) []byte {
	if in.ID == "" {
		return nil
	}
	return []byte(`{"errorId":"` + in.ID + `"}`)
}
