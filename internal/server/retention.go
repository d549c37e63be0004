package server

import (
	"log/slog"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/upkeep"
	"github.com/holdfast-a2a/holdfast/internal/upkeep/retention"
)

// NewRetention makes the retention that a configuration describes.
func NewRetention(cfg *config.Config, st *store.Store, log *slog.Logger) *retention.Retention {
	o := retentionOptions(cfg)
	o.Store, o.Log = st, log
	return retention.New(o)
}

// keepProcesses is how long the names of processes that are gone are kept: incidents are looked into within a quarter.
const keepProcesses = 90 * 24 * time.Hour

func retentionOptions(cfg *config.Config) retention.Options {
	r := &cfg.Retention
	o := retention.Options{
		Default: retention.Policy{
			Tasks: r.Tasks.Duration(), Artifacts: r.Artifacts.Duration(), Parked: r.ExpireParkedAfter.Duration(),
		},
		Agents: map[string]retention.Policy{},
		Keys:   r.IdempotencyKeys.Duration(), Attempts: r.DeliveryAttempts.Duration(), Audit: r.Audit.Duration(), Processes: keepProcesses,
		Export: r.ExportDirectory,
	}
	for i := range cfg.Agents {
		a := &cfg.Agents[i].Retention
		o.Agents[cfg.Agents[i].Name] = retention.Policy{
			Tasks:     or(a.Tasks, r.Tasks),
			Artifacts: or(a.Artifacts, r.Artifacts),
			Parked:    or(a.ExpireParkedAfter, r.ExpireParkedAfter),
		}
	}
	return o
}

// or returns the agent's value, or the default if the agent sets none.
func or(agent, otherwise config.Keep) time.Duration {
	if agent == 0 {
		agent = otherwise
	}
	return agent.Duration()
}

// Widths returns the partition widths for a configuration.
func Widths(cfg *config.Config) store.Widths {
	o := retentionOptions(cfg)
	return o.Widths()
}

// ahead is the interval for creating partitions, long before the existing ones end.
func ahead(cfg *config.Config) time.Duration {
	w := Widths(cfg)
	return min(10*time.Minute, w.Tasks.Ahead()/4, w.Attempts.Ahead()/4, w.Audit.Ahead()/4)
}

// longest is the longest interval of the duties of retention.
const longest = 10 * time.Minute

// retentionDuties delete data at the end of its time. They run often, so that data stays only a fraction longer.
func retentionDuties(e *env, st *store.Store) []upkeep.Duty {
	r := NewRetention(e.cfg, st, e.log)
	o := retentionOptions(e.cfg)
	every := min(longest, Widths(e.cfg).Tasks.Ahead()/12)
	records := longest
	for _, keep := range []time.Duration{o.Keys, o.Attempts, o.Audit, o.Processes} {
		records = min(records, partition.For(keep).Ahead()/12)
	}
	const piece = 5 * time.Minute // a detach waits for readers, and a batch is never interrupted
	return []upkeep.Duty{
		{Name: "expire_parked", Every: 10 * time.Second, Alone: true, Run: r.ExpireParked},
		{Name: "retention_tasks", Every: every, Timeout: piece, Alone: true, Run: r.Sweep},
		{Name: "retention_records", Every: records, Timeout: piece, Alone: true, Run: r.Records},
		{Name: "erase_logs", Every: time.Minute, Alone: true, Run: r.EraseLogs},
	}
}
