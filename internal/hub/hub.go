package hub

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// reader is the part of the store that the hub needs.
type reader interface {
	EventsAfter(ctx context.Context, owner *task.Task, after task.Position, limit int) ([]*task.Event, error)
	CatchUp(ctx context.Context, at []store.Position, limit int) (*store.CaughtUp, error)
	Unchanged(ctx context.Context, id task.ID, after task.Position, events []*task.Event) (bool, error)
	LastSeqs(ctx context.Context, ids []task.ID) (map[task.ID]task.Seq, error)
}

// Observer receives the hub's measurements. Every field is optional.
type Observer struct {
	Delivered func(lag time.Duration) // lag: from the arrival of a hint to its delivery
	PollFound func(topics int)        // number of logs with events that no hint had announced
	Listening func(connected bool)
	Reread    func() // a subscriber fell out of its ring
}

// Options configures a hub. The zero value of a number means its default.
type Options struct {
	Store reader
	// Signals is the signal bus of this process. The hub relays its announcements to other
	// processes and passes their hints to it. Nil means an unused bus.
	Signals      *signal.Bus
	URL          string        // of a direct connection, not through a transaction pooler
	PollInterval time.Duration // default 2 s
	PingInterval time.Duration // how long the LISTEN connection may be silent before a ping; default 7 s
	Outage       time.Duration // how long after the last Reached subscriptions end; 0: never
	RingEvents   int           // newest events kept per topic; default 512
	RingBytes    int           // and their maximum size in memory, in bytes; default 1 MiB
	RingTotal    int64         // the same over all topics; beyond it large topics keep no events. Default 256 MiB
	// Memory bounds what subscribers read from the table at a time. Nil: no bound.
	Memory *limit.Budget
	// Ended bounds the pages of ended tasks that are kept for further readers. Nil: none is kept.
	Ended    *limit.Budget
	Observer Observer
	Log      *slog.Logger
}

// Hub delivers events to the subscribers of one replica. It is safe for concurrent use.
type Hub struct {
	opt    Options
	notify *notifier

	mu     sync.Mutex
	topics map[task.ID]*topic

	ringed  atomic.Int64 // bytes in the rings of all topics
	replays *replays
	reading chan struct{} // a place for each subscription that may read the table now

	page int // rows per task of the next catch-up read; used only by the catchUp goroutine

	dirtyMu sync.Mutex
	dirty   map[task.ID]time.Time // the time of the first mark
	dirtied chan struct{}

	connected atomic.Bool // the LISTEN connection is up
	works     atomic.Bool // its self-test has arrived
	deaf      atomic.Bool // two self-tests in a row have not arrived
	deafSince time.Time   // when the listener stopped to hear, of its goroutine; zero while it hears
	closed    chan struct{}
	closeOnce sync.Once

	silent atomic.Int64 // seconds since Reached

	doubtful chan struct{} // a hint says that a task with subscribers was deleted
}

const (
	catchUpTasks = 200
	catchUpRows  = 200     // maximum per task
	catchUpBytes = 8 << 20 // target size of one read, over all tasks
	readers      = 4       // subscriptions that read the table at a time
	pollTasks    = 2000
)

// New returns a hub that relays the signals of its process. Run starts its goroutines.
func New(o Options) *Hub {
	o.PollInterval = cmp.Or(o.PollInterval, 2*time.Second)
	o.PingInterval = cmp.Or(o.PingInterval, 7*time.Second)
	o.RingEvents = cmp.Or(o.RingEvents, 512)
	o.RingBytes = cmp.Or(o.RingBytes, 1<<20)
	o.RingTotal = cmp.Or(o.RingTotal, 256<<20)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Signals == nil {
		o.Signals = &signal.Bus{}
	}
	h := &Hub{
		opt: o, replays: newReplays(o.Ended), topics: map[task.ID]*topic{}, dirty: map[task.ID]time.Time{}, page: firstPage,
		dirtied: make(chan struct{}, 1), reading: make(chan struct{}, readers), closed: make(chan struct{}), doubtful: make(chan struct{}, 1),
	}
	h.notify = newNotifier(o)
	h.relay(o.Signals)
	return h
}

// relay subscribes the hub to the commits of this process.
func (h *Hub) relay(b *signal.Bus) {
	b.Events.Relay(func(evs []*task.Event) {
		h.publish(evs)
		h.notify.events(evs)
	})
	b.Growth.Relay(func(g signal.Growth) {
		h.hinted(g.Task, g.Seq)
		h.notify.advanced(g.Task, g.Seq)
	})
	b.Queues.Relay(h.notify.ready)
	b.Cancels.Relay(h.notify.cancel)
	b.Notified.Relay(h.notify.notified)
	b.Webhooks.Relay(func(struct{}) {
		// A process with a webhook sender delivers its own commits, so the others need no hint.
		if !b.Webhooks.Subscribed() {
			h.notify.pushesDue()
		}
	})
	b.Removed.Relay(func(ids []task.ID) {
		for _, id := range ids {
			h.doubt(id)
		}
		h.notify.removed(ids)
	})
	b.Keys.Relay(func(id string) { h.notify.send("k:" + id) })
}

