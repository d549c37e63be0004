package push

import (
	"context"
	"fmt"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

const (
	// readAhead is how many events are read at a time when nothing coalesces.
	readAhead = 64
	// keptTask is the size, in bytes, up to which a claim keeps the task of its last delivery for the next one.
	keptTask = 64 << 10
)

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
// A call for a later event continues from the earlier result, so each event of a small task is read once for all deliveries
// of a claim.
func (d *Dispatcher) readTask(ctx context.Context, c *claim, p *pending) (*task.Task, error) {
	if p.large || !p.task && !d.opt.Encoder.Whole(c.Config.Dialect) {
		return c.header, nil
	}
	t := c.task
	c.task = nil // in case this fails halfway
	if t == nil {
		t = store.Empty(c.header)
	}
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
		for _, e := range page.Events {
			if page.Large && (e.Kind == task.EventArtifact || e.Seq == p.to) {
				p.large = true
				return c.header, nil
			}
			if err := t.Apply(e); err != nil {
				return nil, err
			}
		}
		// Otherwise each delivery to each webhook, and each retry, would carry a client's large message again.
		history := d.opt.MaxBody / 2
		if page.Large {
			history = 0 // what is before a message that is left out is left out, too
		}
		t.TrimHistory(history)
		if size(t) > d.opt.MaxBody {
			p.large = true
			return c.header, nil
		}
	}
	if t.LastSeq == 0 {
		return nil, task.NotFound // it was deleted after the claim had read its header
	}
	if size(t) <= keptTask {
		c.task = t
	}
	return t, nil
}

// size returns about how many bytes a task has in memory.
func size(t *task.Task) (n int64) {
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
