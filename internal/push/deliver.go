package push

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

const (
	// turns is how many deliveries a configuration may have in a row before it must yield to others.
	turns = 16
	// batch is how many events are read ahead when nothing coalesces.
	batch = 64
)

// deliver makes the deliveries of a configuration in the order of the log, one at a time. It ends when nothing is left,
// when a delivery fails, or when others should have their turn.
func (d *Dispatcher) deliver(ctx context.Context, c *claim) {
	if c.Unreadable != nil {
		d.giveUp(ctx, c, c.rest(), c.Unreadable)
		return
	}
	limit := batch
	if d.opt.CoalesceAfter > 0 {
		limit = d.opt.CoalesceAfter + 1
	}
	defer d.vacate(c)
	for left := turns; ; {
		var wait time.Duration
		if wait, c.limited = d.pace.ready(c); wait > 0 {
			d.postpone(ctx, c, wait)
			return
		}
		page, err := d.next(ctx, c, limit)
		if errors.Is(err, errSqueezed) {
			continue
		}
		if err != nil {
			d.giveUp(ctx, c, c.rest(), fmt.Errorf("its events cannot be read: %w", err))
			return
		}
		c.wrote = page.Artifacts
		for _, p := range d.pack(c, page) {
			left--
			if !d.send(ctx, c, page.Header, p, left > 0) {
				if c.want > 0 {
					break
				}
				return
			}
		}
	}
}

// next reads the next events to deliver. It returns the memory of those before, unless the next delivery continues the
// task of the last one.
func (d *Dispatcher) next(ctx context.Context, c *claim, limit int) (*store.PushPage, error) {
	want := c.want
	if c.want, c.page = 0, 0; want > 0 || c.told == nil {
		d.vacate(c)
	}
	if err := d.room(ctx, c, want); err != nil {
		return nil, err
	}
	return d.read(ctx, c, limit)
}

// giveUp ends a claim that had nothing to send because of an error. If the error is not the webhook's, because the
// database is unavailable or the server stops, it releases the claim. Otherwise it records a failed attempt, which counts
// like any other. So a lasting error ends with a disabled webhook that says why.
func (d *Dispatcher) giveUp(ctx context.Context, c *claim, p parcel, err error) {
	if task.KindOf(err) == task.Unavailable || ctx.Err() != nil {
		d.release(ctx, c, err)
		return
	}
	d.record(ctx, c, p, &Answer{Class: Internal, Error: err.Error()}, p.id(c), false)
}

// parcel is the content of one delivery.
type parcel struct {
	event     *task.Event // nil for the current task
	to        task.Seq    // the last event that it covers
	last      bool        // the last of its batch
	pointless bool        // it has nothing to say
}

// id returns the id of the delivery.
func (p *parcel) id(c *claim) string { return DeliveryID(c.Task, &c.Config, p.to, p.event == nil) }

// rest is all that is due, for an attempt that did not come to reading it. The claim may have delivered past the events
// that were due when it was won.
func (c *claim) rest() parcel { return parcel{to: max(c.Next, c.Upto)} }

// pack makes parcels of the due events.
func (d *Dispatcher) pack(c *claim, page *store.PushPage) []parcel {
	switch {
	case len(page.Events) == 0:
		// This claim may have delivered past the events that were due when it was won.
		return []parcel{{to: max(c.Upto, c.Next-1), last: true, pointless: true}}
	case d.opt.CoalesceAfter > 0 && (page.Found > d.opt.CoalesceAfter || c.limited && page.Found > 1):
		return []parcel{{to: page.Header.LastSeq, last: true}}
	}
	parcels := make([]parcel, len(page.Events))
	for i, e := range page.Events {
		parcels[i] = parcel{event: e, to: e.Seq, last: i == len(page.Events)-1}
	}
	return parcels
}

