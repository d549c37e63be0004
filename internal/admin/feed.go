package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

// feed tells the live lists of this process which tasks have changed. It learns of changes from the commits of this process and the
// hints of the others, reads the rows of those tasks once for all lists, and filters in memory. Tasks that another process has
// created are in no hint, so the feed also looks at the newest ids, once a second. Without lists it does nothing.
//
// A list that may have missed a change gets a resync: its client reads its page again.
type feed struct {
	o   Options
	log *slog.Logger
	// poll reads the open tasks, and those that have ended since a time; whole says that these are all. Nil: hints tell of changes.
	poll      func(ctx context.Context, since time.Time) (rows []*store.AdminTask, whole bool, err error)
	following atomic.Int64 // lists
	wake      chan struct{}

	mu        sync.Mutex
	followers map[*follower]struct{}
	changed   map[task.ID]struct{}
	missed    bool

	// Of the goroutine of run.
	sent    map[task.ID]task.Seq // the newest seq that was told, of tasks that were told lately
	created task.ID              // tasks up to here have been looked at; zero: none
	polled  time.Time            // by the database's clock
	partial bool                 // the newest poll was not whole
}

const (
	feedEvery     = time.Second            // looks at new tasks, and without hints at open ones
	feedRest      = 250 * time.Millisecond // between two rounds
	feedOverlap   = 5 * time.Second        // how much later than its id a task may be committed
	feedChanged   = 5000                   // tasks of a round; with more, the lists get a resync
	feedPage      = 500                    // tasks of one statement
	feedRemembers = 50_000                 // tasks in sent
	feedDegraded  = 5 * time.Second        // between two resyncs while hints do not arrive
	feedBuffer    = 16                     // rounds that a slow client may be behind
)

func newFeed(o Options) *feed {
	f := &feed{
		o: o, log: o.Log, wake: make(chan struct{}, 1), followers: map[*follower]struct{}{}, changed: map[task.ID]struct{}{}, sent: map[task.ID]task.Seq{},
	}
	if b := o.Signals; b != nil {
		b.Events.Subscribe(func(evs []*task.Event) {
			if f.following.Load() == 0 {
				return
			}
			for len(evs) > 0 {
				id, n := evs[0].Task, 1
				for n < len(evs) && evs[n].Task == id {
					n++
				}
				f.note(id)
				evs = evs[n:]
			}
		})
		b.Growth.Subscribe(func(g signal.Growth) {
			if f.following.Load() > 0 {
				f.note(g.Task)
			}
		})
		b.Missed.Subscribe(func(struct{}) { f.miss() })
	}
	return f
}

// note says that a task has changed.
func (f *feed) note(id task.ID) {
	f.mu.Lock()
	if len(f.changed) < feedChanged {
		f.changed[id] = struct{}{}
	} else {
		f.missed = true
	}
	f.mu.Unlock()
	f.ring()
}

// miss says that changes may be unknown.
func (f *feed) miss() {
	f.mu.Lock()
	f.missed = true
	f.mu.Unlock()
	f.ring()
}

func (f *feed) ring() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// follower is a live list.
type follower struct {
	filter  *store.AdminFilter
	rounds  chan *round // closed by cut
	dropped atomic.Bool // a round did not fit
}

// round is what a list is told at a time.
type round struct {
	at     int64 // the database's time before the rows were read, in microseconds: the id of its events
	tasks  []*told
	resync bool
}

// told is a task with its encoding, which all lists share.
type told struct {
	*store.AdminTask
	json json.RawMessage
}

// toldOf encodes tasks, each with its line.
func (f *feed) toldOf(ctx context.Context, tasks []*store.AdminTask) ([]*told, error) {
	views, err := f.o.viewTasks(ctx, tasks...)
	if err != nil {
		return nil, err
	}
	rows := make([]*told, len(tasks))
	for i, t := range tasks {
		raw, err := web.Marshal(views[i])
		if err != nil {
			return nil, err
		}
		rows[i] = &told{t, bytes.TrimSpace(raw)}
	}
	return rows, nil
}

// follow adds a list. The filter must have the tenant of an operator who sees only one.
func (f *feed) follow(filter *store.AdminFilter) *follower {
	w := &follower{filter: filter, rounds: make(chan *round, feedBuffer)}
	f.mu.Lock()
	f.followers[w] = struct{}{}
	f.following.Add(1)
	f.mu.Unlock()
	f.ring()
	return w
}

func (f *feed) leave(w *follower) {
	f.mu.Lock()
	delete(f.followers, w)
	f.following.Add(-1)
	f.mu.Unlock()
}

// cut ends the lists of a local API: its command says that the database is away, and continues.
func (f *feed) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.followers {
		close(w.rounds)
		delete(f.followers, w)
	}
}

// belongs reports whether a list shows a task in some state: whether the rest of the filter selects it.
func (w *follower) belongs(t *store.AdminTask) bool {
	anyState := *w.filter
	anyState.States = nil
	return anyState.Matches(t.Task)
}

