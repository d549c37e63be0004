package hub

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// reader is what the hub asks of the store.
type reader interface {
	EventsAfter(ctx context.Context, owner *task.Task, after task.Seq, limit int) ([]*task.Event, error)
	CatchUp(ctx context.Context, at []store.Position, limit int) ([]*task.Event, error)
	LastSeqs(ctx context.Context, ids []task.ID) (map[task.ID]task.Seq, error)
}

// Observer takes the hub's measurements. Every field is optional.
type Observer struct {
	Delivered func(lag time.Duration) // from the arrival of a hint to its delivery
	PollFound func(topics int)        // logs that the poll found longer than any hint had said
	Listening func(connected bool)
	Reread    func() // a subscriber fell out of its ring
}

// Options configures a hub. The zero value of a number means its default.
type Options struct {
	URL          string        // direct, not through a transaction pooler
	PollInterval time.Duration // default 2 s
	PingInterval time.Duration // of a silent LISTEN connection; default 7 s
	RingEvents   int           // newest events kept per topic; default 512
	RingBytes    int           // and their size in memory; default 1 MiB
	Observer     Observer
	Log          *slog.Logger
	// OnReady is called when another replica has queued work for an agent ("" for any);
	// OnCancel when a running task is said to have been asked to end; OnPushes when webhooks
	// have something to deliver, and nil where nobody delivers. They are reasons to look and
	// no more, for everybody who may log in to the database can send hints. They must not
	// block.
	OnReady  func(agent string)
	OnCancel func(id task.ID)
	OnPushes func()
	// OnKeyRevoked is called when API keys may have been revoked. It must not block.
	OnKeyRevoked func()
}

// Hub is the fan-out of one replica.
type Hub struct {
	opt    Options
	read   reader
	notify *notifier

	mu     sync.Mutex
	topics map[task.ID]*topic

	page int // rows of the next catch-up read; belongs to its goroutine

	dirtyMu sync.Mutex
	dirty   map[task.ID]time.Time // since when
	dirtied chan struct{}

	connected atomic.Bool // the LISTEN connection stands
	works     atomic.Bool // its self-test was heard
	closed    chan struct{}
	closeOnce sync.Once
}

const (
	catchUpTasks = 200
	catchUpRows  = 200     // of one task, at most
	catchUpBytes = 8 << 20 // what one read aims at, of all tasks
	pollTasks    = 2000
)

// New makes a hub. SetReader must be called before Run: store and hub need each other.
func New(o Options) *Hub {
	o.PollInterval = cmp.Or(o.PollInterval, 2*time.Second)
	o.PingInterval = cmp.Or(o.PingInterval, 7*time.Second)
	o.RingEvents = cmp.Or(o.RingEvents, 512)
	o.RingBytes = cmp.Or(o.RingBytes, 1<<20)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	h := &Hub{
		opt: o, topics: map[task.ID]*topic{}, dirty: map[task.ID]time.Time{}, page: firstPage,
		dirtied: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	h.notify = newNotifier(o)
	return h
}

// SetReader gives the hub the store it reads from.
func (h *Hub) SetReader(r reader) { h.read = r }

// Run serves until ctx ends.
func (h *Hub) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return h.listen(ctx) })
	g.Go(func() error { return h.notify.run(ctx) })
	g.Go(func() error { return h.catchUp(ctx) })
	g.Go(func() error { return h.poll(ctx) })
	err := g.Wait()
	h.Close()
	return err
}

// Close ends every subscription: Next returns ErrClosed.
func (h *Hub) Close() { h.closeOnce.Do(func() { close(h.closed) }) }

// SetPeers tells how many other processes there are. Alone, the hub sends no hints.
func (h *Hub) SetPeers(n int) { h.notify.peers.Store(int64(n)) }

// Health says how hints arrive: listening, or polling because LISTEN does not work.
func (h *Hub) Health() (detail string, degraded bool) {
	switch {
	case h.connected.Load() && h.works.Load():
		return "listening", false
	case h.connected.Load():
		return "polling: LISTEN is connected but notifications do not arrive (a transaction pooler?); set HOLDFAST_LISTEN_DATABASE_URL to a direct connection", true
	}
	return "polling: the LISTEN connection is down", true
}

