package checks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/rpc/client"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// races cancels tasks at the moment of an answer, and at that of their completion.
func races(ctx context.Context, p *probe) {
	p.each(p.o.Load, func(i int) {
		if i%2 == 0 {
			p.answerOrCancel(ctx)
		} else {
			p.completeOrCancel(ctx)
		}
	})
}

// outcome is what one of the clients of a race was told about its end.
type outcome struct {
	who   string
	state task.State // that ends the task; StateUnspecified: nothing that ends it
}

// contest is a race about one task.
type contest struct {
	id string
	mu sync.Mutex
	of []outcome
}

func (c *contest) told(e *client.Event, format string, args ...any) {
	if e == nil || !e.State().Terminal() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of = append(c.of, outcome{fmt.Sprintf(format, args...), e.State()})
}

// canceled reports whether all that were told an end were told that the task is canceled.
func (c *contest) canceled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.of) > 0 && !slices.ContainsFunc(c.of, func(o outcome) bool { return o.state != task.StateCanceled })
}

func (p *probe) answerOrCancel(ctx context.Context) {
	a, b := p.two()
	m, _ := message(p.o.Scripts.asks(), place{})
	e, err := a.send(ctx, m)
	if err != nil {
		p.failed("", "send a message that asks for input", err)
		return
	}
	c := &contest{id: e.TaskID}
	if e.State() != task.StateInputRequired {
		p.violation(c.id, "task %s is %s, and its script asks for input", c.id, e.State())
		return
	}
	var wait sync.WaitGroup
	wait.Go(func() {
		m, _ := message("Oslo", placeOf(e))
		e, err := a.send(ctx, m)
		c.told(e, "the answer to the message at %s", a)
		if err != nil && client.Reported(err) == nil { // any refusal is right, as the task may have ended
			p.failed(c.id, "answer a task that is being canceled", err)
		}
	})
	wait.Go(func() {
		_ = pause(ctx, p.between(0, 3*time.Millisecond))
		p.cancel(ctx, c, b)
	})
	wait.Wait()
	p.decide(ctx, c)
}

func (p *probe) completeOrCancel(ctx context.Context) {
	a, b := p.two()
	const busy = 150 * time.Millisecond
	m, _ := message(p.o.Scripts.sleeps(busy), place{})
	m.Return = true
	e, err := a.send(ctx, m)
	if err != nil {
		p.failed("", "send a message without waiting", err)
		return
	}
	c := &contest{id: e.TaskID}
	_ = pause(ctx, p.between(busy/2, busy*3/2))
	p.cancel(ctx, c, b)
	p.decide(ctx, c)
}

func (p *probe) cancel(ctx context.Context, c *contest, at *peer) {
	ctx, cancel := context.WithTimeout(ctx, p.o.Patience)
	defer cancel()
	e, err := asTask(at.c.Cancel(ctx, c.id))
	c.told(e, "the answer to the cancel at %s", at)
	if err != nil && !errors.Is(err, task.NotCancelable) {
		p.failed(c.id, "cancel a task", err)
	}
}

// decide reads the task at all addresses, for a while after its end, and compares what everybody was told.
func (p *probe) decide(ctx context.Context, c *contest) {
	for round := range 3 {
		for _, at := range p.peers {
			e, err := at.get(ctx, c.id)
			if err == nil && round == 0 && at == p.peers[0] {
				e, err = at.settle(ctx, c.id)
			}
			if errors.Is(err, task.NotFound) && c.canceled() {
				p.count("races", 1) // §3.3.1 lets a server purge canceled tasks
				p.count("races whose canceled task was purged", 1)
				return
			}
			if err != nil {
				p.failed(c.id, "read a task after a race", err)
				return
			}
			if !e.State().Terminal() {
				p.violation(c.id, "task %s is %s after a cancel, and should have ended", c.id, e.State())
				return
			}
			c.told(e, "Get Task at %s", at)
		}
		if pause(ctx, 100*time.Millisecond) != nil {
			return
		}
	}
	p.count("races", 1)
	for _, o := range c.of[1:] {
		if o.state != c.of[0].state {
			p.violation(c.id, "task %s ended as %s by %s, and as %s by %s", c.id, c.of[0].state, c.of[0].who, o.state, o.who)
			return
		}
	}
	p.count("races that ended as "+c.of[0].state.String(), 1)
}
