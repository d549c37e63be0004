package checks

import (
	"context"
	"crypto/rand"
	"errors"
	"io"

	"github.com/holdfast-a2a/holdfast/internal/rpc/client"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/judge"
)

// owners makes every request about a task as another caller, and compares its answer with that about no task.
func owners(ctx context.Context, p *probe) {
	if p.others == nil {
		p.skip("one caller: give the credential of another with --other-header")
		return
	}
	ask, mark := message(p.o.Scripts.asks(), place{})
	ask.ContextID = "torture-" + rand.Text()
	e, err := p.any().send(ctx, ask)
	if err != nil {
		p.failed("", "send a message that asks for input", err)
		return
	}
	id := e.TaskID
	l := judge.New()
	l.Follow(id).Saw(viewOf(e.Task))
	for i := range p.others {
		p.intrude(ctx, p.others[i], id, e.ContextID)
	}
	p.verify(ctx, l, []*story{{id: id, marks: []string{mark}, want: judge.Outcome{State: "input-required"}, asked: true}})
}

func (p *probe) intrude(ctx context.Context, at *peer, id, contextID string) {
	requests := []struct {
		what string
		do   func(ctx context.Context, id string) error
	}{
		{"read", func(ctx context.Context, id string) error { _, err := at.c.Get(ctx, id); return err }},
		{"cancel", func(ctx context.Context, id string) error { _, err := at.c.Cancel(ctx, id); return err }},
		{"send a message to", func(ctx context.Context, id string) error {
			m, _ := message("Oslo", place{task: id})
			_, err := at.c.Send(ctx, m)
			return err
		}},
		{"stream a message to", func(ctx context.Context, id string) error {
			m, _ := message("Oslo", place{task: id})
			return first(at.c.Stream(ctx, m))
		}},
		{"subscribe to", func(ctx context.Context, id string) error { return first(at.c.Subscribe(ctx, id, "")) }},
	}
	for _, r := range requests {
		ctx, cancel := context.WithTimeout(ctx, p.o.Patience)
		got, none := r.do(ctx, id), r.do(ctx, nobody)
		cancel()
		p.count("requests of another caller", 1)
		switch {
		case got == nil:
			p.violation(id, "another caller could %s task %s", r.what, id)
		case client.Temporary(got) || client.Temporary(none):
			p.unsure("%s a task as another caller: %v; %v", r.what, got, none)
		case errors.Is(none, task.NotFound) && !errors.Is(got, task.NotFound):
			p.violation(id, "another caller that tried to %s task %s was told %q, and about no task %q", r.what, id, got, none)
		case kindOf(got) != kindOf(none):
			p.violation(id, "another caller that tried to %s task %s was told %q, and about no task %q", r.what, id, got, none)
		}
	}
	if at.c.Lists() {
		ctx, cancel := context.WithTimeout(ctx, p.o.Patience)
		defer cancel()
		tasks, _, err := at.c.List(ctx, contextID, "", 5)
		if err == nil && len(tasks) > 0 {
			p.violation(id, "another caller's list of context %s has task %s", contextID, tasks[0].PublicID)
		}
		p.count("requests of another caller", 1)
	}
}

// first returns the error of a stream before its first event.
func first(s *client.Stream, err error) error {
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err = s.Next(); errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// kindOf is an error without its text, which may name the task.
func kindOf(err error) client.Failure {
	if e := client.Reported(err); e != nil {
		failure := *e
		failure.Message = ""
		return failure
	}
	var call *client.CallError
	if errors.As(err, &call) {
		return client.Failure{Status: call.Status, RPC: call.Code}
	}
	return client.Failure{}
}
