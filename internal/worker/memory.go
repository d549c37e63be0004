package worker

import (
	"context"
	"encoding/json"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// runMemory reads the log for the executor. It implements executor.Memory.
type runMemory struct{ r *run }

func (m *runMemory) History(ctx context.Context) ([]task.Message, error) {
	c := m.r.claim
	if c.Turn == 1 {
		return nil, nil
	}
	var said []task.Message
	err := m.r.read(ctx, func() (err error) {
		said, err = m.r.pool.opt.Store.Conversation(ctx, c.Task, c.Said(), c.Begins())
		return err
	})
	return said, err
}

func (m *runMemory) Dialogue(ctx context.Context, of executor.Scope, within executor.Bounds) (said []executor.Said, err error) {
	c := m.r.claim
	if c.Turn == 1 && of == executor.OfTask {
		return nil, nil
	}
	err = m.r.read(ctx, func() (err error) {
		said, err = m.r.pool.opt.Store.Dialogue(ctx, store.DialogueOf{
			Task: c.Task, Said: c.Said(), Begins: c.Begins(), Context: of == executor.OfContext, Bounds: within,
		})
		return err
	})
	return said, err
}

func (m *runMemory) References(ctx context.Context, within executor.Bounds) (refs []executor.Reference, err error) {
	ids := m.r.claim.Message.References
	if len(ids) == 0 {
		return nil, nil
	}
	err = m.r.read(ctx, func() (err error) {
		refs, err = m.r.pool.opt.Store.References(ctx, m.r.claim.Task, ids, within)
		return err
	})
	return refs, err
}

func (m *runMemory) Earlier(ctx context.Context) ([]task.Event, error) {
	var out []task.Event
	err := m.since(ctx, func(e *task.Event) {
		switch {
		case e == nil:
			out = nil
		case e.Kind != task.EventRun || e.Keeps():
			out = append(out, *e)
		}
	})
	return out, err
}

func (m *runMemory) Checkpoint(ctx context.Context) (json.RawMessage, error) {
	all, err := m.Checkpoints(ctx)
	if len(all) == 0 {
		return nil, err
	}
	return all[len(all)-1], err
}

func (m *runMemory) Checkpoints(ctx context.Context) ([]json.RawMessage, error) {
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

func (m *runMemory) Records(ctx context.Context, after task.Seq, bytes int64) (records []json.RawMessage, next task.Seq, err error) {
	err = m.r.read(ctx, func() (err error) {
		records, next, err = m.r.pool.opt.Store.Records(ctx, m.r.claim.Task, after, bytes)
		return err
	})
	return records, next, err
}

func (m *runMemory) Task(ctx context.Context) (*task.Task, error) {
	c := m.r.claim
	t := store.Empty(c.Task)
	if c.Attempt == 1 && c.Turn == 1 {
		return t, nil // nothing but this run's message
	}
	return t, m.walk(ctx, 0, t.Apply)
}

func (m *runMemory) Snapshot(ctx context.Context) (t *task.Task, existed int, err error) {
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

// since visits the events that earlier attempts wrote for the run's message. A nil event says that
// all events before it belong to an earlier message, whose run was still active when this message
// arrived.
func (m *runMemory) since(ctx context.Context, visit func(*task.Event)) error {
	c := m.r.claim
	if c.Attempt == 1 {
		return nil
	}
	return m.walk(ctx, c.Begins(), func(e *task.Event) error {
		switch {
		case e.Kind == task.EventStatus && e.State == task.StateSubmitted:
			visit(nil)
		case e.Attempt > 0 && e.Attempt < c.Attempt:
			visit(e)
		}
		return nil
	})
}

// walk visits the events after a seq.
func (m *runMemory) walk(ctx context.Context, after task.Seq, visit func(*task.Event) error) error {
	const page = 500
	for {
		var evs []*task.Event
		err := m.r.read(ctx, func() (err error) {
			evs, err = m.r.pool.opt.Store.EventsAfter(ctx, m.r.claim.Task, task.Position{Seq: after}, page)
			return err
		})
		// A page of large events is shorter than asked for, so only an empty one is the last.
		if err != nil || len(evs) == 0 {
			return err
		}
		for _, e := range evs {
			after = e.Seq
			if err := visit(e); err != nil {
				return err
			}
		}
	}
}

// fold applies an event of a log of which others are left out.
func fold(t *task.Task, e *task.Event) error {
	t.LastSeq = e.Seq - 1
	return t.Apply(e)
}
