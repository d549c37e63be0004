package hub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// ErrClosed ends a subscription early. The reader resumes, and may reach another replica.
var ErrClosed = errors.New("the hub is closed")

// ErrRewound is an ErrClosed: the database has lost events that the subscription has returned, by a
// failover or a restore. A reader that resumes gets a snapshot.
var ErrRewound = fmt.Errorf("the database has lost events of the task: %w", ErrClosed)

// ErrCutOff is an ErrClosed: this replica has not reached the database for Options.Outage.
var ErrCutOff = fmt.Errorf("the database is out of reach: %w", ErrClosed)

// Subscription follows one task's log. It is not safe for concurrent use.
type Subscription struct {
	hub    *Hub
	topic  *topic
	after  task.Position
	page   int    // rows of the next reread
	held   int64  // bytes of the budget, for the small events that Next returned last
	shared *Entry // or the large event that it returned
	wake   chan struct{}
}

// Subscribe registers for the events of a task. It uses only the identity in owner. Next returns
// nothing before Start. The caller must call Close.
func (h *Hub) Subscribe(owner *task.Task) *Subscription {
	s := &Subscription{hub: h, page: firstPage, wake: make(chan struct{}, 1)}
	if owner.Status.State.Terminal() {
		s.page = endedPage // many readers will want the same pages
	}
	h.mu.Lock()
	t := h.topics[owner.ID]
	if t == nil {
		t = &topic{owner: owner, total: &h.ringed, subs: make(map[*Subscription]struct{}, 1), sending: map[task.Seq]*Entry{}}
		t.holder.Owner = task.Owner{Tenant: owner.Tenant, Subject: owner.Owner}
		h.topics[owner.ID] = t
	}
	s.topic = t
	t.mu.Lock()
	t.subs[s] = struct{}{}
	t.mu.Unlock()
	h.mu.Unlock()
	return s
}

// Start begins delivery after the position of the subscriber's snapshot.
func (s *Subscription) Start(after task.Position) { s.Resume(after, after) }

// Resume is Start for a subscriber that lags behind a log that has reached upto. The events in
// between are read at once, because no new hint will announce them.
func (s *Subscription) Resume(after, upto task.Position) {
	s.after = after
	t := s.topic
	t.mu.Lock()
	if !t.known {
		t.known, t.tail = true, upto
	}
	t.want = max(t.want, upto.Seq)
	behind := t.want > t.tail.Seq
	t.mu.Unlock()
	if behind {
		s.hub.mark(t.owner.ID)
	}
	s.ring()
}

// Seen returns the seq of the last event that Next returned.
func (s *Subscription) Seen() task.Seq { return s.after.Seq }

