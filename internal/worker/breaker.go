package worker

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

const (
	firstPause = 100 * time.Millisecond
	// maxPause is the longest pause between two probes, so that the return of an agent is noticed soon.
	maxPause = 1500 * time.Millisecond
	// maxRetryAfter bounds the pause that an agent can ask for.
	maxRetryAfter = 30 * time.Second
	maxRefused    = 16
)

// breaker limits how many runs of an agent may be starting: claimed, but not begun by the agent. While
// the agent is away that is one, after a pause. Each run that begins allows one more, so the number
// doubles with each round of starts. Pool.mu guards it.
type breaker struct {
	most     int  // concurrency
	open     bool // limit applies
	limit    int
	starting int
	next     time.Time // no claim before it
	pause    time.Duration
	opened   time.Time // the newest failure that made it wait
	begun    time.Time // the newest run that began

	// An answer may refuse one message alone. Every other probe skips the messages that were refused,
	// so that they do not hold up the others.
	refused []task.ID
	probes  int

	err     error         // of the newest failure
	awayFor time.Duration // of the outage in the database, when opened; 0: unknown
	expired bool          // the tasks that waited for too long were claimed, since opened
}

// demand limits a claim to what may start now. If nothing may, and the agent is away for longer than
// its tasks wait, it asks for the tasks that have waited for so long. Zero slots mean no claim.
func (b *breaker) demand(now time.Time, d store.Demand, unreachableFor time.Duration) store.Demand {
	if !b.open {
		return d
	}
	d.Since = time.Time{} // tasks that were given back have their old places
	if n := min(d.Slots, b.limit-b.starting); n > 0 && !now.Before(b.next) {
		if b.probes++; b.probes%2 == 0 {
			d.Skip = slices.Clone(b.refused)
		}
		d.Slots = n
		return d
	}
	if b.awayFor > 0 && !b.expired && b.awayFor+now.Sub(b.opened) >= unreachableFor {
		b.expired = true
		d.Older, d.NoSuspect = unreachableFor, true
		return d
	}
	d.Slots = 0
	return d
}

// ran records that a run began, and reports whether the agent had been away.
func (b *breaker) ran(now time.Time) (back bool) {
	back = b.err != nil
	b.begun = now
	b.err, b.awayFor, b.expired = nil, 0, false
	if !b.open {
		return back
	}
	b.next, b.pause = time.Time{}, 0
	if b.limit++; b.limit > b.most {
		b.open, b.refused, b.probes = false, nil, 0
	}
	return back
}

// failed records that the agent did not begin a run that was claimed at a time. It reports whether the
// agent is away. If it answered and began other runs meanwhile, it is only busy.
func (b *breaker) failed(now, claimed time.Time, id task.ID, u *executor.Unavailable) (away bool) {
	after := min(u.RetryAfter, maxRetryAfter)
	if u.Answered && b.begun.After(claimed) {
		if !b.open {
			b.limit = b.most
		}
		b.open, b.limit = true, max(1, b.limit/2)
		return false
	}
	if u.Answered && !slices.Contains(b.refused, id) {
		if len(b.refused) == maxRefused {
			b.refused = b.refused[1:]
		}
		b.refused = append(b.refused, id)
	}
	// Of all runs that were starting at the same time, one makes the pause longer.
	if claimed.After(b.opened) {
		b.pause = min(max(2*b.pause, firstPause), maxPause)
		b.next = now.Add(max(b.pause/2+rand.N(b.pause/2), after))
		b.opened, b.expired, b.awayFor = now, false, 0
	}
	b.open, b.limit, b.err = true, 1, u
	return true
}

// wait returns how long the next probe has to wait, 0 if none waits.
func (b *breaker) wait(now time.Time) time.Duration {
	if !b.open {
		return 0
	}
	return max(0, b.next.Sub(now))
}
