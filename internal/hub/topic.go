package hub

import (
	"sync"
	"sync/atomic"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Entry is an event with its cached encodings, which all streams share. Each form of the event is
// encoded once.
type Entry struct {
	*task.Event
	size    int
	encodes sync.Mutex // held by the stream that encodes; the others wait for its result
	encoded []encoding // few

	// Of large events; the lock of the topic guards both.
	senders int   // subscriptions whose Next returned the event last
	held    int64 // bytes of the budget, for all of them
}

type encoding struct {
	form  int
	bytes []byte
}

func newEntry(e *task.Event) *Entry { return &Entry{Event: e, size: int(e.Memory())} }

// Encoded returns the encoding of a form. The first call for it encodes the event.
func (e *Entry) Encoded(form int, encode func(*task.Event) ([]byte, error)) ([]byte, error) {
	e.encodes.Lock()
	defer e.encodes.Unlock()
	for _, known := range e.encoded {
		if known.form == form {
			return known.bytes, nil
		}
	}
	b, err := encode(e.Event)
	if err == nil {
		e.encoded = append(e.encoded, encoding{form, b})
	}
	return b, err
}

type topic struct {
	owner  *task.Task
	holder limit.Holder // of bytes of the budget: the owner of the task

	mu    sync.Mutex
	known bool          // tail is valid
	tail  task.Position // after the newest published event
	want  task.Seq      // seq of the newest event that a hint announced
	ring  []*Entry      // contiguous, ends at tail
	bytes int
	subs  map[*Subscription]struct{}
	// sending has the large events that subscriptions hold, wherever they came from. Those that need
	// such an event, too, share it.
	sending map[task.Seq]*Entry
	over    error         // why the subscriptions have ended; nil while they have not
	total   *atomic.Int64 // bytes in the rings of all topics
}

// end ends the subscriptions.
func (t *topic) end(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = why
	for s := range t.subs {
		s.ring()
	}
}

func (t *topic) ended() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.over
}

// replaces reports whether an event of a run has the seq of another event in the ring. Then the
// database has lost that one.
func (t *topic) replaces(e *task.Event) bool {
	i := int(e.Seq-t.tail.Seq) + len(t.ring) - 1
	if i < 0 || e.Attempt == 0 {
		return false
	}
	old := t.ring[i]
	return old.Attempt != e.Attempt || !old.At.Equal(e.At)
}

// largeRing is the size of a ring, in bytes, from which on it may be dropped to save memory.
const largeRing = 64 << 10

// add appends events to the ring and wakes the subscribers. gap reports missing events before them,
// which the hub must read from the table. rewound says that the events continue an older log.
func (t *topic) add(evs []*task.Event, maxEvents, maxBytes int, maxTotal int64) (gap, rewound bool) {
	t.mu.Lock()
	before := t.bytes
	for _, e := range evs {
		switch {
		case t.known && e.Seq <= t.tail.Seq:
			rewound = rewound || t.replaces(e)
			continue
		case t.known && e.Seq > t.tail.Seq+1:
			t.want = max(t.want, e.Seq)
			gap = true
			continue
		}
		t.known, t.tail = true, e.Position()
		entry := newEntry(e)
		t.ring = append(t.ring, entry)
		t.bytes += entry.size
	}
	drop := max(0, len(t.ring)-maxEvents)
	for i := range drop {
		t.bytes -= t.ring[i].size
	}
	for t.bytes > maxBytes && drop < len(t.ring)-1 {
		t.bytes -= t.ring[drop].size
		drop++
	}
	if total := t.total.Add(int64(t.bytes - before)); total > maxTotal && t.bytes > largeRing {
		// Subscribers read the table when it is their turn.
		t.total.Add(-int64(t.bytes))
		drop, t.bytes = len(t.ring), 0
	}
	if drop > 0 {
		rest := copy(t.ring, t.ring[drop:])
		clear(t.ring[rest:])
		t.ring = t.ring[:rest]
	}
	for s := range t.subs {
		s.ring()
	}
	t.mu.Unlock()
	return gap, rewound
}

// large reports whether subscriptions share an event, and count it against the budget.
func (e *Entry) large() bool { return e.size > limit.SmallBytes }

// share counts a subscription that sends a large event. The first one takes the bytes of the event,
// and fails if they are not free. The caller holds the lock.
func (t *topic) share(e *Entry, b *limit.Budget) bool {
	if e.senders == 0 {
		if !b.TryTake(t.holder, int64(e.size)*entryFactor) {
			return false
		}
		e.held = int64(e.size) * entryFactor
		t.sending[e.Seq] = e
	}
	e.senders++
	return true
}

// unshare returns the bytes of a large event after its last subscription has sent it.
func (t *topic) unshare(e *Entry, b *limit.Budget) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.senders--; e.senders > 0 {
		return
	}
	b.Give(t.holder, e.held)
	if t.sending[e.Seq] == e {
		delete(t.sending, e.Seq)
	}
}

// hint notes that the log has reached seq, and reports whether the topic lacks events up to it.
func (t *topic) hint(seq task.Seq) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.want = max(t.want, seq)
	return t.known && seq > t.tail.Seq
}

func (t *topic) position() (task.Position, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tail, t.known
}
