package push

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Store is the part of the database that the dispatcher uses. *store.Store implements it.
type Store interface {
	ClaimPush(ctx context.Context, c *store.PushClaim) (due []*store.PushDue, next time.Duration, err error)
	ReadPush(ctx context.Context, due *store.PushDue, r store.PushRange) (*store.PushPage, error)
	RecordPush(ctx context.Context, o *store.PushOutcome) (ours, more bool, err error)
}

// Encoder renders deliveries in the A2A version that set the webhook.
type Encoder interface {
	// Whole reports whether the bodies of a version show the whole task.
	Whole(dialect string) bool
	// Body renders an event of a task. Of the task it reads only the identity, unless the version wants the whole task;
	// then t is the task as of that event. With a nil event it renders the task. A nil body means that the version has
	// no form for the event.
	Body(c *task.PushConfig, t *task.Task, e *task.Event) (body []byte, contentType string, err error)
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
	Concurrency   int           // concurrent deliveries; default 64
	PerHost       int           // of these, to one host; default 8
	PerHour       int           // attempts of one webhook in an hour; 0: no limit
	CoalesceAfter int           // a longer backlog of events is delivered as one task; 0: never
	MaxHistory    int64         // bytes of the newest messages in a delivery that shows the whole task; default 256 KiB
	MaxArtifacts  int64         // bytes of the artifacts in such a delivery; default 1 MiB
	PollInterval  time.Duration // fallback to the wake-ups; default 1 s
	Lock          time.Duration // of a claim; default the time for an attempt and its record
	StopGrace     time.Duration // for deliveries under way when the server stops
	// Memory bounds what large deliveries read. Nil: no bound.
	Memory   *limit.Budget
	Largest  int64 // bytes of a log that a delivery may read, with Memory
	Observer Observer
	Log      *slog.Logger
}

// Dispatcher delivers what is due, within the limits of this process.
type Dispatcher struct {
	opt  Options
	wake chan struct{}
	pace *pace

	mu         sync.Mutex
	shares     shares
	waiting    []*claim // for their host or their caller, the oldest first
	more       bool     // more may be due: the last claim was full, or no slot was free for one
	deliveries sync.WaitGroup
	stop       <-chan struct{} // closed when no new delivery may begin
}

// claim is a configuration that this process may deliver until a deadline.
type claim struct {
	*store.PushDue
	until time.Time
	told  *task.Task // as of the last delivery, if deliveries show the whole task
	// waited says that the claim has waited for its turn. Meanwhile its task may have been purged, or its webhook changed,
	// so it is extended before it delivers.
	waited bool

	// Memory of a large delivery.
	held  int64 // bytes of Options.Memory
	page  int64 // size of the event that was read to be delivered, if it is large
	wrote int64 // bytes that the task's runs wrote into artifacts
	want  int64 // bytes of its log with which it starts again; 0: it goes on
	large bool  // it counts as large in shares

	limited bool // the webhook is at its limit of attempts in an hour
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
	o.MaxHistory = cmp.Or(o.MaxHistory, 256<<10)
	o.MaxArtifacts = cmp.Or(o.MaxArtifacts, 1<<20)
	o.PollInterval = cmp.Or(o.PollInterval, time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Lock = cmp.Or(o.Lock, o.Sender.opt.Timeout+recordTime)
	return &Dispatcher{opt: o, wake: make(chan struct{}, 1), pace: newPace(o.PerHour), shares: newShares(o.Concurrency, o.PerHost)}
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

// claim fills the free slots once. It returns how long to sleep if no wake-up comes.
func (d *Dispatcher) claim(ctx, work context.Context) time.Duration {
	poll := d.opt.PollInterval/2 + rand.N(d.opt.PollInterval/2+1)
	c := d.wanted()
	c.Worker = d.opt.Worker()
	if c.Worker.IsZero() || c.Limit == 0 {
		return poll
	}
	start := time.Now()
	// A stop must not interrupt a claim: nobody would deliver the claimed rows until the claim expired.
	claiming, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	due, next, err := d.opt.Store.ClaimPush(claiming, c)
	crowded := false
	for _, due := range due {
		crowded = d.accept(work, &claim{PushDue: due, until: start.Add(d.opt.Lock)}) || crowded
	}
	if err != nil {
		if ctx.Err() == nil {
			d.opt.Log.Warn("claiming webhooks failed; the next poll retries", "error", err)
		}
		return poll
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	// The due rows of hosts or callers at their limit may have hidden those of others.
	if crowded {
		next = 0
	}
	d.more = next == 0
	// If no slot is free, the next free slot wakes us.
	if next < 0 || next > poll || next == 0 && d.shares.free() == 0 {
		return poll
	}
	return next
}

// wanted returns the claim that would fill the free slots.
func (d *Dispatcher) wanted() *store.PushClaim {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &store.PushClaim{Limit: d.shares.free(), PerHost: d.opt.PerHost, PerCaller: d.shares.half(), Busy: d.busyWith, Lock: d.opt.Lock, Ahead: d.opt.PollInterval}
	c.BusyHosts, c.BusyCallers = d.shares.busy()
	if c.Limit == 0 {
		// The first slot that becomes free claims the due rows.
		d.more = true
	}
	return c
}

func (d *Dispatcher) busyWith(won []*store.PushDue) (hosts []string, callers []int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shares.busyWith(won)
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

// heard remembers whether a host answers.
func (d *Dispatcher) heard(host string, answers bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shares.heard(host, answers) {
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
