package checks

import (
	"context"
	"sync"

	"github.com/holdfast-a2a/holdfast/internal/rpc/client"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

const (
	stalled     = 2        // streams that nobody reads
	stalledSize = 64 << 10 // bytes of their chunks
	stalledLen  = 96       // more bytes than the sockets of both sides usually hold
)

// slowReaders opens large streams without reading them, and does what other clients do meanwhile.
func slowReaders(ctx context.Context, p *probe) {
	if !p.streaming() {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var open []*client.Stream
	var ids []string
	p.each(stalled, func(int) {
		at := p.any()
		m, _ := message(p.o.Scripts.large(stalledLen, stalledSize), place{})
		s, err := at.c.Stream(ctx, m)
		var e *client.Event
		if err == nil {
			e, err = s.Next()
		}
		if err != nil {
			p.failed("", "open a stream", err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		open, ids = append(open, s), append(ids, e.TaskID)
	})
	p.watch(ctx, false)
	for i, s := range open {
		if i%2 == 0 {
			s.Close() // a client that dies; the others stay
		}
	}
	for _, id := range ids {
		e, err := p.any().settle(ctx, id)
		grows := err == nil && !e.State().Terminal()
		for range 2 { // it may be slow, and go on
			if grows {
				before := len(allText(e.Task))
				e, err = p.any().settle(ctx, id)
				grows = err == nil && !e.State().Terminal() && len(allText(e.Task)) > before
			}
		}
		switch {
		case grows:
			p.unsure("task %s, whose stream nobody reads, goes on after %v: too slow to say more", id, 3*p.o.Patience)
		case err != nil:
			p.failed(id, "read a task whose stream nobody reads", err)
		case e.State() != task.StateCompleted:
			p.violation(id, "task %s is %s, and had no progress for %v; nobody reads its stream", id, e.State(), p.o.Patience)
		}
	}
	p.count("streams that nobody reads", len(ids))
	for _, s := range open {
		s.Close()
	}
}
