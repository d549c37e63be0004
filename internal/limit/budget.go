package limit

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// patience is how long Take waits for bytes.
const patience = 10 * time.Second

// pause is when a refused client may retry.
const pause = 2 * time.Second

// Budget gives out bytes, in the order in which they are asked for. A nil Budget gives out any
// number. It is safe for concurrent use.
type Budget struct {
	Patience time.Duration // longest wait of Take; 0: without a limit

	size int64
	each int64 // largest share of one holder

	mu       sync.Mutex
	used     int64
	held     map[Holder]*share // of those with bytes
	waiting  list.List         // of *wait, oldest first
	line     int               // the most that may wait, half of them of one holder; 0: any number
	refusals int64

	reading, complete turn  // of a budget for events (see Event); nil: work larger than the budget goes on alone
	beside            int64 // bytes of the events that have a turn
}

// share is what a holder has of a budget. Events keep theirs, so that not every chunk of a stream looks it up again.
type share struct {
	holder Holder
	n      int64
}

// turn lets one event at a time hold its bytes beside the budget. It has a value while none does.
type turn chan struct{}

func newTurn() turn {
	t := make(turn, 1)
	t <- struct{}{}
	return t
}

// wait is a Take that waits.
type wait struct {
	holder  Holder
	n       int64
	has     int64 // bytes that it would not wait for: its own
	granted chan struct{}
}

// NewBudget makes a budget of size bytes. One holder gets at most half of it.
func NewBudget(size int64) *Budget {
	return &Budget{Patience: patience, size: size, each: size / 2, held: map[Holder]*share{}}
}

// Take takes n bytes for a holder and waits for them, at most for Patience. It may take more than a
// holder's share, or than the budget has, if the holder or nobody has other bytes: then the work goes
// on alone. The zero holder has no share of its own. Errors: task.RateLimited if the holder
// has its share, else task.Unavailable; that of ctx.
func (b *Budget) Take(ctx context.Context, h Holder, n int64) error {
	_, err := b.take(ctx, h, n, 0, nil)
	return err
}

// take is Take for work that already has some of the holder's bytes, and that may get a turn instead of bytes.
func (b *Budget) take(ctx context.Context, h Holder, n, has int64, beside turn) (got bool, err error) {
	if b == nil || n <= 0 {
		return false, nil
	}
	b.mu.Lock()
	if s := b.share(h); b.fits(s, n, has) && b.next(h) {
		b.grant(s, n)
		b.mu.Unlock()
		return false, nil
	}
	if b.tooLong(h) {
		defer b.mu.Unlock()
		return false, b.refused(h, n, has)
	}
	w := &wait{h, n, has, make(chan struct{})}
	at := b.waiting.PushBack(w)
	b.mu.Unlock()
	var late <-chan time.Time
	if b.Patience > 0 {
		timer := time.NewTimer(b.Patience)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-w.granted:
		return false, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-late:
	case <-beside:
		got = true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-w.granted:
		if got {
			beside <- struct{}{}
		}
		return false, nil
	default:
	}
	b.waiting.Remove(at)
	if err == nil && !got {
		err = b.refused(h, n, has)
	}
	b.serve() // those behind it may fit
	return got, err
}

// refused counts a refusal, and returns its error. The caller holds the lock.
func (b *Budget) refused(h Holder, n, has int64) error {
	b.refusals++
	if !b.ofHolder(b.share(h), n, has) {
		return &task.Error{Kind: task.RateLimited, Msg: "your requests hold as much memory as they may; send fewer at a time", RetryAfter: pause}
	}
	return &task.Error{Kind: task.Unavailable, Msg: "the server's memory is in use by other requests", RetryAfter: pause}
}

// TryTake takes n bytes if they are free now.
func (b *Budget) TryTake(h Holder, n int64) bool {
	_, ok := b.try(h, n, 0)
	return ok
}

