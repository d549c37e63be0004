package app

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/telemetry"
	"github.com/holdfast-a2a/holdfast/internal/worker"
)

// export registers the metrics that are read from the database and its pools at each scrape.
func export(e *env, agents *agents, st *store.Store) {
	e.metrics.Agents(agents.names...)
	telemetry.RegisterQueue(e.registry, queueDepths(st), agents.names...)
	for name, p := range st.Pools() {
		telemetry.RegisterPool(e.registry, name, func() telemetry.PoolStat { return p.Stat() })
	}
	if usesWebhooks(e.cfg) {
		telemetry.RegisterPushes(e.registry, pushCounts(st))
	}
}

func queueDepths(st *store.Store) func(context.Context) ([]telemetry.QueueDepth, error) {
	return func(ctx context.Context) ([]telemetry.QueueDepth, error) {
		rows, err := st.QueueDepths(ctx)
		out := make([]telemetry.QueueDepth, len(rows))
		for i, r := range rows {
			out[i] = telemetry.QueueDepth{Agent: r.Agent, Waiting: r.Waiting, Timers: r.Timers, Calls: r.Calls, Running: r.Running, Oldest: r.Oldest, Away: r.Away}
		}
		return out, err
	}
}

func pushCounts(st *store.Store) func(context.Context) (telemetry.Pushes, error) {
	return func(ctx context.Context) (telemetry.Pushes, error) {
		n, err := st.CountPushes(ctx)
		return telemetry.Pushes{Backlog: n.Backlog, Oldest: n.Oldest, Disabled: n.Disabled}, err
	}
}

// checks returns the checks of /readyz.
func checks(stopping *atomic.Bool, st *store.Store, keeper *worker.Keeper, h *hub.Hub) []telemetry.Check {
	return []telemetry.Check{
		{Name: "serving", Probe: func(context.Context) (string, error) {
			// A load balancer should send the next request elsewhere while this process finishes its runs.
			if stopping.Load() {
				return "", errors.New("stopping")
			}
			return "", nil
		}},
		// This check commits, so it is shared. The others are free and answer at once.
		telemetry.Check{Name: "database", Probe: func(ctx context.Context) (string, error) {
			start := time.Now()
			if err := st.Health(ctx); err != nil {
				return "", err
			}
			return fmt.Sprintf("committed in %s", time.Since(start).Round(10*time.Microsecond)), nil
		}}.Shared(),
		{Name: "lease", Probe: func(context.Context) (string, error) {
			if !keeper.Healthy() {
				return "", errors.New("the lease is not renewed")
			}
			return keeper.ID().String(), nil
		}},
		{Name: "listener", Probe: func(context.Context) (string, error) {
			detail, degraded := h.Health()
			if degraded {
				return "", telemetry.Degraded(errors.New(detail))
			}
			return detail, nil
		}},
	}
}
