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
	"github.com/holdfast-a2a/holdfast/internal/test/judge"
)

// aftermath is what clients learned before and while faults were injected.
type aftermath struct {
	problem string // why it says nothing
	kept    group  // tasks that had ended or waited for input
	work    group  // tasks that ran
	streams group  // tasks that ran, and were read
}

// group is tasks of one kind with their clients' ledger.
type group struct {
	ledger  *judge.Ledger
	mu      sync.Mutex
	stories []*story
	resumes int
}

func (g *group) add(s *story) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stories = append(g.stories, s)
}

// faulted injects the faults once, for the checks that look at the same requests. Without faults it returns nil.
func (p *probe) faulted(ctx context.Context) *aftermath {
	if len(p.o.Faults) == 0 {
		p.skip("no faults: give --kill and --start")
		return nil
	}
	if p.after == nil {
		a := &aftermath{}
		for _, g := range []*group{&a.kept, &a.work, &a.streams} {
			g.ledger = judge.New()
		}
		if err := p.inject(ctx, a); err != nil {
			a.problem = err.Error()
		}
		p.after = a
	}
	if p.after.problem != "" {
		p.unsure("%s", p.after.problem)
		return nil
	}
	p.count("faults", len(p.o.Faults))
	return p.after
}

func acknowledgedTasks(ctx context.Context, p *probe) {
	if a := p.faulted(ctx); a != nil {
		p.judge(ctx, &a.kept, a.kept.stories)
	}
}

// judge verifies a group, if there is anything to verify.
func (p *probe) judge(ctx context.Context, g *group, stories []*story) {
	if len(g.stories) == 0 {
		p.unsure("the server acknowledged no such task before the fault")
	}
	p.verify(ctx, g.ledger, stories)
}

func interruptedWork(ctx context.Context, p *probe) {
	a := p.faulted(ctx)
	if a == nil {
		return
	}
	var mu sync.Mutex
	var rest []*story
	p.each(len(a.work.stories), func(i int) {
		s := a.work.stories[i]
		e, err := p.any().settle(ctx, s.id)
		mu.Lock()
		defer mu.Unlock()
		if err == nil && e.State().Terminal() && e.State() != task.StateCompleted {
			p.count("tasks "+e.State().String(), 1) // the server says what became of it
			return
		}
		rest = append(rest, s)
	})
	p.judge(ctx, &a.work, rest)
}

func resumedStreams(ctx context.Context, p *probe) {
	if !p.streaming() {
		return
	}
	if len(p.o.Faults) > 0 && !p.peers[0].c.Resumes() {
		p.skip("the card does not announce the resume extension, and no clause says what a stream shows after a restart")
		return
	}
	if a := p.faulted(ctx); a != nil {
		p.count("resumes", a.streams.resumes)
		p.judge(ctx, &a.streams, a.streams.stories)
	}
}

// inject breaks and repairs the server under load.
func (p *probe) inject(ctx context.Context, a *aftermath) error {
	var readers sync.WaitGroup
	defer readers.Wait()
	for i := range p.o.Faults {
		f := &p.o.Faults[i]
		p.each(p.o.Load, func(i int) { p.keep(ctx, a, p.any(), i%2 == 1) })
		p.each(p.o.Load, func(int) { p.accept(ctx, a) })
		if p.peers[0].c.Resumes() {
			for range p.o.Load {
				at := p.any()
				readers.Go(func() { p.persist(ctx, a, at) })
			}
		}
		if err := pause(ctx, p.between(100*time.Millisecond, 600*time.Millisecond)); err != nil {
			return err
		}
		p.o.Progress("fault %d of %d: kill", i+1, len(p.o.Faults))
		if err := f.Kill(ctx); err != nil {
			return err
		}
		// The acknowledgements of the other addresses count as well.
		for until := time.Now().Add(p.between(300*time.Millisecond, 1200*time.Millisecond)); time.Now().Before(until) && ctx.Err() == nil; {
			p.each(len(p.peers), func(i int) { p.keep(ctx, a, p.peers[i], false) })
		}
		p.o.Progress("fault %d of %d: start", i+1, len(p.o.Faults))
		if err := f.Start(ctx); err != nil {
			return err
		}
		for _, at := range p.peers {
			if err := at.answers(ctx); err != nil {
				return fmt.Errorf("after the start: %w", err)
			}
		}
		p.answer(ctx, a)
	}
	return nil
}

