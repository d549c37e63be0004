package task

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Status is the current state of a task.
type Status struct {
	State   State
	Message *Message
	At      time.Time
	Seq     Seq // the event that set it
}

// Task is the fold of a task's log up to LastSeq.
type Task struct {
	ID        ID
	PublicID  string // id that clients use: their own id in A2A 0.1, otherwise ID
	Agent     string
	Tenant    string
	Owner     string
	ContextID string
	Dialect   string // the version it was created in, such as "0.1"
	Metadata  json.RawMessage
	CreatedAt time.Time
	// Traceparent is the W3C Trace Context of the span that created it, or "".
	Traceparent string

	// RetriedAs is the task that the newest retry by an operator has made of it; zero: none.
	RetriedAs ID

	// StreamBase plus the seq of an event is its id on streams. It counts the events that earlier
	// tasks had under the same PublicID.
	StreamBase Seq

	LastSeq   Seq
	Status    Status
	Direct    bool // ended by a bare Message
	History   []Message
	Artifacts []Artifact
	Wait      *RunNote // of the agent, if no later event has ended it; its time may be over

	// statusAt is where the status message belongs in History once a newer
	// status supersedes it: before the messages that arrived after it. Negative: TrimHistory has
	// dropped some of those.
	statusAt int

	last Position // after the newest event that was folded

	// growing has the texts of parts that chunks continue, by the position of the artifact whose last part it is. A
	// string for each chunk would be copied for each chunk.
	growing map[int]*strings.Builder
}

// Apply folds one event into the task. It ignores events at or below LastSeq, so a reader may apply
// an overlap. It returns an error for a gap, which is a bug of the caller.
func (t *Task) Apply(e *Event) error {
	if e.Seq <= t.LastSeq {
		return nil
	}
	if e.Seq != t.LastSeq+1 {
		return Errorf(Internal, "the log of task %s has a gap: event %d follows event %d", t.ID, e.Seq, t.LastSeq)
	}
	switch e.Kind {
	case EventMessage:
		if e.Message != nil {
			t.History = append(t.History, *e.Message)
		}
		if t.Status.State == StateUnspecified {
			// The first message creates the task: submitted, without a status message.
			t.Status = Status{State: StateSubmitted, At: e.At, Seq: e.Seq}
			t.statusAt = len(t.History)
		}
	case EventStatus:
		t.applyStatus(e)
	case EventArtifact:
		t.applyArtifact(e)
	case EventRun:
	}
	switch {
	case e.Waits():
		t.Wait = e.Run
	case e.Kind != EventMessage || t.Wait != nil && t.Wait.Interruptible:
		t.Wait = nil
	}
	t.LastSeq, t.last = e.Seq, e.Position()
	return nil
}

func (t *Task) applyStatus(e *Event) {
	if old := t.Status.Message; old != nil && t.statusAt >= 0 {
		at := min(t.statusAt, len(t.History))
		t.History = append(t.History, Message{})
		copy(t.History[at+1:], t.History[at:])
		t.History[at] = *old
	}
	t.Status = Status{State: e.State, Message: e.Message, At: e.At, Seq: e.Seq}
	t.Metadata = Merge(t.Metadata, e.Metadata)
	t.statusAt = len(t.History)
	t.Direct = e.Direct
}

func (t *Task) applyArtifact(e *Event) {
	a := e.Artifact
	for i := range t.Artifacts {
		have := &t.Artifacts[i]
		if have.ID != a.ID {
			continue
		}
		if !e.Append {
			index := have.Index
			delete(t.growing, i)
			*have = *a
			have.Index = index
			have.Parts = append([]Part(nil), a.Parts...)
			return
		}
		if !t.continued(i, a.Parts) {
			delete(t.growing, i)
			have.Parts = append(have.Parts, a.Parts...)
		}
		have.describe(a)
		return
	}
	fresh := *a
	// The event is shared; a later append must not write into its parts.
	fresh.Parts = append([]Part(nil), a.Parts...)
	t.Artifacts = append(t.Artifacts, fresh)
}

