package dispatch

import (
	"encoding/json"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// The extensions that this server adds to A2A. docs/extensions describes them for authors of other
// servers and clients.
const (
	ResumeURI      = "https://github.com/holdfast-a2a/holdfast/blob/main/docs/extensions/resume.md"
	IdempotencyURI = "https://github.com/holdfast-a2a/holdfast/blob/main/docs/extensions/idempotency.md"
)

// Server-sent events carry ids outside their documents. gRPC messages do not, and most libraries
// hide the ids of server-sent events from their users. A client that names the extension finds the
// ids in the metadata of the documents.

// mark puts the id of an event into metadata.
func mark(metadata json.RawMessage, id task.Position) json.RawMessage {
	return rawjson.With(rawjson.Without(metadata, ResumeURI), ResumeURI, append(id.Append([]byte(`{"eventId":"`)), `"}`...))
}

// marked returns an event that contains its id, if the client asked for ids.
func (s *Stream) marked(e *task.Event) *task.Event {
	if !s.marks {
		return e
	}
	c := *e
	id := s.st.ID(e.Position())
	c.Metadata = mark(e.Metadata, id)
	if e.Direct { // a bare message may be the whole document
		c.Message = markedMessage(e.Message, id)
	}
	return &c
}

// markedTask returns the first task of a stream with the id of its newest event.
func (s *Stream) markedTask(t *task.Task) *task.Task {
	if !s.marks {
		return t
	}
	c := *t
	id := s.st.ID(t.Position())
	c.Metadata = mark(t.Metadata, id)
	if t.Direct && s.op == engine.OpStream {
		c.Status.Message = markedMessage(t.Status.Message, id)
	}
	return &c
}

func markedMessage(m *task.Message, id task.Position) *task.Message {
	if m == nil {
		return nil
	}
	c := *m
	c.Metadata = mark(m.Metadata, id)
	return &c
}
