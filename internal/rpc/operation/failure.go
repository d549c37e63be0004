package operation

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Known is an error as the domain knows it, and whether it is a fault of our own: of
// such a one the client sees nothing, and LogFault makes a line for the operator.
func Known(err error) (e *task.Error, ours bool) {
	if !errors.As(err, &e) {
		e = &task.Error{Kind: task.KindOf(err), Cause: err}
	}
	return e, e.Kind == task.Internal || e.Kind == task.LeaseLost
}

// Panicked is what a panic was about, as an error.
func Panicked(v any) error { return fmt.Errorf("panic: %v", v) }

// LogFault writes the line of a fault of our own, and returns the id by which a client
// can lead an operator to it.
func LogFault(log *slog.Logger, op engine.Op, taskID string, err error, attrs ...any) (id string) {
	id = uuid.NewString()
	log.Error("request failed", append(attrs, "error_id", id, "operation", op.String(), "task_id", taskID, "error", err)...)
	return id
}
