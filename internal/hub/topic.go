package hub

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Entry is an event on its way to subscribers, with its encodings: each dialect
// encodes it once, however many streams show it.
type Entry struct {
	*task.Event
	encoded [encodings]atomic.Pointer[[]byte]
}

// encodings is how many different encodings of an event are remembered.
const encodings = 7

// Encoded returns the encoding in a slot, making it on first use.
func (e *Entry) Encoded(slot int, encode func(*task.Event) ([]byte, error)) ([]byte, error) {
	if b := e.encoded[slot].Load(); b != nil {
		return *b, nil
	}
	b, err := encode(e.Event)
	if err == nil {
		e.encoded[slot].Store(&b)
	}
	return b, err
}

type topic struct {
	owner *task.Task

	mu    sync.Mutex
	known bool     // tail means something
	tail  task.Seq // newest event that was published
	want  task.Seq // newest event that a hint has spoken of
	ring  []*Entry // contiguous, ends at tail
	bytes int
	subs  map[*Subscription]struct{}
}

// add appends events to the ring and wakes the subscribers. It reports true when
// there is a gap before them, which only the table can fill.
func (t *topic) add(evs []*task.Event, maxEvents, maxBytes int) (gap bool) {
	t.mu.Lock()
	for _, e := range evs {
		switch {
		case t.known && e.Seq <= t.tail:
			continue
		case t.known && e.Seq > t.tail+1:
			t.want = max(t.want, e.Seq)
			gap = true
			continue
		}
		t.known, t.tail = true, e.Seq
		t.ring = append(t.ring, &Entry{Event: e})
		t.bytes += size(e)
	}
	drop := max(0, len(t.ring)-maxEvents)
	for i := range drop {
		t.bytes -= size(t.ring[i].Event)
	}
	for t.bytes > maxBytes && drop < len(t.ring)-1 {
		t.bytes -= size(t.ring[drop].Event)
		drop++
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
	return gap
}

// hint notes that the log has come to seq, and reports whether that is news.
func (t *topic) hint(seq task.Seq) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.want = max(t.want, seq)
	return t.known && seq > t.tail
}

func (t *topic) position() (task.Seq, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tail, t.known
}

// size estimates what an event keeps in memory.
func size(e *task.Event) int {
	n := 256
	if e.Message != nil {
		n += partsSize(e.Message.Parts)
	}
	if e.Artifact != nil {
		n += partsSize(e.Artifact.Parts)
	}
	return n
}

func partsSize(parts []task.Part) int {
	n := 0
	for i := range parts {
		p := &parts[i]
		n += 128 + len(p.Text) + len(p.Raw) + len(p.Data) + len(p.Metadata) + len(p.URL)
	}
	return n
}

// ErrClosed says that the replica is stopping; the reader resumes on another one.
var ErrClosed = errors.New("the hub is closed")

// Subscription follows one task's log. It belongs to one goroutine.
type Subscription struct {
	hub   *Hub
	topic *topic
	after task.Seq
	page  int // of the next reread
	wake  chan struct{}
}

// Subscribe registers for a task of which only the identity is read. Close must
// be called. Nothing is delivered before Start.
func (h *Hub) Subscribe(owner *task.Task) *Subscription {
	s := &Subscription{hub: h, page: firstPage, wake: make(chan struct{}, 1)}
	h.mu.Lock()
	t := h.topics[owner.ID]
	if t == nil {
		t = &topic{owner: owner, subs: make(map[*Subscription]struct{}, 1)}
		h.topics[owner.ID] = t
	}
	s.topic = t
	t.mu.Lock()
	t.subs[s] = struct{}{}
	t.mu.Unlock()
	h.mu.Unlock()
	return s
}

// Start says what the subscriber has seen: the seq of its snapshot.
func (s *Subscription) Start(after task.Seq) { s.Resume(after, after) }

// Resume is Start for a subscriber that may lag behind: the log is known to have come
// to upto. What lies between is read for it at once, since no hint will speak of it again.
func (s *Subscription) Resume(after, upto task.Seq) {
	s.after = after
	t := s.topic
	t.mu.Lock()
	if !t.known {
		t.known, t.tail = true, upto
	}
	t.want = max(t.want, upto)
	behind := t.want > t.tail
	t.mu.Unlock()
	if behind {
		s.hub.mark(t.owner.ID)
	}
	s.ring()
}

// Seen is the seq of the last event that Next returned.
func (s *Subscription) Seen() task.Seq { return s.after }

// Close ends the subscription.
func (s *Subscription) Close() {
	h, t := s.hub, s.topic
	h.mu.Lock()
	t.mu.Lock()
	delete(t.subs, s)
	if len(t.subs) == 0 && h.topics[t.owner.ID] == t {
		delete(h.topics, t.owner.ID)
	}
	t.mu.Unlock()
	h.mu.Unlock()
}

func (s *Subscription) ring() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Pages of reads from the table start small and grow while events are: their number
// alone would not bound what a reader holds in memory.
const (
	firstPage   = 16
	rereadRows  = 500     // the largest page of a subscriber that fell out of the ring
	rereadBytes = 1 << 20 // what its pages aim at
)

// paced is the size of the next page, after one of rows that held so many bytes.
func paced(rows, most, bytes, aim int) int {
	switch {
	case bytes > aim:
		return max(rows/4, 1)
	case bytes < aim/4:
		return min(rows*2, most)
	}
	return rows
}

// Next waits for events after those it has returned, and returns them in order
// without a gap. It ends with ctx's error or ErrClosed.
func (s *Subscription) Next(ctx context.Context) ([]*Entry, error) {
	for {
		out, behind := s.fromRing()
		if len(out) > 0 {
			s.after = out[len(out)-1].Seq
			return out, nil
		}
		if behind {
			out, err := s.reread(ctx)
			if err != nil || len(out) > 0 {
				return out, err
			}
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.hub.closed:
			return nil, ErrClosed
		}
	}
}

func (s *Subscription) fromRing() (out []*Entry, behind bool) {
	t := s.topic
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.known || s.after >= t.tail {
		return nil, false
	}
	first := t.tail - task.Seq(len(t.ring)) + 1
	if s.after+1 < first {
		return nil, true
	}
	return append(out, t.ring[s.after+1-first:]...), false
}

func (s *Subscription) reread(ctx context.Context) ([]*Entry, error) {
	if s.hub.opt.Observer.Reread != nil {
		s.hub.opt.Observer.Reread()
	}
	for {
		evs, err := s.hub.read.EventsAfter(ctx, s.topic.owner, s.after, s.page)
		if err == nil {
			out, bytes := make([]*Entry, len(evs)), 0
			for i, e := range evs {
				out[i] = &Entry{Event: e}
				bytes += size(e)
			}
			s.page = paced(s.page, rereadRows, bytes, rereadBytes)
			if len(out) > 0 {
				s.after = out[len(out)-1].Seq
			}
			return out, nil
		}
		if !errors.Is(err, task.Unavailable) || ctx.Err() != nil {
			return nil, err
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.hub.closed:
			return nil, ErrClosed
		}
	}
}
