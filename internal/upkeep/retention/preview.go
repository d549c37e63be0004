package retention

import (
	"context"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store"
)

// Step is a line of a plan: what a sweep deletes, and how.
type Step struct {
	What  string    `json:"what"`          // tasks, artifacts, idempotency_keys, delivery_attempts or audit
	How   string    `json:"how"`           // drop (a partition) or delete (rows)
	From  time.Time `json:"from,omitzero"` // of the period; zero: tasks that outlived theirs
	To    time.Time `json:"to,omitzero"`
	Agent string    `json:"agent,omitempty"` // agent whose rows are deleted; "" for all
	Tasks int64     `json:"tasks"`
	Held  int64     `json:"held"`  // number that stay because they are held
	Bytes int64     `json:"bytes"` // bytes that become free; for deleted rows, as far as known
}

// Plan lists what a sweep would delete now. It changes nothing.
func (r *Retention) Plan(ctx context.Context) (steps []Step, err error) {
	now, err := r.now(ctx)
	if err != nil {
		return nil, err
	}
	periods, err := r.periods(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range append(periods, &period{Span: store.Everything}) {
		if p.From.After(now) {
			continue
		}
		if p.agents, err = r.Store.EndedAgents(ctx, p.Span); err != nil {
			return nil, err
		}
		more, err := r.planPeriod(ctx, p, now)
		if err != nil {
			return nil, err
		}
		steps = append(steps, more...)
	}
	for _, family := range r.families() {
		all, err := r.Store.Partitions(ctx, family.Family)
		if err != nil {
			return nil, err
		}
		for _, p := range all {
			if family.keep == 0 || p.To.Add(family.keep).After(now) {
				continue
			}
			bytes, err := r.Store.SizeOf(ctx, p.Table)
			if err != nil {
				return nil, err
			}
			steps = append(steps, Step{What: family.Name, How: "drop", From: p.From, To: p.To, Bytes: bytes})
		}
	}
	return steps, nil
}

func (r *Retention) planPeriod(ctx context.Context, p *period, now time.Time) (steps []Step, err error) {
	whole := func(what string, keep func(Policy) time.Duration, parents ...string) error {
		s := Step{What: what, How: "drop", From: p.From, To: p.To}
		for _, agent := range p.agents {
			n, err := r.Store.CountEnded(ctx, p.Span, agent, now.Add(-keep(r.Of(agent))))
			if err != nil {
				return err
			}
			s.Tasks, s.Held = s.Tasks+n.Tasks, s.Held+n.Held
		}
		for _, parent := range parents {
			if !p.has(parent) {
				continue
			}
			bytes, err := r.Store.SizeOf(ctx, p.tables[parent].Table)
			if err != nil {
				return err
			}
			s.Bytes += bytes
		}
		steps = append(steps, s)
		return nil
	}
	switch {
	case !p.Kept && (!p.has("tasks_dated") || r.over(p, now, Policy.tasks)):
		return steps, whole("tasks", Policy.tasks, tasksTables...)
	case !p.Kept && p.has(artifactsTable) && r.over(p, now, Policy.artifacts):
		return steps, whole("artifacts", Policy.artifacts, artifactsTable)
	}
	for _, agent := range p.agents {
		q := r.Of(agent)
		for _, mode := range []struct {
			what string
			keep time.Duration
		}{{"tasks", q.Tasks}, {"artifacts", q.Artifacts}} {
			if mode.keep == 0 {
				continue
			}
			n, err := r.Store.CountEnded(ctx, p.Span, agent, now.Add(-mode.keep))
			if err != nil {
				return nil, err
			}
			if n.Tasks == n.Held || mode.what == "artifacts" && n.ArtifactBytes == 0 {
				continue
			}
			s := Step{What: mode.what, How: "delete", Agent: agent, Tasks: n.Tasks, Held: n.Held, Bytes: n.ArtifactBytes}
			if !p.Kept {
				s.From, s.To = p.From, p.To
			}
			steps = append(steps, s)
		}
	}
	return steps, nil
}
