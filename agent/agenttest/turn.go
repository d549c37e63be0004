package agenttest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-a2a/holdfast/agent"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Turn is a message to the agent, the timer of its wait or the results of its calls, and what the agent has emitted for it.
type Turn struct {
	task   *Task
	number int
}

// Wait waits until the agent has answered the message: until the task has ended or asks something, or the agent waits or calls.
func (u *Turn) Wait() *Turn {
	u.task.t.Helper()
	u.task.await(fmt.Sprintf("the end of turn %d", u.number), u.over)
	return u
}

// Await waits until the agent has emitted an event with this line, such as "working"; see Event.String. It fails the test
// if the turn ends without it.
func (u *Turn) Await(line string) *Turn {
	u.task.t.Helper()
	found := func() bool {
		return slices.ContainsFunc(u.Events(), func(e Event) bool { return e.String() == line })
	}
	u.task.await("the event "+line, func() bool {
		over := u.over() // before the look, because the event may be the last one
		return found() || over
	})
	if !found() {
		u.task.t.Fatalf("turn %d ended without the event %s:\n%s", u.number, line, lines(u.Events()))
	}
	return u
}

// Want compares the events with lines, which are described at Event.String. Events that the agent emits later are not
// compared, so call Wait first if the turn was begun with Start.
func (u *Turn) Want(want ...string) *Turn {
	u.task.t.Helper()
	got := u.Events()
	same := slices.EqualFunc(got, want, func(e Event, line string) bool { return e.String() == line })
	if !same {
		u.task.t.Errorf("turn %d:\n%swant:\n%s", u.number, lines(got), lines(want))
	}
	return u
}

// Events are the events so far, in their order.
func (u *Turn) Events() []Event {
	turns, newest := u.task.store.Turns(u.task.header.ID)
	log := u.task.store.Events(u.task.header.ID, 0)
	var out []Event
	for _, e := range log {
		switch {
		case e.Attempt > 0:
			if turns[e.Attempt] != u.number {
				continue
			}
		case !e.State.Terminal() || u.number != newest: // a client's write, except for a cancel
			continue
		}
		out = append(out, fromEvent(e))
	}
	return out
}

// State is the state that the newest event of the turn has set: submitted without one.
func (u *Turn) State() agent.TaskState {
	state := agent.Submitted
	for _, e := range u.Events() {
		if e.State != "" {
			state = e.State
		}
	}
	return state
}

// Message is the message of the newest status, such as the agent's question. Without one it is the zero Message.
func (u *Turn) Message() agent.Message {
	var m agent.Message
	for _, e := range u.Events() {
		if e.Message != nil {
			m = *e.Message
		} else if e.State != "" {
			m = agent.Message{}
		}
	}
	return m
}

// Err is what operators read about the failure of the turn, or of its newest try. Clients do not see it.
func (u *Turn) Err() string {
	var text string
	for _, e := range u.Events() {
		if e.Err != "" {
			text = e.Err
		}
	}
	return text
}

// Tries is how often the agent was started for the message.
func (u *Turn) Tries() int {
	n := 0
	turns, _ := u.task.store.Turns(u.task.header.ID)
	for _, turn := range turns {
		if turn == u.number {
			n++
		}
	}
	return n
}

// over reports whether the agent's runs for the message have ended.
func (u *Turn) over() bool {
	turns, _ := u.task.store.Turns(u.task.header.ID)
	for _, e := range u.task.store.Events(u.task.header.ID, 0) {
		if e.Waits() && turns[e.Attempt] == u.number {
			return true
		}
		if e.Kind != task.EventStatus || e.State == task.StateWorking {
			continue
		}
		// A run that asks while the next message is waiting makes the task submitted again.
		if e.State.Terminal() || e.Attempt > 0 && turns[e.Attempt] == u.number {
			return true
		}
	}
	return false
}

func lines[T any](of []T) string {
	var b strings.Builder
	for _, line := range of {
		fmt.Fprintf(&b, "\t%v\n", line)
	}
	return b.String()
}
