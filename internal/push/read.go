package push

import (
	"context"
	"fmt"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// readAhead is how many events are read at a time when nothing coalesces.
const readAhead = 64

// read reads the next deliveries: one for each event, or one of the current task for a receiver that lags.
func (d *Dispatcher) read(ctx context.Context, c *claim) ([]pending, error) {
	if c.Unreadable != nil {
		return nil, c.Unreadable
	}
	limit := readAhead
	if d.opt.CoalesceAfter > 0 {
		limit = d.opt.CoalesceAfter + 1
	}
	page, err := d.opt.Store.ReadPush(ctx, c.PushDue, store.PushRange{From: c.Next, Limit: limit, MaxEvent: d.opt.MaxBody})
	if err != nil {
		return nil, fmt.Errorf("its events cannot be read: %w", err)
	}
	c.header = page.Header
	switch {
	case len(page.Events) == 0:
		// This claim may have delivered past the events that were due when it was won.
		return []pending{{to: max(c.Upto, c.Next-1), task: true, last: true, empty: true}}, nil
	case d.opt.CoalesceAfter > 0 && page.Found > d.opt.CoalesceAfter:
		return []pending{{to: c.header.LastSeq, task: true, last: true}}, nil
	}
	batch := make([]pending, len(page.Events))
	for i, e := range page.Events {
		batch[i] = pending{event: e, at: e.At, to: e.Seq, large: page.Large, last: i == len(page.Events)-1}
	}
	return batch, nil
}

// readTask returns the task that a delivery shows: as of its event, or only the header if the version shows no more, or if
// there is more to show than MaxBody.
//
// A call for a later event continues from the earlier result, so each event is read once for all deliveries of a claim, until
// the task is too large.
func (d *Dispatcher) readTask(ctx context.Context, c *claim, p *pending) (*task.Task, error) {
	whole := d.opt.Encoder.Whole(c.Config.Dialect)
	if p.large || !p.task && !whole {
		return c.header, nil
	}
	t := c.task
	c.task = nil // in case this fails halfway
	if t == nil {
		t = store.Empty(c.header)
	}
	var muted task.Seq // the status whose message is left out
	for t.LastSeq < p.to {
		page, err := d.opt.Store.ReadPush(ctx, c.PushDue, store.PushRange{
			From: t.LastSeq + 1, Upto: p.to, Everything: true, MaxEvent: d.opt.MaxBody,
		})
		if err != nil {
			return nil, err
		}
		if len(page.Events) == 0 {
			break
		}
		// With more, each delivery to each webhook, and each retry, would carry a client's large message again.
		history := d.opt.MaxBody / 2
		for _, e := range page.Events {
			switch {
			case !page.Large || e.Kind == task.EventRun: // whose content no body shows
			case e.Kind == task.EventArtifact || e.Kind == task.EventStatus && page.Bare:
				return d.large(ctx, c, p)
			default:
				history = 0 // what is before a message that is left out is left out, too
				if e.Kind == task.EventStatus {
					muted = e.Seq
				}
			}
			if err := t.Apply(e); err != nil {
				return nil, err
			}
		}
		t.TrimHistory(history)
		if size(t) > d.opt.MaxBody {
			return d.large(ctx, c, p)
		}
	}
	switch {
	case t.LastSeq == 0:
		return nil, task.NotFound // it was deleted after the claim had read its header
	case t.Status.Seq == muted:
		return d.large(ctx, c, p)
	}
	if whole {
		c.task = t
	}
	return t, nil
}

// large makes a delivery a reference, and returns the header; with the message of its status if the delivery shows the
// current task, and the message is not too large.
func (d *Dispatcher) large(ctx context.Context, c *claim, p *pending) (*task.Task, error) {
	p.large = true
	if p.event != nil {
		return c.header, nil
	}
	t := *c.header
	page, err := d.opt.Store.ReadPush(ctx, c.PushDue, store.PushRange{
		From: t.Status.Seq, Upto: t.Status.Seq, Everything: true, MaxEvent: d.opt.MaxBody,
	})
	if err != nil {
		return nil, err
	}
	if len(page.Events) == 1 && page.Events[0].Kind == task.EventStatus { // and not the first message
		t.Status.Message = page.Events[0].Message
	}
	return &t, nil
}

// artifactBytes is about what an artifact takes without its content.
const artifactBytes = 128

// size returns about how many bytes a task has in memory.
func size(t *task.Task) int64 {
	n := int64(len(t.Metadata))
	for i := range t.Artifacts {
		n += artifactBytes + t.Artifacts[i].Memory()
	}
	for i := range t.History {
		n += t.History[i].Size()
	}
	if t.Status.Message != nil {
		n += t.Status.Message.Size()
	}
	return n
}
