package checks

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"sync"
)

// lists reads the pages of a list while others write, and once more after that.
func lists(ctx context.Context, p *probe) {
	at := p.peers[0]
	if !at.c.Lists() {
		p.skip("A2A %s has no lists", at.c.Version())
		return
	}
	inside, outside := "torture-"+rand.Text(), "torture-"+rand.Text()
	var mu sync.Mutex
	known := map[string]bool{}
	create := func(at *peer, contextID string) string {
		m, _ := message(p.o.Scripts.echoes("listed"), place{})
		m.ContextID = contextID
		e, err := at.send(ctx, m)
		if err != nil {
			p.failed("", "send a message with a context", err)
			return ""
		}
		if e.ContextID != contextID {
			p.violation(e.TaskID, "task %s has context %q; the message had %q, which §3.4.1 wants to be kept", e.TaskID, e.ContextID, contextID)
			return ""
		}
		if contextID == inside {
			mu.Lock()
			defer mu.Unlock()
			known[e.TaskID] = true
		}
		return e.TaskID
	}
	p.each(p.o.Load, func(int) {
		for range 3 {
			create(p.any(), inside)
		}
		create(p.any(), outside)
	})
	before := maps.Clone(known)
	if len(before) == 0 {
		return
	}
	done := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for range 500 { // a list that never ends must not fill the server
			select {
			case <-done:
				return
			default:
				if create(p.any(), inside) == "" {
					return
				}
			}
		}
	})
	for range 3 {
		p.list(ctx, inside, before)
	}
	close(done)
	writer.Wait()
	p.list(ctx, inside, known)
	p.count("tasks", len(known))
}

// list reads all pages, each at any address. They must have all of the wanted tasks, and no task twice.
func (p *probe) list(ctx context.Context, contextID string, want map[string]bool) {
	seen := map[string]int{}
	pages := 0
	for page := ""; ; pages++ {
		limited, cancel := context.WithTimeout(ctx, p.o.Patience)
		tasks, next, err := p.any().c.List(limited, contextID, page, 5)
		cancel()
		if err != nil {
			p.failed(contextID, "read a page of a list", err)
			return
		}
		for _, t := range tasks {
			seen[t.PublicID]++
			if t.ContextID != contextID {
				p.violation(t.PublicID, "the list of context %s has task %s of context %s", contextID, t.PublicID, t.ContextID)
				return
			}
		}
		if page = next; page == "" {
			break
		}
		if pages > 1000 {
			p.violation(contextID, "a list of context %s has no end", contextID)
			return
		}
	}
	p.count("lists", 1)
	p.count("pages", pages+1)
	var lost, doubled []string
	for id := range want {
		if seen[id] == 0 {
			lost = append(lost, id)
		}
	}
	for id, n := range seen {
		if n > 1 {
			doubled = append(doubled, id)
		}
	}
	slices.Sort(lost)
	slices.Sort(doubled)
	if len(lost) > 0 {
		p.violation(lost[0], "a list of context %s lacks %d of %d tasks that existed before its first page, such as %s", contextID, len(lost), len(want), lost[0])
	}
	if len(doubled) > 0 {
		p.violation(doubled[0], "a list of context %s has %d tasks more than once, such as %s", contextID, len(doubled), doubled[0])
	}
}
