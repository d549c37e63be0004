package wire

import (
	"encoding/json"
	"errors"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// eventDocument is an event as an agent in Go posts it. Members that are empty are left out.
type eventDocument struct {
	Type string `json:"type"`

	State         string         `json:"state,omitempty"`
	Message       *message       `json:"message,omitempty"`
	Metadata      jsontext.Value `json:"metadata,omitzero"`
	Resume        *resumeMember  `json:"resume,omitempty"`
	Artifact      *artifactEvent `json:"artifact,omitempty"`
	Text          *string        `json:"text,omitempty"`
	Name          string         `json:"name,omitempty"`
	ArtifactID    string         `json:"artifactId,omitempty"`
	Append        bool           `json:"append,omitzero"`
	Last          bool           `json:"last,omitzero"`
	Data          jsontext.Value `json:"data,omitzero"`
	Until         string         `json:"until,omitempty"`
	For           float64        `json:"for,omitzero"`
	Interruptible bool           `json:"interruptible,omitzero"`
	Calls         []callEvent    `json:"calls,omitempty"`
	Error         *Error         `json:"error,omitempty"`
	Reason        string         `json:"reason,omitempty"`
	After         float64        `json:"after,omitzero"`
}

type resumeMember struct {
	For  float64 `json:"for,omitzero"`
	Show bool    `json:"show,omitzero"`
}

type artifactEvent struct {
	ArtifactID  string         `json:"artifactId,omitempty"`
	Name        string         `json:"name,omitempty"`
	Description string         `json:"description,omitempty"`
	Parts       []part         `json:"parts"`
	Metadata    jsontext.Value `json:"metadata,omitzero"`
	Extensions  []string       `json:"extensions,omitempty"`
}

type callEvent struct {
	ID        string         `json:"id,omitempty"`
	Agent     string         `json:"agent,omitempty"`
	Task      string         `json:"task,omitempty"`
	ContextID string         `json:"contextId,omitempty"`
	Message   message        `json:"message"`
	Metadata  jsontext.Value `json:"metadata,omitzero"`
	Relay     bool           `json:"relay,omitzero"`
}

// Encode writes an event, in one line without its end. Events of the action Store are not written: an agent in Go stores its
// state by the run API.
func Encode(e *Event) ([]byte, error) {
	out, err := e.document()
	if err != nil {
		return nil, err
	}
	raw, err := jsonv2.Marshal(out, jsontext.PreserveRawStrings(true), jsontext.AllowInvalidUTF8(true)) // as U+FFFD
	if err != nil {
		return nil, explain(err)
	}
	line := jsontext.Value(raw)
	if err := line.Compact(); err != nil { // opaque members may have line breaks
		return nil, explain(err)
	}
	return line, nil
}

func (e *Event) document() (*eventDocument, error) {
	switch e.Action { //nolint:exhaustive // of agents in Go, as Encode says
	case Status:
		return e.status()
	case Artifact:
		a := &e.Chunk.Artifact
		return &eventDocument{
			Type: "artifact", Append: e.Chunk.Append, Last: e.Chunk.Last, Metadata: opaque(e.Chunk.Metadata), Artifact: &artifactEvent{
				ArtifactID: a.ID, Name: a.Name, Description: a.Description, Metadata: opaque(a.Metadata), Extensions: a.Extensions,
				Parts: fromMessage(&task.Message{Parts: a.Parts}).Parts,
			},
		}, nil
	case Text:
		a := &e.Chunk.Artifact
		return &eventDocument{Type: "text", Text: &a.Parts[0].Text, Name: a.Name, ArtifactID: a.ID, Last: e.Chunk.Last}, nil
	case Reply:
		return &eventDocument{Type: "reply", Message: sent(e.Message)}, nil
	case Checkpoint:
		return &eventDocument{Type: "checkpoint", Data: opaque(e.Checkpoint)}, nil
	case Retry:
		return &eventDocument{Type: "retry", Reason: e.Reason, After: e.After.Seconds()}, nil
	case Wait:
		out := &eventDocument{Type: "wait", For: e.Wait.For.Seconds(), Interruptible: e.Wait.Interruptible}
		if !e.Wait.Until.IsZero() {
			out.Until = e.Wait.Until.Format(time.RFC3339Nano)
		}
		return out, nil
	case Call:
		out := &eventDocument{Type: "call"}
		for i := range e.Calls {
			c := &e.Calls[i]
			out.Calls = append(out.Calls, callEvent{
				ID: c.ID, Agent: c.Agent, Task: c.TaskID, ContextID: c.ContextID, Message: *sent(c.Message), Metadata: opaque(c.Metadata), Relay: c.Relay,
			})
		}
		return out, nil
	}
	return nil, errors.New("not an event of an agent in Go")
}

// status writes a status. One with a resume URL has a type of its own.
func (e *Event) status() (*eventDocument, error) {
	out := &eventDocument{Type: "status", State: e.State.String(), Message: sent(e.Message), Metadata: opaque(e.Metadata)}
	if e.Error != nil && e.Message != nil {
		out.Type, out.State, out.Error = "fail", "", e.Error
	}
	if e.Resume == nil {
		return out, nil
	}
	if e.State == task.StateInputRequired && e.Message == nil {
		return nil, malformed("message", "is missing; a question with a resume URL needs one")
	}
	out.Type, out.State = "auth", ""
	if e.State == task.StateInputRequired {
		out.Type = "ask"
	}
	out.Resume = &resumeMember{For: e.Resume.For.Seconds(), Show: e.Resume.Show}
	return out, nil
}

// sent writes a message of the agent.
func sent(m *task.Message) *message {
	if m == nil {
		return nil
	}
	out := fromMessage(m)
	out.Role = nil // it is the agent's
	return &out
}

// opaque leaves out what is empty.
func opaque(raw json.RawMessage) jsontext.Value {
	if len(raw) == 0 {
		return nil
	}
	return jsontext.Value(raw)
}
