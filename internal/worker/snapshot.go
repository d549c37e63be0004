package worker

import (
	"context"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func (m *recollection) Snapshot(ctx context.Context) (t *task.Task, existed int, err error) {
	c := m.r.claim
	before := store.Empty(c.Task) // the log up to the message
	now := store.Empty(c.Task)    // the artifacts of the whole log
	var later []*task.Event       // statuses after the message
	err = m.walk(ctx, 0, func(e *task.Event) error {
		switch {
		case e.Kind == task.EventArtifact:
			err := fold(now, e)
			if e.Seq < c.Begins() {
				existed = len(now.Artifacts)
			}
			return err
		case e.Kind == task.EventMessage && e.Seq >= c.Said():
			return nil
		case e.Seq < c.Begins():
			return fold(before, e)
		case e.Kind != task.EventStatus:
			return nil
		}
		if later = append(later, e); e.State != task.StateSubmitted || e.Attempt == 0 {
			return nil
		}
		// The message arrived while the run of an earlier one was active. That run parked here.
		for _, e := range later {
			if err := fold(before, e); err != nil {
				return err
			}
		}
		later, existed = nil, len(now.Artifacts)
		return nil
	})
	before.Artifacts = now.Artifacts
	return before, existed, err
}

// fold applies an event of a log of which others are left out.
func fold(t *task.Task, e *task.Event) error {
	t.LastSeq = e.Seq - 1
	return t.Apply(e)
}
