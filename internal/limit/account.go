package limit

import (
	"context"
	"fmt"
	"sync"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Budgets are the budgets of a process, by what holds the bytes. They are apart so that one kind of
// work cannot starve another. A nil Budgets bounds nothing.
type Budgets struct {
	Small    *Budget // bodies and answers of up to Small bytes
	Requests *Budget // larger bodies
	Answers  *Budget // what is read for larger answers
	Runs     *Budget // messages of runs in this process
	Streams  *Budget // what streams send
	Lines    *Budget // events that agents have begun to send
	Events   *Budget // events of agents until they are committed
	Headers  *Budget // headers of requests without an accepted credential
	Ended    *Budget // ended tasks that are kept for further reads
	Replays  *Budget // their events that are kept for further streams
	largest  int64   // answer, in bytes of logs
}

// MemoryShare returns the bytes in flight that a limit of memory allows by default: half.
func MemoryShare(limit int64) int64 { return limit / 2 }

// NewBudgets divides bytes in flight into budgets. Headers and what is kept of ended tasks are beside them.
func NewBudgets(inFlight int64) *Budgets {
	part := func(sixteenths int64) *Budget { return NewBudget(inFlight / 16 * sixteenths) }
	b := &Budgets{
		Small: part(1), Requests: part(4), Answers: part(3), Runs: part(2), Streams: part(2),
		Lines: NewLines(inFlight / 16), Events: part(1), Headers: part(1), Ended: part(1), Replays: part(1), largest: inFlight / 2 / logFactor,
	}
	// The database commits each event some time, and an agent cannot send one again.
	b.Events.Patience = 0
	return b
}

// Each calls visit with each budget and its name.
func (b *Budgets) Each(visit func(name string, of *Budget)) {
	if b == nil {
		return
	}
	visit("small", b.Small)
	visit("requests", b.Requests)
	visit("answers", b.Answers)
	visit("runs", b.Runs)
	visit("streams", b.Streams)
	visit("lines", b.Lines)
	visit("events", b.Events)
	visit("headers", b.Headers)
	visit("ended", b.Ended)
	visit("replays", b.Replays)
}

// Bytes of memory, at the peak, for each byte.
const (
	// bodyFactor: the body, its members, the message, its stored form, and that in a statement's
	// arguments.
	bodyFactor = 6
	// logFactor: a page of rows, the task, and its document.
	logFactor = 3
)

// SmallBytes is the size of a body and of an answer, in bytes, up to which requests do not compete with
// large ones.
const SmallBytes = 64 << 10

// outgrown is the holder, of the budget Small, of what requests have read while they wait for the
// bytes of large ones. So half of that budget is for small requests, however many wait. No caller has
// this name.
const outgrown = "\x1f\x1foutgrown"

// Account is what one request holds. Its methods are safe for concurrent use; a nil Account bounds
// nothing.
type Account struct {
	of  *Budgets
	key string

	mu     sync.Mutex
	body   holding // of the request
	length int64   // bytes of the body, which body covers
	read   holding // for the answer
	used   int64   // bytes of logs read for the answer, of those that read covers
}

// holding is what an account holds for a body or an answer: of Small, or all of it of a budget for large data.
type holding struct{ small, large int64 }

// lacks returns the bytes that the holding needs for n bytes, of one of the two.
func (h holding) lacks(n, factor int64) (small, large int64) {
	switch want := n * factor; {
	case want <= h.small+h.large:
		return 0, 0
	case n <= SmallBytes && h.large == 0:
		return want - h.small, 0
	default:
		return 0, want - h.large
	}
}

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
	if err := a.grow(ctx, &a.body, a.of.Requests, n, bodyFactor); err != nil {
		return err
	}
	a.mu.Lock()
	a.length = n
	a.mu.Unlock()
	return nil
}

// grow grows a holding to n bytes.
func (a *Account) grow(ctx context.Context, h *holding, of *Budget, n, factor int64) error {
	a.mu.Lock()
	small, large := h.lacks(n, factor)
	has, own := h.large, a.body.small+a.read.small
	a.mu.Unlock()
	if small > 0 {
		if err := a.of.Small.take(ctx, a.key, small, own); err != nil {
			return err
		}
		a.mu.Lock()
		h.small += small
		a.mu.Unlock()
		return nil
	}
	if !of.try(a.key, large, has) {
		if err := a.wait(ctx, of, large, has); err != nil {
			return err
		}
	}
	a.grown(h, large)
	return nil
}

