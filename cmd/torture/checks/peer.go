package checks

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/rpc/client"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/judge"
)

// peer is an address of the server, as one caller.
type peer struct {
	*run
	c   *client.Client
	url string
}

func (p *peer) String() string { return p.url }

// modern reports whether the version has the clauses of 1.0.
func (p *peer) modern() bool { return p.c.Version() == "1.0" }

// markPrefix begins all marks of messages.
const markPrefix = "torture-mark-"

// message makes a message with a script and a mark that no other message has.
func message(script string, of place) (m *client.Message, mark string) {
	mark = markPrefix + rand.Text()
	return &client.Message{ID: rand.Text(), TaskID: of.task, ContextID: of.context, Parts: []task.Part{task.Text(script), task.Text(mark)}}, mark
}

// place is the task of a message, and its context. The zero value is a new task in a new context.
type place struct{ task, context string }

// placeOf is that of the next message of the task that an answer is about.
func placeOf(e *client.Event) place { return place{e.TaskID, e.ContextID} }

// send sends a message once. The answer must be a task.
func (p *peer) send(ctx context.Context, m *client.Message) (*client.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, p.o.Patience)
	defer cancel()
	return asTask(p.c.Send(ctx, m))
}

var errNoTask = errors.New("the answer is not a task")

func asTask(e *client.Event, err error) (*client.Event, error) {
	if err == nil && e.Task == nil {
		err = errNoTask
	}
	return e, err
}

// get reads a task. It repeats the request while the server cannot be reached.
func (p *peer) get(ctx context.Context, taskID string) (e *client.Event, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.o.Patience)
	defer cancel()
	for {
		e, err = asTask(p.c.Get(ctx, taskID))
		if err == nil || !client.Temporary(err) || pause(ctx, 100*time.Millisecond) != nil {
			return e, err
		}
	}
}

// settle reads a task until it has ended or waits for the client. If it does neither, it returns the task as it is.
func (p *peer) settle(ctx context.Context, taskID string) (*client.Event, error) {
	deadline := time.Now().Add(p.o.Patience)
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		e, err := p.get(ctx, taskID)
		if err != nil || e.State().Settled() || time.Now().After(deadline) {
			return e, err
		}
		if err := pause(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// answers waits until the server refuses a request about a task that does not exist, and not because of a fault.
func (p *peer) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.o.Patience)
	defer cancel()
	for {
		_, err := p.c.Get(ctx, nobody)
		if client.Reported(err) != nil && !errors.Is(err, task.Internal) {
			return nil
		}
		if pause(ctx, 100*time.Millisecond) != nil {
			return fmt.Errorf("%s does not answer: %w", p, err)
		}
	}
}

// nobody is the id of no task.
const nobody = "01945c3e-8f5a-7c3e-9d52-000000000000"

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// viewOf is a task as an answer shows it.
func viewOf(t *task.Task) judge.View {
	v := judge.View{State: t.Status.State.String(), Artifacts: map[string]string{}}
	for i := range t.Artifacts {
		v.Artifacts[nameOf(&t.Artifacts[i])] = textOf(t.Artifacts[i].Parts)
	}
	return v
}

func nameOf(a *task.Artifact) string {
	if a.ID != "" {
		return a.ID
	}
	return a.Name
}

func textOf(parts []task.Part) string {
	var b strings.Builder
	for i := range parts {
		b.WriteString(parts[i].Text)
	}
	return b.String()
}

// allText is the text of all artifacts.
func allText(t *task.Task) string {
	var b strings.Builder
	for i := range t.Artifacts {
		b.WriteString(textOf(t.Artifacts[i].Parts))
	}
	return b.String()
}

// marksOf are the marks of the client's messages in the history of a task.
func marksOf(t *task.Task) (marks []string) {
	for i := range t.History {
		if m := &t.History[i]; m.Role == task.RoleUser && len(m.Parts) > 0 {
			if text := m.Parts[len(m.Parts)-1].Text; strings.HasPrefix(text, markPrefix) {
				marks = append(marks, text)
			}
		}
	}
	return marks
}
