package remote

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

const (
	// batch bounds the runs of an agent in one statement.
	batch         = 100
	claimTimeout  = 5 * time.Second
	fullScanEvery = 5 * time.Second
)

// waiter is a claim that waits for runs.
type waiter struct {
	entry *worker
	slots map[string]int // by agent, those that are still free
	in    []*queue       // the agents with slots when it entered

	// broker.mu guards them.
	got    []*store.Claimed
	asked  int  // statements and reservations under way that may give it runs
	over   bool // it is not in the queues any more, or is to be dropped from them
	served chan struct{}
}

// queue is one agent with the claims that wait for its runs. broker.mu guards its fields.
type queue struct {
	name    string
	lease   time.Duration
	look    time.Duration
	waiting []*waiter // the oldest first, with some that are over
	live    int       // those that are not over
	ready   bool      // a hint came, or a claim won all it asked for: more may be waiting
	since   time.Time
	scanned time.Time
}

// broker claims runs for the claims that wait at this replica.
type broker struct {
	store  Store
	poll   time.Duration
	memory *limit.Runs
	log    *slog.Logger
	count  func(agent string, waited time.Duration)
	wake   chan struct{}

	mu     sync.Mutex
	agents map[string]*queue
}

func newBroker(b *broker) *broker {
	b.wake = make(chan struct{}, 1)
	for _, q := range b.agents {
		q.ready = true
	}
	return b
}

func (b *broker) ring() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// hint tells the broker that an agent's queue has something to claim; "" means any agent.
func (b *broker) hint(agent string) {
	b.mu.Lock()
	waits := false
	for name, q := range b.agents {
		if agent == "" || agent == name {
			q.ready = true
			waits = waits || q.live > 0
		}
	}
	b.mu.Unlock()
	if waits {
		b.ring()
	}
}

