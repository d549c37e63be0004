package store

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

const (
	// watchOverlap is how much later than the time in its id a task may be committed, because of a
	// retried create or a slow clock.
	watchOverlap = 30 * time.Second
	watchPage    = 2000 // tasks per query
	watchTasks   = 100  // logs per read
	watchRows    = 200  // events per log
)

// Watch follows the logs of all tasks that a filter selects, from its first Next on. It uses no
// hints, because a single server sends none. Each round reads the recently created tasks and the
// last seqs of older open tasks, all by primary key. A round reads at most one page of the older
// tasks. If there are more, a new event may take a few rounds to show.
type Watch struct {
	store *Store
	f     TaskFilter
	max   int     // tasks followed at once
	page  int     // older tasks per round
	asked task.ID // last of them; the next round continues after it

	begun   bool
	looked  time.Time // database time of the last complete look
	known   map[task.ID]*watched
	due     []*watched
	Dropped int // open tasks beyond the limit, which are not followed
}

type watched struct {
	header *task.Task
	seen   task.Seq // last seq that was returned
	last   task.Seq // last known seq of the log
	ended  bool
}

// WatchedEvent is an event with the task that it belongs to.
type WatchedEvent struct {
	Task  *task.Task // header; its state and last seq are those of the first look
	Event *task.Event
}

// NewWatch returns a watch of the newest limit tasks at most. It ignores the filter's state,
// position and limit.
func (s *Store) NewWatch(f TaskFilter, limit int) *Watch {
	return &Watch{store: s, f: f, max: limit, page: watchPage, known: map[task.ID]*watched{}}
}

// Next returns the new events, oldest first within each task. more says that more can be read at
// once. After an error the next call reads the same events again, so no event is lost or returned
// twice.
func (w *Watch) Next(ctx context.Context) (evs []WatchedEvent, more bool, err error) {
	if len(w.due) == 0 {
		if err := w.look(ctx); err != nil {
			return nil, false, err
		}
	}
	n := min(len(w.due), watchTasks)
	at := make([]Position, n)
	for i, t := range w.due[:n] {
		at[i] = Position{Owner: t.header, After: task.Position{Seq: t.seen}}
	}
	if n == 0 {
		return nil, false, nil
	}
	read, err := w.store.CatchUp(ctx, at, watchRows)
	if err != nil {
		return nil, false, err
	}
	for _, err := range read.Unreadable {
		return nil, false, err
	}
	rows := read.Events
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
		from = w.looked // longer ago if the database was unavailable, or if Next was not called
	}
	since := partition.FirstID(from.Add(-watchOverlap))
	recent, err := w.since(ctx, since)
	if err != nil {
		return err
	}
	if !w.begun {
		byTenant, tenant := w.f.tenant()
		open, err := w.store.q.OpsOpenTasks(ctx, w.store.api, dbsqlc.OpsOpenTasksParams{
			Agent: w.f.Agent, ContextID: w.f.ContextID, Owner: w.f.Owner, ByTenant: byTenant, Tenant: tenant, MaxRows: int32(w.max),
		})
		if err != nil {
			return translate("watch", err)
		}
		for _, r := range append(open, recent...) {
			// Earlier events are not returned.
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
	byTenant, tenant := w.f.tenant()
	for {
		page, err := w.store.q.OpsTasksSince(ctx, w.store.api, dbsqlc.OpsTasksSinceParams{
			Since: uuid.UUID(since), Agent: w.f.Agent, ContextID: w.f.ContextID, Owner: w.f.Owner, ByTenant: byTenant, Tenant: tenant, MaxRows: watchPage,
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

// lengths reads the last seqs of the next page of tasks that are older than since, and removes
// tasks that cannot change any more.
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
