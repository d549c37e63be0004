package checks

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/judge"
)

// turns is the number of messages of a conversation.
const turns = 4

// conversations has tasks that ask several times, and sends each answer to another address than the one before.
func conversations(ctx context.Context, p *probe) {
	p.each(max(2, p.o.Load), func(i int) {
		l := judge.New()
		if s := p.converse(ctx, l, i%2 == 0); s != nil {
			p.verify(ctx, l, []*story{s})
		}
	})
}

// converse has one conversation. Answers name their task, and its context unless short is set. It returns nil if the conversation
// broke off.
func (p *probe) converse(ctx context.Context, l *judge.Ledger, short bool) *story {
	a, b := p.two()
	s := &story{want: judge.Outcome{State: "completed"}, asked: true}
	var answers []string // all so far, with which the agent makes artifacts
	var of place
	for turn := range turns {
		at, text := []*peer{a, b}[turn%2], rand.Text()
		script, state := p.o.Scripts.questions(text), task.StateInputRequired
		if turn == turns-1 {
			script, state = text, task.StateCompleted
		}
		m, mark := message(script, of)
		e, err := at.send(ctx, m)
		if err == nil && !e.State().Settled() { // the server has not waited
			e, err = at.settle(ctx, e.TaskID)
		}
		if err != nil {
			p.failed(s.id, fmt.Sprintf("send message %d of a conversation (with the id of its context: %t)", turn+1, of.context != ""), err)
			return nil
		}
		if of = placeOf(e); short {
			of.context = "" // §3.4.3: to be inferred from the task
		}
		s.id, s.marks = e.TaskID, append(s.marks, mark)
		if turn > 0 {
			answers = append(answers, text)
		}
		if e.State() != state {
			p.violation(s.id, "task %s is %s after message %d of its conversation, and should be %s", s.id, e.State(), turn+1, state)
			return nil
		}
		l.Follow(s.id).Saw(viewOf(e.Task))
		p.count("messages", 1)
		for _, at := range p.peers {
			e, err := at.get(ctx, s.id)
			if err != nil {
				p.failed(s.id, "read a task between the messages of its conversation", err)
				return nil
			}
			if lost := slices.IndexFunc(answers, func(text string) bool { return !strings.Contains(allText(e.Task), text) }); lost >= 0 {
				p.violation(s.id, "task %s at %s lacks the artifact of message %d after message %d", s.id, at, lost+2, turn+1)
				return nil
			}
		}
	}
	return s
}
