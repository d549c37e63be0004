package limit

import (
	"context"
	"sync"
)

// messageFactor is the bytes of memory for each byte of a message: its row, the message, and what the
// executor makes of it.
const messageFactor = 3

// Runs is the budget of what runs hold: half of it is for their messages, half for their events. A nil Runs bounds nothing.
type Runs struct {
	events *Budget // each agent gets at most half

	mu     sync.Mutex
	size   int64 // for messages
	used   int64
	beside int64 // bytes of a message that did not fit
}

// NewRuns makes a budget of size bytes.
func NewRuns(size int64) *Runs {
	r := &Runs{size: size / 2, events: NewBudget(size - size/2)}
	// An agent cannot send an event again, so each waits for its bytes as long as it takes.
	r.events.Patience = 0
	r.events.reading, r.events.complete = newTurn(), newTurn()
	return r
}

// Stat reads the budget.
func (r *Runs) Stat() BudgetStat {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events.Stat().plus(BudgetStat{Size: r.size, Used: r.used + r.beside})
}

// Messages returns the size of the large messages that fit now. A small one never waits for the memory
// of large ones. crowded reports whether a message is beside the budget: then only those that fit may follow.
func (r *Runs) Messages() (fit int64, crowded bool) {
	if r == nil {
		return 1 << 60, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return max((r.size-r.used)/messageFactor, SmallBytes), r.beside > 0
}

// Full reports whether a claim must choose among messages by their size.
func (r *Runs) Full() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used >= r.size || r.beside > 0
}

// Hold holds the memory of a message of n bytes that a claim has brought, until release. If it is large
// and does not fit, it is beside the budget.
func (r *Runs) Hold(n int64) (release func()) {
	if r == nil {
		return func() {}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	in, bytes := &r.used, n*messageFactor
	if n > SmallBytes && r.used+bytes > r.size {
		in = &r.beside
	}
	*in += bytes
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		*in -= bytes
	}
}

// Event is what an event of an agent holds, from its first byte until its commit. It grows before its size is known, and only
// the agent knows when it ends. So events may hold all bytes while each of them waits for more, for as long as agents are
// slow:
//
//   - All events of an agent get at most half of the bytes, so one slow agent cannot starve the others.
//   - One event at a time has the turn: all that it holds is beside the budget until it holds nothing any more. So some event
//     can always go on.
//   - Events that are complete have a turn of their own: they wait for the database alone. So an agent that stops in the middle of
//     an event, with the other turn, holds none of them up.
//
// A nil Event bounds nothing. It is safe for concurrent use.
type Event struct {
	of    *Budget
	agent Holder

	mu      sync.Mutex
	growing chan struct{} // has a value while a Grow waits; made by the first one
	held    int64
	share   *share // has the bytes, if TryGrow took some of them
	turn    turn   // that it has; nil: none
}

// Event returns an event of an agent that holds nothing yet.
func (r *Runs) Event(agent string) *Event {
	if r == nil {
		return nil
	}
	return &Event{of: r.events, agent: Holder{Agent: agent}}
}

// TryGrow takes n more bytes, if they are free now.
func (e *Event) TryGrow(n int64) bool {
	if e == nil || n <= 0 {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.turn != nil {
		e.of.addBeside(n)
	} else if s, ok := e.of.try(e.agent, n, 0); ok {
		e.share = s
	} else {
		return false
	}
	e.held += n
	return true
}

// Grow takes n more bytes, and waits for them. The error is that of ctx.
func (e *Event) Grow(ctx context.Context, n int64) error {
	if e == nil {
		return nil
	}
	return e.grow(ctx, n, e.of.reading)
}

// Complete is Grow for an event that is complete: it waits for nothing but its commit.
func (e *Event) Complete(ctx context.Context, n int64) error {
	if e == nil {
		return nil
	}
	return e.grow(ctx, n, e.of.complete)
}

func (e *Event) grow(ctx context.Context, n int64, beside turn) error {
	if e.TryGrow(n) {
		return nil
	}
	e.mu.Lock()
	if e.growing == nil {
		e.growing = make(chan struct{}, 1)
	}
	e.mu.Unlock()
	select {
	case e.growing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-e.growing }()
	if e.TryGrow(n) { // another one has got a turn
		return nil
	}
	got, err := e.of.take(ctx, e.agent, n, 0, beside)
	e.mu.Lock()
	defer e.mu.Unlock()
	if got {
		e.of.addBeside(e.held + n)
		e.of.Give(e.agent, e.held)
		e.share, e.turn = nil, beside
	}
	if err == nil {
		e.held += n
	}
	return err
}

// Give returns n bytes, and the turn with the last of them.
func (e *Event) Give(n int64) {
	if e == nil || n <= 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held -= n
	switch {
	case e.share != nil:
		e.of.giveBack(e.share, n)
		if e.held == 0 {
			e.share = nil
		}
	case e.turn == nil: // Grow has waited for its bytes
		e.of.Give(e.agent, n)
	case e.held > 0:
		e.of.addBeside(-n)
	default:
		e.of.addBeside(-n)
		e.turn <- struct{}{}
		e.turn = nil
	}
}
