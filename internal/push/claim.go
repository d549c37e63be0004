package push

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// claim is a configuration that this process may deliver until a deadline.
type claim struct {
	*store.PushDue
	until  time.Time
	header *task.Task // of the task, as of the last read
	task   *task.Task // as of the last delivery, if deliveries show the whole task and it is not too large
	// waited says that the claim has waited for its turn. Meanwhile its task may have been purged, or its webhook changed,
	// so it is extended before it delivers.
	waited bool
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