// enter lets a claim wait. The caller must call leave.
func (b *broker) enter(entry *worker, slots map[string]int) *waiter {
	w := &waiter{entry: entry, slots: slots, served: make(chan struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	more := false
	for name, n := range slots {
		if q := b.agents[name]; n > 0 && q != nil {
			q.waiting = append(q.waiting, w)
			q.live++
			w.in = append(w.in, q)
			more = more || q.ready
		}
	}
	if more {
		b.ring()
	}
	return w
}

// leave ends the wait of a claim, and returns the runs that it has got. It blocks while a statement may give it some.
func (b *broker) leave(w *waiter) []*store.Claimed {
	b.mu.Lock()
	b.drop(w)
	for w.asked > 0 {
		b.mu.Unlock()
		<-w.served
		b.mu.Lock()
	}
	defer b.mu.Unlock()
	got := w.got
	w.got = nil
	return got
}

// end ends the wait of a claim without waiting for what it gets.
func (b *broker) end(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(w)
}

// drop takes a claim out of the queues. b.mu is held.
func (b *broker) drop(w *waiter) {
	if w.over {
		return
	}
	w.over = true
	for _, q := range w.in {
		if q.live--; len(q.waiting) > 2*q.live+16 {
			kept := q.waiting[:0]
			for _, x := range q.waiting {
				if !x.over {
					kept = append(kept, x)
				}
			}
			clear(q.waiting[len(kept):])
			q.waiting = kept
		}
	}
}

// run claims until ctx ends.
func (b *broker) run(ctx context.Context) {
	for ctx.Err() == nil {
		for b.round(ctx) {
			if ctx.Err() != nil {
				return
			}
		}
		select {
		case <-b.wake:
		case <-time.After(b.poll/2 + rand.N(b.poll)):
			b.hint("")
		case <-ctx.Done():
		}
	}
}

// Slot is the place of a claim that waits, reserved for a task that does not exist yet: the statement that creates the task
// claims it, too.
type Slot struct {
	b *broker
	q *queue
	w *waiter
}

// reserve takes a place of the oldest claim that no statement serves. It returns nil if no claim has a place, or if older tasks may
// wait for the agent.
func (b *broker) reserve(agent string) *Slot {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.agents[agent]
	if q == nil || q.ready || b.memory.Full() {
		return nil
	}
	for _, w := range q.waiting {
		if !w.over && w.asked == 0 && w.slots[agent] > 0 {
			w.asked++
			w.slots[agent]--
			return &Slot{b, q, w}
		}
	}
	return nil
}

// Claimer returns what claims the task.
func (s *Slot) Claimer() store.Slot {
	return store.Slot{Worker: s.w.entry.id, Lease: s.q.lease, Look: s.q.look}
}

// Start gives the task that was created with the slot to the claim.
func (s *Slot) Start(c *store.Claimed) {
	s.b.count(s.q.name, 0)
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.w.got = append(s.w.got, c)
	s.b.settle(s.w)
}

// Release returns the slot unused. err says why the task was not created.
func (s *Slot) Release(err error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.w.slots[s.q.name]++
	if errors.Is(err, task.Unavailable) {
		s.w.entry.unsure.Store(true) // the task may have been created all the same
	}
	s.b.settle(s.w)
	if s.q.ready {
		s.b.ring()
	}
}

// openSlot is a free slot of a claim, which a statement may fill with a run of an agent.
type openSlot struct {
	q *queue
	w *waiter
}

// round claims once for all agents with claims that wait, and reports whether there may be more to claim. Each claim gets one
// run first, the oldest claims first. Only when all of them have one, they get more.
func (b *broker) round(ctx context.Context) (more bool) {
	b.mu.Lock()
	var open []openSlot
	for _, q := range b.agents {
		if !q.ready {
			continue
		}
		n := 0
		for _, w := range q.waiting {
			if n == batch {
				break
			}
			if !w.over && w.slots[q.name] > 0 {
				q.ready = false // before the statement, so that a hint during it is not lost
				w.asked++
				open = append(open, openSlot{q, w})
				n++
			}
		}
	}
	b.mu.Unlock()
	if len(open) == 0 {
		return false
	}
	more, ok := b.claim(ctx, open)
	if !ok {
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
		return true
	}
	return more
}

// claim claims for open slots, and for those whose agent has more to do a second time, with all of their slots. It serves the claims
// that have got runs.
func (b *broker) claim(ctx context.Context, open []openSlot) (more, ok bool) {
	_, crowded := b.memory.Messages()
	full, ok := b.statement(ctx, open, !crowded)
	var second []openSlot
	b.mu.Lock()
	for again := true; again; {
		again = false
		for _, s := range open {
			// The runs of the second statement are in turns: one for each claim.
			if full[s.q] > 0 && !s.w.over && len(s.w.got) > 0 && s.w.slots[s.q.name] > 0 && full[s.q] <= batch {
				s.w.slots[s.q.name]--
				full[s.q]++
				second = append(second, s)
				again = true
			}
		}
	}
	for _, s := range second {
		s.w.slots[s.q.name]++
		s.w.asked++
	}
	b.mu.Unlock()
	if len(second) > 0 {
		_, _ = b.statement(ctx, second, false) // the first may have won a message that is beside the budget
	}
	b.mu.Lock()
	for _, s := range second {
		s.w.asked--
	}
	for _, s := range open {
		b.settle(s.w)
	}
	for q := range full {
		q.ready = true
		more = more || q.live > 0
	}
	b.mu.Unlock()
	return more, ok
}

// settle notes that a statement, or a reservation, is over for a claim. After the last of them it ends the wait of a claim that
// has got runs, or may have got some: then the next claim of the worker looks for them. b.mu is held.
func (b *broker) settle(w *waiter) {
	if w.asked--; w.asked > 0 || len(w.got) == 0 && !w.over && !w.entry.unsure.Load() {
		return
	}
	b.drop(w)
	select {
	case <-w.served:
	default:
		close(w.served)
	}
}

// statement claims one run for each slot, and gives it to the claim. With alone, one may have a message that does not fit. It returns
// the agents that may win more, with 1.
func (b *broker) statement(ctx context.Context, open []openSlot, alone bool) (full map[*queue]int, ok bool) {
	full = map[*queue]int{}
	asked, byAgent, byWorker := map[*queue]int{}, map[string]*queue{}, map[task.ID]*waiter{}
	demands := map[*queue]*store.Demand{}
	now := time.Now()
	most, _ := b.memory.Messages()
	b.mu.Lock()
	for _, s := range open {
		d := demands[s.q]
		if d == nil {
			d = &store.Demand{
				Agent: s.q.name, Since: s.q.since, Lease: s.q.lease, Look: s.q.look, Bytes: most, Further: !alone,
			}
			if now.Sub(s.q.scanned) > fullScanEvery {
				s.q.scanned, d.Since = now, time.Time{}
			}
			demands[s.q], byAgent[s.q.name] = d, s.q
		}
		d.Workers = append(d.Workers, s.w.entry.id)
		byWorker[s.w.entry.id] = s.w
		asked[s.q]++
	}
	b.mu.Unlock()
	want := make([]store.Demand, 0, len(demands))
	for _, d := range demands {
		want = append(want, *d)
	}
	// A stop must not interrupt a claim: nobody would run what it won until the lease expired.
	claiming, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
	defer cancel()
	won, err := b.store.Claim(claiming, task.ID{}, want)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			b.log.Warn("claim for remote workers failed; retrying", "error", err)
		}
		for _, s := range open {
			s.q.ready = true
			s.w.entry.unsure.Store(true) // it may have got a run
		}
		return full, false
	}
	counts := map[*queue]int{}
	for _, c := range won {
		q, w := byAgent[c.Task.Agent], byWorker[c.Worker]
		counts[q]++
		if c.Since.After(q.since) {
			q.since = c.Since
		}
		w.got = append(w.got, c)
		w.slots[q.name]--
		b.count(q.name, c.Waited)
	}
	// The next claim may win the tasks that one with a large message has passed over.
	passed := alone && slices.ContainsFunc(won, func(c *store.Claimed) bool { return c.Since.IsZero() })
	for q, n := range asked {
		if counts[q] == n || passed {
			full[q] = 1
		}
	}
	return full, true
}
