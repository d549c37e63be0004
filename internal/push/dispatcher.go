package push

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Store is the part of the database that the dispatcher uses.
type Store interface {
	// ClaimPush claims due configurations, except those of busy hosts and callers. next is the time until another one
	// is due. It is 0 when more may be due now, and negative when no other is waiting.
	ClaimPush(ctx context.Context, worker task.ID, limit int, busy *task.PushBusy, lock time.Duration) (
		due []*task.PushDue, next time.Duration, err error)
	PushBatch(ctx context.Context, due *task.PushDue, limit int) (header *task.Task, events []*task.Event, err error)
	TaskAsOf(ctx context.Context, due *task.PushDue, seq task.Seq) (*task.Task, error)
	RecordPush(ctx context.Context, o *task.PushOutcome) (ours, more bool, err error)
	ExtendPush(ctx context.Context, id task.ID, configID string, claim [16]byte, lock time.Duration) error
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
	CoalesceAfter int           // a longer backlog of events is delivered as one task; 0: never
	PollInterval  time.Duration // fallback to the wake-ups; default 1 s
	Lock          time.Duration // of a claim; default the time for an attempt and its record
	StopGrace     time.Duration // for deliveries under way when the server stops
	Observer      Observer
	Log           *slog.Logger
}

// Dispatcher delivers what is due, within the limits of this process.
type Dispatcher struct {
	opt  Options
	wake chan struct{}

	mu         sync.Mutex
	hosts      map[string]*share // the hosts with claims
	callers    map[int64]*share
	silent     map[string]bool // hosts that did not answer the last time
	waiting    []*claim        // parked for their host or their caller, the oldest first
	active     int
	more       bool // more may be due: the last claim was full, or no slot was free for one
	deliveries sync.WaitGroup
	stop       <-chan struct{} // closed when no new delivery may begin
}

// share is the part of this process's slots that a host or a caller uses. Dispatcher.mu guards its fields.
type share struct {
	active int // deliveries under way
	claims int // active and parked claims
}

// claim is a configuration that this process may deliver until a deadline.
type claim struct {
	*task.PushDue
	until        time.Time
	host, caller *share
}

// PerCaller is the most concurrent deliveries of one caller, which is half of concurrency. A caller may set webhooks
// under many names at hosts that hang; the others still have the other half. The same bound holds for all silent hosts
// together.
func PerCaller(concurrency int) int { return (concurrency + 1) / 2 }

const (
	// recordTime is how much longer a claim lasts than an attempt. A longer time delays the redelivery after a process
	// dies.
	recordTime = 10 * time.Second
	// turns is how many deliveries a configuration may have in a row before it must yield to others.
	turns = 16
	// batch is how many events are read ahead when nothing coalesces.
	batch = 64

	storeTimeout = 5 * time.Second

	// mostSilent bounds the number of remembered silent hosts.
	mostSilent = 1000
)

