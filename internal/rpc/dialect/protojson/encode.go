package protojson

import (
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// stateNames are the names in the enumeration TaskState. Style has the one that differs.
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

// stateNumbers are the values of the enumeration TaskState, in its order.
var stateNumbers = [...]task.State{
	task.StateUnspecified, task.StateSubmitted, task.StateWorking, task.StateCompleted, task.StateFailed,
	task.StateCanceled, task.StateInputRequired, task.StateRejected, task.StateAuthRequired,
}

// roleNames are the names in the enumeration Role. Its numbers equal those of task.Role.
var roleNames = [...]string{
	task.RoleUnspecified: "ROLE_UNSPECIFIED",
	task.RoleUser:        "ROLE_USER",
	task.RoleAgent:       "ROLE_AGENT",
}

// Style describes how a version writes the shared messages.
type Style struct {
	Canceled   string // the name of that state
	Parts      string // the member of a message that contains its parts
	Part       func(dst []byte, p *task.Part) []byte
	ReadPart   func(r *rawjson.Reader) task.Part
	ShortRoles bool // roles may also have their JSON-RPC names
	References bool // messages name the tasks that they refer to
	Final      bool // status events say whether they end a stream
}

// Result renders a Task. For a send it renders a SendMessageResponse: the task or the agent's bare
// message.
func (s *Style) Result(op engine.Op, t *task.Task, v dialect.View) []byte {
	switch {
	case op != engine.OpSend:
		return s.appendTask(nil, t, v)
	case t.Direct && t.Status.Message != nil:
		return s.appendBare(make([]byte, 0, 512), t, t.Status.Message)
	}
	return append(s.appendTask([]byte(`{"task":`), t, v), '}')
}

// Page renders a ListTasksResponse. All of its members are always present.
func (s *Style) Page(p *engine.Page, v dialect.View) []byte {
	size := 512
	for _, t := range p.Tasks {
		size += rawjson.TaskSize(t, v.Messages(t))
	}
	dst := append(make([]byte, 0, size), `{"tasks":`...)
	dst = rawjson.AppendArray(dst, p.Tasks, func(dst []byte, t **task.Task) []byte {
		return s.appendTask(dst, *t, v)
	})
	dst = rawjson.AppendString(rawjson.AppendMember(dst, "nextPageToken"), p.NextToken)
	dst = strconv.AppendInt(rawjson.AppendMember(dst, "pageSize"), int64(p.Size), 10)
	dst = strconv.AppendInt(rawjson.AppendMember(dst, "totalSize"), int64(p.Total), 10)
	return append(dst, '}')
}

// Opening renders a StreamResponse with the task and all its history. If a bare message has
// answered a stream request, that message is the whole stream.
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
		return s.appendArtifactEvent(make([]byte, 0, 320+rawjson.Size(e.Artifact.Parts)), t, e)
	case task.EventMessage, task.EventRun:
	}
	return nil
}

// Direct renders a StreamResponse with a bare message. An event without a message becomes the
// status event that ends its task.
func (s *Style) Direct(t *task.Task, e *task.Event) []byte {
	if e.Message == nil {
		return s.Event(t, e, true)
	}
	return s.appendBare(nil, t, e.Message)
}

// appendBare appends a response with a bare message. The message names no task, so that the client
// does not take it for a part of one. It names its context, in which the conversation continues.
func (s *Style) appendBare(dst []byte, t *task.Task, m *task.Message) []byte {
	bare := *m
	bare.TaskID, bare.ContextID = "", t.ContextID
	return append(s.AppendMessage(append(dst, `{"message":`...), &bare), '}')
}

