package memory

import (
	"context"
	"fmt"
	"sync"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Budgets are the budgets of a process, by what holds the bytes. They are apart so that one kind of
// work cannot starve another. A nil Budgets bounds nothing.
type Budgets struct {
	Small    *Budget // the first Small bytes of every body and answer
	Requests *Budget // the rest of large bodies
	Answers  *Budget // what is read to answer
	Runs     *Budget // messages of runs in this process
	Streams  *Budget // what streams send
}

// Share returns the bytes in flight that a limit of memory allows by default: half.
func Share(limit int64) int64 { return limit / 2 }

// New divides bytes in flight into budgets.
func New(inFlight int64) *Budgets {
	part := func(sixteenths int64) *Budget { return NewBudget(inFlight / 16 * sixteenths) }
	return &Budgets{Small: part(1), Requests: part(5), Answers: part(4), Runs: part(3), Streams: part(3)}
}

// Each calls visit with each budget and its name.
func (b *Budgets) Each(visit func(name string, of *Budget)) {
	visit("small", b.Small)
	visit("requests", b.Requests)
	visit("answers", b.Answers)
	visit("runs", b.Runs)
	visit("streams", b.Streams)
}

// Bytes of memory, at the peak, for each byte.
const (
	// bodyFactor: the body, its members, the message, its stored form, and that in a statement's
	// arguments.
	bodyFactor = 6
	// logFactor: the row, the task, and its document.
	logFactor = 4
)

// Small is the size of a body and of an answer, in bytes, up to which requests do not compete with
// large ones.
const Small = 64 << 10

// Account is what one request holds. Its methods are safe for concurrent use; a nil Account bounds
// nothing.
type Account struct {
	of  *Budgets
	key string

	mu   sync.Mutex
	body holding // of the request
	read holding // for the answer
}

// holding is what an account holds of two budgets: of Small, and of one for large data.
type holding struct{ small, large int64 }

// Open opens the account of a request. key names its caller; half of a budget is the most that all
// of a caller's requests get.
func (b *Budgets) Open(key string) *Account {
	if b == nil {
		return nil
	}
	return &Account{of: b, key: key}
}

// Body grows the account to a body of n bytes. Errors are those of Budget.Take.
func (a *Account) Body(ctx context.Context, n int64) error {
	if a == nil {
		return nil
	}
	return a.grow(ctx, &a.body, a.of.Requests, n, bodyFactor)
}

// grow grows a holding to n bytes.
func (a *Account) grow(ctx context.Context, h *holding, of *Budget, n, factor int64) error {
	a.mu.Lock()
	small, large := min(n, Small)*factor-h.small, max(n-Small, 0)*factor-h.large
	a.mu.Unlock()
	if err := a.of.Small.Take(ctx, "", small); err != nil {
		return err
	}
	a.add(&h.small, small)
	if err := of.Take(ctx, a.key, large); err != nil {
		return err
	}
	a.add(&h.large, large)
	return nil
}

func (a *Account) add(to *int64, n int64) {
	if n > 0 {
		a.mu.Lock()
		*to += n
		a.mu.Unlock()
	}
}

// give returns a holding.
func (a *Account) give(h *holding, of *Budget) {
	a.mu.Lock()
	held := *h
	*h = holding{}
	a.mu.Unlock()
	a.of.Small.Give("", held.small)
	of.Give(a.key, held.large)
}

// Stored returns the bytes of the body: the message is committed.
func (a *Account) Stored() {
	if a != nil {
		a.give(&a.body, a.of.Requests)
	}
}

// Read adds n bytes of a log that the request reads for its answer. Errors are those of
// Budget.Take, and task.TooLarge if the answer can never fit.
func (a *Account) Read(ctx context.Context, n int64) error {
	if a == nil || n <= 0 {
		return nil
	}
	a.mu.Lock()
	all := (a.read.small+a.read.large)/logFactor + n
	a.mu.Unlock()
	if all*logFactor > a.of.Answers.size {
		return TooLarge(all)
	}
	return a.grow(ctx, &a.read, a.of.Answers, all, logFactor)
}

// TooLarge is the error of an answer that never fits into the memory of this server.
func TooLarge(n int64) error {
	return &task.Error{Kind: task.TooLarge, Msg: fmt.Sprintf(
		"the answer has %d MiB or more, which does not fit the memory of this server; read the task as a stream from its first event (Last-Event-ID: 0)", n>>20)}
}

// Answered returns what was read: the answer is sent.
func (a *Account) Answered() {
	if a != nil {
		a.give(&a.read, a.of.Answers)
	}
}

// Move moves everything to a new account, which outlives the request.
func (a *Account) Move() *Account {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	moved := &Account{of: a.of, key: a.key, body: a.body, read: a.read}
	a.body, a.read = holding{}, holding{}
	return moved
}

// Close returns everything.
func (a *Account) Close() {
	a.Stored()
	a.Answered()
}

type contextKey struct{}

// With returns a context that carries the account of its request.
func With(ctx context.Context, a *Account) context.Context {
	if a == nil {
		return ctx
	}
	return context.WithValue(ctx, contextKey{}, a)
}

// Of returns the account of a context's request, or nil.
func Of(ctx context.Context) *Account {
	a, _ := ctx.Value(contextKey{}).(*Account)
	return a
}
