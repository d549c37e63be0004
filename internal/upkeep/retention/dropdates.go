package retention

import (
	"context"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
)

// Partition is a partition with the time from which a sweep drops it.
type Partition struct {
	Family string `json:"family"`
	partition.Partition
	// DropsAt is zero if retention keeps the partition forever. Rows may go earlier, one by one, if their agent keeps tasks for
	// less time than another one. Held tasks outlive it.
	DropsAt time.Time `json:"drops_at,omitzero"`
}

// Partitions lists the partitions of all families, those of a family in the order of their time.
func (r *Retention) Partitions(ctx context.Context) (all []Partition, err error) {
	periods, err := r.periods(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range periods {
		if p.agents, err = r.Store.EndedAgents(ctx, p.Span); err != nil {
			return nil, err
		}
		tasks := r.dropsAt(p, Policy.tasks)
		artifacts := r.dropsAt(p, Policy.artifacts)
		for _, parent := range tasksTables {
			if !p.has(parent) {
				continue
			}
			one := Partition{Family: partition.Tasks.Name, Partition: p.tables[parent], DropsAt: tasks}
			if parent == artifactsTable && !artifacts.IsZero() && (tasks.IsZero() || artifacts.Before(tasks)) {
				one.DropsAt = artifacts
			}
			all = append(all, one)
		}
	}
	for _, family := range r.families() {
		partitions, err := r.Store.Partitions(ctx, family.Family)
		if err != nil {
			return nil, err
		}
		for _, p := range partitions {
			one := Partition{Family: family.Name, Partition: p}
			if family.keep > 0 {
				one.DropsAt = p.To.Add(family.keep)
			}
			all = append(all, one)
		}
	}
	return all, nil
}

// dropsAt returns when over becomes true of a period; zero: never.
func (r *Retention) dropsAt(p *period, keep func(Policy) time.Duration) time.Time {
	var longest time.Duration
	for _, q := range r.policies(p) {
		d := keep(q)
		if d == 0 {
			return time.Time{}
		}
		longest = max(longest, d)
	}
	return p.To.Add(longest)
}