func (s *Style) appendTask(dst []byte, t *task.Task, v dialect.View) []byte {
	history := v.Messages(t)
	dst = append(slices.Grow(dst, rawjson.TaskSize(t, history)), `{"id":`...)
	dst = rawjson.AppendString(dst, t.PublicID)
	dst = rawjson.AppendString(rawjson.AppendMember(dst, "contextId"), t.ContextID)
	dst = rawjson.AppendMember(dst, "status")
	dst = s.appendStatus(dst, t.Status.State, t.Status.Message, t.Status.At)
	if len(t.Artifacts) > 0 || v.ShowArtifacts {
		dst = rawjson.AppendMember(dst, "artifacts")
		dst = rawjson.AppendArray(dst, t.Artifacts, s.appendArtifact)
	}
	if len(history) > 0 {
		dst = rawjson.AppendMember(dst, "history")
		dst = rawjson.AppendArray(dst, history, s.AppendMessage)
	}
	dst = rawjson.AppendRawMember(dst, "metadata", t.Metadata)
	return append(dst, '}')
}

func (s *Style) appendStatusEvent(dst []byte, t *task.Task, e *task.Event, final bool) []byte {
	dst = appendIdentity(append(dst, `{"statusUpdate":{"taskId":`...), t)
	dst = rawjson.AppendMember(dst, "status")
	dst = s.appendStatus(dst, e.State, e.Message, e.At)
	if s.Final {
		dst = strconv.AppendBool(rawjson.AppendMember(dst, "final"), final)
	}
	dst = rawjson.AppendRawMember(dst, "metadata", e.Metadata)
	return append(dst, '}', '}')
}

func (s *Style) appendArtifactEvent(dst []byte, t *task.Task, e *task.Event) []byte {
	dst = appendIdentity(append(dst, `{"artifactUpdate":{"taskId":`...), t)
	dst = rawjson.AppendMember(dst, "artifact")
	dst = s.appendArtifact(dst, e.Artifact)
	if e.Append {
		dst = append(dst, `,"append":true`...)
	}
	if e.Last {
		dst = append(dst, `,"lastChunk":true`...)
	}
	dst = rawjson.AppendRawMember(dst, "metadata", e.Metadata)
	return append(dst, '}', '}')
}

// appendIdentity appends the ids of an event's task and context.
func appendIdentity(dst []byte, t *task.Task) []byte {
	dst = rawjson.AppendString(dst, t.PublicID)
	return rawjson.AppendString(rawjson.AppendMember(dst, "contextId"), t.ContextID)
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
		dst = rawjson.AppendTime(rawjson.AppendMember(dst, "timestamp"), at)
	}
	if m != nil {
		dst = rawjson.AppendMember(dst, "message")
		dst = s.AppendMessage(dst, m)
	}
	return append(dst, '}')
}

// AppendMessage appends a Message.
func (s *Style) AppendMessage(dst []byte, m *task.Message) []byte {
	dst = append(dst, `{"messageId":`...)
	dst = rawjson.AppendString(dst, m.ID)
	dst = append(dst, `,"role":"`...)
	dst = append(dst, roleNames[m.Role]...)
	dst = append(dst, '"')
	dst = rawjson.AppendStringMember(dst, "taskId", m.TaskID)
	dst = rawjson.AppendStringMember(dst, "contextId", m.ContextID)
	dst = rawjson.AppendMember(dst, s.Parts)
	dst = rawjson.AppendArray(dst, m.Parts, s.Part)
	dst = rawjson.AppendRawMember(dst, "metadata", m.Metadata)
	dst = rawjson.AppendStringsMember(dst, "extensions", m.Extensions)
	if s.References {
		dst = rawjson.AppendStringsMember(dst, "referenceTaskIds", m.References)
	}
	return append(dst, '}')
}

func (s *Style) appendArtifact(dst []byte, a *task.Artifact) []byte {
	dst = append(dst, `{"artifactId":`...)
	dst = rawjson.AppendString(dst, a.ID)
	dst = rawjson.AppendStringMember(dst, "name", a.Name)
	dst = rawjson.AppendStringMember(dst, "description", a.Description)
	dst = rawjson.AppendMember(dst, "parts")
	dst = rawjson.AppendArray(dst, a.Parts, s.Part)
	dst = rawjson.AppendRawMember(dst, "metadata", a.Metadata)
	dst = rawjson.AppendStringsMember(dst, "extensions", a.Extensions)
	return append(dst, '}')
}
