package executortest

import (
	"context"
	"encoding/json"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Checkpoints returns the checkpoints among Events, and Stored after them.
func (m *Memory) Checkpoints(context.Context) ([]json.RawMessage, error) {
	m.Reads++
	var all []json.RawMessage
	for i := range m.Events {
		if e := &m.Events[i]; e.Kind == task.EventRun && e.Run != nil && e.Run.Outcome == task.RunCheckpoint {
			all = append(all, e.Run.Checkpoint)
		}
	}
	if m.Stored != nil {
		all = append(all, m.Stored)
	}
	return all, nil
}

// Committed returns at once: a Recorder has every event when its call returns.
func (r *Recorder) Committed(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refuse
}
