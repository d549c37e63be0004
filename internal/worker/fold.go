package worker

import (
	"context"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Task implements executor.Memory.
func (m *recollection) Task(ctx context.Context) (*task.Task, error) {
	c := m.r.claim
	t := store.Empty(c.Task)
	if c.Attempt == 1 && c.Turn == 1 {
		return t, nil // nothing but this run's message
	}
	const page = 500
	for {
		var evs []*task.Event
		err := m.r.read(ctx, func() (err error) {
			evs, err = m.r.pool.opt.Store.EventsAfter(ctx, c.Task, task.Position{Seq: t.LastSeq}, page)
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(evs) == 0 { // not fewer than a page: a page of large events is short
			return t, nil
		}
		for _, e := range evs {
			if err := t.Apply(e); err != nil {
				return nil, err
			}
		}
	}
}
