package wire

import (
	"errors"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

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
		a := NewArtifact(&e.Chunk.Artifact)
		return &eventDocument{Type: "artifact", Append: given(e.Chunk.Append), Last: e.Chunk.Last, Metadata: opaque(e.Chunk.Metadata), Artifact: &a}, nil
	case Text:
		a := &e.Chunk.Artifact
		return &eventDocument{Type: "text", Text: &a.Parts[0].Text, Name: a.Name, ArtifactID: a.ID, Last: e.Chunk.Last}, nil
	case Reply:
		return &eventDocument{Type: "reply", Message: sent(e.Message)}, nil
	case Checkpoint:
		return &eventDocument{Type: "checkpoint", Data: opaque(e.Checkpoint)}, nil
	case Record:
		out := &eventDocument{}
		if err := jsonv2.Unmarshal(e.Checkpoint, out); err != nil {
			return nil, err
		}
		out.Type = "record"
		return out, nil
	case Retry:
		return &eventDocument{Type: "retry", Reason: e.Reason, After: e.After.Seconds()}, nil
	case Wait:
		out := &eventDocument{Type: "wait", For: given(e.Wait.For.Seconds()), Interruptible: e.Wait.Interruptible}
		if !e.Wait.Until.IsZero() {
			out.Until = new(e.Wait.Until.Format(time.RFC3339Nano))
		}
		return out, nil
	case Call:
		out := &eventDocument{Type: "call"}
		for i := range e.Calls {
			c := &e.Calls[i]
			out.Calls = append(out.Calls, call{
				ID: c.ID, Agent: c.Agent, Task: c.TaskID, ContextID: c.ContextID, Message: sent(c.Message), Metadata: opaque(c.Metadata), Relay: c.Relay,
			})
		}
		return out, nil
	}
	return nil, errors.New("not an event of an agent in Go")
}

// status writes a status. One with a resume URL has a type of its own.
func (e *Event) status() (*eventDocument, error) {
	out := &eventDocument{Type: "status", Message: sent(e.Message), Metadata: opaque(e.Metadata)}
	switch {
	case e.Resume != nil && e.State == task.StateInputRequired && e.Message == nil:
		return nil, malformed("message", "is missing; a question with a resume URL needs one")
	case e.Resume != nil:
		out.Type = "auth"
		if e.State == task.StateInputRequired {
			out.Type = "ask"
		}
		out.Resume = &resume{For: given(e.Resume.For.Seconds()), Show: e.Resume.Show}
	case e.Error != nil && e.Message != nil:
		out.Type, out.Error = "fail", e.Error
	default:
		out.State = new(e.State.String())
	}
	return out, nil
}

// sent writes a message of the agent.
func sent(m *task.Message) *speech {
	if m == nil {
		return nil
	}
	out := &speech{fromMessage(m)}
	out.Role = nil // it is the agent's
	return out
}

// given returns a value, or nil for the zero one.
func given[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