// Run serves until ctx ends, then closes all subscriptions. It blocks.
func (h *Hub) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return h.listen(ctx) })
	g.Go(func() error { return h.notify.run(ctx) })
	g.Go(func() error { return h.catchUp(ctx) })
	g.Go(func() error { return h.poll(ctx) })
	g.Go(func() error { return h.watch(ctx) })
	g.Go(func() error { h.replays.Expire(ctx.Done()); return nil })
	err := g.Wait()
	h.Close()
	return err
}

// Close ends every subscription: Next then returns ErrClosed.
func (h *Hub) Close() { h.closeOnce.Do(func() { close(h.closed) }) }

// SetPeers sets the number of other processes. With 0 the hub sends no hints.
func (h *Hub) SetPeers(n int) { h.notify.peers.Store(int64(n)) }

// Health reports whether hints arrive. It is degraded when LISTEN does not work and the hub polls
// instead.
func (h *Hub) Health() (detail string, degraded bool) {
	switch {
	case h.connected.Load() && h.works.Load():
		return "listening", false
	case h.connected.Load() && !h.deaf.Load():
		return "polling: LISTEN is connected and its first notification is under way", true
	case h.connected.Load():
		return "polling: LISTEN is connected but notifications do not arrive (a transaction pooler?); set HOLDFAST_LISTEN_DATABASE_URL to a direct connection", true
	}
	return "polling: the LISTEN connection is down", true
}

// Topics returns the number of tasks with local subscribers.
func (h *Hub) Topics() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.topics)
}

func (h *Hub) topic(id task.ID) *topic {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.topics[id]
}

// publish adds events to their topics. Events of one task must be adjacent and in order.
func (h *Hub) publish(evs []*task.Event) {
	for len(evs) > 0 {
		id, n := evs[0].Task, 1
		for n < len(evs) && evs[n].Task == id {
			n++
		}
		if t := h.topic(id); t != nil {
			gap, rewound := t.add(evs[:n], h.opt.RingEvents, h.opt.RingBytes, h.opt.RingTotal)
			if gap {
				h.mark(id)
			}
			if rewound {
				h.void(t, ErrRewound)
			}
		}
		evs = evs[n:]
	}
}

// hinted notes that a log has reached seq.
func (h *Hub) hinted(id task.ID, seq task.Seq) {
	if t := h.topic(id); t != nil && t.hint(seq) {
		h.mark(id)
	}
}

// void ends a topic, whose events can no longer be trusted. Later subscribers get a new one.
func (h *Hub) void(t *topic, why error) {
	h.mu.Lock()
	if h.topics[t.owner.ID] == t {
		delete(h.topics, t.owner.ID)
	}
	h.mu.Unlock()
	t.end(why)
	if errors.Is(why, ErrRewound) {
		h.opt.Log.Warn("the database has lost events of a task; its streams end", "task", t.owner.ID.String())
	}
}

// Reached says that this process has just reached the database (Options.Outage).
func (h *Hub) Reached() { h.silent.Store(0) }

// watch ends all subscriptions when the database has been out of reach for too long. It counts
// seconds in which this process ran, because a process that was frozen may reach the database.
func (h *Hub) watch(ctx context.Context) error {
	if h.opt.Outage == 0 {
		return nil
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if time.Duration(h.silent.Add(1))*time.Second <= h.opt.Outage {
			continue
		}
		h.mu.Lock()
		cut := slices.Collect(maps.Values(h.topics))
		h.mu.Unlock()
		for _, t := range cut {
			h.void(t, ErrCutOff)
		}
		if len(cut) > 0 {
			h.opt.Log.Warn("the database is out of reach; streams end, so that clients resume them on another replica", "topics", len(cut))
		}
	}
}

// doubt makes the poll run at once, to check whether a task still exists.
func (h *Hub) doubt(id task.ID) {
	if h.topic(id) == nil {
		return
	}
	select {
	case h.doubtful <- struct{}{}:
	default:
	}
}

func (h *Hub) mark(id task.ID) {
	h.dirtyMu.Lock()
	if _, ok := h.dirty[id]; !ok {
		h.dirty[id] = time.Now()
	}
	h.dirtyMu.Unlock()
	select {
	case h.dirtied <- struct{}{}:
	default:
	}
}

// markAll marks every topic dirty: after a reconnect, any hint may have been missed.
func (h *Hub) markAll() {
	h.mu.Lock()
	ids := make([]task.ID, 0, len(h.topics))
	for id := range h.topics {
		ids = append(ids, id)
	}
	h.mu.Unlock()
	for _, id := range ids {
		h.mark(id)
	}
}

