package client

import (
	"encoding/json"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Event is what a server says: the answer to a request, or one event of a stream.
type Event struct {
	*client.Update
	ID  string          // in the stream; empty if the server sends none
	Raw json.RawMessage // as the server wrote it; over gRPC as ProtoJSON
}

// State returns the task's state in the event, or StateUnspecified.
func (e *Event) State() task.State {
	switch {
	case e.Task != nil:
		return e.Task.Status.State
	case e.Event != nil && e.Event.Kind == task.EventStatus:
		return e.Event.State
	}
	return task.StateUnspecified
}

// metadata returns that of the event.
func (e *Event) metadata() json.RawMessage {
	switch {
	case e.Task != nil:
		return e.Task.Metadata
	case e.Event != nil:
		return e.Event.Metadata
	case e.Message != nil:
		return e.Message.Metadata
	}
	return nil
}

// read reads a document of an answer to op.
func (c *Client) read(op client.Op, document []byte) (*Event, error) {
	u, err := c.target.Wire.Answer(op, document, MaxDepth)
	if err != nil {
		return nil, c.unreadable(err)
	}
	raw, err := c.target.Wire.Document(op, document, MaxDepth)
	if err != nil {
		return nil, c.unreadable(err)
	}
	e := &Event{Update: u, Raw: raw}
	if c.target.Wire.Binding == client.GRPC {
		var marked map[string]json.RawMessage
		var mark struct {
			EventID string `json:"eventId"`
		}
		// An event without a mark has no id. Nothing else in its metadata matters here.
		if json.Unmarshal(e.metadata(), &marked) == nil && json.Unmarshal(marked[resumeURI], &mark) == nil {
			e.ID = mark.EventID
		}
	}
	return e, nil
}
