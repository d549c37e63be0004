package cli

import (
	"context"
	"encoding/json"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// taskEvent is an event with the header of its task.
type taskEvent struct {
	task  *task.Task
	event *task.Event
}

// watchedAtMost bounds the tasks of a state whose place a watch notes.
const watchedAtMost = 10_000

func newWatch(op *operator, f taskFilter) *watch {
	return &watch{op: op, filter: f, seen: map[task.ID]task.Seq{}}
}

// watch follows the tasks that the live list of the server names, and reads their logs.
type watch struct {
	op      *operator
	filter  taskFilter
	seen    map[task.ID]task.Seq // how far each task is printed
	begun   time.Time            // by the server's clock: tasks that are created later are printed whole
	changed chan *task.Task
	failed  chan error
	last    string // id of the newest event of the live list
	pending *task.Task
}

// next waits for new events of a task. The first call returns none, and sets the starting point. After an error, the next call returns
// the same events.
func (w *watch) next(ctx context.Context) (out []taskEvent, err error) {
	if w.changed == nil {
		return nil, w.begin(ctx)
	}
	h := w.pending
	for h == nil {
		select {
		case h = <-w.changed:
		case err := <-w.failed:
			w.changed = nil // the next call connects again, and continues
			return nil, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	w.pending = h
	after, known := w.seen[h.ID]
	if !known && !h.CreatedAt.After(w.begun) {
		after = h.LastSeq - 1 // it had ended before, or is new to this list: its newest event changed it
	}
	for after < h.LastSeq {
		evs, err := w.op.events(ctx, h, after)
		if err != nil {
			return nil, err
		}
		if len(evs) == 0 {
			break // deleted
		}
		for _, e := range evs {
			out = append(out, taskEvent{h, e})
			after = e.Seq
		}
	}
	w.seen[h.ID], w.pending = after, nil
	return out, nil
}

// begin opens the live list. At the first time it also notes how far the open tasks are.
func (w *watch) begin(ctx context.Context) error {
	q := withTenant(query("agent", w.filter.agent, "context", w.filter.context, "owner", w.filter.owner, "last_event_id", w.last), w.filter.tenant)
	ready := make(chan struct{})
	changed, failed := make(chan *task.Task, page), make(chan error, 1)
	go func() {
		failed <- w.op.api.Stream(ctx, "/tasks/stream", q, func(name, id string, data []byte) error {
			if id != "" {
				w.last = id
			}
			switch name {
			case "ready":
				if ready != nil {
					close(ready)
					ready = nil
				}
			case "task", "resync":
				return w.hear(ctx, name, data, changed)
			}
			return nil
		})
	}()
	opened := ready
	select {
	case <-opened:
	case err := <-failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
	if w.begun.IsZero() {
		if err := w.note(ctx); err != nil {
			return err
		}
	}
	w.changed, w.failed = changed, failed
	return nil
}

// hear passes on what the live list says. After a resync changes may be missing: all open tasks, and the newest ones, may have news.
func (w *watch) hear(ctx context.Context, name string, data []byte, changed chan<- *task.Task) error {
	if name == "task" {
		var c struct {
			Task shown.Task `json:"task"`
		}
		if err := json.Unmarshal(data, &c); err != nil {
			return err
		}
		h, err := headerOf(&c.Task, nil)
		if err != nil {
			return err
		}
		return put(ctx, changed, h)
	}
	_, err := w.each(ctx, func(h *task.Task) error { return put(ctx, changed, h) })
	return err
}

func put(ctx context.Context, changed chan<- *task.Task, h *task.Task) error {
	select {
	case changed <- h:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// note records how far the tasks are that may change, so that only later events are printed.
func (w *watch) note(ctx context.Context) error {
	newest, err := w.each(ctx, func(h *task.Task) error {
		w.seen[h.ID] = h.LastSeq
		return nil
	})
	if w.begun = newest; newest.IsZero() {
		w.begun = time.Unix(1, 0)
	}
	return err
}

// each visits the newest tasks of the filter, and those that are open. It returns when the newest one was created.
func (w *watch) each(ctx context.Context, visit func(*task.Task) error) (newest time.Time, err error) {
	filter := w.filter
	for _, state := range append([]task.State{task.StateUnspecified}, task.States...) {
		if state.Terminal() {
			continue
		}
		filter.state, filter.limit = state, watchedAtMost
		if state == task.StateUnspecified {
			filter.limit = page
		}
		rows, err := w.op.tasks(ctx, filter)
		if err != nil {
			return newest, err
		}
		for i := range rows {
			h, err := headerOf(&rows[i], nil)
			if err != nil {
				return newest, err
			}
			if h.CreatedAt.After(newest) {
				newest = h.CreatedAt
			}
			if err := visit(h); err != nil {
				return newest, err
			}
		}
	}
	return newest, nil
}
