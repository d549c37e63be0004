package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker"
	"github.com/holdfast-a2a/holdfast/internal/worker/calls"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/remote"
)

// newKeeper makes the keeper, which holds the lease of this process.
func newKeeper(e *env, st *store.Store, h *hub.Hub, bus *signal.Bus) *worker.Keeper {
	return worker.NewKeeper(worker.KeeperOptions{
		Store: reachingLeases{st, h.Reached}, TTL: e.cfg.Worker.LeaseTTL, Log: e.log,
		Process: store.Process{Name: processName(), Version: e.Version, Roles: roles(e.cfg), Agents: served(e.cfg)},
		OnPeers: h.SetPeers, OnLost: bus.LeaseLost, Rescued: e.metrics.Rescued,
	})
}

// reachingLeases tells the hub when the database has answered about the lease, which it does at least
// every third of the lease.
type reachingLeases struct {
	*store.Store
	reached func()
}

// Register implements the keeper's store.
func (l reachingLeases) Register(ctx context.Context, p store.Process, ttl time.Duration) error {
	return l.tell(l.Store.Register(ctx, p, ttl))
}

// Renew implements the keeper's store.
func (l reachingLeases) Renew(ctx context.Context, id task.ID, ttl time.Duration) error {
	return l.tell(l.Store.Renew(ctx, id, ttl))
}

func (l reachingLeases) tell(err error) error {
	if err == nil || errors.Is(err, task.LeaseLost) {
		l.reached()
	}
	return err
}

// newPool makes the pool, which runs agents. Without the worker role it only has the agents' limits, for the run API, and
// is not run.
func newPool(
	e *env, agents *agents, st *store.Store, keeper *worker.Keeper, bus *signal.Bus, keys *executor.Keyring,
	resumeURL func(task.ID, int) string, runAPI func(task.ID, task.Fence) executor.API,
) *worker.Pool {
	m := e.metrics
	pool := worker.New(worker.Options{
		Store: st, Agents: agents.worker, StopGrace: e.cfg.Worker.StopGrace,
		Worker: keeper.ID, Keys: keys, ResumeURL: resumeURL, RunAPI: runAPI,
		Memory: e.memory.Runs, Tracer: e.tracer, Log: e.log,
		Observer: worker.Observer{Claimed: m.Claimed, Ran: m.Ran, Running: m.Running, Limited: m.Limited, Notice: m.Notice},
	})
	if !e.cfg.HasRole(config.RoleWorker) {
		return pool
	}
	bus.Queues.Subscribe(pool.Wake)
	bus.Cancels.Subscribe(pool.CancelHint)
	bus.Lost.Subscribe(func(struct{}) { pool.LoseAll() })
	return pool
}

// newCaller makes the part that lets agents call each other; nil without the worker role.
func newCaller(e *env, agents *agents, st *store.Store, bus *signal.Bus) *calls.Runner {
	if !e.cfg.HasRole(config.RoleWorker) {
		return nil
	}
	caller := calls.New(calls.Options{Store: st, Agents: agents.calls, Tracer: e.tracer, Log: e.log})
	bus.Calls.Subscribe(func(struct{}) { caller.Hint() })
	return caller
}

// reserve lets the engine claim a task with the statement that creates it. pool and remote may be nil.
func reserve(pool *worker.Pool, remote *remote.API) func(agent string) engine.Slot {
	return func(agent string) engine.Slot {
		if pool != nil {
			if slot := pool.Reserve(agent); slot != nil {
				return slot
			}
		}
		if remote != nil {
			if slot := remote.Reserve(agent); slot != nil {
				return slot
			}
		}
		return nil // not an interface with a nil slot
	}
}

// served tells peers and operators how this process runs its agents.
func served(cfg *config.Config) map[string]store.ServedAgent {
	all := map[string]store.ServedAgent{}
	for i := range cfg.Agents {
		all[cfg.Agents[i].Name] = store.ServedAgent{Tries: cfg.Agents[i].Limits.MaxAttempts, Slots: cfg.Agents[i].Slots()}
	}
	return all
}

func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

func roles(cfg *config.Config) string {
	names := make([]string, len(cfg.Roles))
	for i, r := range cfg.Roles {
		names[i] = string(r)
	}
	return strings.Join(names, ",")
}