// send makes one attempt and records it. It reports whether the claim is still ours and has more to deliver.
func (d *Dispatcher) send(ctx context.Context, c *claim, header *task.Task, p parcel, keep bool) bool {
	delivery, err := d.render(ctx, c, header, p)
	if errors.Is(err, errSqueezed) {
		return false // deliver starts again
	}
	if err != nil {
		d.giveUp(ctx, c, p, err)
		return false
	}
	id := p.id(c)
	var a Answer
	switch {
	case delivery != nil:
		if wait, _ := d.pace.ready(c); wait > 0 {
			d.postpone(ctx, c, wait)
			return false
		}
		if !d.hold(ctx, c) {
			return false
		}
		d.pace.take(c)
		delivery.ID = id
		a = d.opt.Sender.Send(ctx, delivery)
		if a.Class == Interrupted {
			d.release(ctx, c, nil)
			return false
		}
		d.heard(c.Config.Host, a.Class != Timeout)
	case !p.last:
		// The next delivery also covers this event.
		return true
	default:
		a, id = Answer{Class: Silent}, ""
	}
	return d.record(ctx, c, p, &a, id, keep && !d.stopping())
}

// render makes the delivery of a parcel, or nil when there is nothing to say.
func (d *Dispatcher) render(ctx context.Context, c *claim, header *task.Task, p parcel) (*Delivery, error) {
	if p.pointless {
		return nil, nil //nolint:nilnil // nil is a valid result
	}
	t, left := header, 0
	if p.event == nil || d.opt.Encoder.Whole(c.Config.Dialect) {
		var err error
		if t, err = d.taskAsOf(ctx, c, p.to); err != nil {
			return nil, err
		}
		// Of the body alone: later events may continue the others.
		t, left = t.TrimArtifacts(d.opt.MaxArtifacts)
	}
	body, contentType, err := d.opt.Encoder.Body(&c.Config, t, p.event)
	if err != nil || body == nil {
		return nil, err
	}
	return &Delivery{
		TaskID: c.PublicID, Task: header.ID, Agent: header.Agent, Owner: task.Owner{Tenant: header.Tenant, Subject: header.Owner},
		Config: &c.Config, ContentType: contentType, Body: body, LeftOut: left, Traceparent: header.Traceparent,
	}, nil
}

// taskAsOf folds the log up to an event. A call for a later event continues from the earlier result, so each event is
// read once for all deliveries of a claim. It drops the oldest messages beyond MaxHistory: otherwise each delivery to each
// webhook, and each retry, would carry a client's large message again.
func (d *Dispatcher) taskAsOf(ctx context.Context, c *claim, seq task.Seq) (*task.Task, error) {
	t := c.told
	c.told = nil // in case this fails halfway
	if t == nil {
		// At once, so that deliveries need not start again. It may be too much: the runs may have replaced artifacts.
		if err := d.room(ctx, c, min(c.page+c.wrote, d.opt.Largest)); err != nil {
			return nil, err
		}
	}
	for more := true; more; more = t.LastSeq < seq {
		page, err := d.readNext(ctx, c, t, seq)
		if err != nil {
			return nil, err
		}
		if t == nil {
			t = store.Empty(page.Header)
		}
		if len(page.Events) == 0 {
			break
		}
		for _, e := range page.Events {
			if err := t.Apply(e); err != nil {
				return nil, err
			}
		}
		t.TrimHistory(d.opt.MaxHistory)
	}
	if t.LastSeq == 0 {
		return nil, task.NotFound // it was deleted after the claim had read its header
	}
	c.told = t
	return t, nil
}

// outcome returns an outcome that releases the claim and records no attempt.
func (c *claim) outcome() *store.PushOutcome {
	return &store.PushOutcome{Task: c.Task, ConfigID: c.Config.ID, Claim: c.Claim, From: c.Next, To: c.Next}
}

// judge decides what an answer means for the configuration.
func (d *Dispatcher) judge(o *store.PushOutcome, a *Answer, c *claim) {
	o.Status, o.Error, o.Class, o.Took = a.Status, a.Error, string(a.Class), a.Took
	o.Delivered = a.Class == Delivered || a.Class == Silent
	o.Failed = !o.Delivered
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
	// An Internal error, such as a missing key, is this server's and says nothing about the receiver.
	case !c.Accepted && a.Class != Internal && d.opt.Schedule.overFirst(failures, failingFor):
		o.Disable = fmt.Sprintf("its receiver has never accepted a delivery: %d failed, for %s: %s", failures, failingFor.Round(time.Second), a.Error)
	}
	o.DueIn = d.opt.Schedule.delay(failures, a.RetryAfter)
}