// With returns the artifact with a chunk that continues it.
func (a *Artifact) With(chunk *Artifact) Artifact {
	t := Task{Artifacts: []Artifact{*a}}
	t.Artifacts[0].Parts = slices.Clone(a.Parts)
	more := *chunk
	more.ID = a.ID
	t.applyArtifact(&Event{Artifact: &more, Append: true})
	return t.Artifacts[0]
}

// describe takes over what a chunk that continues the artifact says about it.
func (a *Artifact) describe(chunk *Artifact) {
	a.Name, a.Description = cmp.Or(chunk.Name, a.Name), cmp.Or(chunk.Description, a.Description)
	a.Metadata = Merge(a.Metadata, chunk.Metadata)
	a.Extensions = slices.Clip(a.Extensions)
	for _, uri := range chunk.Extensions {
		if !slices.Contains(a.Extensions, uri) {
			a.Extensions = append(a.Extensions, uri)
		}
	}
}

// continued adds the parts of a chunk to the last part of artifact i. It does nothing and returns false unless they are a
// piece of its text: clients would show a word of a streamed text per line.
func (t *Task) continued(i int, more []Part) bool {
	parts := t.Artifacts[i].Parts
	if len(parts) == 0 || len(more) != 1 {
		return false
	}
	last, next := &parts[len(parts)-1], &more[0]
	if !last.Continues(next) {
		return false
	}
	text := t.growing[i]
	if text == nil {
		if t.growing == nil {
			t.growing = map[int]*strings.Builder{}
		}
		text = &strings.Builder{}
		text.WriteString(last.Text)
		t.growing[i] = text
	}
	if text.Len() < 1<<20 {
		text.Grow(len(next.Text)) // doubles the room; WriteString adds a quarter, which is enough for a large text
	}
	text.WriteString(next.Text)
	last.Text, last.Quoted = text.String(), ""
	return true
}

// Continues reports whether next, the only part of a chunk, is a further piece of the text p.
func (p *Part) Continues(next *Part) bool {
	return p.plain() && next.plain() && p.MediaType == next.MediaType
}

// plain reports whether the part is text that says nothing about itself but its media type.
func (p *Part) plain() bool { return p.Kind == PartText && p.Filename == "" && p.Metadata == nil }

// Shared returns a copy for a reader: what is added to its history or its artifacts is not in t. The contents are those of t, so
// nobody may change them, nor apply another event.
func (t *Task) Shared() *Task {
	c := *t
	c.History, c.Artifacts, c.growing = slices.Clip(t.History), slices.Clip(t.Artifacts), nil
	return &c
}

// Fold applies events to a copy of the header and returns the task.
func Fold(header Task, events []Event) (*Task, error) {
	t := header
	t.History = slices.Clone(t.History)
	t.growing = nil
	t.Artifacts = slices.Clone(t.Artifacts)
	for i := range t.Artifacts {
		t.Artifacts[i].Parts = slices.Clone(t.Artifacts[i].Parts)
	}
	for i := range events {
		if err := t.Apply(&events[i]); err != nil {
			return nil, err
		}
	}
	return &t, nil
}

// TrimHistory drops the oldest messages until the others have at most so many bytes (Message.Size) together. Later events
// can still be applied.
func (t *Task) TrimHistory(most int64) {
	first := len(t.History)
	for ; first > 0; first-- {
		if most -= t.History[first-1].Size(); most < 0 {
			break
		}
	}
	if first == 0 {
		return
	}
	// A copy: the old array would keep the dropped messages in memory.
	t.History = append([]Message(nil), t.History[first:]...)
	t.statusAt -= first
}

// Tail returns the last n messages of the history, oldest first.
func (t *Task) Tail(n int) []Message {
	if n >= len(t.History) {
		return t.History
	}
	return t.History[len(t.History)-n:]
}
