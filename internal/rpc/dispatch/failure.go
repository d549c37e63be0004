package dispatch

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/google/uuid"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Known converts an error to an error of the domain. ours is set for internal faults: the client
// sees no details of them, and LogFault logs them for the operator.
func Known(err error) (e *task.Error, ours bool) {
	if !errors.As(err, &e) {
		e = &task.Error{Kind: task.KindOf(err), Cause: err}
	}
	return e, e.Kind == task.Internal || e.Kind == task.LeaseLost
}

// Panicked converts the value of a panic to an error.
func Panicked(v any) error { return fmt.Errorf("panic: %v", v) }

// LogFault logs an internal fault. It returns the id by which an operator finds the log line that a
// client reports.
func LogFault(log *slog.Logger, op engine.Op, taskID string, err error, attrs ...any) (id string) {
	id = uuid.NewString()
	log.Error("request failed", append(attrs, "error_id", id, "operation", op.String(), "task_id", task.Shown(taskID), "error", err)...)
	return id
}