// New makes a dispatcher; Run starts it.
func New(o Options) *Dispatcher {
	o.Concurrency = cmp.Or(o.Concurrency, 64)
	o.PerHost = cmp.Or(o.PerHost, 8)
	o.PollInterval = cmp.Or(o.PollInterval, time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Lock = cmp.Or(o.Lock, o.Sender.opt.Timeout+recordTime)
	return &Dispatcher{opt: o, wake: make(chan struct{}, 1), hosts: map[string]*share{}, callers: map[int64]*share{}, silent: map[string]bool{}}
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
	worker := d.opt.Worker()
	free, busy := d.room()
	if worker.IsZero() || free == 0 {
		return poll
	}
	start := time.Now()
	// A stop must not interrupt a claim: nobody would deliver the claimed rows until the claim expired.
	claiming, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	due, next, err := d.opt.Store.ClaimPush(claiming, worker, free, busy, d.opt.Lock)
	crowded := false
	for _, c := range due {
		crowded = d.accept(work, &claim{PushDue: c, until: start.Add(d.opt.Lock)}) || crowded
	}
	if err != nil {
		if ctx.Err() == nil {
			d.opt.Log.Warn("webhooks are claimed anew", "error", err)
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
	if next < 0 || next > poll || next == 0 && d.active >= d.opt.Concurrency {
		return poll
	}
	return next
}

// room returns the number of free slots, and the hosts and callers at their limit.
func (d *Dispatcher) room() (free int, busy *task.PushBusy) {
	d.mu.Lock()
	defer d.mu.Unlock()
	busy = new(task.PushBusy)
	for name, h := range d.hosts {
		if h.claims >= d.opt.PerHost {
			busy.Hosts = append(busy.Hosts, name)
		}
	}
	if d.silentCrowded() {
		busy.Hosts = slices.AppendSeq(busy.Hosts, maps.Keys(d.silent))
	}
	for caller, s := range d.callers {
		if caller != 0 && s.claims >= PerCaller(d.opt.Concurrency) {
			busy.Callers = append(busy.Callers, caller)
		}
	}
	free = max(d.opt.Concurrency-d.active, 0)
	if free == 0 {
		// The first slot that becomes free claims the due rows.
		d.more = true
	}
	return free, busy
}

// accept starts a claim, or parks it for its host or caller. Others may have started since room looked, and the claim
// query does not know what is under way. accept reports whether the host or the caller is now at its limit.
func (d *Dispatcher) accept(work context.Context, c *claim) (crowded bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c.host, c.caller = join(d.hosts, c.Host), join(d.callers, c.Caller)
	if d.fits(c) {
		d.start(work, c)
	} else {
		d.waiting = append(d.waiting, c)
	}
	return d.crowded(c)
}

func join[K comparable](shares map[K]*share, of K) *share {
	s := shares[of]
	if s == nil {
		s = new(share)
		shares[of] = s
	}
	s.claims++
	return s
}

func leave[K comparable](shares map[K]*share, of K) {
	s := shares[of]
	s.active--
	if s.claims--; s.claims == 0 {
		delete(shares, of)
	}
}

// fits reports whether a claim may start. Callers without an identity (0) have no fair share.
func (d *Dispatcher) fits(c *claim) bool {
	half := PerCaller(d.opt.Concurrency)
	if d.silent[c.Host] {
		if active, _ := d.atSilent(); active >= half {
			return false
		}
	}
	return d.active < d.opt.Concurrency && c.host.active < d.opt.PerHost && (c.Caller == 0 || c.caller.active < half)
}

func (d *Dispatcher) crowded(c *claim) bool {
	return c.host.claims >= d.opt.PerHost || c.Caller != 0 && c.caller.claims >= PerCaller(d.opt.Concurrency) ||
		d.silent[c.Host] && d.silentCrowded()
}

// silentCrowded reports whether the hosts that did not answer the last time have all of their shared claims.
func (d *Dispatcher) silentCrowded() bool {
	_, claims := d.atSilent()
	return claims >= PerCaller(d.opt.Concurrency)
}

// atSilent returns the deliveries and claims of all hosts that did not answer the last time.
func (d *Dispatcher) atSilent() (active, claims int) {
	for name, h := range d.hosts {
		if d.silent[name] {
			active += h.active
			claims += h.claims
		}
	}
	return active, claims
}

// heard remembers whether a host answers.
func (d *Dispatcher) heard(host string, silent bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !silent {
		if !d.silent[host] {
			return
		}
		if d.silentCrowded() {
			// The limit of the silent hosts hid its due rows. finish will not see that limit, because the host is no
			// longer silent.
			d.Wake()
		}
		delete(d.silent, host)
		return
	}
	if !d.silent[host] && len(d.silent) >= mostSilent {
		// Make room: drop a host without claims, which may have been given up long ago.
		for other := range d.silent {
			if d.hosts[other] == nil {
				delete(d.silent, other)
				break
			}
		}
	}
	if len(d.silent) < mostSilent {
		d.silent[host] = true
	}
}

// start takes a slot for a claim and delivers in a new goroutine.
func (d *Dispatcher) start(work context.Context, c *claim) {
	d.active++
	c.host.active++
	c.caller.active++
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
	wasCrowded := d.crowded(c)
	d.active--
	leave(d.hosts, c.Host)
	leave(d.callers, c.Caller)
	if !d.stopping() {
		d.waiting = slices.DeleteFunc(d.waiting, func(w *claim) (started bool) {
			if started = d.fits(w); started {
				d.start(work, w)
			}
			return started
		})
	}
	if d.active < d.opt.Concurrency && (d.more || wasCrowded) {
		d.Wake()
	}
}

// deliver makes the deliveries of a configuration in the order of the log, one at a time. It ends when nothing is left,
// when a delivery fails, or when others should have their turn.
func (d *Dispatcher) deliver(ctx context.Context, c *claim) {
	if c.Unreadable != nil {
		d.fail(ctx, c, c.Unreadable)
		return
	}
	limit := batch
	if d.opt.CoalesceAfter > 0 {
		limit = d.opt.CoalesceAfter + 1
	}
	for left := turns; ; {
		header, events, err := d.opt.Store.PushBatch(ctx, c.PushDue, limit)
		switch {
		case passing(ctx, err):
			d.giveBack(ctx, c, err)
			return
		case err != nil:
			d.fail(ctx, c, fmt.Errorf("its events cannot be read: %w", err))
			return
		}
		for _, p := range d.pack(c, header, events) {
			left--
			if !d.send(ctx, c, header, p, left > 0) {
				return
			}
		}
	}
}

// passing reports whether an error is not the webhook's: the database is unavailable, or the server stops.
func passing(ctx context.Context, err error) bool {
	return task.KindOf(err) == task.Unavailable || ctx.Err() != nil
}

// fail records an attempt that failed before there was anything to send. It counts like any other. So a lasting error
// ends with a disabled webhook that says why.
func (d *Dispatcher) fail(ctx context.Context, c *claim, err error) {
	to := max(c.Next, c.Upto) // this claim may have delivered past the events that were due when it was won
	o := &task.PushOutcome{
		Task: c.Task, ConfigID: c.Config.ID, Claim: c.Claim, From: c.Next, To: to,
		DeliveryID: DeliveryID(c.Task, &c.Config, to, false),
	}
	d.judge(o, &Answer{Class: Internal, Error: err.Error()}, c)
	d.record(ctx, c, o, parcel{to: to})
}

// parcel is the content of one delivery.
type parcel struct {
	event     *task.Event // nil for the current task
	to        task.Seq    // the last event that it covers
	last      bool        // the last of its batch
	pointless bool        // it has nothing to say
}

// pack makes parcels of the due events.
func (d *Dispatcher) pack(c *claim, header *task.Task, events []*task.Event) []parcel {
	switch {
	case len(events) == 0:
		return []parcel{{to: c.Upto, last: true, pointless: true}}
	case d.opt.CoalesceAfter > 0 && len(events) > d.opt.CoalesceAfter:
		return []parcel{{to: header.LastSeq, last: true}}
	}
	parcels := make([]parcel, len(events))
	for i, e := range events {
		parcels[i] = parcel{event: e, to: e.Seq, last: i == len(events)-1}
	}
	return parcels
}

// send makes one attempt and records it. It reports whether the claim is still ours and has more to deliver.
func (d *Dispatcher) send(ctx context.Context, c *claim, header *task.Task, p parcel, keep bool) bool {
	delivery, err := d.render(ctx, c, header, p)
	if passing(ctx, err) {
		d.giveBack(ctx, c, err)
		return false
	}
	o := &task.PushOutcome{Task: c.Task, ConfigID: c.Config.ID, Claim: c.Claim, From: c.Next, To: p.to}
	var a Answer
	switch {
	case err != nil:
		a = Answer{Class: Internal, Error: err.Error()}
		o.DeliveryID = DeliveryID(c.Task, &c.Config, p.to, p.event == nil)
	case delivery != nil:
		if !d.extend(ctx, c) {
			return false
		}
		o.DeliveryID = delivery.ID
		a = d.opt.Sender.Send(ctx, delivery)
	case !p.last:
		// The next delivery also covers this event.
		return true
	default:
		a = Answer{Class: Silent}
	}
	if a.Class == Interrupted {
		d.giveBack(ctx, c, nil)
		return false
	}
	if delivery != nil {
		d.heard(c.Host, a.Class == Timeout)
	}
	d.judge(o, &a, c)
	o.Keep = keep && !d.stopping()
	return d.record(ctx, c, o, p)
}

// render makes the delivery of a parcel, or nil when there is nothing to say.
func (d *Dispatcher) render(ctx context.Context, c *claim, header *task.Task, p parcel) (*Delivery, error) {
	if p.pointless {
		return nil, nil //nolint:nilnil // nil is a valid result
	}
	t := header
	if p.event == nil || d.opt.Encoder.Whole(c.Config.Dialect) {
		var err error
		if t, err = d.opt.Store.TaskAsOf(ctx, c.PushDue, p.to); err != nil {
			return nil, err
		}
	}
	body, contentType, err := d.opt.Encoder.Body(&c.Config, t, p.event)
	if err != nil || body == nil {
		return nil, err
	}
	return &Delivery{
		ID: DeliveryID(c.Task, &c.Config, p.to, p.event == nil), TaskID: c.PublicID,
		Config: &c.Config, ContentType: contentType, Body: body,
	}, nil
}

// judge decides what an answer means for the configuration.
func (d *Dispatcher) judge(o *task.PushOutcome, a *Answer, c *claim) {
	o.Status, o.Error, o.Class, o.Took = a.Status, a.Error, string(a.Class), a.Took
	o.Delivered = a.Class == Delivered || a.Class == Silent
	if o.Delivered {
		return
	}
	failures, failingFor := c.Failures+1, time.Duration(0)
	if !c.FailingSince.IsZero() {
		failingFor = time.Since(c.FailingSince)
	}
	switch {
	case a.Class == Gone:
		o.Disable = "the receiver answered 410 Gone"
	case d.opt.Schedule.over(failures, failingFor):
		o.Disable = fmt.Sprintf("%d deliveries in a row failed, for %s: %s", failures, failingFor.Round(time.Second), a.Error)
	}
	o.RetryIn = d.opt.Schedule.delay(failures, a.RetryAfter)
}

// record writes an outcome to the database. It reports whether the claim is still ours and has more to deliver.
func (d *Dispatcher) record(ctx context.Context, c *claim, o *task.PushOutcome, p parcel) bool {
	// Record a sent delivery even during a stop; otherwise it is sent again.
	recording, cancel := context.WithDeadline(context.WithoutCancel(ctx), c.until)
	defer cancel()
	ours, more, err := d.opt.Store.RecordPush(recording, o)
	// Not With: it would format the fields for every delivery, even if nothing is logged.
	about := []any{"task_id", c.PublicID, "config_id", c.Config.ID, "host", c.Host, "seq", int64(o.To), "class", o.Class}
	if d.opt.Observer.Attempted != nil && o.Class != string(Silent) {
		d.opt.Observer.Attempted(o.Class, o.Took)
	}
	switch {
	case err != nil:
		d.opt.Log.Warn("a delivery was not recorded and may be repeated", append(about, "error", err)...)
		return false
	case !ours:
		d.opt.Log.Info("a delivery no longer counts: its webhook was changed, or claimed by another process", about...)
		return false
	case o.Disable != "":
		d.opt.Log.Warn("a webhook is disabled", append(about, "reason", o.Disable)...)
	case !o.Delivered:
		d.opt.Log.Info("a delivery failed", append(about, "status", o.Status, "failures", c.Failures+1, "retry_in", o.RetryIn, "error", o.Error)...)
	default:
		d.opt.Log.Debug("delivered", append(about, "status", o.Status, "took", o.Took)...)
		if d.opt.Observer.Lag != nil && p.event != nil {
			d.opt.Observer.Lag(time.Since(p.event.At))
		}
	}
	switch {
	case o.Delivered && !more:
		return false
	case !o.Delivered || !o.Keep:
		// The claim loop does not know when the next attempt is due.
		d.Wake()
		return false
	}
	c.Next, c.Failures, c.FailingSince = o.To+1, 0, time.Time{}
	return true
}

// extend makes sure that a claim outlasts an attempt.
func (d *Dispatcher) extend(ctx context.Context, c *claim) bool {
	start := time.Now()
	if c.until.Sub(start) > d.opt.Lock-min(d.opt.Lock/4, recordTime/2) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if err := d.opt.Store.ExtendPush(ctx, c.Task, c.Config.ID, c.Claim, d.opt.Lock); err != nil {
		if !errors.Is(err, task.LeaseLost) {
			d.opt.Log.Warn("a claim was not extended", "task_id", c.PublicID, "config_id", c.Config.ID, "error", err)
		}
		return false
	}
	c.until = start.Add(d.opt.Lock)
	return true
}

// giveBack releases a claim: at once, or after a pause if something is wrong.
func (d *Dispatcher) giveBack(ctx context.Context, c *claim, cause error) {
	later := time.Duration(0)
	if cause != nil && ctx.Err() == nil {
		later = time.Second
		d.opt.Log.Warn("a webhook is put off", "task_id", c.PublicID, "config_id", c.Config.ID, "error", cause)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if err := d.opt.Store.ExtendPush(ctx, c.Task, c.Config.ID, c.Claim, later); err != nil && !errors.Is(err, task.LeaseLost) {
		d.opt.Log.Warn("a claim was not given back and has to run out", "task_id", c.PublicID, "config_id", c.Config.ID, "error", err)
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

// drain ends the dispatcher: it releases the parked claims, and waits for deliveries under way.
func (d *Dispatcher) drain(ctx context.Context, interrupt context.CancelFunc) {
	d.mu.Lock()
	waiting := d.waiting
	d.waiting = nil
	d.mu.Unlock()
	for _, c := range waiting {
		d.giveBack(ctx, c, nil)
	}
	grace := time.AfterFunc(d.opt.StopGrace, interrupt)
	defer grace.Stop()
	d.deliveries.Wait()
	d.opt.Sender.Close()
}
