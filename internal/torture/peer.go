package torture

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/cli/client"
	"github.com/holdfast-a2a/holdfast/internal/judge"
	"github.com/holdfast-a2a/holdfast/internal/task"
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

// numberOf is the number of an event in the log of its task; 0 if the server numbers none. Servers without the extension may put
// ids on events, which mean nothing.
func (p *peer) numberOf(e *client.Event) int64 {
	if !p.c.Resumes() {
		return 0
	}
	at, err := task.ParsePosition(e.ID)
	if err != nil {
		return 0
	}
	return int64(at.Seq)
}

// listener reads the streams of a client about one task, and writes them into the ledger.
type listener struct {
	ledger *judge.Ledger
	// seen is called after each event; false leaves the stream.
	seen func() bool

	mu       sync.Mutex
	reading  *judge.Reading
	task     string
	begin    *judge.View // that the first stream began with
	events   []judge.Event
	last     string // id of the newest event
	seq      int64  // its number
	opened   bool   // this connection has begun
	first    bool   // it began with the task
	ended    bool   // the task has ended
	bare     bool   // the agent sent a message instead of a task
	late     string // what came after the end
	unclosed bool   // the server left the stream open after the end
}

var errLeft = errors.New("the client left the stream")

// closing is how long a server may take to close the stream of a task that has ended.
const closing = 5 * time.Second

// listen reads a stream to its end. The error says why it broke off; nil means that the server closed it.
func (l *listener) listen(ctx context.Context, p *peer, open func(context.Context) (*client.Stream, error)) error {
	ctx, cancel := context.WithTimeout(ctx, p.o.Patience)
	defer cancel()
	s, err := open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	l.opened, l.first = false, false
	for {
		e, err := s.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && l.ended:
			l.unclosed = true
			return nil
		case err != nil:
			return err
		}
		l.note(p, e)
		if l.ended {
			time.AfterFunc(closing, cancel)
		}
		if l.seen != nil && !l.seen() {
			return errLeft
		}
	}
}

func (l *listener) note(p *peer, e *client.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Message != nil {
		l.bare = true
		return
	}
	if l.reading == nil {
		l.task = e.TaskID
		l.reading = l.ledger.Follow(e.TaskID)
	}
	seq := p.numberOf(e)
	switch {
	case l.ended:
		l.late = e.State().String()
		if e.Event != nil && e.Event.Artifact != nil {
			l.late = "a chunk"
		}
	case e.TaskID != l.task:
		l.late = "an event of task " + e.TaskID
	case e.Task != nil:
		view := viewOf(e.Task)
		view.Seq = seq
		if l.first = !l.opened; l.begin == nil {
			l.begin = &view
		}
		if seq > 0 {
			l.reading.Saw(view)
		} else {
			l.reading.Opened(&view)
		}
	case e.Event != nil && seq > 0 && seq == l.seq && e.Event.Kind == task.EventStatus:
		// Before 1.0 a stream repeats the status of the task that it began with.
	case e.Event != nil:
		l.event(e, seq)
	}
	l.opened = true
	if seq > 0 {
		l.seq = seq
	}
	l.last = e.ID
	if e.State().Terminal() {
		l.ended = true
	}
}

func (l *listener) event(e *client.Event, seq int64) {
	if !l.opened && seq == 0 {
		l.reading.Opened(nil)
	} else if len(l.reading.Entries) == 0 {
		l.reading.From(seq - 1)
	}
	told := judge.Event{Seq: seq}
	if a := e.Event.Artifact; a != nil {
		told.Artifact, told.Text, told.Append, told.Last = nameOf(a), textOf(a.Parts), e.Event.Append, e.Event.Last
	} else {
		told.State, told.Final = e.Event.State.String(), e.Event.State.Terminal()
		if e.Event.Message != nil {
			told.Text = textOf(e.Event.Message.Parts)
		}
	}
	l.events = append(l.events, told)
	l.reading.Read(told)
}

// id returns the task's, or "" before the first event.
func (l *listener) id() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.task
}

// beforeChunks is the task right before its first chunk, unless the stream began later.
func (l *listener) beforeChunks() (judge.View, bool) {
	v := judge.View{State: task.StateSubmitted.String(), Artifacts: map[string]string{}}
	if l.begin != nil {
		if len(l.begin.Artifacts) > 0 {
			return v, false
		}
		v.State = l.begin.State
	}
	for i := range l.events {
		if l.events[i].Artifact != "" {
			break
		}
		v.State = l.events[i].State
	}
	return v, true
}
