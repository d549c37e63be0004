package retention

import (
	"context"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Erase deletes a task, whatever its retention, from the tables and from the webhook queue. It waits while another statement has
// locked the task. The audit log names the actor of a view. held says that the task stays because it is held.
func (r *Retention) Erase(ctx context.Context, id task.ID, by store.View) (held bool, err error) {
	for {
		gone, err := r.Store.Erase(ctx, []task.ID{id}, true, by.AuditPurge(id))
		for more := err == nil; more && err == nil; {
			more, err = r.Store.EraseLogs(ctx)
		}
		if err != nil || len(gone) > 0 {
			return false, err
		}
		left, err := r.Store.TasksByID(ctx, []task.ID{id})
		if err != nil || len(left) == 0 {
			return false, err // another purge has deleted it
		}
		if !left[0].HeldAt.IsZero() {
			return true, nil
		}
		if !yield(ctx, 20*time.Millisecond) {
			return false, ctx.Err()
		}
	}
}
