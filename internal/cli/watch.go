package cli

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"net/url"
	"slices"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// taskEvent is an event with its task.
type taskEvent struct {
	task *shown.Task
	*logged
}

// watchedAtMost bounds the tasks of a state whose place a watch notes.
const watchedAtMost = 10_000

// createdLate is how much later than its time of creation a task may be committed, and more.
const createdLate = time.Minute

func newWatch(op *operator, f url.Values) *watch {
	f = maps.Clone(f)
	f.Del("state") // a task may come to it
	return &watch{op: op, filter: f, seen: map[task.ID]place{}}
}

// watch follows the tasks that the live list of the server names, and reads their logs.
type watch struct {
	op      *operator
	filter  url.Values
	seen    map[task.ID]place
	noted   bool      // seen has the tasks of the beginning
	begun   time.Time // by the server's clock: tasks that are created later are printed whole
	list    chan heard
	stop    context.CancelFunc // of list, which is nil after it
	last    string             // id of the newest event of the live list that is handled
	newest  time.Time          // when the newest task was created, and
	told    time.Time          // what that was at the event last
	pending []*shown.Task      // they may have events that are not read
}

// place is how far a task is printed.
type place struct {
	seq   task.Seq
	ended bool // it gets no further event
}

// heard is an event of the live list, or its end.
type heard struct {
	name, id string
	task     *shown.Task
	err      error
}

// next waits for new events of a task. The first call returns none, and sets the starting point. After an error, the next call returns
// the same events.
func (w *watch) next(ctx context.Context) (out []taskEvent, err error) {
	if w.list == nil {
		return nil, w.begin(ctx)
	}
	for len(w.pending) == 0 {
		if _, err := w.hear(ctx); err != nil {
			return nil, err
		}
	}
	h := w.pending[0]
	seen, known := w.seen[h.ID]
	after := seen.seq
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
	w.seen[h.ID], w.pending = place{after, seen.ended || h.State.Terminal()}, w.pending[1:]
	return out, nil
}

// begin opens the live list. At the first time it also notes how far the open tasks are.
func (w *watch) begin(ctx context.Context) error {
	q := maps.Clone(w.filter)
	if w.last != "" {
		q.Set("last_event_id", w.last)
	}
	open, stop := context.WithCancel(ctx)
	list := make(chan heard, page)
	go func() {
		put := func(h heard) error {
			select {
			case list <- h:
				return nil
			case <-open.Done():
				return open.Err()
			}
		}
		err := w.op.api.Stream(open, "/tasks/stream", q, func(name, id string, data []byte) (err error) {
			h := heard{name: name, id: id}
			if name == "task" {
				h.task, err = changedTask(data)
			}
			if err != nil {
				return err
			}
			return put(h)
		})
		_ = put(heard{err: err}) // else nobody hears it
	}()
	w.list, w.stop = list, stop
	for name := ""; name != "ready"; {
		var err error
		if name, err = w.hear(ctx); err != nil {
			return err
		}
	}
	if w.noted {
		return nil
	}
	if err := w.note(ctx); err != nil {
		w.leave()
		w.last = ""
		return err
	}
	return nil
}

func (w *watch) leave() {
	w.stop()
	w.list = nil
}

func changedTask(data []byte) (*shown.Task, error) {
	var c struct {
		Task shown.Task `json:"task"`
	}
	return &c.Task, json.Unmarshal(data, &c)
}

// hear handles an event of the live list. After an error the list is closed; opened again, it continues before that event.
func (w *watch) hear(ctx context.Context) (name string, err error) {
	var h heard
	select {
	case h = <-w.list:
	case <-ctx.Done():
		h.err = ctx.Err()
	}
	switch {
	case h.err != nil:
		err = h.err
	case h.name == "task":
		w.add(h.task)
	case h.name == "resync":
		err = w.resync(ctx)
	}
	if err != nil {
		w.leave()
		return "", err
	}
	if h.id != "" {
		w.last, w.told = h.id, w.newest
	}
	return h.name, nil
}

func (w *watch) add(changed ...*shown.Task) {
	for _, h := range changed {
		if h.CreatedAt.After(w.newest) {
			w.newest = h.CreatedAt
		}
	}
	w.pending = append(w.pending, changed...)
}

// resync adds the tasks that may have news after changes were missed: those that are or were open, and those that are new.
func (w *watch) resync(ctx context.Context) error {
	since := w.told
	if !since.IsZero() {
		since = since.Add(-createdLate)
	}
	found, err := w.tasks(ctx, since, math.MaxInt)
	if err != nil {
		return err
	}
	var changed []*shown.Task
	for id, h := range found {
		if _, known := w.seen[id]; known || !h.State.Terminal() || h.CreatedAt.After(w.begun) {
			changed = append(changed, h)
		}
	}
	for id, seen := range w.seen {
		if seen.ended || found[id] != nil {
			continue
		}
		switch h, err := w.op.find(ctx, id.String()); {
		case errors.Is(err, task.NotFound):
			delete(w.seen, id)
		case err != nil:
			return err
		default:
			changed = append(changed, &h.Task)
		}
	}
	slices.SortFunc(changed, func(a, b *shown.Task) int { return a.CreatedAt.Compare(b.CreatedAt) })
	w.add(changed...)
	return nil
}

// note records how far the tasks are that may change, so that only later events are printed.
func (w *watch) note(ctx context.Context) error {
	found, err := w.tasks(ctx, time.Time{}, page)
	if err != nil {
		return err
	}
	for id, h := range found {
		w.seen[id] = place{h.LastSeq, h.State.Terminal()}
		if h.CreatedAt.After(w.begun) {
			w.begun = h.CreatedAt
		}
	}
	w.noted, w.newest, w.told = true, w.begun, w.begun
	return nil
}

// tasks returns the tasks of the filter that are open, and the newest ones that were created since a time.
func (w *watch) tasks(ctx context.Context, since time.Time, newest int) (map[task.ID]*shown.Task, error) {
	found := map[task.ID]*shown.Task{}
	add := func(limit int, name, value string) error {
		filter := maps.Clone(w.filter)
		if value != "" {
			filter.Set(name, value)
		}
		rows, err := w.op.tasks(ctx, filter, limit)
		for i := range rows {
			found[rows[i].ID] = &rows[i]
		}
		return err
	}
	if err := add(newest, "since", (&moment{since}).String()); err != nil {
		return nil, err
	}
	for _, state := range task.States {
		if !state.Terminal() {
			if err := add(watchedAtMost, "state", state.String()); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}
