package operation

import (
	"encoding/json"
	"strconv"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/wire"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// The extensions that this server adds to A2A. docs/extensions describes them for others
// who serve or call.
const (
	ResumeURI      = "https://github.com/holdfast-a2a/holdfast/blob/main/docs/extensions/resume.md"
	IdempotencyURI = "https://github.com/holdfast-a2a/holdfast/blob/main/docs/extensions/idempotency.md"
)

// Server-sent events have ids beside their documents. The messages of gRPC do not, and most
// libraries keep those ids to themselves: a client that names the extension finds them in
// the metadata of what is shown.

// mark puts the id of an event into metadata.
func mark(metadata json.RawMessage, id int64) json.RawMessage {
	return wire.With(wire.Without(metadata, ResumeURI), ResumeURI, []byte(`{"eventId":"`+strconv.FormatInt(id, 10)+`"}`))
}

// marked is an event with its id in it, where that is asked for.
func (s *Stream) marked(e *task.Event) *task.Event {
	if !s.marks {
		return e
	}
	c := *e
	id := s.st.ID(e.Seq)
	c.Metadata = mark(e.Metadata, id)
	if e.Direct { // whose message may stand alone
		c.Message = markedMessage(e.Message, id)
	}
	return &c
}

// markedTask is a task, as a stream begins, with the id of its newest event.
func (s *Stream) markedTask(t *task.Task) *task.Task {
	if !s.marks {
		return t
	}
	c := *t
	id := s.st.ID(t.LastSeq)
	c.Metadata = mark(t.Metadata, id)
	if t.Direct && s.op == engine.OpStream {
		c.Status.Message = markedMessage(t.Status.Message, id)
	}
	return &c
}

func markedMessage(m *task.Message, id int64) *task.Message {
	if m == nil {
		return nil
	}
	c := *m
	c.Metadata = mark(m.Metadata, id)
	return &c
}
