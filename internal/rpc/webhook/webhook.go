// Package webhook renders what webhooks receive, in the words of the version that set them.
package webhook

import (
	"encoding/json"
	"fmt"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/wire"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Encoder holds the choices that the documents leave open.
type Encoder struct {
	// MinimalV01 has webhooks of 0.1 receive the id and status of their task and not the task.
	MinimalV01 bool
	// PlainJSON names 1.0.0's content type to webhooks of 1.0, and not 1.0.1's.
	PlainJSON bool
}

const plain = "application/json"

// Whole reports whether the bodies of a version show the task as a whole, which they do
// before 1.0.
func (n Encoder) Whole(version string) bool {
	switch version {
	case "0.1":
		return !n.MinimalV01
	case "1.0":
		return false
	}
	return true
}

// Body renders an event of the task t. For a version that shows the whole task, t is the task
// as of the event; for the others only its identity is read. Without an event it is t as it
// stands that is shown. The body is nil where there is nothing to say: versions before 1.0
// have no words for an agent's bare message.
func (n Encoder) Body(c *task.PushConfig, t *task.Task, e *task.Event) (body []byte, contentType string, err error) {
	codec := registry.ByVersion(c.Dialect)
	if codec == nil {
		return nil, "", fmt.Errorf("this server does not serve A2A %s, in which the webhook was set", c.Dialect)
	}
	direct := e != nil && e.Direct && e.Message != nil || e == nil && t.Direct && t.Status.Message != nil
	if direct && c.Dialect != "1.0" {
		return nil, "", nil
	}
	switch c.Dialect {
	case "0.1":
		body, err = n.first(codec, t, e)
		return body, plain, err
	case "1.0":
		contentType = "application/a2a+json"
		if n.PlainJSON {
			contentType = plain
		}
		body, err = response(codec, t, e, direct)
		return body, contentType, err
	}
	body, err = codec.Result(engine.OpGet, t, dialect.View{History: engine.AllHistory})
	return body, plain, err
}

// response is a StreamResponse.
func response(codec dialect.Codec, t *task.Task, e *task.Event, direct bool) ([]byte, error) {
	switch {
	case e == nil:
		documents, err := codec.Opening(engine.OpStream, t)
		if err != nil {
			return nil, err
		}
		return documents[0], nil
	case direct:
		return codec.Direct(t, e)
	}
	return codec.Event(t, e)
}

// first is a body of 0.1, whose documents agree on taskId and on little else.
func (n Encoder) first(codec dialect.Codec, t *task.Task, e *task.Event) ([]byte, error) {
	id := json.RawMessage(wire.AppendString(nil, t.PublicID))
	if !n.MinimalV01 {
		body, err := codec.Result(engine.OpGet, t, dialect.View{})
		if err != nil {
			return nil, err
		}
		return wire.With(body, "taskId", id), nil
	}
	if e == nil || e.Kind != task.EventStatus {
		e = &task.Event{Kind: task.EventStatus, State: t.Status.State, Message: t.Status.Message, At: t.Status.At}
	}
	event, err := codec.Event(t, e)
	if err != nil {
		return nil, err
	}
	status, _ := wire.Lookup(event, "status")
	body := wire.With(nil, "taskId", id)
	body = wire.With(body, "eventType", json.RawMessage(`"taskUpdate"`))
	body = wire.With(body, "status", status)
	if e.State.Terminal() {
		body = wire.With(body, "finalStatus", status)
	}
	return body, nil
}
