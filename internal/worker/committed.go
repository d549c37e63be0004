package worker

import (
	"context"
	"encoding/json"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Committed implements executor.Emitter.
func (e *emitter) Committed(ctx context.Context) error {
	defer e.hold()()
	for {
		e.mu.Lock()
		err, waiting := e.err, e.waiting > 0
		if waiting && e.answered == nil {
			e.answered = make(chan struct{})
		}
		answered := e.answered
		e.mu.Unlock()
		if err != nil || !waiting {
			return err
		}
		select {
		case <-answered:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-e.r.ctx.Done():
			return context.Cause(e.r.ctx)
		}
	}
}

// Checkpoints implements executor.Memory.
func (m *recollection) Checkpoints(ctx context.Context) ([]json.RawMessage, error) {
	var all []json.RawMessage
	err := m.since(ctx, func(e *task.Event) {
		if e == nil {
			all = nil
		} else if e.Kind == task.EventRun && e.Run != nil && e.Run.Outcome == task.RunCheckpoint {
			all = append(all, e.Run.Checkpoint)
		}
	})
	return all, err
}
