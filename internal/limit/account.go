package limit

import (
	"context"
	"fmt"
	"sync"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Bytes of memory, at the peak, for each byte.
const (
	// bodyFactor: the body, its members, the message, its stored form, and that in a statement's
	// arguments.
	bodyFactor = 6
	// logFactor: a page of rows, the task, and its document.
	logFactor = 3
)

// Requests is the budget of what requests hold: their bodies and their answers.
type Requests struct {
	Small *Budget // for requests whose body and answer have up to SmallBytes, so they never wait for large ones
	Large *Budget
}

// NewRequests makes a budget of size bytes, an eighth of it for small requests.
func NewRequests(size int64) *Requests {
	r := &Requests{Small: NewBudget(size / 8), Large: NewBudget(size - size/8)}
	// A request that waits for the bytes of a large one has read up to SmallBytes, and gives back what it held for them.
	r.Large.line = int(size / 16 / SmallBytes)
	return r
}

// Stat reads the budget.
func (r *Requests) Stat() BudgetStat { return r.Small.Stat().plus(r.Large.Stat()) }

// largest returns the size of the largest answer, in bytes of logs: more than the budget, because an answer may go on alone.
func (r *Requests) largest() int64 { return (r.Small.size + r.Large.size) / logFactor }

// Account is what one request holds. Its methods are safe for concurrent use; a nil Account bounds
// nothing.
type Account struct {
	of     *Requests
	holder Holder

	mu   sync.Mutex
	in   *Budget // which has held; nil: none
	held int64
	body int64 // bytes of the body, which held covers
	read int64 // bytes of logs for the answer, which held covers
	used int64 // those that were read
}

// Open opens the account of a request. Half of a budget is the most that all requests of a holder get.
func (b *Budgets) Open(h Holder) *Account {
	if b == nil {
		return nil
	}
	return &Account{of: b.Requests, holder: h}
}

// Body grows the account to a body of n bytes. Errors are those of Budget.Take.
func (a *Account) Body(ctx context.Context, n int64) error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.grow(ctx, n, a.read)
}

// needs returns the bytes for a body and an answer, and their budget. A large request stays so until it holds nothing.
func (a *Account) needs(body, read int64) (*Budget, int64) {
	n := body*bodyFactor + read*logFactor
	if a.in != a.of.Large && body <= SmallBytes && read <= SmallBytes {
		return a.of.Small, n
	}
	return a.of.Large, n
}

// try grows the account if the bytes are free now. The caller holds the lock.
func (a *Account) try(body, read int64) bool {
	in, n := a.needs(body, read)
	if in == a.in {
		if _, ok := in.try(a.holder, n-a.held, a.held); !ok {
			return false
		}
	} else {
		if _, ok := in.try(a.holder, n, 0); !ok {
			return false
		}
		a.in.Give(a.holder, a.held)
	}
	a.in, a.held, a.body, a.read = in, max(n, a.held), body, read
	return true
}

// grow is try, and waits. The caller holds the lock.
func (a *Account) grow(ctx context.Context, body, read int64) error {
	if a.try(body, read) {
		return nil
	}
	in, n := a.needs(body, read)
	if in != a.in {
		a.in.Give(a.holder, a.held)
		a.in, a.held = in, 0
	}
	if _, err := in.take(ctx, a.holder, n-a.held, a.held, nil); err != nil {
		return err
	}
	a.held, a.body, a.read = n, body, read
	return nil
}

// shrink gives back what a smaller body and answer do not need. The caller holds the lock.
func (a *Account) shrink(body, read int64) {
	a.body, a.read = body, read
	if _, n := a.needs(body, read); n < a.held {
		a.in.Give(a.holder, a.held-n)
		a.held = n
	}
	if a.held == 0 {
		a.in = nil
	}
}

// Stored returns the bytes of the body: the message is committed.
func (a *Account) Stored() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shrink(0, a.read)
}

// Reserve waits until the request may read n more bytes of logs for its answer. Errors are those of
// Budget.Take, and task.TooLarge if the answer can never fit.
func (a *Account) Reserve(ctx context.Context, n int64) error {
	if a == nil || n <= 0 {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.used + n
	if all > a.of.largest() {
		return tooLarge(all)
	}
	return a.grow(ctx, a.body, max(a.read, all))
}

// Use counts n bytes of a log that were read: reserved ones, or others that are free now. It reports
// false if there are not enough.
func (a *Account) Use(n int64) bool {
	if a == nil {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.used + n
	if all > a.of.largest() || !a.try(a.body, max(a.read, all)) {
		return false
	}
	a.used = all
	return true
}

// Unuse takes back bytes of Use: they will be read again.
func (a *Account) Unuse(n int64) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used -= n
}

// Trim returns what was reserved and not used.
func (a *Account) Trim() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shrink(a.body, a.used)
}

// tooLarge is the error of an answer that never fits into the memory of this server.
func tooLarge(n int64) error {
	return &task.Error{Kind: task.TooLarge, Msg: fmt.Sprintf(
		"the answer has %d MiB or more, which does not fit the memory of this server; read the task as a stream from its first event (Last-Event-ID: 0)", n>>20)}
}

// Move moves everything to a new account, which outlives the request.
func (a *Account) Move() *Account {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	moved := &Account{of: a.of, holder: a.holder, in: a.in, held: a.held, body: a.body, read: a.read, used: a.used}
	a.in, a.held, a.body, a.read, a.used = nil, 0, 0, 0, 0
	return moved
}

// Close returns everything.
func (a *Account) Close() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used = 0
	a.shrink(0, 0)
}

type contextKey struct{}

// WithAccount returns a context that carries the account of its request.
func WithAccount(ctx context.Context, a *Account) context.Context {
	if a == nil {
		return ctx
	}
	return context.WithValue(ctx, contextKey{}, a)
}

// AccountOf returns the account of a context's request, or nil.
func AccountOf(ctx context.Context) *Account {
	a, _ := ctx.Value(contextKey{}).(*Account)
	return a
}
