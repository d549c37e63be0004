package server

import (
	"context"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/admin"
	"github.com/holdfast-a2a/holdfast/internal/server/keys"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/upkeep"
	"github.com/holdfast-a2a/holdfast/internal/worker"
	"github.com/holdfast-a2a/holdfast/internal/worker/calls"
	"github.com/holdfast-a2a/holdfast/internal/worker/remote"
)

// newDuties lists the periodic work of this process. pool and caller are nil without the worker role; ring may be nil.
func newDuties(e *env, st *store.Store, keeper *worker.Keeper, pool *worker.Pool, caller *calls.Runner, watch *remote.Watch, ring *keys.Ring, operators *admin.API) *upkeep.Runner {
	duties := []upkeep.Duty{
		{Name: "partitions", Every: ahead(e.cfg), Alone: true, Run: partitions(e, st)},
		{Name: "admin_jobs", Every: time.Second, Timeout: time.Minute, Run: operators.RunJob},
	}
	duties = append(duties, retentionDuties(e, st)...)
	duties = append(duties, figureDuties(e, st)...)
	if pool != nil {
		// The timeout must leave time to find canceled and lost runs within a lease.
		duties = append(duties, upkeep.Duty{
			Name: "runs", Every: time.Second, Timeout: max(e.cfg.Worker.LeaseTTL/3, time.Second), Run: whole(pool.Reconcile),
		}, upkeep.Duty{Name: "timers", Every: time.Second, Run: timers(st)},
			upkeep.Duty{Name: "cancels", Every: time.Second, Run: whole(pool.Notices)},
			upkeep.Duty{Name: "calls", Every: time.Second, Wake: caller.Wake(), Run: caller.Run},
			upkeep.Duty{Name: "relays", Every: time.Second, Run: caller.Relay})
	}
	duties = append(duties, upkeep.Duty{Name: "remote_runs", Every: time.Second, Run: watch.Run})
	if ring != nil {
		duties = append(duties, upkeep.Duty{Name: "signing_keys", Every: time.Minute, Run: whole(ring.Refresh)})
	}
	for _, d := range duties {
		e.metrics.Duties(d.Name)
	}
	return upkeep.New(upkeep.Options{
		Duties: duties, Leases: st, Holder: keeper.ID, Ran: e.metrics.DutyRan, Log: e.log,
	})
}

// whole wraps work that has no more to do after each call.
func whole(do func(context.Context) error) func(context.Context) (bool, error) {
	return func(ctx context.Context) (more bool, err error) { return false, do(ctx) }
}

// timers fires the timers of waits. A look waits after one that took long.
func timers(st *store.Store) func(context.Context) (bool, error) {
	var pace store.Pace
	return func(ctx context.Context) (more bool, err error) {
		begun := time.Now()
		if !pace.Due(begun) {
			return false, nil
		}
		more, err = st.FireTimers(ctx)
		if err == nil && !more {
			pace.Looked(begun, 0)
		}
		return more, err
	}
}

// partitions creates future partitions.
func partitions(e *env, st *store.Store) func(context.Context) (bool, error) {
	return whole(func(ctx context.Context) error {
		made, err := st.EnsurePartitions(ctx)
		if len(made) > 0 {
			e.log.Info("partitions created", "partitions", made)
		}
		return err
	})
}

// prepare does the work that must be done before the first request and the first run.
func prepare(ctx context.Context, e *env, st *store.Store, keeper *worker.Keeper, ring *keys.Ring) error {
	// A write without a partition creates it, but that is slow.
	if _, err := st.EnsurePartitions(ctx); err != nil {
		e.log.Warn("partitions not all created", "error", err)
	}
	if ring != nil {
		if err := persist(ctx, e.log, "signing keys", func() error { return ring.Refresh(ctx) }); err != nil {
			return err
		}
	}
	// At the end: nothing renews the lease until the server runs.
	return persist(ctx, e.log, "register this process", func() error { return keeper.Start(ctx) })
}
