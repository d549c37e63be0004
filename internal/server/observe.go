package server

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/pg/schema"
	"github.com/holdfast-a2a/holdfast/internal/server/keys"
	"github.com/holdfast-a2a/holdfast/internal/server/telemetry"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/worker"
)

// export registers the metrics that are not counted by the parts themselves, and creates the series of what is configured.
func export(e *env, agents *agents, access *access, st *store.Store, keeper *worker.Keeper, ring *keys.Ring, probes []telemetry.Check) error {
	e.metrics.Agents(agents.names...)
	e.metrics.Schemes(schemes(e.cfg))
	latest, err := schema.Latest()
	if err != nil {
		return err
	}
	p := telemetry.Process{
		Version: e.Version, Commit: e.Commit, Schema: latest,
		Checks: probes, LeaseMargin: keeper.Margin, Replicas: keeper.Processes, Slots: map[string]int{},
	}
	for _, a := range agents.worker {
		p.Slots[a.Name] = 0
		if e.cfg.HasRole(config.RoleWorker) && !a.Remote {
			p.Slots[a.Name] = a.Concurrency
		}
	}
	if access.tls != nil {
		p.Certificate = access.tls.Expires
	}
	if ring != nil {
		p.SigningKey = ring.Times
	}
	telemetry.RegisterProcess(e.registry, p)
	pools := map[string]func() telemetry.PoolStat{}
	for name, p := range st.Pools() {
		pools[name] = func() telemetry.PoolStat { return p.Stat() }
	}
	telemetry.RegisterPools(e.registry, pools)
	e.figures.export(e, agents.names)
	return nil
}

// schemes returns the names of all schemes of authentication, and of those with an issuer whose keys are fetched.
func schemes(cfg *config.Config) (names, issuers []string) {
	for i := range cfg.Auth.Schemes {
		s := &cfg.Auth.Schemes[i]
		names = append(names, s.Name)
		if s.Kind == config.AuthJWT {
			issuers = append(issuers, s.Name)
		}
	}
	return names, issuers
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
