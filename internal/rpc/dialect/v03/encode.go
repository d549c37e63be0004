package v03

import (
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v0"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// form renders the documents.
type form struct {
	parts v0.Style
	// both adds members that a client of 0.1 would miss.
	both bool
}

var (
	plain = &form{parts: v0.Style{Discriminator: "kind"}}
	union = &form{parts: v0.Style{Discriminator: "kind", Second: "type"}, both: true}
)

func (c Codec) form() *form {
	if c.Union {
		return union
	}
	return plain
}

// Result renders the task. For a send it may render the agent's bare message.
func (c Codec) Result(op engine.Op, t *task.Task, v dialect.View) ([]byte, error) {
	f := c.form()
	if op == engine.OpSend && t.Direct && t.Status.Message != nil {
		return f.appendBare(nil, t, t.Status.Message), nil
	}
	return f.appendTask(nil, t, v), nil
}

// Opening renders the task with all its history. If the task has settled, the final status event
// that a client waits for follows at once. If a bare message has answered a stream request, that
// message is the whole stream.
func (c Codec) Opening(op engine.Op, t *task.Task) ([][]byte, error) {
	f := c.form()
	if op == engine.OpStream && t.Direct && t.Status.Message != nil {
		return [][]byte{f.appendBare(nil, t, t.Status.Message)}, nil
	}
	documents := [][]byte{f.appendTask(nil, t, dialect.View{History: engine.AllHistory})}
	if t.Status.State.Settled() {
		e := &task.Event{State: t.Status.State, Message: t.Status.Message, At: t.Status.At}
		documents = append(documents, f.appendStatusEvent(nil, t, e, true))
	}
	return documents, nil
}

// Event renders a status or artifact event.
func (c Codec) Event(t *task.Task, e *task.Event, passed bool) ([]byte, error) {
	f := c.form()
	switch e.Kind {
	case task.EventStatus:
		return f.appendStatusEvent(make([]byte, 0, 320), t, e, e.State.Settled() && !passed), nil
	case task.EventArtifact:
		return f.appendArtifactEvent(make([]byte, 0, 320+rawjson.Size(e.Artifact.Parts)), t, e), nil
	case task.EventMessage, task.EventRun:
	}
	return nil, nil
}

// Direct renders a bare message. An event without a message becomes the status event that ends its
// task.
func (c Codec) Direct(t *task.Task, e *task.Event) ([]byte, error) {
	if e.Message == nil {
		return c.Event(t, e, false)
	}
	return plain.appendBare(nil, t, e.Message), nil
}

// appendBare appends a bare message. It names no task, so that the client does not take it for a
// part of one. It names its context, in which the conversation continues.
func (f *form) appendBare(dst []byte, t *task.Task, m *task.Message) []byte {
	bare := *m
	bare.TaskID, bare.ContextID = "", t.ContextID
	return f.appendMessage(dst, &bare)
}

func (f *form) appendTask(dst []byte, t *task.Task, v dialect.View) []byte {
	history := v.Messages(t)
	dst = append(slices.Grow(dst, rawjson.TaskSize(t, history)), `{"kind":"task","id":`...)
	dst = rawjson.AppendString(dst, t.PublicID)
	dst = rawjson.AppendString(rawjson.AppendMember(dst, "contextId"), t.ContextID)
	if f.both {
		dst = rawjson.AppendStringMember(dst, "sessionId", t.ContextID)
	}
	dst = rawjson.AppendMember(dst, "status")
	dst = f.appendStatus(dst, t.Status.State, t.Status.Message, t.Status.At)
	if len(t.Artifacts) > 0 {
		dst = rawjson.AppendMember(dst, "artifacts")
		dst = rawjson.AppendArray(dst, t.Artifacts, func(dst []byte, a *task.Artifact) []byte {
			return f.appendArtifact(dst, a, "")
		})
	}
	if len(history) > 0 || v.ShowEmpty {
		dst = rawjson.AppendMember(dst, "history")
		dst = rawjson.AppendArray(dst, history, f.appendMessage)
	}
	dst = rawjson.AppendRawMember(dst, "metadata", t.Metadata)
	return append(dst, '}')
}

func (f *form) appendStatusEvent(dst []byte, t *task.Task, e *task.Event, final bool) []byte {
	dst = append(dst, `{"kind":"status-update"`...)
	dst = f.appendIdentity(dst, t)
	dst = rawjson.AppendMember(dst, "status")
	dst = f.appendStatus(dst, e.State, e.Message, e.At)
	dst = strconv.AppendBool(append(dst, `,"final":`...), final)
	dst = rawjson.AppendRawMember(dst, "metadata", e.Metadata)
	return append(dst, '}')
}

func (f *form) appendArtifactEvent(dst []byte, t *task.Task, e *task.Event) []byte {
	dst = append(dst, `{"kind":"artifact-update"`...)
	dst = f.appendIdentity(dst, t)
	dst = rawjson.AppendMember(dst, "artifact")
	chunk := chunkMembers(e)
	dst = f.appendArtifact(dst, e.Artifact, chunk)
	dst = append(dst, chunk...)
	dst = rawjson.AppendRawMember(dst, "metadata", e.Metadata)
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

// appendIdentity appends the ids of an event's task and context.
func (f *form) appendIdentity(dst []byte, t *task.Task) []byte {
	if f.both {
		dst = rawjson.AppendString(rawjson.AppendMember(dst, "id"), t.PublicID)
	}
	dst = rawjson.AppendString(rawjson.AppendMember(dst, "taskId"), t.PublicID)
	return rawjson.AppendString(rawjson.AppendMember(dst, "contextId"), t.ContextID)
}

func (f *form) appendStatus(dst []byte, s task.State, m *task.Message, at time.Time) []byte {
	dst = append(dst, `{"state":"`...)
	dst = append(dst, stateName(s)...)
	dst = append(dst, '"')
	if !at.IsZero() {
		dst = rawjson.AppendTime(rawjson.AppendMember(dst, "timestamp"), at)
	}
	if m != nil {
		dst = rawjson.AppendMember(dst, "message")
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
	dst = rawjson.AppendString(dst, m.ID)
	dst = append(dst, `,"role":"`...)
	dst = append(dst, v0.RoleName(m.Role)...)
	dst = append(dst, '"')
	dst = rawjson.AppendStringMember(dst, "taskId", m.TaskID)
	dst = rawjson.AppendStringMember(dst, "contextId", m.ContextID)
	dst = rawjson.AppendMember(dst, "parts")
	dst = rawjson.AppendArray(dst, m.Parts, f.parts.AppendPart)
	dst = rawjson.AppendRawMember(dst, "metadata", m.Metadata)
	dst = rawjson.AppendStringsMember(dst, "extensions", m.Extensions)
	dst = rawjson.AppendStringsMember(dst, "referenceTaskIds", m.References)
	return append(dst, '}')
}

// appendArtifact appends an artifact. The marks of a chunk are next to the artifact, and in 0.1
// members of it.
func (f *form) appendArtifact(dst []byte, a *task.Artifact, chunk string) []byte {
	dst = append(dst, `{"artifactId":`...)
	dst = rawjson.AppendString(dst, a.ID)
	if f.both {
		dst = strconv.AppendInt(rawjson.AppendMember(dst, "index"), int64(a.Index), 10)
		dst = append(dst, chunk...)
	}
	dst = rawjson.AppendStringMember(dst, "name", a.Name)
	dst = rawjson.AppendStringMember(dst, "description", a.Description)
	dst = rawjson.AppendMember(dst, "parts")
	dst = rawjson.AppendArray(dst, a.Parts, f.parts.AppendPart)
	dst = rawjson.AppendRawMember(dst, "metadata", a.Metadata)
	dst = rawjson.AppendStringsMember(dst, "extensions", a.Extensions)
	return append(dst, '}')
}

// AppendMessage appends a message as a client sends it.
func AppendMessage(dst []byte, m *task.Message) []byte { return plain.appendMessage(dst, m) }
