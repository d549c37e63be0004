package checks

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/rpc/client"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/judge"
)

// numberOf is the number of an event in the log of its task; 0 if the server numbers none. Servers without the extension may put
// ids on events, which mean nothing.
func numberOf(c *client.Client, e *client.Event) int64 {
	if !c.Resumes() {
		return 0
	}
	at, err := task.ParsePosition(e.ID)
	if err != nil {
		return 0
	}
	return int64(at.Seq)
}

// Listener reads the streams of a client about one task, and writes them into the ledger.
type Listener struct {
	Ledger *judge.Ledger
	// Seen is called after each event; false leaves the stream.
	Seen func() bool

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

// listen reads a stream to its end.
func (p *peer) listen(ctx context.Context, l *Listener, open func(context.Context) (*client.Stream, error)) error {
	ctx, cancel := context.WithTimeout(ctx, p.o.Patience)
	defer cancel()
	return l.Listen(ctx, p.c, open)
}

// Listen reads a stream to its end. The error says why it broke off; nil means that the server closed it.
func (l *Listener) Listen(ctx context.Context, c *client.Client, open func(context.Context) (*client.Stream, error)) error {
	ctx, cancel := context.WithCancel(ctx)
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
		l.Note(c, e)
		if l.ended {
			time.AfterFunc(closing, cancel)
		}
		if l.Seen != nil && !l.Seen() {
			return errLeft
		}
	}
}

// Note records an event.
func (l *Listener) Note(c *client.Client, e *client.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Message != nil {
		l.bare = true
		return
	}
	if l.reading == nil {
		l.task = e.TaskID
		l.reading = l.Ledger.Follow(e.TaskID)
	}
	seq := numberOf(c, e)
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

func (l *Listener) event(e *client.Event, seq int64) {
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

// Task is the id of the task, or "" before the first event.
func (l *Listener) Task() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.task
}

// Last is the id of the newest event, after which a stream can be resumed.
func (l *Listener) Last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// Ended reports whether the task has ended.
func (l *Listener) Ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// Delivered records a notification of a webhook, which gets all events of the task: as such, or each time the whole task.
func (l *Listener) Delivered(c *client.Client, e *client.Event) {
	l.mu.Lock()
	first := l.reading == nil
	if first {
		l.reading, l.task, l.opened = l.Ledger.Follow(e.TaskID), e.TaskID, true
	}
	if e.Task != nil {
		defer l.mu.Unlock()
		l.reading.Saw(viewOf(e.Task))
		l.ended = e.State().Terminal()
		return
	}
	if first {
		l.reading.From(0)
	}
	l.mu.Unlock()
	e.ID = "" // the ids of streams are not here
	l.Note(c, e)
}

// beforeChunks is the task right before its first chunk, unless the stream began later.
func (l *Listener) beforeChunks() (judge.View, bool) {
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
