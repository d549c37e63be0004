package checks

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/holdfast-a2a/holdfast/internal/rpc/client"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/judge"
)

// story is a task of a check, and what its end should be.
type story struct {
	id    string
	place place    // if the check continues it
	marks []string // of the messages that the server has acknowledged in it
	want  judge.Outcome
	asked bool      // it has waited for input
	whole *Listener // that has read it from the beginning to the end over one connection; nil
}

// verify reads the tasks at the end, at each address, and compares them with what the ledger says about them. It returns their logs.
func (p *probe) verify(ctx context.Context, l *judge.Ledger, stories []*story) map[string]*judge.Log {
	logs := map[string]*judge.Log{}
	complete := true
	var mu sync.Mutex
	p.each(len(stories), func(i int) {
		s := stories[i]
		lg, ok := p.conclude(ctx, l, s)
		mu.Lock()
		defer mu.Unlock()
		complete = complete && ok
		if lg != nil {
			logs[s.id] = lg
		}
	})
	if !complete {
		return nil // the missing logs are not losses
	}
	p.count("tasks", len(stories))
	for _, v := range judge.Audit(logs, l.Copy(), true) {
		p.violation(v.Task, "%s", v.Text)
	}
	return logs
}

// conclude reads a task at the end. It returns nil for one that does not exist, and false if it cannot be read.
func (p *probe) conclude(ctx context.Context, l *judge.Ledger, s *story) (*judge.Log, bool) {
	l.Expect(s.id, s.want)
	end, err := p.any().settle(ctx, s.id)
	if errors.Is(err, task.NotFound) {
		return nil, true
	}
	if err != nil {
		p.failed(s.id, "read a task at the end", err)
		return nil, false
	}
	lg, err := p.logOf(ctx, s, end)
	if err != nil {
		p.failed(s.id, "read the stream of an ended task from its beginning", err)
		return nil, false
	}
	ended := false
	for i := range lg.Events {
		if ended {
			p.violation(s.id, "task %s: an event after the end of the task: %+v", s.id, lg.Events[i].Event)
			break
		}
		ended = terminal(lg.Events[i].State)
	}
	if len(end.Task.History) > 0 { // servers need not show it
		for _, mark := range s.marks {
			l.Sending(mark)
			l.Stored(mark, s.id)
		}
		for _, mark := range marksOf(end.Task) {
			lg.Events = slices.Insert(lg.Events, 0, judge.Row{Mark: mark})
		}
	}
	for _, at := range p.peers {
		e, err := at.get(ctx, s.id)
		switch {
		case errors.Is(err, task.NotFound):
			p.violation(s.id, "task %s exists, and %s does not know it", s.id, at)
		case err != nil:
			p.failed(s.id, "read a task at the end", err)
			return nil, false
		default:
			view := viewOf(e.Task)
			view.Seq = lg.Last() // an older state is wrong
			l.Follow(s.id).Saw(view)
		}
	}
	return lg, true
}

func terminal(state string) bool {
	s, _ := task.ParseState(state) // a chunk has none
	return s.Terminal()
}

// logOf returns the log of a task that has settled: from the server if it shows streams from their beginning, else from a client
// that has read it all, else from the task, as far as that tells.
func (p *probe) logOf(ctx context.Context, s *story, end *client.Event) (*judge.Log, error) {
	at := p.any()
	switch {
	case at.c.Resumes() && at.c.Card().Capabilities.Streaming && end.State().Terminal():
		all := &Listener{Ledger: judge.New()}
		err := at.listen(ctx, all, func(ctx context.Context) (*client.Stream, error) { return at.c.Subscribe(ctx, s.id, "0") })
		return logFrom(all), err
	case s.whole != nil:
		return logFrom(s.whole), nil
	}
	return logAsShown(s, end.Task), nil
}

// logFrom is the log as a client has read it.
func logFrom(all *Listener) *judge.Log {
	lg := &judge.Log{}
	if all.begin != nil {
		lg.Begin = judge.View{State: all.begin.State, Artifacts: all.begin.Artifacts}
	}
	for i, e := range all.events {
		if e.Seq == 0 {
			e.Seq = int64(i + 1)
		}
		lg.Events = append(lg.Events, judge.Row{Event: e, Shown: true})
	}
	return lg
}

// logAsShown is a log that leads to the task as it is.
func logAsShown(s *story, t *task.Task) *judge.Log {
	lg := &judge.Log{}
	add := func(e judge.Event) {
		e.Seq = int64(len(lg.Events) + 1)
		lg.Events = append(lg.Events, judge.Row{Event: e, Shown: true})
	}
	add(judge.Event{State: task.StateWorking.String()})
	if s.asked {
		add(judge.Event{State: task.StateInputRequired.String()})
	}
	for i := range t.Artifacts {
		name, text := nameOf(&t.Artifacts[i]), textOf(t.Artifacts[i].Parts)
		size := max(len(text), 1)
		if s.want.Chunks > 0 {
			size = chunkSize
		}
		for n := 0; n == 0 || n < len(text); n += size {
			add(judge.Event{Artifact: name, Text: text[n:min(n+size, len(text))], Append: n > 0})
		}
	}
	add(judge.Event{State: t.Status.State.String()})
	return lg
}
