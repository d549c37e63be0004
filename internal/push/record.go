package push

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

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
	failures, failingFor, schedule := c.Failures+1, time.Duration(0), d.opt.Schedule
	if !c.FailingSince.IsZero() {
		failingFor = time.Since(c.FailingSince)
	}
	switch {
	case a.Class == Gone:
		o.Disable = "the receiver answered 410 Gone"
	case schedule.over(schedule.GiveUpAfter, failures, failingFor):
		o.Disable = fmt.Sprintf("%d deliveries in a row failed, for %s: %s", failures, failingFor.Round(time.Second), a.Error)
	// An Internal error, such as a missing key, is this server's and says nothing about the receiver.
	case !c.Accepted && a.Class != Internal && schedule.over(schedule.GiveUpFirstAfter, failures, failingFor):
		o.Disable = fmt.Sprintf("its receiver has never accepted a delivery: %d failed, for %s: %s", failures, failingFor.Round(time.Second), a.Error)
	}
	o.DueIn = schedule.delay(failures, a.RetryAfter)
}

// record writes the outcome of an attempt to the database. It reports whether the claim is still ours and has more to
// deliver.
func (d *Dispatcher) record(ctx context.Context, c *claim, p *pending, a *Answer, keep bool) (more bool) {
	o := c.outcome()
	o.To, o.Keep = p.to, keep && !d.stopping()
	if a.Class != Silent {
		o.DeliveryID = p.id(c)
	}
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
		if d.opt.Observer.Lag != nil && !p.task {
			d.opt.Observer.Lag(time.Since(p.at))
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

// fail ends a claim that had nothing to send because of an error. If the error is not the webhook's, because the
// database is unavailable or the server stops, it releases the claim. Otherwise it records a failed attempt, which counts
// like any other. So a lasting error ends with a disabled webhook that says why.
func (d *Dispatcher) fail(ctx context.Context, c *claim, p *pending, err error) {
	if task.KindOf(err) == task.Unavailable || ctx.Err() != nil {
		d.release(ctx, c, err)
		return
	}
	d.record(ctx, c, p, &Answer{Class: Internal, Error: err.Error()}, false)
}

// extend makes sure that a claim outlasts an attempt. It reports whether the claim is still ours, and its webhook enabled.
func (d *Dispatcher) extend(ctx context.Context, c *claim) bool {
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

// release gives up a claim without an attempt. The configuration is due again at once, or after a pause if something is
// wrong.
func (d *Dispatcher) release(ctx context.Context, c *claim, cause error) {
	o := c.outcome()
	if cause != nil && ctx.Err() == nil {
		o.DueIn = time.Second
		d.opt.Log.Warn("a delivery is postponed", "task_id", c.PublicID, "config_id", c.Config.ID, "error", cause)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if _, _, err := d.opt.Store.RecordPush(ctx, o); err != nil {
		d.opt.Log.Warn("releasing a claim failed; it will expire", "task_id", c.PublicID, "config_id", c.Config.ID, "error", err)
	}
}
