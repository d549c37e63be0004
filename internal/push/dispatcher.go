package push

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Store is the part of the database that the dispatcher uses. *store.Store implements it.
type Store interface {
	ClaimPush(ctx context.Context, c *store.PushClaim) (due []*store.PushDue, next time.Duration, err error)
	ReadPush(ctx context.Context, due *store.PushDue, r store.PushRange) (*store.PushPage, error)
	RecordPush(ctx context.Context, o *store.PushOutcome) (ours, more bool, err error)
}

// Observer takes measurements. Every field is optional.
type Observer struct {
	Attempted func(class string, took time.Duration)
	Lag       func(since time.Duration) // from the commit of an event to its delivery
	InFlight  func(delta int)
}

// Options configures a dispatcher. A number that is zero means its default.
type Options struct {
	Store         Store
	Sender        *Sender
	Encoder       Encoder
	Worker        func() task.ID // this process; zero while it has no lease
	Schedule      Schedule
	Concurrency   int // concurrent deliveries; default 64
	PerHost       int // of these, to one host; default 8
	CoalesceAfter int // a longer backlog of events is delivered as one task; 0: never
	// MaxBody is the most bytes of a body; a larger one becomes a reference. Deliveries need no other budget of memory: each
	// holds its body and its task while it is sent, and three times as much as a body while it is rendered. Default 512 KiB.
	MaxBody      int64
	PollInterval time.Duration // fallback to the wake-ups; default 1 s
	Lock         time.Duration // of a claim; default the time for an attempt and its record
	StopGrace    time.Duration // for deliveries under way when the server stops
	Observer     Observer
	Log          *slog.Logger
}

// Dispatcher delivers what is due, within the limits of this process.
type Dispatcher struct {
	opt  Options
	wake chan struct{}

	mu         sync.Mutex
	shares     shares
	waiting    []*claim // for their host or their caller, the oldest first
	more       bool     // more may be due: the last claim was full, or no slot was free for one
	deliveries sync.WaitGroup
	stop       <-chan struct{} // closed when no new delivery may begin
}

const (
	// recordTime is how much longer a claim lasts than an attempt. A longer time delays the redelivery after a process
	// dies.
	recordTime = 10 * time.Second

	storeTimeout = 5 * time.Second
)

// New makes a dispatcher; Run starts it.
func New(o Options) *Dispatcher {
	o.Concurrency = cmp.Or(o.Concurrency, 64)
	o.PerHost = cmp.Or(o.PerHost, 8)
	o.MaxBody = cmp.Or(o.MaxBody, 512<<10)
	o.PollInterval = cmp.Or(o.PollInterval, time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Lock = cmp.Or(o.Lock, o.Sender.opt.Timeout+recordTime)
	return &Dispatcher{opt: o, wake: make(chan struct{}, 1), shares: newShares(o.Concurrency, o.PerHost)}
}

// Wake says that a delivery may be due.
func (d *Dispatcher) Wake() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Run claims and delivers until ctx ends. Then it waits for deliveries under way for up to StopGrace, and releases the
// remaining claims.
func (d *Dispatcher) Run(ctx context.Context) error {
	d.stop = ctx.Done()
	work, interrupt := context.WithCancel(context.WithoutCancel(ctx))
	defer interrupt()
	for ctx.Err() == nil {
		timer := time.NewTimer(d.claim(ctx, work))
		select {
		case <-d.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	d.drain(work, interrupt)
	return nil
}

// accept starts a claim, or lets it wait for its host or caller. Others may have started since the claim was made, and
// the claim query does not know what is under way. accept reports whether the host or the caller is now at its limit.
func (d *Dispatcher) accept(work context.Context, c *claim) (crowded bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shares.join(c)
	if d.shares.fits(c) {
		d.start(work, c)
	} else {
		c.waited = true
		d.waiting = append(d.waiting, c)
	}
	return d.shares.crowded(c)
}

// start takes a slot for a claim and delivers in a new goroutine.
func (d *Dispatcher) start(work context.Context, c *claim) {
	d.shares.start(c)
	d.deliveries.Go(func() {
		d.count(1)
		d.deliver(work, c)
		d.count(-1)
		d.finish(work, c)
	})
}

func (d *Dispatcher) count(delta int) {
	if d.opt.Observer.InFlight != nil {
		d.opt.Observer.InFlight(delta)
	}
}

// finish passes a slot on to the next claim.
func (d *Dispatcher) finish(work context.Context, c *claim) {
	d.mu.Lock()
	defer d.mu.Unlock()
	wasCrowded := d.shares.crowded(c)
	d.shares.leave(c)
	if !d.stopping() {
		d.waiting = slices.DeleteFunc(d.waiting, func(w *claim) (started bool) {
			if started = d.shares.fits(w); started {
				d.start(work, w)
			}
			return started
		})
	}
	if d.shares.free() > 0 && (d.more || wasCrowded) {
		d.Wake()
	}
}

// noteAnswer remembers whether a host answers.
func (d *Dispatcher) noteAnswer(host string, answers bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shares.noteAnswer(host, answers) {
		// The limit of the silent hosts hid its due rows. finish will not see that limit, because the host is no longer
		// silent.
		d.Wake()
	}
}

func (d *Dispatcher) stopping() bool {
	select {
	case <-d.stop:
		return true
	default:
		return false
	}
}

// drain ends the dispatcher: it releases the waiting claims, and waits for deliveries under way.
func (d *Dispatcher) drain(work context.Context, interrupt context.CancelFunc) {
	d.mu.Lock()
	for _, c := range d.waiting {
		d.deliveries.Go(func() { d.release(work, c, nil) })
	}
	d.waiting = nil
	d.mu.Unlock()
	grace := time.AfterFunc(d.opt.StopGrace, interrupt)
	defer grace.Stop()
	d.deliveries.Wait()
	d.opt.Sender.Close()
}
