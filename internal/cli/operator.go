package cli

import (
	"context"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Operator looks into the database and acts on it, across owners and tenants. An id is
// the public one or the internal UUID; one that nobody has is task.NotFound, and a public
// one that several callers use is task.Invalid with a message that says so. While the
// database is away every method fails with task.Unavailable, and works again afterwards.
type Operator interface {
	// ListTasks begins with the task that was created last.
	ListTasks(ctx context.Context, f TaskFilter) ([]TaskRow, error)
	GetTask(ctx context.Context, id string) (*task.Task, error)
	// FindTask is GetTask without what was said and made.
	FindTask(ctx context.Context, id string) (*task.Task, error)
	// Events are the next events of every kind with a seq above after, oldest first; none
	// when the log is at its end.
	Events(ctx context.Context, t *task.Task, after task.Seq) ([]*task.Event, error)
	// Watch follows all tasks that the filter selects, but for its state.
	Watch(f TaskFilter) Watch
	// Cancel ends a task, or asks its worker to, which is when ended is false.
	// task.NotCancelable: it has ended already.
	Cancel(ctx context.Context, t *task.Task) (ended bool, err error)
	// Retry returns the task that gets another try: the same, or the new one that was made of
	// it. task.Busy, task.Terminal and task.Unsupported: there is nothing to retry.
	Retry(ctx context.Context, t *task.Task, last bool) (*task.Task, error)
	// CreateKey makes an API key that is valid for its lifetime (0: until it is revoked), and returns what the
	// client is to show, too.
	CreateKey(ctx context.Context, k *Key, lifetime time.Duration) (secret string, made *Key, err error)
	// Keys begins with the key that was made last.
	Keys(ctx context.Context) ([]*Key, error)
	// RevokeKey ends a key; task.NotFound: there is none of this id.
	RevokeKey(ctx context.Context, id string) (*Key, error)
	PushOperator
	// VerifyAudit says of each chain of the audit log whether it is what was written, and still has the heads noted.
	VerifyAudit(ctx context.Context, noted []store.AuditHead) ([]store.AuditChain, error)
	Close()
}

// Watch follows tasks from its first Next on, which returns nothing.
type Watch interface {
	// Next reads what is new; more says that there is more at hand. After an error the same
	// events come with the next call.
	Next(ctx context.Context) (evs []TaskEvent, more bool, err error)
	// Dropped counts the open tasks that are not followed because there are too many.
	Dropped() int
}

// TaskEvent is an event with the header of its task.
type TaskEvent struct {
	Task  *task.Task
	Event *task.Event
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
