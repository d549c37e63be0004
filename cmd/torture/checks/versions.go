package checks

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/rpc/client"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// versions creates tasks in each version over each binding, and reads and continues them in all others.
func versions(ctx context.Context, p *probe) {
	all := p.offered(ctx)
	if len(all) < 2 {
		p.skip("the server offers one version over one binding")
		return
	}
	p.count("versions and bindings", len(all))
	for i, creator := range all {
		other := all[(i+1)%len(all)]
		p.shared(ctx, all, creator, p.o.Scripts.chunks(10, time.Millisecond), other, "")
		p.shared(ctx, all, creator, p.o.Scripts.asks(), other, "Oslo")
	}
}

// offered are the versions and bindings that work, each at any address. Those that the card lists must.
func (p *probe) offered(ctx context.Context) (all []*peer) {
	for _, version := range slices.Backward(registry.Versions()) {
		for _, binding := range []string{client.JSONRPC, client.HTTPJSON, client.GRPC} {
			at, err := p.open(ctx, p.any().url, version, binding, p.o.Header)
			if err != nil {
				continue // neither the card nor the convention of older versions has it
			}
			m, _ := message(p.o.Scripts.echoes("hello"), place{})
			e, err := at.send(ctx, m)
			switch {
			case err == nil && e.State() == task.StateCompleted:
				all = append(all, at)
			case at.c.Announced() && err == nil:
				p.violation(e.TaskID, "the card lists %s, where task %s is %s", wireOf(at), e.TaskID, e.State())
			case at.c.Announced():
				p.failed("", "the card lists "+wireOf(at), err)
			}
		}
	}
	return all
}

func wireOf(at *peer) string { return "A2A " + at.c.Version() + " over " + at.c.Binding() }

// shared creates a task, lets another client answer it, and reads it in all versions.
func (p *probe) shared(ctx context.Context, all []*peer, creator *peer, script string, other *peer, answer string) {
	m, _ := message(script, place{})
	e, err := creator.send(ctx, m)
	if err != nil {
		p.failed("", "send a message in "+wireOf(creator), err)
		return
	}
	id := e.TaskID
	if answer != "" {
		m, _ := message(answer, placeOf(e))
		if _, err = other.send(ctx, m); err != nil {
			p.failed(id, "answer a task of "+wireOf(creator)+" in "+wireOf(other), err)
			return
		}
	}
	if e, err = creator.settle(ctx, id); err != nil {
		p.failed(id, "read a task in "+wireOf(creator), err)
		return
	}
	if e.State() != task.StateCompleted {
		p.violation(id, "task %s is %s, and should be completed", id, e.State())
	}
	want := allText(e.Task)
	for _, at := range all {
		got, err := at.get(ctx, id)
		if err != nil {
			p.failed(id, "read a task of "+wireOf(creator)+" in "+wireOf(at), err)
			continue
		}
		p.count("reads", 1)
		if got.State() != e.State() {
			p.violation(id, "task %s is %s in %s, and %s in %s", id, e.State(), wireOf(creator), got.State(), wireOf(at))
		}
		if text := allText(got.Task); text != want {
			p.violation(id, "the artifacts of task %s have %d bytes in %s, and %d others in %s", id, len(want), wireOf(creator), len(text), wireOf(at))
		}
	}
}
