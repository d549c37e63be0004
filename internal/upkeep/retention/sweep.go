package retention

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// period is the set of partitions of family tasks with the same bounds. Some may be dropped
// already.
type period struct {
	store.Span
	tables map[string]partition.Partition // by parent table
	agents []string                       // agents of its ended tasks
}

func (p *period) has(parent string) bool {
	_, ok := p.tables[parent]
	return ok
}

// The parent tables, in the order in which their partitions are detached.
var (
	tasksTables    = []string{"tasks_dated", "events_log", "events_artifacts"}
	artifactsTable = "events_artifacts"
)

// Sweep deletes tasks and artifacts that are past their retention: some batches, or a whole period.
func (r *Retention) Sweep(ctx context.Context) (more bool, err error) {
	now, err := r.now(ctx)
	if err != nil {
		return false, err
	}
	if err := r.finish(ctx, now); err != nil {
		return false, err
	}
	periods, err := r.periods(ctx)
	if err != nil {
		return false, err
	}
	kept := &period{Span: store.Everything}
	for _, p := range append(periods, kept) {
		if p.From.After(now) {
			continue
		}
		if p.agents, err = r.Store.EndedAgents(ctx, p.Span); err != nil {
			return false, err
		}
		left, err := r.sweep(ctx, p, now)
		if err != nil {
			return false, err
		}
		more = more || left
	}
	return more, nil
}

// periods lists the periods, the oldest first.
func (r *Retention) periods(ctx context.Context) (all []*period, err error) {
	partitions, err := r.Store.Partitions(ctx, partition.Tasks)
	if err != nil {
		return nil, err
	}
	for _, p := range partitions {
		if n := len(all); n == 0 || all[n-1].From != p.From || all[n-1].To != p.To {
			all = append(all, &period{Span: store.Span{From: p.From, To: p.To}, tables: map[string]partition.Partition{}})
		}
		all[len(all)-1].tables[p.Parent] = p
	}
	return all, nil
}

func (r *Retention) sweep(ctx context.Context, p *period, now time.Time) (more bool, err error) {
	// A period without its table of tasks is one that a killed process left half dropped.
	if !p.Kept && (!p.has("tasks_dated") || r.over(p, now, Policy.tasks)) {
		return false, r.dropPeriod(ctx, p, now)
	}
	if !p.Kept && p.has(artifactsTable) && r.over(p, now, Policy.artifacts) {
		return false, r.dropArtifacts(ctx, p, now)
	}
	for _, agent := range p.agents {
		q := r.Of(agent)
		for _, mode := range []struct {
			keep time.Duration
			do   func(context.Context, *period, string, time.Time) (bool, error)
		}{{q.Tasks, r.deleteTasks}, {q.Artifacts, r.deleteArtifacts}} {
			if mode.keep == 0 || p.From.After(now.Add(-mode.keep)) {
				continue
			}
			left, err := mode.do(ctx, p, agent, now.Add(-mode.keep))
			if err != nil {
				return false, err
			}
			more = more || left
		}
	}
	return more, nil
}

// over reports whether a period may be dropped: every task that ended in it is past its retention.
// Tasks that ended later are moved out.
func (r *Retention) over(p *period, now time.Time, keep func(Policy) time.Duration) bool {
	at := r.dropsAt(p, keep)
	return !at.IsZero() && !at.After(now)
}

// policies returns those of the agents of a period.
func (r *Retention) policies(p *period) []Policy {
	policies := make([]Policy, 0, len(p.agents))
	for _, agent := range p.agents {
		policies = append(policies, r.Of(agent))
	}
	if len(policies) == 0 { // only open tasks, or none
		policies = append(policies, r.Default)
		for _, q := range r.Agents {
			policies = append(policies, q)
		}
	}
	return policies
}

// dropPeriod drops a period, except for the data that must outlive it.
func (r *Retention) dropPeriod(ctx context.Context, p *period, now time.Time) error {
	if err := r.keep(ctx, p, now); err != nil {
		return err
	}
	for _, agent := range p.agents {
		if err := r.exportAll(ctx, p, agent, now); err != nil {
			return err
		}
	}
	if err := r.Store.ForgetBeside(ctx, p.Span); err != nil {
		return err
	}
	for _, parent := range tasksTables {
		if !p.has(parent) {
			continue
		}
		if err := r.remove(ctx, p.tables[parent], now); err != nil {
			return err
		}
	}
	return nil
}

// keep moves the data that must outlive a period out of it.
func (r *Retention) keep(ctx context.Context, p *period, now time.Time) error {
	if err := r.keepOpen(ctx, p); err != nil {
		return err
	}
	for _, agent := range p.agents {
		if _, err := r.Store.KeepEnded(ctx, p.Span, agent, r.since(r.Of(agent), now)); err != nil {
			return err
		}
	}
	if _, err := r.Store.KeepHeld(ctx, p.Span); err != nil {
		return err
	}
	_, err := r.Store.KeepEvents(ctx, p.Span)
	return err
}

