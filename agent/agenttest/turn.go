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
	u.task.await(fmt.Sprintf("the end of turn %d", u.number), 0, u.over)
	return u
}

// Await waits until the agent has emitted an event with this line, such as "working"; see Event.String. It fails the test
// if the turn ends without it.
func (u *Turn) Await(line string) *Turn {
	u.task.t.Helper()
	found := func() bool {
		return slices.ContainsFunc(u.Events(), func(e Event) bool { return e.String() == line })
	}
	u.task.await("the event "+line, 0, func() bool {
		over := u.over() // before the look, because the event may be the last one
		return found() || over
	})
	if !found() {
		u.task.t.Fatalf("turn %d ended without the event %s:\n%s", u.number, line, lines(u.Events()))
	}
	return u
}

// Want compares the events with lines, which are described at Event.String. Events that the agent emits later are not
// compared, so call Wait first if the turn was begun with Start. Neither are records of durable runs: a question, a wait, a step.
func (u *Turn) Want(want ...string) *Turn {
	u.task.t.Helper()
	got := slices.DeleteFunc(u.Events(), func(e Event) bool { return e.Record != "" })
	same := slices.EqualFunc(got, want, func(e Event, line string) bool { return e.String() == line })
	if !same {
		u.task.t.Errorf("turn %d:\n%swant:\n%s", u.number, lines(got), lines(want))
	}
	return u
}

// Events are the events so far, in their order.
func (u *Turn) Events() []Event {
	u.task.t.Helper()
	log := u.task.events()
	turns := turnsOf(log)
	var out []Event
	for _, e := range log {
		of := turns[e.Attempt]
		if e.Attempt == 0 && e.State.Terminal() { // a client has canceled it
			of = u.task.row().turns
		}
		if of == u.number {
			out = append(out, fromEvent(e))
		}
	}
	return out
}

// turnsOf returns the turns of the attempts that are in a log.
func turnsOf(log []*task.Event) map[task.Attempt]int {
	turns, turn := map[task.Attempt]int{}, 1
	for _, e := range log {
		if e.Attempt == 0 {
			continue
		}
		if turns[e.Attempt] == 0 {
			turns[e.Attempt] = turn
		}
		if e.Waits() || e.Kind == task.EventStatus && e.State != task.StateWorking {
			turn++
		}
	}
	return turns
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
	u.task.t.Helper()
	turns := turnsOf(u.task.events())
	if now := u.task.row(); now.running && turns[now.attempt] == 0 {
		turns[now.attempt] = now.turn()
	}
	n := 0
	for _, turn := range turns {
		if turn == u.number {
			n++
		}
	}
	return n
}

// over reports whether the agent's runs for the message have ended.
func (u *Turn) over() bool {
	log := u.task.events()
	turns := turnsOf(log)
	for _, e := range log {
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