// keep sends a message, and remembers the task if the server acknowledges it. No message is sent twice, so a lost answer says
// nothing.
func (p *probe) keep(ctx context.Context, a *aftermath, at *peer, ask bool) {
	script := p.o.Scripts.echoes("kept")
	want := judge.Outcome{State: "completed"}
	if ask {
		script, want.State = p.o.Scripts.asks(), "input-required"
	}
	m, mark := message(script, place{})
	e, err := at.send(ctx, m)
	if err == nil && !e.State().Settled() { // the server has not waited
		soon, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		e, err = at.settle(soon, e.TaskID)
	}
	if err != nil || e.State().String() != want.State {
		_ = pause(ctx, 20*time.Millisecond) // it may be down
		return
	}
	a.kept.ledger.Follow(e.TaskID).Saw(viewOf(e.Task))
	a.kept.add(&story{id: e.TaskID, place: placeOf(e), marks: []string{mark}, want: want, asked: ask})
}

// answer sends the half of the tasks that wait for input what they wait for.
func (p *probe) answer(ctx context.Context, a *aftermath) {
	waiting := slices.DeleteFunc(slices.Clone(a.kept.stories), func(s *story) bool { return s.want.State != "input-required" })
	p.each(len(waiting)/2, func(i int) {
		s := waiting[i]
		m, mark := message("Oslo", s.place)
		e, err := p.any().send(ctx, m)
		if errors.Is(err, task.NotFound) {
			return // it is lost, which the end shows
		}
		if err != nil {
			p.failed(s.id, "answer a task that waited for input over a restart", err)
			return
		}
		s.marks, s.want.State = append(s.marks, mark), "completed"
		a.kept.ledger.Follow(s.id).Saw(viewOf(e.Task))
	})
}

// long is a script that runs while the server is killed.
func (p *probe) long() (script string, want judge.Outcome) {
	n := 40 + p.number(20)
	return p.o.Scripts.chunks(n, 50*time.Millisecond), judge.Outcome{State: "completed", Chunks: n, Size: chunkSize}
}

// accept sends work and does not wait for it.
func (p *probe) accept(ctx context.Context, a *aftermath) {
	script, want := p.long()
	m, mark := message(script, place{})
	m.Return = true
	if e, err := p.any().send(ctx, m); err == nil {
		a.work.add(&story{id: e.TaskID, marks: []string{mark}, want: want})
	}
}

// persist reads a task through all breaks.
func (p *probe) persist(ctx context.Context, a *aftermath, at *peer) {
	script, want := p.long()
	m, mark := message(script, place{})
	l := &Listener{Ledger: a.streams.ledger}
	err := at.listen(ctx, l, func(ctx context.Context) (*client.Stream, error) { return at.c.Stream(ctx, m) })
	if l.Task() == "" {
		return // not acknowledged
	}
	a.streams.add(&story{id: l.task, marks: []string{mark}, want: want})
	for until := time.Now().Add(2 * p.o.Patience); !l.ended && time.Now().Before(until); {
		if pause(ctx, 50*time.Millisecond) != nil {
			break
		}
		at = p.any()
		after := l.last
		err = at.listen(ctx, l, func(ctx context.Context) (*client.Stream, error) { return at.c.Subscribe(ctx, l.task, after) })
		a.streams.mu.Lock()
		a.streams.resumes++
		a.streams.mu.Unlock()
		if errors.Is(err, task.NotFound) || errors.Is(err, task.Unsupported) {
			break
		}
	}
	if !l.ended && errors.Is(err, task.NotFound) {
		l.reading.Left() // the loss is told once
	}
}
