package v03

import (
	"strconv"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v0"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/wire"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// form is how documents are written. Its methods do what the codec's say.
type form struct {
	parts v0.Style
	// both adds what a client of 0.1 looks for and does not find.
	both bool
}

var (
	plain = &form{parts: v0.Style{Discriminator: "kind"}}
	union = &form{parts: v0.Style{Discriminator: "kind", Second: "type"}, both: true}
)

// Result renders the task, or in answer to a send the agent's bare message.
func (Codec) Result(op engine.Op, t *task.Task, v dialect.View) ([]byte, error) {
	return plain.result(op, t, v), nil
}

// Opening renders the task with all its history. When it has settled, the final
// status event that a client waits for follows at once. A send that was answered by
// a bare message already has that for its whole stream.
func (Codec) Opening(op engine.Op, t *task.Task) ([][]byte, error) { return plain.opening(op, t), nil }

// Event renders a status or artifact event.
func (Codec) Event(t *task.Task, e *task.Event) ([]byte, error) {
	return plain.event(t, e, e.State.Settled()), nil
}

// Passed renders a status event without the mark of the last one.
func (Codec) Passed(t *task.Task, e *task.Event) ([]byte, error) {
	return plain.event(t, e, false), nil
}

// Direct renders a bare message. An event without one is the plain end of its task.
func (c Codec) Direct(t *task.Task, e *task.Event) ([]byte, error) {
	if e.Message == nil {
		return c.Event(t, e)
	}
	return plain.appendBare(nil, t, e.Message), nil
}

func (f *form) result(op engine.Op, t *task.Task, v dialect.View) []byte {
	if op == engine.OpSend && t.Direct && t.Status.Message != nil {
		return f.appendBare(nil, t, t.Status.Message)
	}
	return f.appendTask(make([]byte, 0, 512), t, v)
}

func (f *form) opening(op engine.Op, t *task.Task) [][]byte {
	if op == engine.OpStream && t.Direct && t.Status.Message != nil {
		return [][]byte{f.appendBare(nil, t, t.Status.Message)}
	}
	documents := [][]byte{f.appendTask(nil, t, dialect.View{History: engine.AllHistory})}
	if t.Status.State.Settled() {
		e := &task.Event{State: t.Status.State, Message: t.Status.Message, At: t.Status.At}
		documents = append(documents, f.appendStatusEvent(nil, t, e, true))
	}
	return documents
}

func (f *form) event(t *task.Task, e *task.Event, final bool) []byte {
	switch e.Kind {
	case task.EventStatus:
		return f.appendStatusEvent(make([]byte, 0, 320), t, e, final)
	case task.EventArtifact:
		return f.appendArtifactEvent(make([]byte, 0, 320+wire.Size(e.Artifact.Parts)), t, e)
	case task.EventMessage, task.EventRun:
	}
	return nil
}

// appendBare appends a message that stands for itself. The client shall not take it
// for a part of a task, so it names none; its context is where the talk goes on.
func (f *form) appendBare(dst []byte, t *task.Task, m *task.Message) []byte {
	bare := *m
	bare.TaskID, bare.ContextID = "", t.ContextID
	return f.appendMessage(dst, &bare)
}

func (f *form) appendTask(dst []byte, t *task.Task, v dialect.View) []byte {
	dst = append(dst, `{"kind":"task","id":`...)
	dst = wire.AppendString(dst, t.PublicID)
	dst = wire.AppendString(wire.AppendMember(dst, "contextId"), t.ContextID)
	if f.both {
		dst = wire.AppendStringMember(dst, "sessionId", t.ContextID)
	}
	dst = wire.AppendMember(dst, "status")
	dst = f.appendStatus(dst, t.Status.State, t.Status.Message, t.Status.At)
	if len(t.Artifacts) > 0 {
		dst = wire.AppendMember(dst, "artifacts")
		dst = wire.AppendArray(dst, t.Artifacts, func(dst []byte, a *task.Artifact) []byte {
			return f.appendArtifact(dst, a, "")
		})
	}
	history := t.History
	if v.History != engine.AllHistory {
		history = t.Tail(v.History)
	}
	if len(history) > 0 || v.ShowEmpty {
		dst = wire.AppendMember(dst, "history")
		dst = wire.AppendArray(dst, history, f.appendMessage)
	}
	dst = wire.AppendRawMember(dst, "metadata", t.Metadata)
	return append(dst, '}')
}

func (f *form) appendStatusEvent(dst []byte, t *task.Task, e *task.Event, final bool) []byte {
	dst = append(dst, `{"kind":"status-update"`...)
	dst = f.appendIdentity(dst, t)
	dst = wire.AppendMember(dst, "status")
	dst = f.appendStatus(dst, e.State, e.Message, e.At)
	dst = strconv.AppendBool(append(dst, `,"final":`...), final)
	dst = wire.AppendRawMember(dst, "metadata", e.Metadata)
	return append(dst, '}')
}

func (f *form) appendArtifactEvent(dst []byte, t *task.Task, e *task.Event) []byte {
	dst = append(dst, `{"kind":"artifact-update"`...)
	dst = f.appendIdentity(dst, t)
	dst = wire.AppendMember(dst, "artifact")
	chunk := chunkMembers(e)
	dst = f.appendArtifact(dst, e.Artifact, chunk)
	dst = append(dst, chunk...)
	dst = wire.AppendRawMember(dst, "metadata", e.Metadata)
	return append(dst, '}')
}

func chunkMembers(e *task.Event) (members string) {
	if e.Append {
		members = `,"append":true`
	}
	if e.Last {
		members += `,"lastChunk":true`
	}
	return members
}

// appendIdentity names the task that an event is about.
func (f *form) appendIdentity(dst []byte, t *task.Task) []byte {
	if f.both {
		dst = wire.AppendString(wire.AppendMember(dst, "id"), t.PublicID)
	}
	dst = wire.AppendString(wire.AppendMember(dst, "taskId"), t.PublicID)
	return wire.AppendString(wire.AppendMember(dst, "contextId"), t.ContextID)
}

func (f *form) appendStatus(dst []byte, s task.State, m *task.Message, at time.Time) []byte {
	dst = append(dst, `{"state":"`...)
	dst = append(dst, stateName(s)...)
	dst = append(dst, '"')
	if !at.IsZero() {
		dst = wire.AppendTime(wire.AppendMember(dst, "timestamp"), at)
	}
	if m != nil {
		dst = wire.AppendMember(dst, "message")
		dst = f.appendMessage(dst, m)
	}
	return append(dst, '}')
}

func stateName(s task.State) string {
	if s == task.StateUnspecified {
		return "unknown"
	}
	return s.String()
}

func (f *form) appendMessage(dst []byte, m *task.Message) []byte {
	dst = append(dst, `{"kind":"message","messageId":`...)
	dst = wire.AppendString(dst, m.ID)
	dst = append(dst, `,"role":"`...)
	dst = append(dst, v0.RoleName(m.Role)...)
	dst = append(dst, '"')
	dst = wire.AppendStringMember(dst, "taskId", m.TaskID)
	dst = wire.AppendStringMember(dst, "contextId", m.ContextID)
	dst = wire.AppendMember(dst, "parts")
	dst = wire.AppendArray(dst, m.Parts, f.parts.AppendPart)
	dst = wire.AppendRawMember(dst, "metadata", m.Metadata)
	dst = wire.AppendStringsMember(dst, "extensions", m.Extensions)
	dst = wire.AppendStringsMember(dst, "referenceTaskIds", m.References)
	return append(dst, '}')
}

// appendArtifact appends an artifact. What makes it a chunk stands beside it, and in 0.1
// on it.
func (f *form) appendArtifact(dst []byte, a *task.Artifact, chunk string) []byte {
	dst = append(dst, `{"artifactId":`...)
	dst = wire.AppendString(dst, a.ID)
	if f.both {
		dst = strconv.AppendInt(wire.AppendMember(dst, "index"), int64(a.Index), 10)
		dst = append(dst, chunk...)
	}
	dst = wire.AppendStringMember(dst, "name", a.Name)
	dst = wire.AppendStringMember(dst, "description", a.Description)
	dst = wire.AppendMember(dst, "parts")
	dst = wire.AppendArray(dst, a.Parts, f.parts.AppendPart)
	dst = wire.AppendRawMember(dst, "metadata", a.Metadata)
	dst = wire.AppendStringsMember(dst, "extensions", a.Extensions)
	return append(dst, '}')
}
