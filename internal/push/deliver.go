package push

import (
	"context"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// turns is how many deliveries a configuration may have in a row before it must yield to others.
const turns = 16

// pending is what one delivery says.
type pending struct {
	event *task.Event // nil: the current task
	at    time.Time   // of the event
	to    task.Seq    // the last event that it covers
	task  bool        // it shows the current task instead of an event
	large bool        // it is larger than MaxBody; its event may lack its content
	last  bool        // the last of its batch
	empty bool        // it says nothing
}

// id returns the id of the delivery.
func (p *pending) id(c *claim) string { return DeliveryID(c.Task, &c.Config, p.to, p.task) }

// deliver makes the deliveries of a claim in the order of the log, one at a time: read, render, send, record. It ends when
// nothing is left, when a delivery fails, or when others should have their turn.
func (d *Dispatcher) deliver(ctx context.Context, c *claim) {
	for left := turns; ; {
		batch, err := d.read(ctx, c)
		if err != nil {
			// All that is due. The claim may have delivered past the events that were due when it was won.
			d.fail(ctx, c, &pending{to: max(c.Next, c.Upto), task: true}, err)
			return
		}
		for i := range batch {
			left--
			if !d.deliverOne(ctx, c, &batch[i], left > 0) {
				return
			}
		}
	}
}

// deliverOne makes one delivery. It reports whether the claim is still ours and has more to deliver.
func (d *Dispatcher) deliverOne(ctx context.Context, c *claim, p *pending, keep bool) (more bool) {
	if p.empty {
		return d.record(ctx, c, p, &Answer{Class: Silent}, keep)
	}
	t, err := d.readTask(ctx, c, p)
	if err != nil {
		d.fail(ctx, c, p, err)
		return false
	}
	delivery, err := d.render(c, p, t)
	switch {
	case err != nil:
		d.fail(ctx, c, p, err)
		return false
	case delivery == nil && !p.last:
		return true // the next delivery also covers this event
	case delivery == nil:
		return d.record(ctx, c, p, &Answer{Class: Silent}, keep)
	case !d.extend(ctx, c):
		return false
	}
	p.event = nil // while it is sent, a delivery holds nothing but its body and the task of its claim
	a := d.opt.Sender.Send(ctx, delivery)
	if a.Class == Interrupted {
		d.release(ctx, c, nil)
		return false
	}
	d.noteAnswer(c.Config.Host, a.Class != Timeout)
	return d.record(ctx, c, p, &a, keep)
}
