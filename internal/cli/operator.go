package cli

import (
	"context"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Operator reads and changes the database, across owners and tenants, by itself or through the admin API of a server. An id is the public id or the internal UUID. An
// unknown id is task.NotFound. A public id that several callers use is task.Invalid, and the message says so. While the
// database is unavailable, every method fails with task.Unavailable; later calls work again.
type Operator interface {
	// ListTasks returns the newest tasks first.
	ListTasks(ctx context.Context, f TaskFilter) ([]TaskRow, error)
	GetTask(ctx context.Context, id string) (*task.Task, error)
	// Calls returns the calls of a task, and the one that has created it.
	Calls(ctx context.Context, t *task.Task) ([]store.CallRow, error)
	// FindTask returns a task without its messages and artifacts.
	FindTask(ctx context.Context, id string) (*task.Task, error)
	// Events returns the next events of every kind with a seq above after, oldest first. It returns none at the end of
	// the log.
	Events(ctx context.Context, t *task.Task, after task.Seq) ([]*task.Event, error)
	// Watch follows all tasks that the filter selects, except by state.
	Watch(f TaskFilter) Watch
	// Cancel ends a task, or asks its worker to end it; then ended is false. task.NotCancelable: the task has already
	// ended.
	Cancel(ctx context.Context, t *task.Task) (ended bool, err error)
	// Retry returns the task that gets another try: the same task, or a new one made from it. task.Busy, task.Terminal
	// and task.Unsupported: there is nothing to retry.
	Retry(ctx context.Context, t *task.Task, last bool) (*task.Task, error)
	// CreateKey makes an API key that is valid for its lifetime (0: until it is revoked). It also returns the secret
	// that the client shows.
	CreateKey(ctx context.Context, k *Key, lifetime time.Duration) (secret string, made *Key, err error)
	// Keys returns the newest keys first.
	Keys(ctx context.Context) ([]*Key, error)
	// RevokeKey revokes a key. task.NotFound: no key has this id.
	RevokeKey(ctx context.Context, id string) (*Key, error)
	PushOperator
	RetentionOperator
	WorkersOperator
	AgentsOperator
	// Audit returns the newest rows of the audit log first that have an entry of the filter, but none before since.
	Audit(ctx context.Context, f *store.AuditFilter, since time.Time, limit int) ([]store.AuditRow, error)
	// VerifyAudit reports for each chain of the audit log whether it is unchanged and still has the noted heads.
	VerifyAudit(ctx context.Context, noted []store.AuditHead) ([]store.AuditChain, error)
	Close()
}

// Watch follows tasks. Its first Next returns no events and sets the starting point.
type Watch interface {
	// Next reads new events; more says that it can read more at once. After an error, the next call returns the same
	// events.
	Next(ctx context.Context) (evs []TaskEvent, more bool, err error)
	// Dropped returns the number of open tasks that are not followed because there are too many.
	Dropped() int
}

// TaskEvent is an event with the header of its task.
type TaskEvent struct {
	Task  *task.Task
	Event *task.Event
}

// TaskFilter selects tasks for ListTasks. Zero values select all.
type TaskFilter struct {
	Agent   string
	State   task.State
	Context string
	Tenant  *string // "": callers without a tenant
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
	Tenant    string
	Owner     string
	LastSeq   task.Seq
	StatusAt  time.Time
	CreatedAt time.Time
}
