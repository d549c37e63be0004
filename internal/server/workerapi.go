package server

import (
	"time"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/worker"
	"github.com/holdfast-a2a/holdfast/internal/worker/remote"
)

// mostClaims bounds the requests of workers that wait at a replica: each idle worker has one.
const mostClaims = 20_000

// newWorkerAPI makes the handler of the worker API; nil without the api role. pool has the agents.
func newWorkerAPI(e *env, agents *agents, access *access, st *store.Store, pool *worker.Pool, bus *signal.Bus) *remote.API {
	if !e.cfg.HasRole(config.RoleAPI) {
		return nil
	}
	schemes := make([]string, 0, len(e.cfg.Auth.Schemes))
	for i := range e.cfg.Auth.Schemes {
		schemes = append(schemes, e.cfg.Auth.Schemes[i].Name)
	}
	m := e.metrics
	api := remote.New(remote.Options{
		Store: st, Pool: pool, Leases: agents.leases, History: agents.history, Auth: access.workers, Schemes: schemes,
		Memory: e.memory, Limits: bodyLimits(e.cfg), Poll: time.Second, Replica: processName(), Log: e.log,
		Forgiving: e.Ready != nil,
		Claims:    limit.NewPlaces[limit.Holder](mostClaims, mostClaims),
		Observer:  remote.Observer{Claimed: m.Claimed, Waiting: m.ClaimsWaiting, Beat: m.Heartbeat},
	})
	bus.Queues.Subscribe(api.Wake)
	bus.Cancels.Subscribe(api.Hint)
	return api
}

// newWatch makes the duty that looks after the runs of remote workers. api may be nil.
func newWatch(e *env, agents *agents, st *store.Store, pool *worker.Pool, keeper *worker.Keeper, api *remote.API) *remote.Watch {
	return remote.NewWatch(remote.WatchOptions{
		Store: st, Pool: pool, Leases: agents.leases, Healthy: keeper.HealthyFor, Process: keeper.ID, Expired: e.metrics.LeasesExpired, API: api,
	})
}
