package checks

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/rpc/client"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/judge"
)

// streams reads each task from its creation, as a subscriber at another address, and by polls.
func streams(ctx context.Context, p *probe) {
	if !p.streaming() {
		return
	}
	p.watch(ctx, false)
}

// resubscription reads each task from its creation, and as a subscriber that leaves and comes back at any address.
func resubscription(ctx context.Context, p *probe) {
	if !p.streaming() {
		return
	}
	ended := p.watch(ctx, true)
	if len(ended) == 0 || !p.peers[0].modern() {
		return
	}
	at := p.any()
	late := &Listener{Ledger: judge.New()}
	err := at.listen(ctx, late, func(ctx context.Context) (*client.Stream, error) { return at.c.Subscribe(ctx, ended[0].id, "") })
	switch {
	case errors.Is(err, task.Unsupported):
		p.count("refused subscriptions", 1)
	case err == nil:
		p.violation(ended[0].id, "a subscription to task %s, which has ended, was accepted; §3.1.6 wants UnsupportedOperationError", ended[0].id)
	default:
		p.failed(ended[0].id, "subscribe to a task that has ended, which §3.1.6 refuses with UnsupportedOperationError", err)
	}
}

func (p *probe) streaming() bool {
	if !p.peers[0].c.Card().Capabilities.Streaming {
		p.skip("the card does not announce streaming")
		return false
	}
	return true
}

// watch reads tasks with several clients, and compares them. It returns the tasks.
func (p *probe) watch(ctx context.Context, cut bool) []*story {
	l := judge.New()
	stories := make([]*story, p.o.Load)
	p.each(p.o.Load, func(i int) { stories[i] = p.watchOne(ctx, l, cut) })
	stories = slices.DeleteFunc(stories, func(s *story) bool { return s == nil })
	p.verify(ctx, l, stories)
	return stories
}

// between returns a random duration.
func (r *run) between(least, most time.Duration) time.Duration {
	return least + time.Duration(r.number(int(most-least)))
}

func (p *probe) watchOne(ctx context.Context, l *judge.Ledger, cut bool) *story {
	a, b := p.two()
	n := 20 + p.number(20)
	m, mark := message(p.o.Scripts.chunks(n, p.between(5*time.Millisecond, 25*time.Millisecond)), place{})
	creator := &Listener{Ledger: l}
	born := make(chan struct{})
	bear := sync.OnceFunc(func() { close(born) })
	creator.Seen = func() bool { bear(); return true }
	var wait sync.WaitGroup
	var broke error
	wait.Go(func() {
		defer bear()
		broke = a.listen(ctx, creator, func(ctx context.Context) (*client.Stream, error) { return a.c.Stream(ctx, m) })
	})
	<-born
	id := creator.Task()
	if id != "" {
		wait.Go(func() { p.subscribe(ctx, l, b, id, cut) })
		if !cut {
			wait.Go(func() { p.poll(ctx, l, id) })
		}
	}
	wait.Wait()
	if id == "" {
		if broke == nil {
			broke = errNoTask
		}
		p.failed("", "send a message as a stream", broke)
		return nil
	}
	s := &story{id: id, marks: []string{mark}, want: judge.Outcome{State: "completed", Chunks: n, Size: chunkSize}}
	p.count("streams", 1)
	p.count("events", len(creator.events))
	if broke != nil {
		creator.reading.Left()
		p.violation(id, "the stream of task %s broke after %d events: %v", id, len(creator.events), broke)
		return s
	}
	s.whole = creator
	if a.modern() && creator.begin == nil {
		p.violation(id, "the stream of task %s does not begin with the task", id)
	}
	p.proper(creator)
	return s
}

// proper checks what the judge does not see of a stream.
func (p *probe) proper(l *Listener) {
	if l.late != "" {
		p.violation(l.task, "a stream of task %s has %s after its end", l.task, l.late)
	}
	if l.bare {
		p.violation(l.task, "a stream of task %s has a message", l.task)
	}
	if l.unclosed {
		p.violation(l.task, "the server left a stream of task %s open for %v after its end", l.task, closing)
	}
}

// subscribe reads a task until its end. With cut it leaves its streams after a few events, and continues at any address.
func (p *probe) subscribe(ctx context.Context, l *judge.Ledger, at *peer, id string, cut bool) {
	sub := &Listener{Ledger: l}
	defer func() { p.proper(sub) }()
	for {
		left := 0 // events until it leaves; 0 is never
		if cut {
			left = 1 + p.number(6)
		}
		sub.Seen = func() bool { left--; return left != 0 }
		after := ""
		if at.c.Resumes() {
			after = sub.last
		}
		err := at.listen(ctx, sub, func(ctx context.Context) (*client.Stream, error) { return at.c.Subscribe(ctx, id, after) })
		if sub.opened && !sub.first && after == "" && at.modern() {
			p.violation(id, "a subscription to task %s does not begin with the task", id)
		}
		switch {
		case sub.ended:
			p.count("subscriptions", 1)
			return
		case errors.Is(err, errLeft):
			p.count("cuts", 1)
			at = p.any()
			if pause(ctx, p.between(0, 50*time.Millisecond)) == nil {
				continue
			}
		case errors.Is(err, task.Unsupported) && at.modern():
			if e, err := at.get(ctx, id); err == nil && !e.State().Terminal() {
				p.violation(id, "a subscription to task %s, which is %s, was refused as unsupported", id, e.State())
			}
		case err == nil: // without an end: the judge reports that
			return
		default:
			p.violation(id, "a subscription to task %s at %s: %v", id, at, err)
		}
		if sub.reading != nil {
			sub.reading.Left()
		}
		return
	}
}

// poll reads a task at any address until it has settled.
func (p *probe) poll(ctx context.Context, l *judge.Ledger, id string) {
	reading := l.Follow(id)
	deadline := time.Now().Add(p.o.Patience)
	for time.Now().Before(deadline) {
		at := p.any()
		e, err := at.get(ctx, id)
		if err != nil {
			p.violation(id, "read task %s at %s: %v", id, at, err)
			return
		}
		reading.Saw(viewOf(e.Task))
		p.count("reads", 1)
		if e.State().Settled() || pause(ctx, p.between(10*time.Millisecond, 50*time.Millisecond)) != nil {
			return
		}
	}
}
