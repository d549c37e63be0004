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

	queue    *telemetry.Figures[[]telemetry.QueueDepth]
	pushes   *telemetry.Figures[telemetry.Pushes]
	database *telemetry.Figures[telemetry.Database]
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
		queue:        telemetry.NewFigures[[]telemetry.QueueDepth](3 * countEvery),
		pushes:       telemetry.NewFigures[telemetry.Pushes](3 * countEvery),
		database:     telemetry.NewFigures[telemetry.Database](3 * every),
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
		figureDuty("database_figures", f.measureEvery, 0, f.database, databaseFigures(st)),
	}
	if e.cfg.Push.Enabled {
		duties = append(duties, figureDuty("push_figures", countEvery, countTimeout, f.pushes, pushCounts(st)))
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

func databaseFigures(st *store.Store) func(context.Context) (telemetry.Database, error) {
	return func(ctx context.Context) (telemetry.Database, error) {
		f, err := st.Figures(ctx)
		if err != nil {
			return telemetry.Database{}, err
		}
		out := telemetry.Database{Bytes: f.Bytes, APIKeys: map[string]int64{
			"active": f.Keys.Active, "expiring": f.Keys.Expiring, "expired": f.Keys.Expired, "revoked": f.Keys.Revoked,
		}}
		for _, t := range f.Tables {
			out.Tables = append(out.Tables, telemetry.Table(t))
		}
		for _, p := range f.Partitions {
			out.Partitions = append(out.Partitions, telemetry.Partitions{
				Of: p.Family, Begin: p.Begin, End: p.End, Ahead: p.Ahead, Attached: p.Attached, Detaching: p.Detaching, Detached: p.Detached,
			})
		}
		return out, nil
	}
}
