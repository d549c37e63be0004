package v10

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/wire"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Result renders a Task, or in answer to a send a SendMessageResponse: the task or the
// agent's bare message.
func (Codec) Result(op engine.Op, t *task.Task, v dialect.View) ([]byte, error) {
	dst := make([]byte, 0, 512)
	switch {
	case op != engine.OpSend:
		return appendTask(dst, t, v), nil
	case t.Direct && t.Status.Message != nil:
		return appendBare(dst, t, t.Status.Message), nil
	}
	return append(appendTask(append(dst, `{"task":`...), t, v), '}'), nil
}

// Page renders a ListTasksResponse, all of whose members are always there.
func (Codec) Page(p *engine.Page, v dialect.View) ([]byte, error) {
	dst := append(make([]byte, 0, 512*(len(p.Tasks)+1)), `{"tasks":`...)
	dst = wire.AppendArray(dst, p.Tasks, func(dst []byte, t **task.Task) []byte {
		return appendTask(dst, *t, v)
	})
	dst = wire.AppendString(wire.AppendMember(dst, "nextPageToken"), p.NextToken)
	dst = strconv.AppendInt(wire.AppendMember(dst, "pageSize"), int64(p.Size), 10)
	dst = strconv.AppendInt(wire.AppendMember(dst, "totalSize"), int64(p.Total), 10)
	return append(dst, '}'), nil
}

// Opening renders a StreamResponse with the task and all its history. A send that was
// answered by a bare message already has that for its whole stream.
func (Codec) Opening(op engine.Op, t *task.Task) ([][]byte, error) {
	if op == engine.OpStream && t.Direct && t.Status.Message != nil {
		return [][]byte{appendBare(nil, t, t.Status.Message)}, nil
	}
	dst := appendTask([]byte(`{"task":`), t, dialect.View{History: engine.AllHistory})
	return [][]byte{append(dst, '}')}, nil
}

// Event renders a StreamResponse with a status or artifact event.
func (Codec) Event(t *task.Task, e *task.Event) ([]byte, error) {
	switch e.Kind {
	case task.EventStatus:
		return appendStatusEvent(make([]byte, 0, 320), t, e), nil
	case task.EventArtifact:
		return appendArtifactEvent(make([]byte, 0, 320+wire.Size(e.Artifact.Parts)), t, e), nil
	case task.EventMessage, task.EventRun:
	}
	return nil, nil
}

// Passed renders a status event like any other: no member marks the last one.
func (c Codec) Passed(t *task.Task, e *task.Event) ([]byte, error) { return c.Event(t, e) }

// Direct renders a StreamResponse with a bare message. An event without one is the
// plain end of its task.
func (c Codec) Direct(t *task.Task, e *task.Event) ([]byte, error) {
	if e.Message == nil {
		return c.Event(t, e)
	}
	return appendBare(nil, t, e.Message), nil
}

// appendBare appends a response with a message that stands for itself. The client
// shall not take it for a part of a task, so it names none; its context is where the
// talk goes on.
func appendBare(dst []byte, t *task.Task, m *task.Message) []byte {
	bare := *m
	bare.TaskID, bare.ContextID = "", t.ContextID
	return append(appendMessage(append(dst, `{"message":`...), &bare), '}')
}

func appendTask(dst []byte, t *task.Task, v dialect.View) []byte {
	dst = append(dst, `{"id":`...)
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
	if len(history) > 0 {
		dst = wire.AppendMember(dst, "history")
		dst = wire.AppendArray(dst, history, appendMessage)
	}
	dst = wire.AppendRawMember(dst, "metadata", t.Metadata)
	return append(dst, '}')
}

func appendStatusEvent(dst []byte, t *task.Task, e *task.Event) []byte {
	dst = appendIdentity(append(dst, `{"statusUpdate":{"taskId":`...), t)
	dst = wire.AppendMember(dst, "status")
	dst = appendStatus(dst, e.State, e.Message, e.At)
	dst = wire.AppendRawMember(dst, "metadata", e.Metadata)
	return append(dst, '}', '}')
}

func appendArtifactEvent(dst []byte, t *task.Task, e *task.Event) []byte {
	dst = appendIdentity(append(dst, `{"artifactUpdate":{"taskId":`...), t)
	dst = wire.AppendMember(dst, "artifact")
	dst = appendArtifact(dst, e.Artifact)
	if e.Append {
		dst = append(dst, `,"append":true`...)
	}
	if e.Last {
		dst = append(dst, `,"lastChunk":true`...)
	}
	dst = wire.AppendRawMember(dst, "metadata", e.Metadata)
	return append(dst, '}', '}')
}

// appendIdentity names the task that an event is about.
func appendIdentity(dst []byte, t *task.Task) []byte {
	dst = wire.AppendString(dst, t.PublicID)
	return wire.AppendString(wire.AppendMember(dst, "contextId"), t.ContextID)
}

func appendStatus(dst []byte, s task.State, m *task.Message, at time.Time) []byte {
	dst = append(dst, `{"state":"`...)
	dst = append(dst, stateNames[s]...)
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

func appendMessage(dst []byte, m *task.Message) []byte {
	dst = append(dst, `{"messageId":`...)
	dst = wire.AppendString(dst, m.ID)
	dst = append(dst, `,"role":"`...)
	dst = append(dst, roleNames[m.Role]...)
	dst = append(dst, '"')
	dst = wire.AppendStringMember(dst, "taskId", m.TaskID)
	dst = wire.AppendStringMember(dst, "contextId", m.ContextID)
	dst = wire.AppendMember(dst, "parts")
	dst = wire.AppendArray(dst, m.Parts, appendPart)
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
	dst = wire.AppendArray(dst, a.Parts, appendPart)
	dst = wire.AppendRawMember(dst, "metadata", a.Metadata)
	dst = wire.AppendStringsMember(dst, "extensions", a.Extensions)
	return append(dst, '}')
}

func appendPart(dst []byte, p *task.Part) []byte {
	switch p.Kind {
	case task.PartText:
		dst = wire.AppendString(append(dst, `{"text":`...), p.Text)
	case task.PartRaw:
		dst = wire.AppendBytes(append(dst, `{"raw":`...), p.Raw)
	case task.PartURL:
		dst = wire.AppendString(append(dst, `{"url":`...), p.URL)
	case task.PartData:
		data := p.Data
		if len(data) == 0 {
			data = json.RawMessage("null")
		}
		dst = wire.AppendRaw(append(dst, `{"data":`...), data)
	}
	dst = wire.AppendStringMember(dst, "filename", p.Filename)
	dst = wire.AppendStringMember(dst, "mediaType", p.MediaType)
	dst = wire.AppendRawMember(dst, "metadata", p.Metadata)
	return append(dst, '}')
}
