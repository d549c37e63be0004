package app

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/telemetry"
	"github.com/holdfast-a2a/holdfast/internal/worker"
)

// export registers the metrics that are read at each scrape.
func export(e *env, agents *agents, access *access, st *store.Store, keeper *worker.Keeper, probes []telemetry.Check) {
	e.metrics.Agents(agents.names...)
	p := telemetry.Process{
		Version: e.version, Checks: probes, LeaseMargin: keeper.Margin, Replicas: keeper.Processes, Slots: map[string]int{},
	}
	for _, a := range agents.worker {
		p.Slots[a.Name] = 0
		if e.cfg.HasRole(config.RoleWorker) {
			p.Slots[a.Name] = a.Concurrency
		}
	}
	if access.tls != nil {
		p.Certificate = access.tls.Expires
	}
	telemetry.RegisterProcess(e.registry, p)
	telemetry.RegisterQueue(e.registry, queueDepths(st, agents.names), agents.names...)
	for name, p := range st.Pools() {
		telemetry.RegisterPool(e.registry, name, func() telemetry.PoolStat { return p.Stat() })
	}
	if usesWebhooks(e.cfg) {
		telemetry.RegisterPushes(e.registry, pushCounts(st))
	}
}

func queueDepths(st *store.Store, agents []string) func(context.Context) ([]telemetry.QueueDepth, error) {
	return func(ctx context.Context) ([]telemetry.QueueDepth, error) {
		rows, err := st.QueueDepths(ctx)
		if err != nil {
			return nil, err
		}
		parked, err := st.Parked(ctx, agents)
		out := make([]telemetry.QueueDepth, 0, len(rows)+len(parked))
		for _, r := range rows {
			out = append(out, telemetry.QueueDepth{Agent: r.Agent, Waiting: r.Waiting, Timers: r.Timers, Calls: r.Calls, Running: r.Running, Oldest: r.Oldest, Away: r.Away})
		}
		for agent, tasks := range parked {
			out = append(out, telemetry.QueueDepth{Agent: agent, Parked: tasks})
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
