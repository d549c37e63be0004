package proto

import (
	"strconv"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/wire"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// stateNames are those of the enumeration TaskState; Style has one that differs.
var stateNames = [...]string{
	task.StateUnspecified:   "TASK_STATE_UNSPECIFIED",
	task.StateSubmitted:     "TASK_STATE_SUBMITTED",
	task.StateWorking:       "TASK_STATE_WORKING",
	task.StateInputRequired: "TASK_STATE_INPUT_REQUIRED",
	task.StateAuthRequired:  "TASK_STATE_AUTH_REQUIRED",
	task.StateCompleted:     "TASK_STATE_COMPLETED",
	task.StateFailed:        "TASK_STATE_FAILED",
	task.StateCanceled:      "TASK_STATE_CANCELED",
	task.StateRejected:      "TASK_STATE_REJECTED",
}

// stateNumbers are those of the enumeration TaskState, in its order.
var stateNumbers = [...]task.State{
	task.StateUnspecified, task.StateSubmitted, task.StateWorking, task.StateCompleted, task.StateFailed,
	task.StateCanceled, task.StateInputRequired, task.StateRejected, task.StateAuthRequired,
}

// roleNames are those of the enumeration Role, whose numbers are ours.
var roleNames = [...]string{
	task.RoleUnspecified: "ROLE_UNSPECIFIED",
	task.RoleUser:        "ROLE_USER",
	task.RoleAgent:       "ROLE_AGENT",
}

// Style is how a version words what both have.
type Style struct {
	Canceled   string // the name of that state
	Parts      string // the member of a message that holds its parts
	Part       func(dst []byte, p *task.Part) []byte
	ReadPart   func(r *wire.Reader) task.Part
	ShortRoles bool // roles are read as JSON-RPC names them, too
	References bool // messages name the tasks that they refer to
	Final      bool // status events say whether they end a stream
}

// Result renders a Task, or in answer to a send a SendMessageResponse: the task or the
// agent's bare message.
func (s *Style) Result(op engine.Op, t *task.Task, v dialect.View) []byte {
	dst := make([]byte, 0, 512)
	switch {
	case op != engine.OpSend:
		return s.appendTask(dst, t, v)
	case t.Direct && t.Status.Message != nil:
		return s.appendBare(dst, t, t.Status.Message)
	}
	return append(s.appendTask(append(dst, `{"task":`...), t, v), '}')
}

// Page renders a ListTasksResponse, all of whose members are always there.
func (s *Style) Page(p *engine.Page, v dialect.View) []byte {
	dst := append(make([]byte, 0, 512*(len(p.Tasks)+1)), `{"tasks":`...)
	dst = wire.AppendArray(dst, p.Tasks, func(dst []byte, t **task.Task) []byte {
		return s.appendTask(dst, *t, v)
	})
	dst = wire.AppendString(wire.AppendMember(dst, "nextPageToken"), p.NextToken)
	dst = strconv.AppendInt(wire.AppendMember(dst, "pageSize"), int64(p.Size), 10)
	dst = strconv.AppendInt(wire.AppendMember(dst, "totalSize"), int64(p.Total), 10)
	return append(dst, '}')
}

// Opening renders a StreamResponse with the task and all its history. A send that was
// answered by a bare message already has that for its whole stream.
func (s *Style) Opening(op engine.Op, t *task.Task) []byte {
	if op == engine.OpStream && t.Direct && t.Status.Message != nil {
		return s.appendBare(nil, t, t.Status.Message)
	}
	return append(s.appendTask([]byte(`{"task":`), t, dialect.View{History: engine.AllHistory}), '}')
}

// Event renders a StreamResponse with a status or artifact event, and nil for others.
func (s *Style) Event(t *task.Task, e *task.Event, final bool) []byte {
	switch e.Kind {
	case task.EventStatus:
		return s.appendStatusEvent(make([]byte, 0, 320), t, e, final)
	case task.EventArtifact:
		return s.appendArtifactEvent(make([]byte, 0, 320+wire.Size(e.Artifact.Parts)), t, e)
	case task.EventMessage, task.EventRun:
	}
	return nil
}

// Direct renders a StreamResponse with a bare message. An event without one is the
// plain end of its task.
func (s *Style) Direct(t *task.Task, e *task.Event) []byte {
	if e.Message == nil {
		return s.Event(t, e, true)
	}
	return s.appendBare(nil, t, e.Message)
}

// appendBare appends a response with a message that stands for itself. The client
// shall not take it for a part of a task, so it names none; its context is where the
// talk goes on.
func (s *Style) appendBare(dst []byte, t *task.Task, m *task.Message) []byte {
	bare := *m
	bare.TaskID, bare.ContextID = "", t.ContextID
	return append(s.appendMessage(append(dst, `{"message":`...), &bare), '}')
}

func (s *Style) appendTask(dst []byte, t *task.Task, v dialect.View) []byte {
	dst = append(dst, `{"id":`...)
	dst = wire.AppendString(dst, t.PublicID)
	dst = wire.AppendString(wire.AppendMember(dst, "contextId"), t.ContextID)
	dst = wire.AppendMember(dst, "status")
	dst = s.appendStatus(dst, t.Status.State, t.Status.Message, t.Status.At)
	if len(t.Artifacts) > 0 {
		dst = wire.AppendMember(dst, "artifacts")
		dst = wire.AppendArray(dst, t.Artifacts, s.appendArtifact)
	}
	history := t.History
	if v.History != engine.AllHistory {
		history = t.Tail(v.History)
	}
	if len(history) > 0 {
		dst = wire.AppendMember(dst, "history")
		dst = wire.AppendArray(dst, history, s.appendMessage)
	}
	dst = wire.AppendRawMember(dst, "metadata", t.Metadata)
	return append(dst, '}')
}

func (s *Style) appendStatusEvent(dst []byte, t *task.Task, e *task.Event, final bool) []byte {
	dst = appendIdentity(append(dst, `{"statusUpdate":{"taskId":`...), t)
	dst = wire.AppendMember(dst, "status")
	dst = s.appendStatus(dst, e.State, e.Message, e.At)
	if s.Final {
		dst = strconv.AppendBool(wire.AppendMember(dst, "final"), final)
	}
	dst = wire.AppendRawMember(dst, "metadata", e.Metadata)
	return append(dst, '}', '}')
}

func (s *Style) appendArtifactEvent(dst []byte, t *task.Task, e *task.Event) []byte {
	dst = appendIdentity(append(dst, `{"artifactUpdate":{"taskId":`...), t)
	dst = wire.AppendMember(dst, "artifact")
	dst = s.appendArtifact(dst, e.Artifact)
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

func (s *Style) appendStatus(dst []byte, state task.State, m *task.Message, at time.Time) []byte {
	dst = append(dst, `{"state":"`...)
	if state == task.StateCanceled {
		dst = append(dst, s.Canceled...)
	} else {
		dst = append(dst, stateNames[state]...)
	}
	dst = append(dst, '"')
	if !at.IsZero() {
		dst = wire.AppendTime(wire.AppendMember(dst, "timestamp"), at)
	}
	if m != nil {
		dst = wire.AppendMember(dst, "message")
		dst = s.appendMessage(dst, m)
	}
	return append(dst, '}')
}

func (s *Style) appendMessage(dst []byte, m *task.Message) []byte {
	dst = append(dst, `{"messageId":`...)
	dst = wire.AppendString(dst, m.ID)
	dst = append(dst, `,"role":"`...)
	dst = append(dst, roleNames[m.Role]...)
	dst = append(dst, '"')
	dst = wire.AppendStringMember(dst, "taskId", m.TaskID)
	dst = wire.AppendStringMember(dst, "contextId", m.ContextID)
	dst = wire.AppendMember(dst, s.Parts)
	dst = wire.AppendArray(dst, m.Parts, s.Part)
	dst = wire.AppendRawMember(dst, "metadata", m.Metadata)
	dst = wire.AppendStringsMember(dst, "extensions", m.Extensions)
	if s.References {
		dst = wire.AppendStringsMember(dst, "referenceTaskIds", m.References)
	}
	return append(dst, '}')
}

func (s *Style) appendArtifact(dst []byte, a *task.Artifact) []byte {
	dst = append(dst, `{"artifactId":`...)
	dst = wire.AppendString(dst, a.ID)
	dst = wire.AppendStringMember(dst, "name", a.Name)
	dst = wire.AppendStringMember(dst, "description", a.Description)
	dst = wire.AppendMember(dst, "parts")
	dst = wire.AppendArray(dst, a.Parts, s.Part)
	dst = wire.AppendRawMember(dst, "metadata", a.Metadata)
	dst = wire.AppendStringsMember(dst, "extensions", a.Extensions)
	return append(dst, '}')
}