// record writes the outcome of an attempt to the database. It reports whether the claim is still ours and has more to
// deliver.
func (d *Dispatcher) record(ctx context.Context, c *claim, p parcel, a *Answer, deliveryID string, keep bool) bool {
	o := c.outcome()
	o.To, o.DeliveryID, o.Keep = p.to, deliveryID, keep
	d.judge(o, a, c)
	// Record a sent delivery even during a stop; otherwise it is sent again.
	recording, cancel := context.WithDeadline(context.WithoutCancel(ctx), c.until)
	defer cancel()
	ours, more, err := d.opt.Store.RecordPush(recording, o)
	// Not With: it would format the fields for every delivery, even if nothing is logged.
	about := []any{"task_id", c.PublicID, "config_id", c.Config.ID, "host", c.Config.Host, "seq", int64(o.To), "class", o.Class}
	if d.opt.Observer.Attempted != nil && a.Class != Silent {
		d.opt.Observer.Attempted(o.Class, o.Took)
	}
	switch {
	case err != nil:
		d.opt.Log.Warn("recording a delivery failed; it may be repeated", append(about, "error", err)...)
		return false
	case !ours:
		d.opt.Log.Info("a delivery does not count: its webhook was changed, or claimed by another process", about...)
		return false
	case o.Disable != "":
		d.opt.Log.Warn("a webhook is disabled", append(about, "reason", o.Disable)...)
	case o.Failed:
		d.opt.Log.Info("a delivery failed", append(about, "status", o.Status, "failures", c.Failures+1, "retry_in", o.DueIn, "error", o.Error)...)
	default:
		d.opt.Log.Debug("delivered", append(about, "status", o.Status, "took", o.Took)...)
		if d.opt.Observer.Lag != nil && p.event != nil {
			d.opt.Observer.Lag(time.Since(p.event.At))
		}
	}
	switch {
	case o.Delivered && !more:
		return false
	case o.Failed || !o.Keep:
		// The claim loop does not know when the next attempt is due.
		d.Wake()
		return false
	}
	c.Next, c.Failures, c.FailingSince, c.Accepted = o.To+1, 0, time.Time{}, c.Accepted || a.Class == Delivered
	return true
}

// hold makes sure that a claim outlasts an attempt. It reports whether the claim is still ours, and its webhook enabled.
func (d *Dispatcher) hold(ctx context.Context, c *claim) bool {
	start := time.Now()
	if !c.waited && c.until.Sub(start) > d.opt.Lock-min(d.opt.Lock/4, recordTime/2) {
		return true
	}
	c.waited = false
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	o := c.outcome()
	o.Keep, o.DueIn = true, d.opt.Lock
	_, held, err := d.opt.Store.RecordPush(ctx, o)
	if err != nil {
		d.release(ctx, c, err)
		return false
	}
	c.until = start.Add(d.opt.Lock)
	return held
}

// postpone gives up the claim of a webhook that is at its limit, without an attempt. No mark makes it due earlier.
func (d *Dispatcher) postpone(ctx context.Context, c *claim, wait time.Duration) {
	d.opt.Log.Debug("a webhook is at push.max_per_hour", "task_id", c.PublicID, "config_id", c.Config.ID, "wait", wait)
	o := c.outcome()
	o.DueIn = wait
	d.giveBack(ctx, c, o)
}

// release gives up a claim without an attempt. The configuration is due again at once, or after a pause if something is
// wrong.
func (d *Dispatcher) release(ctx context.Context, c *claim, cause error) {
	o := c.outcome()
	if cause != nil && ctx.Err() == nil {
		o.DueIn = time.Second
		level := slog.LevelWarn
		if errors.Is(cause, errNoRoom) {
			level = slog.LevelDebug // holdfast_memory_refused_total counts it
		}
		d.opt.Log.Log(ctx, level, "a delivery is postponed", "task_id", c.PublicID, "config_id", c.Config.ID, "error", cause)
	}
	d.giveBack(ctx, c, o)
}

func (d *Dispatcher) giveBack(ctx context.Context, c *claim, o *store.PushOutcome) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if _, _, err := d.opt.Store.RecordPush(ctx, o); err != nil {
		d.opt.Log.Warn("releasing a claim failed; it will expire", "task_id", c.PublicID, "config_id", c.Config.ID, "error", err)
	}
}
