package v01

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v0"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

var style = v0.Style{Discriminator: "type", Arrays: true}

// stateMark is the metadata member with the real name of a state that this version must show as
// another state.
const stateMark = "a2a_state"

// Result renders the task. An agent's bare message becomes a completed task. The message is in its
// status, and an artifact has the same parts, so that clients find the message wherever they look.
func (Codec) Result(_ engine.Op, t *task.Task, v dialect.View) ([]byte, error) {
	history := v.Messages(t)
	dst := append(make([]byte, 0, rawjson.TaskSize(t, history)), `{"id":`...)
	dst = rawjson.AppendString(dst, t.PublicID)
	dst = rawjson.AppendStringMember(dst, "sessionId", t.ContextID)
	dst = rawjson.AppendMember(dst, "status")
	dst = appendStatus(dst, t.Status.State, t.Status.Message, t.Status.At)
	dst = appendArtifacts(dst, t)
	if len(history) > 0 {
		dst = rawjson.AppendMember(dst, "history")
		dst = rawjson.AppendArray(dst, history, appendMessage)
	}
	dst = rawjson.AppendRawMember(dst, "metadata", marked(t.Metadata, t.Status.State, t.Status.Message))
	return append(dst, '}'), nil
}

func appendArtifacts(dst []byte, t *task.Task) []byte {
	artifacts := t.Artifacts
	if t.Direct && len(artifacts) == 0 && t.Status.Message != nil {
		artifacts = []task.Artifact{{Parts: t.Status.Message.Parts}}
	}
	if len(artifacts) == 0 {
		return dst
	}
	dst = rawjson.AppendMember(dst, "artifacts")
	return rawjson.AppendArray(dst, artifacts, func(dst []byte, a *task.Artifact) []byte {
		return appendArtifact(dst, a, false, false)
	})
}

// Opening renders the current status, which is final when the task has settled. A resubscription to
// a task that continues then gets the current state of each artifact.
func (Codec) Opening(op engine.Op, t *task.Task) ([][]byte, error) {
	e := &task.Event{State: t.Status.State, Message: t.Status.Message, At: t.Status.At}
	status := appendStatusEvent(nil, t, e, e.State.Settled())
	documents := [][]byte{status}
	if op != engine.OpSubscribe || t.Status.State.Settled() {
		return documents, nil
	}
	for i := range t.Artifacts {
		documents = append(documents, appendArtifactEvent(nil, t, &task.Event{Artifact: &t.Artifacts[i]}))
	}
	return documents, nil
}

// Event renders a status or artifact event.
func (Codec) Event(t *task.Task, e *task.Event, passed bool) ([]byte, error) {
	switch e.Kind {
	case task.EventStatus:
		return appendStatusEvent(make([]byte, 0, 256), t, e, e.State.Settled() && !passed), nil
	case task.EventArtifact:
		return appendArtifactEvent(make([]byte, 0, 192+rawjson.Size(e.Artifact.Parts)), t, e), nil
	case task.EventMessage, task.EventRun:
	}
	return nil, nil
}

// Direct renders a bare message as the only status event of a completed task.
func (c Codec) Direct(t *task.Task, e *task.Event) ([]byte, error) { return c.Event(t, e, false) }

func appendStatusEvent(dst []byte, t *task.Task, e *task.Event, final bool) []byte {
	dst = append(dst, `{"id":`...)
	dst = rawjson.AppendString(dst, t.PublicID)
	dst = rawjson.AppendMember(dst, "status")
	dst = appendStatus(dst, e.State, e.Message, e.At)
	dst = strconv.AppendBool(append(dst, `,"final":`...), final)
	dst = rawjson.AppendRawMember(dst, "metadata", marked(e.Metadata, e.State, e.Message))
	return append(dst, '}')
}

func appendArtifactEvent(dst []byte, t *task.Task, e *task.Event) []byte {
	dst = append(dst, `{"id":`...)
	dst = rawjson.AppendString(dst, t.PublicID)
	dst = rawjson.AppendMember(dst, "artifact")
	dst = appendArtifact(dst, e.Artifact, e.Append, e.Last)
	dst = rawjson.AppendRawMember(dst, "metadata", e.Metadata)
	return append(dst, '}')
}

func appendStatus(dst []byte, s task.State, m *task.Message, at time.Time) []byte {
	dst = append(dst, `{"state":"`...)
	dst = append(dst, stateName(s)...)
	dst = append(dst, '"')
	if !at.IsZero() {
		dst = rawjson.AppendTime(rawjson.AppendMember(dst, "timestamp"), at)
	}
	if m != nil {
		dst = rawjson.AppendMember(dst, "message")
		dst = appendMarkedMessage(dst, m, mark(m.Metadata, s))
	}
	return append(dst, '}')
}

func appendMessage(dst []byte, m *task.Message) []byte {
	return appendMarkedMessage(dst, m, m.Metadata)
}

func appendMarkedMessage(dst []byte, m *task.Message, metadata json.RawMessage) []byte {
	dst = append(dst, `{"role":"`...)
	dst = append(dst, v0.RoleName(m.Role)...)
	dst = append(dst, `","parts":`...)
	dst = rawjson.AppendArray(dst, m.Parts, style.AppendPart)
	dst = rawjson.AppendRawMember(dst, "metadata", metadata)
	return append(dst, '}')
}

// appendArtifact appends an artifact. In this version the marks of a chunk are members of the
// artifact itself.
func appendArtifact(dst []byte, a *task.Artifact, more, last bool) []byte {
	dst = strconv.AppendInt(append(dst, `{"index":`...), int64(a.Index), 10)
	dst = rawjson.AppendStringMember(dst, "name", a.Name)
	dst = rawjson.AppendStringMember(dst, "description", a.Description)
	dst = rawjson.AppendMember(dst, "parts")
	dst = rawjson.AppendArray(dst, a.Parts, style.AppendPart)
	if more {
		dst = append(dst, `,"append":true`...)
	}
	if last {
		dst = append(dst, `,"lastChunk":true`...)
	}
	dst = rawjson.AppendRawMember(dst, "metadata", a.Metadata)
	return append(dst, '}')
}

// stateName maps the states that this version lacks to others.
func stateName(s task.State) string {
	switch s {
	case task.StateRejected:
		return task.StateFailed.String()
	case task.StateAuthRequired:
		return task.StateInputRequired.String()
	case task.StateUnspecified:
		return "unknown"
	case task.StateSubmitted, task.StateWorking, task.StateInputRequired,
		task.StateCompleted, task.StateFailed, task.StateCanceled:
	}
	return s.String()
}

// marked returns the metadata next to a status. It contains the mark of a mapped state only if the
// status has no message to carry it.
func marked(metadata json.RawMessage, s task.State, m *task.Message) json.RawMessage {
	if m != nil {
		return metadata
	}
	return mark(metadata, s)
}

func mark(metadata json.RawMessage, s task.State) json.RawMessage {
	if s != task.StateRejected && s != task.StateAuthRequired {
		return metadata
	}
	if _, taken := rawjson.Lookup(metadata, stateMark); taken {
		return metadata
	}
	return rawjson.With(metadata, stateMark, json.RawMessage(`"`+s.String()+`"`))
}

// AppendMessage appends a message as a client sends it.
func AppendMessage(dst []byte, m *task.Message) []byte { return appendMessage(dst, m) }