// wait waits for n bytes of a budget for large data. First the account gives back what it holds of
// Small, except a byte for each one that it has read.
func (a *Account) wait(ctx context.Context, of *Budget, n, has int64) error {
	a.mu.Lock()
	body, read := min(a.body.small, a.length), min(a.read.small, a.used)
	if !a.of.Small.swap(a.key, a.body.small+a.read.small, outgrown, body+read) {
		a.mu.Unlock()
		return of.refuse(a.key, n, has)
	}
	a.body.small, a.read.small = body, read
	a.mu.Unlock()
	defer func() {
		a.of.Small.Add(a.key, body+read)
		a.of.Small.Give(outgrown, body+read)
	}()
	return of.take(ctx, a.key, n, has)
}

// grown adds bytes to a holding that is large now.
func (a *Account) grown(h *holding, large int64) {
	if large <= 0 {
		return
	}
	a.mu.Lock()
	small := h.small
	h.small, h.large = 0, h.large+large
	a.mu.Unlock()
	a.of.Small.Give(a.key, small)
}

// give returns a holding.
func (a *Account) give(h *holding, of *Budget) {
	a.mu.Lock()
	held := *h
	*h = holding{}
	a.mu.Unlock()
	a.of.Small.Give(a.key, held.small)
	of.Give(a.key, held.large)
}

// Stored returns the bytes of the body: the message is committed.
func (a *Account) Stored() {
	if a != nil {
		a.give(&a.body, a.of.Requests)
	}
}

// Reserve waits until the request may read n more bytes of logs for its answer. Errors are those of
// Budget.Take, and task.TooLarge if the answer can never fit.
func (a *Account) Reserve(ctx context.Context, n int64) error {
	if a == nil || n <= 0 {
		return nil
	}
	a.mu.Lock()
	all := a.used + n
	a.mu.Unlock()
	if all > a.of.largest {
		return tooLarge(all)
	}
	return a.grow(ctx, &a.read, a.of.Answers, all, logFactor)
}

// Use counts n bytes of a log that were read: reserved ones, or others that are free now. It reports
// false if there are not enough.
func (a *Account) Use(n int64) bool {
	if a == nil {
		return true
	}
	a.mu.Lock()
	all := a.used + n
	small, large := a.read.lacks(all, logFactor)
	if all > a.of.largest || !a.of.Small.try(a.key, small, a.body.small+a.read.small) || !a.of.Answers.try(a.key, large, a.read.large) {
		a.mu.Unlock()
		return false
	}
	a.read.small += small
	a.used = all
	a.mu.Unlock()
	a.grown(&a.read, large)
	return true
}

// Unuse takes back bytes of Use: they will be read again.
func (a *Account) Unuse(n int64) {
	if a == nil {
		return
	}
	a.mu.Lock()
	a.used -= n
	small := max(a.read.small-a.used*logFactor, 0)
	a.read.small -= small
	a.mu.Unlock()
	a.of.Small.Give(a.key, small)
}

// Trim returns what was reserved and not used.
func (a *Account) Trim() {
	if a == nil {
		return
	}
	a.mu.Lock()
	spare := max(a.read.small+a.read.large-a.used*logFactor, 0)
	small := min(spare, a.read.small)
	a.read.small -= small
	a.read.large -= spare - small
	a.mu.Unlock()
	a.of.Small.Give(a.key, small)
	a.of.Answers.Give(a.key, spare-small)
}

// tooLarge is the error of an answer that never fits into the memory of this server.
func tooLarge(n int64) error {
	return &task.Error{Kind: task.TooLarge, Msg: fmt.Sprintf(
		"the answer has %d MiB or more, which does not fit the memory of this server; read the task as a stream from its first event (Last-Event-ID: 0)", n>>20)}
}

// Answered returns what was read: the answer is sent.
func (a *Account) Answered() {
	if a == nil {
		return
	}
	a.mu.Lock()
	a.used = 0
	a.mu.Unlock()
	a.give(&a.read, a.of.Answers)
}

// Move moves everything to a new account, which outlives the request.
func (a *Account) Move() *Account {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	moved := &Account{of: a.of, key: a.key, body: a.body, length: a.length, read: a.read, used: a.used}
	a.body, a.length, a.read, a.used = holding{}, 0, holding{}, 0
	return moved
}

// Close returns everything.
func (a *Account) Close() {
	a.Stored()
	a.Answered()
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