// release returns the bytes of the events that Next returned last: they are sent.
func (s *Subscription) release() {
	s.hub.opt.Memory.Give(s.topic.holder, s.held)
	s.held = 0
	if s.shared != nil {
		s.topic.unshare(s.shared, s.hub.opt.Memory)
		s.shared = nil
	}
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.release()
	h, t := s.hub, s.topic
	h.mu.Lock()
	t.mu.Lock()
	delete(t.subs, s)
	if len(t.subs) == 0 {
		if h.topics[t.owner.ID] == t {
			delete(h.topics, t.owner.ID)
		}
		t.total.Add(-int64(t.bytes))
		t.bytes, t.ring = 0, nil
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

// Pages of reads from the table start small and grow while events are small. A row limit alone
// would not bound a reader's memory.
const (
	firstPage   = 16
	endedPage   = 256     // of a task that has ended
	rereadRows  = 500     // maximum page of a subscriber that fell out of the ring
	rereadBytes = 1 << 20 // target size of its pages
)

// paced returns the number of rows for the next page, from the rows and the bytes of the last one.
func paced(rows, most, bytes, aim int) int {
	switch {
	case bytes > aim:
		return max(rows/4, 1)
	case bytes < aim/4:
		return min(rows*2, most)
	}
	return rows
}

// Next blocks until there are new events and returns them in order, without a gap. They belong to the
// subscriber until the next call, and count against the budget if they are large. Errors: that of ctx,
// ErrClosed, ErrRewound, ErrCutOff, or task.NotFound if the task was deleted.
func (s *Subscription) Next(ctx context.Context) ([]*Entry, error) {
	s.release()
	for {
		if err := s.topic.ended(); err != nil {
			return nil, err
		}
		out, behind, replaced := s.fromRing()
		if replaced {
			s.hub.void(s.topic, ErrRewound)
			continue
		}
		if len(out) > 0 {
			s.after = out[len(out)-1].Position()
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

// fromRing returns the next events in the ring: at most limit.SmallBytes bytes of them, or one large
// event. It may return a large event that another subscription sends. behind says that the next event
// is committed, but neither there nor affordable; replaced, that the ring and the subscriber have
// different events at the subscriber's position, so one of them is lost.
func (s *Subscription) fromRing() (out []*Entry, behind, replaced bool) {
	t := s.topic
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.known || s.after.Seq >= t.tail.Seq {
		return nil, false, t.known && s.after.Seq == t.tail.Seq && !s.after.Mark.Fits(t.tail.Mark)
	}
	first := t.tail.Seq - task.Seq(len(t.ring)) + 1
	next := s.after.Seq + 1 - first
	if next > 0 && !s.after.Mark.Fits(t.ring[next-1].Position().Mark) {
		return nil, false, true
	}
	if out := s.sent(); out != nil {
		return out, false, false
	}
	if next < 0 {
		return nil, true, false
	}
	rest := t.ring[next:]
	if rest[0].large() {
		if !t.share(rest[0], s.hub.opt.Memory) {
			return nil, true, false // reread waits for the bytes
		}
		s.shared = rest[0]
	}
	n, bytes := 1, rest[0].size
	for ; n < len(rest) && bytes+rest[n].size <= limit.SmallBytes; n++ {
		bytes += rest[n].size
	}
	return append(out, rest[:n]...), false, false
}

// sent returns the next event if another subscription sends it and it is large. The caller holds the
// topic's lock.
func (s *Subscription) sent() []*Entry {
	e := s.topic.sending[s.after.Seq+1]
	if e == nil {
		return nil
	}
	e.senders++
	s.shared = e
	return []*Entry{e}
}

// reread reads the next events from the table, within the budget.
func (s *Subscription) reread(ctx context.Context) ([]*Entry, error) {
	if s.hub.opt.Observer.Reread != nil {
		s.hub.opt.Observer.Reread()
	}
	for {
		if err := s.reserve(ctx); err != nil {
			return nil, err
		}
		out, err := s.readPage(ctx)
		if err == nil {
			if len(out) > 0 {
				s.after = out[len(out)-1].Position()
			}
			return out, nil
		}
		s.release()
		if errors.Is(err, store.ErrReplaced) {
			s.hub.void(s.topic, ErrRewound)
			return nil, ErrRewound
		}
		s.page = max(s.page/4, 1) // it may have been too much to read in time
		if !errors.Is(err, task.Unavailable) || ctx.Err() != nil {
			return nil, err
		}
		if err := s.topic.ended(); err != nil {
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

// readPage reads a page for which bytes are reserved, and corrects the reservation. One event may be
// larger than it, so few subscriptions read at a time.
func (s *Subscription) readPage(ctx context.Context) ([]*Entry, error) {
	select {
	case s.hub.reading <- struct{}{}:
		defer func() { <-s.hub.reading }()
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.hub.closed:
		return nil, ErrClosed
	}
	t := s.topic
	t.mu.Lock()
	out := s.sent()
	t.mu.Unlock()
	if out != nil {
		s.correct(0)
		return out, nil
	}
	if kept, err := s.replayed(ctx); err != nil {
		return nil, err
	} else if kept != nil {
		s.correct(int64(kept.bytes) * entryFactor)
		return kept.entries, nil
	}
	evs, err := s.hub.opt.Store.EventsAfter(ctx, t.owner, s.after, s.page)
	if err != nil {
		return nil, err
	}
	out, bytes := make([]*Entry, len(evs)), 0
	for i, e := range evs {
		out[i] = newEntry(e)
		bytes += out[i].size
	}
	s.page = paced(s.page, rereadRows, bytes, rereadBytes)
	if len(out) == 0 || !out[0].large() {
		s.correct(int64(bytes) * entryFactor)
		s.keep(out, bytes)
		return out, nil
	}
	// The others are read again when it is sent, so that each large event has its own bytes.
	e := out[0]
	s.page = 1
	s.correct(int64(e.size) * entryFactor)
	t.mu.Lock()
	e.senders, e.held, s.held = 1, s.held, 0
	s.shared, t.sending[e.Seq] = e, e
	t.mu.Unlock()
	return out[:1], nil
}

// correct replaces the reservation by what is needed, even if that is not free.
func (s *Subscription) correct(need int64) {
	s.hub.opt.Memory.Add(s.topic.holder, need-s.held)
	s.hub.opt.Memory.Give(s.topic.holder, s.held-need)
	s.held = need
}

// entryFactor is the bytes of memory for each byte of an event on a stream: the event, and its
// encodings in two versions.
const entryFactor = 3

// reserve waits for the memory of a page, as long as ctx lasts.
func (s *Subscription) reserve(ctx context.Context) error {
	for {
		err := s.hub.opt.Memory.Take(ctx, s.topic.holder, rereadBytes*entryFactor)
		if err == nil {
			s.held = rereadBytes * entryFactor
			return nil
		}
		if !errors.Is(err, task.Unavailable) && !errors.Is(err, task.RateLimited) {
			return err
		}
		select {
		case <-s.hub.closed:
			return ErrClosed
		default:
		}
	}
}
