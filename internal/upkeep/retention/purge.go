package retention

import (
	"context"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Purged counts what a purge has deleted.
type Purged struct {
	Tasks    int // tasks deleted from the database
	Held     int // tasks that stay because they are held
	Exported int // lines deleted from exports
}

// Purge deletes the tasks that match a filter, whatever their retention: from the tables, from the
// webhook queue, and from the exports of this machine. It writes an entry to the audit log. It
// blocks until all are deleted or ctx ends; another call continues. Errors: task.Invalid if the
// filter is empty.
func (r *Retention) Purge(ctx context.Context, f *store.PurgeFilter) (done Purged, err error) {
	return r.PurgeBy(ctx, f, r.Store.View)
}

// PurgeBy is Purge. The audit log names the actor of a view.
func (r *Retention) PurgeBy(ctx context.Context, f *store.PurgeFilter, by store.View) (done Purged, err error) {
	now, err := r.now(ctx)
	if err != nil {
		return done, err
	}
	if done, err = r.EraseBy(ctx, f, by); err != nil {
		return done, err
	}
	done.Exported, err = r.purgeExports(ctx, []*store.PurgeFilter{f}, now)
	return done, err
}

// PurgeExports deletes the lines of tasks that match one of the filters from the exports of this machine: what EraseBy leaves.
func (r *Retention) PurgeExports(ctx context.Context, filters []*store.PurgeFilter) (lines int, err error) {
	now, err := r.now(ctx)
	if err != nil {
		return 0, err
	}
	return r.purgeExports(ctx, filters, now)
}

// EraseBy is PurgeBy without the exports.
func (r *Retention) EraseBy(ctx context.Context, f *store.PurgeFilter, by store.View) (done Purged, err error) {
	if !f.Any() {
		return done, task.Errorf(task.Invalid, "the purge selects no tasks: name a task, owner, tenant, context, agent or age")
	}
	said := by.AuditPurge(f)
	for after := (task.ID{}); ; {
		ids, held, err := r.Store.ToPurge(ctx, f, after)
		if err != nil {
			return done, err
		}
		if len(ids) == 0 {
			break
		}
		began := time.Now()
		gone, err := r.Store.Erase(ctx, ids, true, said)
		if err != nil {
			return done, err
		}
		done.Tasks += len(gone)
		done.Held += held
		if len(gone)+held < len(ids) {
			// Another statement has locked some of them for a moment: retry this page.
			done.Held -= held
			began = began.Add(-20 * time.Millisecond)
		} else {
			after = ids[len(ids)-1]
		}
		for more := true; more; {
			if more, err = r.Store.EraseLogs(ctx); err != nil {
				return done, err
			}
		}
		if !yield(ctx, time.Since(began)) {
			return done, ctx.Err()
		}
	}
	return done, nil
}
