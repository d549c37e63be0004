package judge

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// most is the most violations that are reported.
const most = 20

// FromAgent and Steps begin the messages of agents for others, which no client sends. Package invarianttest checks that each has
// its task, and that callers show the steps of these tasks in their order, once, and only while they wait.
const (
	FromAgent = "called:"
	Steps     = "steps="
)

// Violation is an answer that disagrees with the log of a task.
type Violation struct {
	Task string // its id; "" without one
	Text string
}

func (v *Violation) Error() string { return v.Text }

// Audit compares the logs, by the ids of their tasks, with what the ledger says about these tasks. With rest, all clients are
// done: every task has ended or is parked, as expected, every stream has ended, and there are no other messages.
func Audit(logs map[string]*Log, l *Ledger, rest bool) []*Violation {
	a := &auditor{logs: logs, rest: rest}
	a.messages(l)
	a.resumes(l)
	a.expected(l)
	a.waits()
	for _, r := range l.Readings {
		a.reading(r)
	}
	return a.found
}

type auditor struct {
	logs  map[string]*Log
	rest  bool
	found []*Violation
	told  int
}

func (a *auditor) violation(task, format string, args ...any) {
	switch a.told++; {
	case a.told <= most:
		a.found = append(a.found, &Violation{task, fmt.Errorf(format, args...).Error()})
	case a.told == most+1:
		a.found = append(a.found, &Violation{Text: "and more"})
	}
}

// messages finds each message in the task that its sender was told, and nowhere else.
func (a *auditor) messages(l *Ledger) {
	places := map[string][]string{}
	for _, id := range slices.Sorted(maps.Keys(a.logs)) {
		for _, e := range a.logs[id].Events {
			if e.Mark == "" || strings.HasPrefix(e.Mark, FromAgent) || strings.HasPrefix(e.Mark, Steps) {
				continue
			}
			if l.Messages[e.Mark] == nil {
				// Ignore a message that was sent after the copy of the ledger.
				if a.rest {
					a.violation(id, "message %q, event %d of task %s: no client sent it", e.Mark, e.Seq, id)
				}
				continue
			}
			places[e.Mark] = append(places[e.Mark], id)
		}
	}
	for _, mark := range slices.Sorted(maps.Keys(l.Messages)) {
		m, at := l.Messages[mark], places[mark]
		switch {
		case len(at) > 1:
			a.violation(at[0], "message %q is stored %d times: in %s", mark, len(at), strings.Join(at, ", "))
		case m.fate == refused && len(at) == 1:
			a.violation(at[0], "message %q was refused, and is stored in task %s", mark, at[0])
		case m.fate == stored && len(at) == 0:
			a.violation(m.task, "message %q was acknowledged in task %s, and is lost", mark, m.task)
		case m.fate == stored && at[0] != m.task:
			a.violation(m.task, "message %q was acknowledged in task %s, and is in task %s", mark, m.task, at[0])
		}
	}
}

// resumes finds each accepted request by a resume URL as the input of one turn of its task, and no other input. Each note in a
// log has its turn, because the agents ask for all of them.
func (a *auditor) resumes(l *Ledger) {
	places := map[string][]string{}
	for _, id := range slices.Sorted(maps.Keys(a.logs)) {
		notes, turns := 0, 0
		for _, e := range a.logs[id].Events {
			if e.Resume {
				notes++
			}
			mark, ok := strings.CutPrefix(e.Text, Resumed)
			if !ok || e.State == "" {
				continue
			}
			turns++
			mark, _, _ = strings.Cut(mark, "\n")
			places[mark] = append(places[mark], id)
			if a.rest && l.Resumes[mark] == nil {
				a.violation(id, "resume %q, event %d of task %s: no client sent it", mark, e.Seq, id)
			}
		}
		if turns > notes || a.rest && turns < notes {
			a.violation(id, "task %s has %d turns of resumes, and was resumed %d times", id, turns, notes)
		}
	}
	for _, mark := range slices.Sorted(maps.Keys(l.Resumes)) {
		m, at := l.Resumes[mark], places[mark]
		switch {
		case len(at) > 1:
			a.violation(at[0], "resume %q is the input of %d turns: in %s", mark, len(at), strings.Join(at, ", "))
		case m.fate == refused && len(at) == 1:
			a.violation(at[0], "resume %q was refused, and is the input of a turn of task %s", mark, at[0])
		case m.fate == stored && len(at) == 0 && a.rest:
			a.violation(m.task, "resume %q was accepted in task %s, and is the input of no turn", mark, m.task)
		case m.fate == stored && len(at) == 1 && at[0] != m.task:
			a.violation(m.task, "resume %q was accepted in task %s, and is the input of a turn of task %s", mark, m.task, at[0])
		}
	}
}