// dropArtifacts drops the artifacts of a period, except those whose tasks are open, ended late, or
// are held.
func (r *Retention) dropArtifacts(ctx context.Context, p *period, now time.Time) error {
	if err := r.keepOpen(ctx, p); err != nil {
		return err
	}
	if _, err := r.Store.KeepEvents(ctx, p.Span); err != nil {
		return err
	}
	for _, agent := range p.agents {
		if _, err := r.Store.KeepArtifacts(ctx, p.Span, agent, now.Add(-r.Of(agent).Artifacts)); err != nil {
			return err
		}
	}
	return r.remove(ctx, p.tables[artifactsTable], now)
}

// keepOpen marks the open tasks of a period as kept. task.Unavailable: another statement has locked some of them.
func (r *Retention) keepOpen(ctx context.Context, p *period) error {
	_, left, err := r.Store.KeepOpen(ctx, p.Span)
	if err == nil && left > 0 {
		err = task.Errorf(task.Unavailable, "%d open tasks of an old period are locked; the next round moves them", left)
	}
	return err
}

// remove detaches a partition and drops it.
func (r *Retention) remove(ctx context.Context, p partition.Partition, now time.Time) error {
	if err := r.Store.Detach(ctx, p); err != nil {
		return err
	}
	return r.discard(ctx, p.Table, now)
}

// finish drops detached tables that a killed process left.
func (r *Retention) finish(ctx context.Context, now time.Time) error {
	names, err := r.Store.Detached(ctx, partition.Tasks)
	if err != nil {
		return err
	}
	// Tasks before events: only an event of an existing task is copied back.
	for _, tasks := range []bool{true, false} {
		for _, name := range names {
			if strings.HasPrefix(name, "tasks_") != tasks {
				continue
			}
			if err := r.discard(ctx, name, now); err != nil {
				return err
			}
		}
	}
	return nil
}

// discard drops a detached table, after copying back the rows that may not be deleted.
func (r *Retention) discard(ctx context.Context, table string, now time.Time) error {
	since, otherwise := map[string]time.Time{}, r.since(r.Default, now)
	for agent, q := range r.Agents {
		since[agent] = r.since(q, now)
	}
	n, err := r.Store.Return(ctx, table, since, otherwise)
	if err != nil {
		return err
	}
	if n > 0 {
		r.Log.Info("rows moved out of a partition before its drop", "partition", table, "rows", n)
	}
	return r.drop(ctx, table)
}

// since returns the time after which ended tasks are still within their retention.
func (r *Retention) since(q Policy, now time.Time) time.Time {
	if q.Tasks == 0 {
		return time.Unix(0, 0)
	}
	return now.Add(-q.Tasks)
}

// deleteTasks deletes a few batches of an agent's tasks that ended before a time.
func (r *Retention) deleteTasks(ctx context.Context, p *period, agent string, before time.Time) (more bool, err error) {
	for range batches {
		began := time.Now()
		page, err := r.Store.EndedBefore(ctx, p.Span, agent, before, store.Place{At: time.Unix(0, 0)})
		if err != nil || len(page) == 0 {
			return false, err
		}
		if err := r.export(ctx, page); err != nil {
			return false, err
		}
		if _, err := r.Store.Erase(ctx, idsOf(page), false, ""); err != nil {
			return false, err
		}
		if _, err := r.Store.EraseLogs(ctx); err != nil {
			return false, err
		}
		if !yield(ctx, time.Since(began)) {
			break
		}
	}
	return true, nil
}

// deleteArtifacts deletes a few batches of artifacts of an agent's tasks that ended before a time.
func (r *Retention) deleteArtifacts(ctx context.Context, p *period, agent string, before time.Time) (more bool, err error) {
	job := "artifacts/" + p.name() + "/" + agent
	at, err := r.Store.Progress(ctx, job)
	if err != nil {
		return false, err
	}
	for range batches {
		began := time.Now()
		page, err := r.Store.EndedBefore(ctx, p.Span, agent, before, at)
		if err != nil || len(page) == 0 {
			return false, err
		}
		for _, t := range page {
			if err := r.Store.EraseArtifacts(ctx, t.ID); err != nil {
				return false, err
			}
		}
		last := page[len(page)-1]
		at = store.Place{At: last.Status.At, ID: last.ID}
		if err := r.Store.SetProgress(ctx, job, at); err != nil {
			return false, err
		}
		if !yield(ctx, time.Since(began)) {
			break
		}
	}
	return true, nil
}

// name returns the name of the partition that the progress belongs to. Both are deleted together.
func (p *period) name() string {
	if p.Kept {
		return "kept"
	}
	return p.tables["tasks_dated"].Table
}

// batches is the number of batches that one call deletes.
const batches = 20

// yield pauses for as long as a batch took, so that other work gets the database. It reports whether ctx goes on.
func yield(ctx context.Context, took time.Duration) bool {
	select {
	case <-time.After(took):
		return true
	case <-ctx.Done():
		return false
	}
}

func idsOf(page []*task.Task) []task.ID {
	ids := make([]task.ID, len(page))
	for i, t := range page {
		ids[i] = t.ID
	}
	return ids
}
