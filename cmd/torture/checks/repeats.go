package checks

import (
	"context"
	"errors"
	"sync"

	"github.com/holdfast-a2a/holdfast/internal/rpc/client"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// copies is how often a message is repeated at the same time.
const copies = 4

// repeats sends messages several times: at the same time at all addresses, and again after the answer.
func repeats(ctx context.Context, p *probe) {
	keyed := p.peers[0].c.Extends(dispatch.IdempotencyURI)
	if !keyed && !p.detects(ctx) {
		p.repeatCancels(ctx)
		p.skip("the card does not announce Idempotency-Key, and the server does not find a task by messageId, which §3.3.1 leaves to it")
		return
	}
	p.each(p.o.Load, func(int) { p.repeat(ctx, keyed) })
	p.repeatCancels(ctx)
}

// detects reports whether the server finds the task of a repeated message by its id.
func (p *probe) detects(ctx context.Context) bool {
	at := p.peers[0]
	m, _ := message(p.o.Scripts.echoes("again"), place{})
	first, err := at.send(ctx, m)
	if err != nil {
		return false
	}
	second, err := at.send(ctx, m)
	return err == nil && second.TaskID == first.TaskID
}

func (p *probe) repeat(ctx context.Context, keyed bool) {
	m, mark := message(p.o.Scripts.echoes("again"), place{})
	if keyed {
		m.Key = m.ID
	}
	var mu sync.Mutex
	tasks := map[string]bool{}
	id := ""
	send := func(at *peer) {
		e, err := at.send(ctx, m)
		if err != nil {
			p.failed(id, "repeat a message", err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		tasks[e.TaskID], id = true, e.TaskID
	}
	p.each(copies, func(i int) { send(p.peers[i%len(p.peers)]) })
	send(p.any())
	p.count("messages", 1)
	p.count("repetitions", copies)
	if len(tasks) > 1 {
		p.violation(id, "one message, sent %d times with messageId %s, began %d tasks", copies+1, m.ID, len(tasks))
		return
	}
	e, err := p.any().get(ctx, id)
	if err != nil {
		p.failed(id, "read the task of a repeated message", err)
		return
	}
	n := 0
	for _, found := range marksOf(e.Task) {
		if found == mark {
			n++
		}
	}
	if n > 1 {
		p.violation(id, "the history of task %s has the message %s %d times", id, m.ID, n)
	}
	if !keyed {
		return
	}
	other, _ := message(p.o.Scripts.echoes("another"), place{})
	other.Key = m.Key
	if e, err := p.any().send(ctx, other); err == nil {
		p.violation(id, "an Idempotency-Key of another message was accepted, and led to task %s", e.TaskID)
	} else if client.Reported(err) == nil {
		p.failed(id, "use an Idempotency-Key for another message", err)
	}
}

// repeatCancels cancels a task several times.
func (p *probe) repeatCancels(ctx context.Context) {
	m, _ := message(p.o.Scripts.hold, place{})
	m.Return = true
	e, err := p.any().send(ctx, m)
	if err != nil {
		p.failed("", "send a message without waiting", err)
		return
	}
	id := e.TaskID
	p.each(copies, func(i int) {
		ctx, cancel := context.WithTimeout(ctx, p.o.Patience)
		defer cancel()
		_, err := p.peers[i%len(p.peers)].c.Cancel(ctx, id)
		if err != nil && !errors.Is(err, task.NotCancelable) && !errors.Is(err, task.NotFound) {
			p.failed(id, "cancel a task again", err)
		}
	})
	e, err = p.any().settle(ctx, id)
	switch {
	case errors.Is(err, task.NotFound): // purged, which §3.3.1 allows
	case err != nil:
		p.failed(id, "read a task after its cancel", err)
	case e.State() != task.StateCanceled:
		p.violation(id, "task %s is %s after %d cancels", id, e.State(), copies)
	}
	p.count("cancels", copies)
}