// expected checks the final states of the tasks.
func (a *auditor) expected(l *Ledger) {
	if !a.rest {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(a.logs)) {
		present := a.logs[id].present()
		switch present.State {
		case "submitted", "working":
			a.violation(id, "task %s is still %s", id, present.State)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(l.Expected)) {
		want := l.Expected[id]
		lg := a.logs[id]
		if lg == nil {
			a.violation(id, "task %s was acknowledged, and is lost", id)
			continue
		}
		if got := lg.present(); got.State != want.State {
			a.violation(id, "task %s is %s, and should be %s; its log: %s", id, got.State, want.State, lg.brief())
		}
		if want.Chunks > 0 {
			if err := lg.indexed(want.Chunks, want.Size); err != nil {
				a.violation(id, "task %s: %w", id, err)
			}
		}
	}
}

// waits checks that no run follows a wait before its time. A message may end a wait that allows it, and a cancel any. That
// a timer fires at all is part of expected, and that it fires once part of the invariants: turns counts timers.
func (a *auditor) waits() {
	for _, id := range slices.Sorted(maps.Keys(a.logs)) {
		events := a.logs[id].Events
		messages := 0
		for i := range events {
			if events[i].Mark != "" {
				messages++
			}
			if wait := &events[i]; !wait.Until.IsZero() {
				if next := after(events[i+1:], wait.Early, messages > 1); next != nil && next.At.Before(wait.Until) {
					a.violation(id, "task %s: event %d of %s follows a wait until %s", id, next.Seq, next.At.Format(time.RFC3339Nano), wait.Until.Format(time.RFC3339Nano))
				}
			}
		}
	}
}

// after returns the first event of the run after a wait, or nil if no run followed, or a client ended the wait.
func after(events []Row, early, messaged bool) *Row {
	for i := range events {
		switch e := &events[i]; {
		case e.Mark != "":
			messaged = true
		case early && messaged || e.State == "canceled":
			return nil
		default:
			return e
		}
	}
	return nil
}

// reading follows the log along with a client.
func (a *auditor) reading(r *Reading) {
	if len(r.Entries) == 0 {
		return
	}
	lg := a.logs[r.Task]
	if lg == nil {
		a.violation(r.Task, "task %s was shown to a client, and is lost", r.Task)
		return
	}
	f := follower{log: lg, floor: lg.start()}
	for i := range r.Entries {
		if err := f.entry(&r.Entries[i]); err != nil {
			a.violation(r.Task, "task %s, a client's entry %d of %d: %w", r.Task, i+1, len(r.Entries), err)
			return
		}
	}
	if a.rest && f.at != nil && !f.final && !r.left {
		a.violation(r.Task, "task %s: a client's stream stopped at event %d of %d and had no end", r.Task, f.at[0], len(lg.Events))
	}
}

// follower is where a client may be in a log.
type follower struct {
	log   *Log
	floor *fold // the earliest task that the answers so far allow; it never goes back, as a later answer is not older
	// at are the numbers of events that the client's stream may have shown; nil before it began. Where events have numbers, there
	// is one.
	at    []int
	final bool // the last entry was the end of a stream
}

func (f *follower) entry(e *Entry) error {
	switch {
	case e.View != nil && e.View.Seq > 0:
		return f.numbered(e.View)
	case e.Opens:
		return f.opened(e.View)
	case e.View != nil:
		return f.reach(e.View)
	case e.Event == nil:
		n, _ := f.log.upTo(e.From)
		f.at, f.final = []int{n}, false
		return nil
	}
	return f.event(e.Event)
}

// numbered moves to the event whose number came with the view.
func (f *follower) numbered(v *View) error {
	n, ok := f.log.upTo(v.Seq)
	if !ok {
		return fmt.Errorf("a view of event %d, but the log ends with %d", v.Seq, f.log.Last())
	}
	if f.floor.at > n {
		return fmt.Errorf("a view of event %d after one of %d", v.Seq, f.floor.at)
	}
	f.floor.forward(n)
	if err := f.floor.differs(v); err != nil {
		return fmt.Errorf("a view of event %d: %w", v.Seq, err)
	}
	f.at, f.final = []int{n}, !f.floor.running()
	return nil
}

// reach moves to the first place from there on that looks like the view.
func (f *follower) reach(v *View) error {
	for f.floor.differs(v) != nil {
		if !f.floor.step() {
			return fmt.Errorf("no position of the log from there on has the state %s with these artifacts", v.State)
		}
	}
	return nil
}

// opened begins a stream at each place from there on that looks like the view: events without content may follow it. Without a
// view it may begin anywhere.
func (f *follower) opened(v *View) error {
	if v != nil {
		if err := f.reach(v); err != nil {
			return err
		}
	}
	f.at = f.at[:0:0]
	here := f.floor.clone()
	for ok := true; ok; ok = here.step() {
		if v == nil || here.differs(v) == nil {
			f.at = append(f.at, here.at)
		}
	}
	f.final = v != nil && !f.floor.running()
	return nil
}

// event moves past the next event that streams show.
func (f *follower) event(e *Event) error {
	if f.at == nil {
		return errors.New("an event before the stream was opened")
	}
	var first error
	next := f.at[:0:0]
	for _, at := range f.at {
		at = f.log.shown(at)
		err := f.log.continues(at, e)
		if err == nil && (len(next) == 0 || next[len(next)-1] != at+1) {
			next = append(next, at+1)
		}
		if first == nil {
			first = err
		}
	}
	if len(next) == 0 {
		return first
	}
	f.at, f.final = next, e.Final
	f.floor.forward(next[0])
	if f.final && f.floor.running() {
		return fmt.Errorf("event %d is final, and the task continues", e.Seq)
	}
	return nil
}
