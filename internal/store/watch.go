package store

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-a2a/holdfast/internal/store/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

const (
	// watchOverlap is how long a task may be committed after the time in its id: a create that
	// is repeated, and a replica whose clock is slow.
	watchOverlap = 30 * time.Second
	watchPage    = 2000 // tasks that one query is about
	watchTasks   = 100  // logs that one read brings on
	watchRows    = 200  // events of each
)

// Watch follows the logs of all tasks that a filter selects, from the moment of its
// first Next. It hears no hints, since a server that is alone sends none: each round
// looks at what was created lately and at how long the logs of older open tasks are, all
// by primary key. A round asks for a page of the older ones at most, so where there are
// more, their news takes a few rounds to be found.
type Watch struct {
	store *Store
	f     TaskFilter
	max   int     // tasks followed at once
	page  int     // older tasks that one round asks for
	asked task.ID // the last of them; the next round goes on behind it

	begun   bool
	looked  time.Time // the database's time of the last look that found all
	known   map[task.ID]*watched
	due     []*watched
	Dropped int // open tasks that are not followed, for there are more than the limit
}

type watched struct {
	header *task.Task
	seen   task.Seq // shown so far
	last   task.Seq // known to be there
	ended  bool
}

// WatchedEvent is an event with the task that it belongs to.
type WatchedEvent struct {
	Task  *task.Task // header; its state and length are those of when it was first seen
	Event *task.Event
}

// NewWatch makes a watch of at most so many tasks at once, the newest. The filter's
// state, position and limit do not count.
func (s *Store) NewWatch(f TaskFilter, limit int) *Watch {
	return &Watch{store: s, f: f, max: limit, page: watchPage, known: map[task.ID]*watched{}}
}

// Next reads what is new, oldest first within each task; more says that there is more
// at hand. After an error the same events come again with the next call, so nothing is
// lost and nothing comes twice.
func (w *Watch) Next(ctx context.Context) (evs []WatchedEvent, more bool, err error) {
	if len(w.due) == 0 {
		if err := w.look(ctx); err != nil {
			return nil, false, err
		}
	}
	n := min(len(w.due), watchTasks)
	at := make([]Position, n)
	for i, t := range w.due[:n] {
		at[i] = Position{Owner: t.header, After: t.seen}
	}
	if n == 0 {
		return nil, false, nil
	}
	rows, err := w.store.CatchUp(ctx, at, watchRows)
	if err != nil {
		return nil, false, err
	}
	for _, e := range rows {
		t := w.known[e.Task]
		t.seen = e.Seq
		t.ended = t.ended || e.Kind == task.EventStatus && e.State.Terminal()
		evs = append(evs, WatchedEvent{t.header, e})
	}
	left := w.due[n:]
	if len(rows) > 0 {
		for _, t := range w.due[:n] {
			if t.seen < t.last {
				left = append(left, t)
			}
		}
	}
	w.due = left
	return evs, len(left) > 0, nil
}

// look finds the tasks whose logs have grown.
func (w *Watch) look(ctx context.Context) error {
	now, err := w.store.Now(ctx)
	if err != nil {
		return err
	}
	from := now
	if w.begun && w.looked.Before(now) {
		from = w.looked // longer ago when the database was away, or nobody took what was found
	}
	since := firstID(from.Add(-watchOverlap))
	recent, err := w.since(ctx, since)
	if err != nil {
		return err
	}
	if !w.begun {
		open, err := w.store.q.OpsOpenTasks(ctx, w.store.api, dbsqlc.OpsOpenTasksParams{
			Agent: w.f.Agent, ContextID: w.f.ContextID, Owner: w.f.Owner, MaxRows: int32(w.max),
		})
		if err != nil {
			return translate("watch", err)
		}
		for _, r := range append(open, recent...) {
			// What happened before is not followed.
			t := newWatched(&r)
			t.seen = t.last
			w.known[t.header.ID] = t
		}
		w.begun, w.looked = true, now
		return nil
	}
	for i := range recent {
		id := task.ID(recent[i].ID)
		if t := w.known[id]; t != nil {
			t.last = max(t.last, task.Seq(recent[i].LastSeq))
		} else {
			w.known[id] = newWatched(&recent[i])
		}
	}
	if err := w.lengths(ctx, since); err != nil {
		return err
	}
	for _, t := range w.known {
		if t.seen < t.last {
			w.due = append(w.due, t)
		}
	}
	w.looked = now
	slices.SortFunc(w.due, func(a, b *watched) int { return bytes.Compare(a.header.ID[:], b.header.ID[:]) })
	return nil
}

func newWatched(r *dbsqlc.Task) *watched {
	h := header(r)
	return &watched{header: h, last: h.LastSeq, ended: h.Status.State.Terminal()}
}

// since lists the tasks created from an id on.
func (w *Watch) since(ctx context.Context, since task.ID) ([]dbsqlc.Task, error) {
	var out []dbsqlc.Task
	for {
		page, err := w.store.q.OpsTasksSince(ctx, w.store.api, dbsqlc.OpsTasksSinceParams{
			Since: uuid.UUID(since), Agent: w.f.Agent, ContextID: w.f.ContextID, Owner: w.f.Owner, MaxRows: watchPage,
		})
		if err != nil {
			return nil, translate("watch", err)
		}
		out = append(out, page...)
		if len(page) < watchPage {
			return out, nil
		}
		since = task.ID(page[len(page)-1].ID)
	}
}

// lengths asks for the logs of tasks that are older than since, the page that has its
// turn, and forgets those that cannot change any more.
func (w *Watch) lengths(ctx context.Context, since task.ID) error {
	var old []task.ID // the newest first
	for id, t := range w.known {
		if bytes.Compare(id[:], since[:]) > 0 {
			continue
		}
		if t.ended && t.seen >= t.last {
			delete(w.known, id)
			continue
		}
		old = append(old, id)
	}
	slices.SortFunc(old, func(a, b task.ID) int { return bytes.Compare(b[:], a[:]) })
	for _, id := range old[min(len(old), w.max):] {
		delete(w.known, id)
		w.Dropped++
	}
	old = old[:min(len(old), w.max)]
	turn := slices.IndexFunc(old, func(id task.ID) bool { return bytes.Compare(id[:], w.asked[:]) < 0 })
	if turn < 0 {
		turn = 0
	}
	page := old[turn:min(turn+w.page, len(old))]
	if len(page) == 0 {
		return nil
	}
	seqs, err := w.store.LastSeqs(ctx, page)
	if err != nil {
		return err
	}
	w.asked = page[len(page)-1]
	for _, id := range page {
		if seq, there := seqs[id]; there {
			w.known[id].last = max(w.known[id].last, seq)
		} else {
			delete(w.known, id)
		}
	}
	return nil
}