// TakeNow is TryTake for work that is refused otherwise, and counts that.
func (b *Budget) TakeNow(h Holder, n int64) bool {
	if b.TryTake(h, n) {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refusals++
	return false
}

// try takes n bytes if they are free now, and returns the share that has them.
func (b *Budget) try(h Holder, n, has int64) (s *share, ok bool) {
	if b == nil || n <= 0 {
		return nil, true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s = b.share(h)
	if !b.fits(s, n, has) || !b.next(h) {
		return nil, false
	}
	b.grant(s, n)
	return s, true
}

// giveBack returns bytes of a share that has them.
func (b *Budget) giveBack(s *share, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(s, n)
}

// share returns the share of a holder, which may be empty. The caller holds the lock.
func (b *Budget) share(h Holder) *share {
	if s := b.held[h]; s != nil {
		return s
	}
	return &share{holder: h}
}

// Add takes n bytes of a holder for work that has already begun.
func (b *Budget) Add(h Holder, n int64) {
	if b == nil || n <= 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.grant(b.share(h), n)
}

// Give returns bytes of a holder.
func (b *Budget) Give(h Holder, n int64) {
	if b == nil || n <= 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(b.share(h), n)
}

// drop takes bytes from a share, for those that wait. The caller holds the lock.
func (b *Budget) drop(s *share, n int64) {
	b.used -= n
	if s.n -= n; s.n == 0 {
		delete(b.held, s.holder)
	}
	b.serve()
}

// tooLong reports whether no more work of a holder may wait. The caller holds the lock.
func (b *Budget) tooLong(h Holder) bool {
	if b.line == 0 {
		return false
	}
	of := 0
	for at := b.waiting.Front(); at != nil; at = at.Next() {
		if at.Value.(*wait).holder == h {
			of++
		}
	}
	return b.waiting.Len() >= b.line || of >= (b.line+1)/2
}

// next reports whether nobody waits who would be overtaken. A holder at its share holds up nobody.
func (b *Budget) next(h Holder) bool {
	for at := b.waiting.Front(); at != nil; at = at.Next() {
		w := at.Value.(*wait)
		if w.holder == h || b.ofHolder(b.share(w.holder), w.n, w.has) {
			return false
		}
	}
	return true
}

// serve grants what fits, in order. The caller holds the lock.
func (b *Budget) serve() {
	for at := b.waiting.Front(); at != nil; {
		w, following := at.Value.(*wait), at.Next()
		switch s := b.share(w.holder); {
		case !b.ofHolder(s, w.n, w.has):
		case !b.ofAll(w.n, w.has):
			return // a large one must not be overtaken for ever
		default:
			b.grant(s, w.n)
			b.waiting.Remove(at)
			close(w.granted)
		}
		at = following
	}
}

func (b *Budget) fits(s *share, n, has int64) bool {
	return b.ofHolder(s, n, has) && b.ofAll(n, has)
}

func (b *Budget) ofHolder(s *share, n, has int64) bool {
	return s.n+n <= b.each || b.reading == nil && s.n == has || s.holder == (Holder{})
}

func (b *Budget) ofAll(n, has int64) bool {
	return b.used+n <= b.size || b.reading == nil && b.used == has
}

func (b *Budget) grant(s *share, n int64) {
	if s.n == 0 {
		b.held[s.holder] = s
	}
	b.used += n
	s.n += n
}

func (b *Budget) addBeside(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.beside += n
}

// BudgetStat is a reading of a budget.
type BudgetStat struct{ Size, Used, Refused int64 }

func (s BudgetStat) plus(o BudgetStat) BudgetStat {
	return BudgetStat{s.Size + o.Size, s.Used + o.Used, s.Refused + o.Refused}
}

// Stat reads the budget.
func (b *Budget) Stat() BudgetStat {
	b.mu.Lock()
	defer b.mu.Unlock()
	return BudgetStat{b.size, b.used + b.beside, b.refusals}
}
