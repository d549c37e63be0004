package store

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// turnstile lets one request at a time write to a task. If another session has locked the task, one
// request waits for the lock, on one connection, and the others wait here, without any. So a locked
// task leaves the pool to the requests of others.
type turnstile struct {
	patience time.Duration
	mu       sync.Mutex
	tasks    map[task.ID]*turn
}

type turn struct {
	busy   chan struct{} // holds one element while a request writes
	people int           // requests that write or wait
}

// turnPatience bounds the wait for other requests' writes to the same task.
const turnPatience = 5 * time.Second

var errCrowded = &task.Error{
	Kind: task.Unavailable, RetryAfter: retryAfter,
	Msg: "other requests have waited for this task for 5 seconds; another session may have locked it; retry",
}

// enter waits until no other request of this process writes to the task. The caller calls leave
// after its write. Errors: task.Unavailable after the patience, or when ctx ends.
func (t *turnstile) enter(ctx context.Context, id task.ID) (leave func(), err error) {
	own := t.come(id)
	ctx, cancel := context.WithTimeoutCause(ctx, t.patience, errCrowded)
	defer cancel()
	select {
	case own.busy <- struct{}{}:
		return t.leave(id, own), nil
	case <-ctx.Done():
		t.gone(id, own)
		return nil, translate("wait for the task", context.Cause(ctx))
	}
}

// try is enter without a wait.
func (t *turnstile) try(id task.ID) (leave func(), entered bool) {
	own := t.come(id)
	select {
	case own.busy <- struct{}{}:
		return t.leave(id, own), true
	default:
		t.gone(id, own)
		return nil, false
	}
}

func (t *turnstile) come(id task.ID) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tasks == nil {
		t.tasks = map[task.ID]*turn{}
	}
	own := t.tasks[id]
	if own == nil {
		own = &turn{busy: make(chan struct{}, 1)}
		t.tasks[id] = own
	}
	own.people++
	return own
}

func (t *turnstile) leave(id task.ID, own *turn) func() {
	return func() { <-own.busy; t.gone(id, own) }
}

func (t *turnstile) gone(id task.ID, own *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own.people--; own.people == 0 {
		delete(t.tasks, id)
	}
}
