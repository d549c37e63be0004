package calls

import (
	"sync"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// blocked is the work that another session's lock has blocked: the place of a call, an ended task, or joins. A try of it takes
// up to 100 ms, so a round tries only a little of it.
type blocked struct {
	mu   sync.Mutex
	work map[any]*retry
	left int // how much of it this round may still try
	most int // how much may still be found blocked in this round before the rest waits for the next one
}

type retry struct {
	tries int
	at    time.Time
}

type (
	callPlace struct {
		parent task.ID
		note   task.Seq
		nth    int
	}
	joins struct{}
)

func place(c store.NewCall) callPlace { return callPlace{c.Parent, c.Note, c.Nth} }

const (
	retriedAtOnce = 4
	blockedAtOnce = 8
	firstRetry    = 20 * time.Millisecond
	lastRetry     = time.Second
)

// next begins a round. It forgets work that no round has found for a while: another process has done it.
func (b *blocked) next() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left, b.most = retriedAtOnce, blockedAtOnce
	for of, r := range b.work {
		if time.Since(r.at) > time.Minute {
			delete(b.work, of)
		}
	}
}

// has reports whether work has to wait for a later round.
func (b *blocked) has(of any) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.work[of]
	if b.most <= 0 || r == nil {
		return b.most <= 0
	}
	if b.left == 0 || time.Now().Before(r.at) {
		return true
	}
	b.left--
	return false
}

// unless keeps work for a later round if err says that a lock has blocked it, and otherwise returns err.
func (b *blocked) unless(of any, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !store.Blocked(err) {
		delete(b.work, of)
		return err
	}
	b.most--
	if b.work == nil {
		b.work = map[any]*retry{}
	}
	r := b.work[of]
	if r == nil {
		r = &retry{}
		b.work[of] = r
	}
	r.at = time.Now().Add(min(firstRetry<<min(r.tries, 10), lastRetry))
	r.tries++
	return nil
}

// later returns the time until blocked work should be tried again, or 0 without such work.
func (b *blocked) later() (d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.most <= 0 {
		return firstRetry
	}
	for _, r := range b.work {
		if left := max(time.Until(r.at), firstRetry); d == 0 || left < d {
			d = left
		}
	}
	return d
}
