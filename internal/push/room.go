package push

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Deliveries read a log and build a body of any size. Up to limit.SmallBytes they need no memory of the budget: there are
// few deliveries at a time. A larger one takes the memory of all that it will read before it reads. It waits only while
// it has none, so deliveries do not wait for each other in a circle. If it needs more later, and that is not free, it
// gives up what it has read, and starts again with more.

// bodyFactor is the bytes of memory for each byte of a log: a page of rows, the task, and its body.
const bodyFactor = 3

// pageBytes is how much of a log a large delivery reads at a time, unless one event alone is larger.
const (
	pageBytes = 1 << 20
	leastPage = 4 << 10 // with less memory left it takes more
)

var (
	// errSqueezed says that a delivery must start again with more memory (claim.want).
	errSqueezed = errors.New("the delivery needs more memory than is free")
	// errNoRoom says that the budget stayed full. It says nothing about the receiver.
	errNoRoom = &task.Error{Kind: task.Unavailable, Msg: "the memory for webhooks is in use by other large deliveries"}
)

// room makes sure that a claim has the memory to hold n bytes of its log. It waits if the claim has none yet. Errors:
// errSqueezed, errNoRoom, task.TooLarge if it never fits, or that of ctx.
func (d *Dispatcher) room(ctx context.Context, c *claim, n int64) error {
	more := max(n-limit.SmallBytes, 0)*bodyFactor - c.held
	if d.opt.Memory == nil || more <= 0 {
		return nil
	}
	if n > d.opt.Largest {
		return &task.Error{Kind: task.TooLarge, Msg: fmt.Sprintf(
			"the delivery would read %d MiB or more, which does not fit the memory of this server", n>>20)}
	}
	if c.held > 0 {
		if !d.opt.Memory.TryTake(c.payer(), more) {
			c.want = min(max(n, 2*c.covered()), d.opt.Largest)
			return errSqueezed
		}
	} else {
		if !d.enlarge(c) {
			return errNoRoom
		}
		c.waited = true // for a while; see hold
		err := d.opt.Memory.Take(ctx, c.payer(), more)
		switch {
		case err != nil && ctx.Err() != nil:
			return err
		case err != nil:
			return errNoRoom
		}
	}
	c.held += more
	return nil
}

// vacate drops what the claim has read, and returns its memory.
func (d *Dispatcher) vacate(c *claim) {
	c.told, c.page = nil, 0
	d.opt.Memory.Give(c.payer(), c.held)
	c.held = 0
}

// enlarge reports whether a claim may deliver something large, beside the large deliveries under way and waiting.
func (d *Dispatcher) enlarge(c *claim) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shares.enlarge(c)
}

// covered returns how many bytes of a log the claim has the memory for.
func (c *claim) covered() int64 { return limit.SmallBytes + c.held/bodyFactor }

// payer returns who gets at most half of the memory for webhooks: the caller, or the host of a caller without an identity.
func (c *claim) payer() string {
	if c.Caller == 0 {
		return "host " + c.Config.Host
	}
	return "caller " + strconv.FormatInt(c.Caller, 10)
}

// read reads the first events to deliver. It takes the memory for one that is large.
func (d *Dispatcher) read(ctx context.Context, c *claim, most int) (*store.PushPage, error) {
	r := store.PushRange{From: c.Next, Limit: most}
	if d.opt.Memory != nil {
		r.Bytes = limit.SmallBytes
	}
	page, err := d.opt.Store.ReadPush(ctx, c.PushDue, r)
	if err != nil || page.Need == 0 {
		return page, err
	}
	if err := d.room(ctx, c, size(c.told)+page.Need); err != nil {
		return nil, err
	}
	c.page, r.Bytes = page.Need, page.Need
	return d.opt.Store.ReadPush(ctx, c.PushDue, r)
}

// readNext reads the next page of the whole log, after what t has of it.
func (d *Dispatcher) readNext(ctx context.Context, c *claim, t *task.Task, upto task.Seq) (*store.PushPage, error) {
	has := c.page + size(t)
	r := store.PushRange{Upto: upto, Everything: true}
	if t != nil {
		r.From = t.LastSeq + 1
	}
	if d.opt.Memory != nil {
		if c.covered()-has < leastPage {
			if err := d.room(ctx, c, has+pageBytes); err != nil {
				return nil, err
			}
		}
		r.Bytes = min(c.covered()-has, pageBytes)
	}
	page, err := d.opt.Store.ReadPush(ctx, c.PushDue, r)
	if err != nil || page.Need == 0 {
		return page, err
	}
	if err := d.room(ctx, c, has+page.Need); err != nil {
		return nil, err
	}
	r.Bytes = page.Need
	return d.opt.Store.ReadPush(ctx, c.PushDue, r)
}

// size returns about how many bytes a task has in memory; 0 for none.
func size(t *task.Task) (n int64) {
	if t == nil {
		return 0
	}
	for i := range t.Artifacts {
		n += t.Artifacts[i].Size()
	}
	for i := range t.History {
		n += t.History[i].Size()
	}
	if t.Status.Message != nil {
		n += t.Status.Message.Size()
	}
	return n
}
