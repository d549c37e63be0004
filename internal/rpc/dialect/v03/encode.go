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

var style = v0.Style{Discriminator: "kind"}

// Result renders the task, or in answer to a send the agent's bare message.
func (Codec) Result(op engine.Op, t *task.Task, v dialect.View) ([]byte, error) {
	if op == engine.OpSend && t.Direct && t.Status.Message != nil {
		return appendBare(nil, t, t.Status.Message), nil
	}
	return appendTask(make([]byte, 0, 512), t, v), nil
}

// Opening renders the task with all its history. When it has settled, the final
// status event that a client waits for follows at once. A send that was answered by
// a bare message already has that for its whole stream.
func (Codec) Opening(op engine.Op, t *task.Task) ([][]byte, error) {
	if op == engine.OpStream && t.Direct && t.Status.Message != nil {
		return [][]byte{appendBare(nil, t, t.Status.Message)}, nil
	}
	documents := [][]byte{appendTask(nil, t, dialect.View{History: engine.AllHistory})}
	if t.Status.State.Settled() {
		e := &task.Event{State: t.Status.State, Message: t.Status.Message, At: t.Status.At}
		documents = append(documents, appendStatusEvent(nil, t, e, true))
	}
	return documents, nil
}

// Event renders a status or artifact event.
func (Codec) Event(t *task.Task, e *task.Event) ([]byte, error) {
	switch e.Kind {
	case task.EventStatus:
		return appendStatusEvent(make([]byte, 0, 320), t, e, e.State.Settled()), nil
	case task.EventArtifact:
		return appendArtifactEvent(make([]byte, 0, 320+wire.Size(e.Artifact.Parts)), t, e), nil
	case task.EventMessage, task.EventRun:
	}
	return nil, nil
}

// Passed renders a status event without the mark of the last one.
func (Codec) Passed(t *task.Task, e *task.Event) ([]byte, error) {
	return appendStatusEvent(nil, t, e, false), nil
}

// Direct renders a bare message. An event without one is the plain end of its task.
func (c Codec) Direct(t *task.Task, e *task.Event) ([]byte, error) {
	if e.Message == nil {
		return c.Event(t, e)
	}
	return appendBare(nil, t, e.Message), nil
}

// appendBare appends a message that stands for itself. The client shall not take it
// for a part of a task, so it names none; its context is where the talk goes on.
func appendBare(dst []byte, t *task.Task, m *task.Message) []byte {
	bare := *m
	bare.TaskID, bare.ContextID = "", t.ContextID
	return appendMessage(dst, &bare)
}

func appendTask(dst []byte, t *task.Task, v dialect.View) []byte {
	dst = append(dst, `{"kind":"task","id":`...)
	dst = wire.AppendString(dst, t.PublicID)
	dst = wire.AppendString(wire.AppendMember(dst, "contextId"), t.ContextID)
	dst = wire.AppendMember(dst, "status")
	dst = appendStatus(dst, t.Status.State, t.Status.Message, t.Status.At)
	if len(t.Artifacts) > 0 {
		dst = wire.AppendMember(dst, "artifacts")
		dst = wire.AppendArray(dst, t.Artifacts, appendArtifact)
	}
	history := t.History
	if v.History != engine.AllHistory {
		history = t.Tail(v.History)
	}
	if len(history) > 0 || v.ShowEmpty {
		dst = wire.AppendMember(dst, "history")
		dst = wire.AppendArray(dst, history, appendMessage)
	}
	dst = wire.AppendRawMember(dst, "metadata", t.Metadata)
	return append(dst, '}')
}

func appendStatusEvent(dst []byte, t *task.Task, e *task.Event, final bool) []byte {
	dst = append(dst, `{"kind":"status-update"`...)
	dst = appendIdentity(dst, t)
	dst = wire.AppendMember(dst, "status")
	dst = appendStatus(dst, e.State, e.Message, e.At)
	dst = strconv.AppendBool(append(dst, `,"final":`...), final)
	dst = wire.AppendRawMember(dst, "metadata", e.Metadata)
	return append(dst, '}')
}

func appendArtifactEvent(dst []byte, t *task.Task, e *task.Event) []byte {
	dst = append(dst, `{"kind":"artifact-update"`...)
	dst = appendIdentity(dst, t)
	dst = wire.AppendMember(dst, "artifact")
	dst = appendArtifact(dst, e.Artifact)
	if e.Append {
		dst = append(dst, `,"append":true`...)
	}
	if e.Last {
		dst = append(dst, `,"lastChunk":true`...)
	}
	dst = wire.AppendRawMember(dst, "metadata", e.Metadata)
	return append(dst, '}')
}

// appendIdentity names the task that an event is about.
func appendIdentity(dst []byte, t *task.Task) []byte {
	dst = wire.AppendString(wire.AppendMember(dst, "taskId"), t.PublicID)
	return wire.AppendString(wire.AppendMember(dst, "contextId"), t.ContextID)
}

func appendStatus(dst []byte, s task.State, m *task.Message, at time.Time) []byte {
	dst = append(dst, `{"state":"`...)
	dst = append(dst, stateName(s)...)
	dst = append(dst, '"')
	if !at.IsZero() {
		dst = wire.AppendTime(wire.AppendMember(dst, "timestamp"), at)
	}
	if m != nil {
		dst = wire.AppendMember(dst, "message")
		dst = appendMessage(dst, m)
	}
	return append(dst, '}')
}

func stateName(s task.State) string {
	if s == task.StateUnspecified {
		return "unknown"
	}
	return s.String()
}

func appendMessage(dst []byte, m *task.Message) []byte {
	dst = append(dst, `{"kind":"message","messageId":`...)
	dst = wire.AppendString(dst, m.ID)
	dst = append(dst, `,"role":"`...)
	dst = append(dst, v0.RoleName(m.Role)...)
	dst = append(dst, '"')
	dst = wire.AppendStringMember(dst, "taskId", m.TaskID)
	dst = wire.AppendStringMember(dst, "contextId", m.ContextID)
	dst = wire.AppendMember(dst, "parts")
	dst = wire.AppendArray(dst, m.Parts, style.AppendPart)
	dst = wire.AppendRawMember(dst, "metadata", m.Metadata)
	dst = wire.AppendStringsMember(dst, "extensions", m.Extensions)
	dst = wire.AppendStringsMember(dst, "referenceTaskIds", m.References)
	return append(dst, '}')
}

func appendArtifact(dst []byte, a *task.Artifact) []byte {
	dst = append(dst, `{"artifactId":`...)
	dst = wire.AppendString(dst, a.ID)
	dst = wire.AppendStringMember(dst, "name", a.Name)
	dst = wire.AppendStringMember(dst, "description", a.Description)
	dst = wire.AppendMember(dst, "parts")
	dst = wire.AppendArray(dst, a.Parts, style.AppendPart)
	dst = wire.AppendRawMember(dst, "metadata", a.Metadata)
	dst = wire.AppendStringsMember(dst, "extensions", a.Extensions)
	return append(dst, '}')
}