// Topics counts the tasks with local subscribers.
func (h *Hub) Topics() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.topics)
}

// Committed implements store.Listener.
func (h *Hub) Committed(evs []*task.Event) {
	h.publish(evs)
	h.notify.events(evs)
}

// Advanced implements store.Listener.
func (h *Hub) Advanced(id task.ID, seq task.Seq) {
	h.hinted(id, seq)
	h.notify.advanced(id, seq)
}

// Ready implements store.Listener.
func (h *Hub) Ready(agent string) {
	h.notify.ready(agent)
	if h.opt.OnReady != nil {
		h.opt.OnReady(agent)
	}
}

// CancelWanted implements store.Listener.
func (h *Hub) CancelWanted(id task.ID) {
	h.notify.cancel(id)
	if h.opt.OnCancel != nil {
		h.opt.OnCancel(id)
	}
}

// PushesDue is what the store tells after a commit that gave webhooks something to deliver.
// Where nobody delivers, others are told.
func (h *Hub) PushesDue() {
	if h.opt.OnPushes == nil {
		h.notify.pushesDue()
		return
	}
	h.opt.OnPushes()
}

// KeyRevoked implements store.Listener.
func (h *Hub) KeyRevoked(id string) {
	h.forgetKeys()
	h.notify.send("k:" + id)
}

func (h *Hub) topic(id task.ID) *topic {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.topics[id]
}

// publish hands events to their topics; those of one task stand together and in order.
func (h *Hub) publish(evs []*task.Event) {
	for len(evs) > 0 {
		id, n := evs[0].Task, 1
		for n < len(evs) && evs[n].Task == id {
			n++
		}
		if t := h.topic(id); t != nil && t.add(evs[:n], h.opt.RingEvents, h.opt.RingBytes) {
			h.mark(id)
		}
		evs = evs[n:]
	}
}

// hinted learns that a log has come to seq.
func (h *Hub) hinted(id task.ID, seq task.Seq) {
	if t := h.topic(id); t != nil && t.hint(seq) {
		h.mark(id)
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

// markAll distrusts every topic: after a reconnect, anything may have been missed.
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
			h.opt.Log.Warn("catch-up read is repeated", "topics", len(todo), "error", err)
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
		// A topic without a tail has a subscriber that is still reading its snapshot; Start
		// looks at the hint again.
		if tail, known := t.position(); known {
			at = append(at, store.Position{Owner: t.owner, After: tail})
		}
	}
	if len(at) == 0 {
		return nil
	}
	page := h.page
	evs, err := h.read.CatchUp(ctx, at, page)
	if err != nil {
		return err
	}
	counts, bytes := make(map[task.ID]int, len(at)), 0
	for _, e := range evs {
		counts[e.Task]++
		bytes += size(e)
	}
	h.page = paced(page, catchUpRows, bytes, catchUpBytes)
	h.publish(evs)
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

// poll is the net under the hints. While they work it finds nothing.
func (h *Hub) poll(ctx context.Context) error {
	for {
		every := h.opt.PollInterval
		if _, degraded := h.Health(); degraded {
			every = min(every, 250*time.Millisecond)
		}
		select {
		case <-time.After(every/2 + rand.N(every)):
		case <-ctx.Done():
			return nil
		}
		found := 0
		for _, ids := range h.knownTopics() {
			seqs, err := h.read.LastSeqs(ctx, ids)
			if err != nil {
				if ctx.Err() == nil {
					h.opt.Log.Warn("poll of topics failed", "error", err)
				}
				break
			}
			for id, seq := range seqs {
				if t := h.topic(id); t != nil && t.hint(seq) {
					h.mark(id)
					found++
				}
			}
		}
		if found > 0 && h.opt.Observer.PollFound != nil {
			h.opt.Observer.PollFound(found)
		}
	}
}

// knownTopics lists the topics with a tail, in pages that one query can take.
func (h *Hub) knownTopics() [][]task.ID {
	h.mu.Lock()
	defer h.mu.Unlock()
	var pages [][]task.ID
	var page []task.ID
	for id := range h.topics {
		if page = append(page, id); len(page) == pollTasks {
			pages, page = append(pages, page), nil
		}
	}
	if len(page) > 0 {
		pages = append(pages, page)
	}
	return pages
}