func (h *Hub) takeDirty() map[task.ID]time.Time {
	h.dirtyMu.Lock()
	defer h.dirtyMu.Unlock()
	out := make(map[task.ID]time.Time, min(len(h.dirty), catchUpTasks))
	for id, since := range h.dirty {
		if len(out) == catchUpTasks {
			break
		}
		out[id] = since
		delete(h.dirty, id)
	}
	return out
}

func (h *Hub) catchUp(ctx context.Context) error {
	for {
		todo := h.takeDirty()
		if len(todo) == 0 {
			select {
			case <-h.dirtied:
				continue
			case <-ctx.Done():
				return nil
			}
		}
		if err := h.fetch(ctx, todo); err != nil {
			for id := range todo {
				h.mark(id)
			}
			h.opt.Log.Warn("catch-up read failed; retrying", "topics", len(todo), "error", err)
			select {
			case <-time.After(250 * time.Millisecond):
			case <-ctx.Done():
				return nil
			}
		}
	}
}

func (h *Hub) fetch(ctx context.Context, todo map[task.ID]time.Time) error {
	at := make([]store.Position, 0, len(todo))
	for id := range todo {
		t := h.topic(id)
		if t == nil {
			continue
		}
		// A topic without a tail has a subscriber that is still reading its snapshot. Start checks
		// the hint again.
		if tail, known := t.position(); known {
			at = append(at, store.Position{Owner: t.owner, After: tail})
		}
	}
	if len(at) == 0 {
		return nil
	}
	page := h.page
	read, err := h.opt.Store.CatchUp(ctx, at, page)
	if err != nil {
		h.page = max(page/4, 1) // it may have been too much to read in time
		return err
	}
	evs := read.Events
	counts, bytes := make(map[task.ID]int, len(at)), 0
	for _, e := range evs {
		counts[e.Task]++
		bytes += int(e.Memory())
	}
	h.page = paced(page, catchUpRows, bytes, catchUpBytes)
	h.publish(evs)
	for id, err := range read.Unreadable {
		if errors.Is(err, store.ErrReplaced) {
			err = ErrRewound
		}
		if t := h.topic(id); t != nil {
			h.void(t, err)
		}
	}
	if read.Cut {
		h.page = max(page/4, 1)
		for _, p := range at {
			h.mark(p.Owner.ID)
		}
	}
	for id, n := range counts {
		if n == page {
			h.mark(id)
		}
		if h.opt.Observer.Delivered != nil {
			h.opt.Observer.Delivered(time.Since(todo[id]))
		}
	}
	return nil
}

// poll finds events whose hints were lost. While hints arrive, it finds nothing.
func (h *Hub) poll(ctx context.Context) error {
	for {
		every := h.opt.PollInterval
		_, degraded := h.Health()
		if degraded {
			every = min(every, 250*time.Millisecond)
		}
		select {
		case <-time.After(every/2 + rand.N(every)):
		case <-h.doubtful:
		case <-ctx.Done():
			return nil
		}
		found := 0
		for _, page := range h.knownTopics() {
			ids := slices.Collect(maps.Keys(page))
			seqs, err := h.opt.Store.LastSeqs(ctx, ids)
			if err != nil {
				if ctx.Err() == nil {
					h.opt.Log.Warn("poll of topics failed; the next poll retries", "error", err)
				}
				break
			}
			for id, before := range page {
				t := h.topic(id)
				if t != before.topic {
					continue
				}
				seq, there := seqs[id]
				switch {
				case !there:
					t.end(task.NotFound)
				case seq < before.tail.Seq:
					h.void(t, ErrRewound)
				case t.hint(seq):
					h.mark(id)
					found++
				}
			}
		}
		// After a recovery, the hints of these events may be on their way.
		_, still := h.Health()
		if recovered := degraded && !still; found > 0 && !recovered && h.opt.Observer.PollFound != nil {
			h.opt.Observer.PollFound(found)
		}
	}
}

// position is the tail of a topic before a read. Its events were committed before the read began,
// so a read that finds a shorter log shows that the database has lost some.
type position struct {
	topic *topic
	tail  task.Position
}

// knownTopics lists the topics with a tail, in pages of pollTasks for one query each.
func (h *Hub) knownTopics() []map[task.ID]position {
	h.mu.Lock()
	defer h.mu.Unlock()
	var pages []map[task.ID]position
	for id, t := range h.topics {
		// A topic without a tail may belong to a task that is not committed yet.
		tail, known := t.position()
		if !known {
			continue
		}
		if n := len(pages); n == 0 || len(pages[n-1]) == pollTasks {
			pages = append(pages, map[task.ID]position{})
		}
		pages[len(pages)-1][id] = position{t, tail}
	}
	return pages
}
