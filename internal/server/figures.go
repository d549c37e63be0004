package server

import (
	"context"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/server/telemetry"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/upkeep"
)

// figures are the metrics about the whole cluster. One replica at a time reads each of them, whatever the number of replicas.
type figures struct {
	measureEvery time.Duration

	queue    *telemetry.Figures[[]store.QueueDepth]
	pushes   *telemetry.Figures[store.PushCounts]
	database *telemetry.Figures[*store.Figures]
}

const (
	countEvery   = 10 * time.Second
	countTimeout = 5 * time.Second
)

func newFigures(cfg *config.Config) *figures {
	// Partitions of a short retention end soon.
	every := min(5*time.Minute, ahead(cfg))
	return &figures{
		measureEvery: every,
		queue:        telemetry.NewFigures[[]store.QueueDepth](3 * countEvery),
		pushes:       telemetry.NewFigures[store.PushCounts](3 * countEvery),
		database:     telemetry.NewFigures[*store.Figures](3 * every),
	}
}

func (f *figures) export(e *env, agents []string) {
	telemetry.RegisterQueue(e.registry, f.queue, agents...)
	telemetry.RegisterDatabase(e.registry, f.database)
	if e.cfg.Push.Enabled {
		telemetry.RegisterPushes(e.registry, f.pushes)
	}
}

// figureDuties read the figures.
func figureDuties(e *env, st *store.Store) []upkeep.Duty {
	f := e.figures
	agents := make([]string, len(e.cfg.Agents))
	for i := range e.cfg.Agents {
		agents[i] = e.cfg.Agents[i].Name
	}
	duties := []upkeep.Duty{
		figureDuty("queue_figures", countEvery, countTimeout, f.queue, queueDepths(st, agents)),
		figureDuty("database_figures", f.measureEvery, 0, f.database, st.Figures),
	}
	if e.cfg.Push.Enabled {
		duties = append(duties, figureDuty("push_figures", countEvery, countTimeout, f.pushes, st.CountPushes))
	}
	return duties
}

func figureDuty[T any](name string, every, timeout time.Duration, to *telemetry.Figures[T], read func(context.Context) (T, error)) upkeep.Duty {
	return upkeep.Duty{Name: name, Every: every, Timeout: timeout, Alone: true, Lost: to.Forget, Run: whole(func(ctx context.Context) error {
		value, err := read(ctx)
		if err != nil {
			to.Forget()
			return err
		}
		to.Set(value)
		return nil
	})}
}

func queueDepths(st *store.Store, agents []string) func(context.Context) ([]store.QueueDepth, error) {
	return func(ctx context.Context) ([]store.QueueDepth, error) {
		rows, err := st.QueueDepths(ctx)
		if err != nil {
			return nil, err
		}
		parked, err := st.Parked(ctx, agents)
		for agent, tasks := range parked {
			rows = append(rows, store.QueueDepth{Agent: agent, Parked: tasks})
		}
		return rows, err
	}
}
