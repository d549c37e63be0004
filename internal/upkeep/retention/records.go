package retention

import (
	"context"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
)

// family is a family of partitions besides those of tasks, and how long it is kept; 0: forever.
type family struct {
	partition.Family
	keep time.Duration
}

func (r *Retention) families() []family {
	return []family{{partition.Keys, r.Keys}, {partition.Attempts, r.Attempts}, {partition.Audit, r.Audit}}
}

// Records deletes idempotency keys, delivery attempts, audit entries and process names that are
// past their retention.
func (r *Retention) Records(ctx context.Context) (more bool, err error) {
	for _, family := range r.families() {
		if err := r.dropOld(ctx, family.Family, family.keep); err != nil {
			return false, err
		}
	}
	// Key partitions always cover one day, whatever the retention: uniqueness depends on it.
	if r.Keys > 0 {
		if more, err = r.Store.ForgetKeys(ctx, r.Keys); err != nil {
			return false, err
		}
	}
	if r.Processes > 0 {
		left, err := r.Store.ForgetProcesses(ctx, r.Processes)
		return more || left, err
	}
	return more, nil
}

// dropOld drops the partitions of a family whose newest row is past the retention keep.
func (r *Retention) dropOld(ctx context.Context, f partition.Family, keep time.Duration) error {
	detached, err := r.Store.Detached(ctx, f)
	if err != nil {
		return err
	}
	for _, name := range detached {
		if err := r.drop(ctx, name); err != nil {
			return err
		}
	}
	if keep == 0 {
		return nil
	}
	now, err := r.now(ctx)
	if err != nil {
		return err
	}
	all, err := r.Store.Partitions(ctx, f)
	if err != nil {
		return err
	}
	for _, p := range all {
		if p.To.Add(keep).After(now) {
			continue
		}
		if f.Name == partition.Audit.Name {
			if err := r.Store.RemoveAudit(ctx, p); err != nil {
				return err
			}
		}
		if err := r.Store.Detach(ctx, p); err != nil {
			return err
		}
		if err := r.drop(ctx, p.Table); err != nil {
			return err
		}
	}
	return nil
}

// drop removes a detached table. It deletes the progress first, because a later partition may have
// the same name.
func (r *Retention) drop(ctx context.Context, table string) error {
	if err := r.Store.ForgetProgress(ctx, table); err != nil {
		return err
	}
	if err := r.Store.Drop(ctx, table); err != nil {
		return err
	}
	r.Log.Info("partition dropped", "partition", table)
	return nil
}