// run tells the lists until ctx ends.
func (f *feed) run(ctx context.Context) error {
	tick := time.NewTicker(feedEvery)
	defer tick.Stop()
	var degraded time.Time // the last resync because hints do not arrive
	for {
		looks := false
		select {
		case <-f.wake:
		case <-tick.C:
			looks = true
		case <-ctx.Done():
			return nil
		}
		if f.following.Load() == 0 {
			f.forget()
			continue
		}
		if _, bad := f.health(); bad && time.Since(degraded) > feedDegraded {
			degraded = time.Now()
			f.miss()
		}
		if err := f.round(ctx, looks); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if f.poll != nil {
				f.cut()
			} else {
				f.log.Warn("live lists could not be read; they are read again", "error", err)
			}
			f.miss()
			if !pause(ctx, feedEvery) {
				return nil
			}
		}
		if !pause(ctx, feedRest) {
			return nil
		}
	}
}

func (f *feed) health() (string, bool) {
	if f.o.Hub == nil {
		return "", f.partial
	}
	return f.o.Hub.Health()
}

// pause waits, and reports whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// forget drops what only lists need.
func (f *feed) forget() {
	f.mu.Lock()
	clear(f.changed)
	f.missed = false
	f.mu.Unlock()
	clear(f.sent)
	f.created, f.polled = task.ID{}, time.Time{}
}

// round reads what has changed and tells the lists.
func (f *feed) round(ctx context.Context, looks bool) error {
	f.mu.Lock()
	changed, missed := f.changed, f.missed
	f.changed, f.missed = map[task.ID]struct{}{}, false
	f.mu.Unlock()
	if len(changed) == 0 && !missed && !looks {
		return nil
	}
	now, err := f.o.Store.Now(ctx)
	if err != nil {
		return err
	}
	r := &round{at: now.UnixMicro(), resync: missed}
	ids := make([]task.ID, 0, len(changed))
	for id := range changed {
		ids = append(ids, id)
	}
	for len(ids) > 0 {
		n := min(len(ids), feedPage)
		rows, err := f.o.Store.TasksByID(ctx, ids[:n])
		if err != nil {
			return err
		}
		if err := f.tell(ctx, r, rows); err != nil {
			return err
		}
		ids = ids[n:]
	}
	if looks {
		if err := f.look(ctx, now, r); err != nil {
			return err
		}
	}
	if looks && f.poll != nil {
		since := now
		if !f.polled.IsZero() {
			since = f.polled
		}
		rows, whole, err := f.poll(ctx, since.Add(-feedOverlap))
		if err != nil {
			return err
		}
		if err := f.tell(ctx, r, rows); err != nil {
			return err
		}
		f.polled, f.partial = now, !whole
	}
	if len(r.tasks) > 0 || r.resync {
		f.publish(r)
	}
	return nil
}

// look finds the tasks that other processes have created.
func (f *feed) look(ctx context.Context, now time.Time, r *round) error {
	from := task.ID(partition.FirstID(now.Add(-feedOverlap)))
	if f.created.IsZero() || bytes.Compare(f.created[:], from[:]) > 0 {
		f.created = from
	}
	after := f.created
	for read := 0; ; {
		rows, err := f.o.Store.CreatedSince(ctx, after, feedPage)
		if err != nil {
			return err
		}
		if err := f.tell(ctx, r, rows); err != nil {
			return err
		}
		if len(rows) < feedPage {
			break
		}
		if read += len(rows); read >= feedChanged {
			r.resync = true
			break
		}
		after = rows[len(rows)-1].Task.ID
	}
	f.created = from
	return nil
}

// tell adds the rows to a round that the lists do not know yet.
func (f *feed) tell(ctx context.Context, r *round, rows []*store.AdminTask) error {
	if len(f.sent) > feedRemembers {
		clear(f.sent)
	}
	var fresh []*store.AdminTask
	for _, t := range rows {
		if seq, known := f.sent[t.Task.ID]; !known || seq < t.Task.LastSeq {
			f.sent[t.Task.ID] = t.Task.LastSeq
			fresh = append(fresh, t)
		}
	}
	told, err := f.toldOf(ctx, fresh)
	r.tasks = append(r.tasks, told...)
	return err
}

// publish gives each list its part of a round.
func (f *feed) publish(r *round) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.followers {
		if w.dropped.Load() {
			// Its resync covers this round. The ids of later rounds must not come before it: a client that is cut off between
			// them would continue after what it has missed.
			continue
		}
		own := &round{at: r.at, resync: r.resync}
		for _, t := range r.tasks {
			if w.belongs(t.AdminTask) {
				own.tasks = append(own.tasks, t)
			}
		}
		if len(own.tasks) == 0 && !own.resync {
			continue
		}
		select {
		case w.rounds <- own:
		default:
			w.dropped.Store(true)
		}
	}
}
