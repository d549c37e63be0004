package v01

import (
	"encoding/json"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v0"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// A task of this version has at most one webhook, the default one. null means no webhook.

// setPush reads TaskPushNotificationConfig. Only an explicit null clears the webhook: a client that
// misspells the member wants to set one.
func setPush(r *rawjson.Reader) *engine.PushRequest {
	p := new(engine.PushRequest)
	cleared := false
	for r.Object(); r.NextOr("pushNotificationConfig"); {
		switch string(r.Name()) {
		case "id":
			p.TaskID = r.String()
		case "pushNotificationConfig":
			if cleared = r.Null(); !cleared {
				p.Set = v0.PushConfig(r, (*rawjson.Reader).Name, false)
			}
		default:
			r.Skip()
		}
	}
	r.Require(p.TaskID != "", "id")
	if p.Set == nil && !cleared {
		r.FailMember("pushNotificationConfig", "is required; null clears the configuration")
	}
	return p
}

// getPush reads TaskIdParams.
func getPush(r *rawjson.Reader) *engine.PushRequest {
	return &engine.PushRequest{MayLack: true, TaskID: v0.Named(r, false, nil)}
}

// Pushes renders a TaskPushNotificationConfig.
func (Codec) Pushes(_ engine.Op, p *engine.Pushes) ([]byte, error) {
	dst := rawjson.AppendString([]byte(`{"id":`), p.TaskID)
	dst = rawjson.AppendMember(dst, "pushNotificationConfig")
	if len(p.Configs) == 0 {
		return append(dst, `null}`...), nil
	}
	return append(v0.AppendPushConfig(dst, &p.Configs[0], false), '}'), nil
}

// Notification renders the task. The documents agree on taskId and on little else.
func (c Codec) Notification(t *task.Task, e *task.Event, _ dialect.Notify) (body []byte, mediaType string, err error) {
	if dialect.Direct(t, e) {
		return nil, "", nil
	}
	body, err = c.Result(engine.OpGet, t, dialect.View{})
	if err != nil {
		return nil, "", err
	}
	return rawjson.With(body, "taskId", json.RawMessage(rawjson.AppendString(nil, t.PublicID))), dialect.TypeJSON, nil
}
