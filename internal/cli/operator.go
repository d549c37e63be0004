package cli

import (
	"context"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Operator looks into the database, across owners and tenants. An id is the public one
// or the internal UUID; one that nobody has is task.NotFound, and a public one that
// several callers use is task.Invalid with a message that says so.
type Operator interface {
	// ListTasks begins with the task that was created last.
	ListTasks(ctx context.Context, f TaskFilter) ([]TaskRow, error)
	GetTask(ctx context.Context, id string) (*task.Task, error)
	// TaskEvents are the events of every kind with a seq above after, oldest first.
	TaskEvents(ctx context.Context, id string, after task.Seq) ([]task.Event, error)
	Close()
}

// TaskFilter narrows ListTasks; zero values do not.
type TaskFilter struct {
	Agent   string
	State   task.State
	Context string
	Owner   string
	Limit   int
}

// TaskRow is a task in a list.
type TaskRow struct {
	ID        task.ID
	PublicID  string
	Agent     string
	State     task.State
	ContextID string
	Owner     string
	LastSeq   task.Seq
	StatusAt  time.Time
	CreatedAt time.Time
}
