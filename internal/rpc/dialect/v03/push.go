package v03

import (
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v0"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// setPush reads TaskPushNotificationConfig.
func setPush(r *rawjson.Reader) *engine.PushRequest {
	p := new(engine.PushRequest)
	var beside *engine.PushSetting
	for r.Object(); r.Next(); {
		switch string(r.Name()) {
		case "taskId":
			p.TaskID = r.String()
		case "pushNotificationConfig":
			p.Set = v0.PushConfig(r, (*rawjson.Reader).Name, true)
		case "config": // llms.txt of 0.2
			beside = v0.PushConfig(r, (*rawjson.Reader).Name, true)
		default:
			r.Skip()
		}
	}
	if p.Set == nil {
		p.Set = beside
	}
	r.Require(p.TaskID != "", "taskId")
	r.Require(p.Set != nil, "pushNotificationConfig")
	return p
}

// namePush reads params that name a task, and optionally one of its configurations.
func namePush(r *rawjson.Reader, op engine.Op) *engine.PushRequest {
	p := new(engine.PushRequest)
	p.TaskID = v0.Named(r, true, func(member string) bool {
		if member != "pushNotificationConfigId" {
			return false
		}
		p.ConfigID = r.String()
		return true
	})
	r.Require(p.ConfigID != "" || op != engine.OpPushDelete, "pushNotificationConfigId")
	return p
}

// Pushes renders a TaskPushNotificationConfig, an array of them for a list, and null for a
// deletion.
func (Codec) Pushes(op engine.Op, p *engine.Pushes) ([]byte, error) {
	one := func(dst []byte, c *task.PushConfig) []byte {
		dst = rawjson.AppendString(append(dst, `{"taskId":`...), p.TaskID)
		dst = v0.AppendPushConfig(rawjson.AppendMember(dst, "pushNotificationConfig"), c, true)
		return append(dst, '}')
	}
	switch op {
	case engine.OpPushDelete:
		return []byte("null"), nil
	case engine.OpPushList:
		return rawjson.AppendArray(nil, p.Configs, one), nil
	default:
		return one(nil, &p.Configs[0]), nil
	}
}

// Notification renders the task. The version has no form for an agent's bare message.
func (c Codec) Notification(t *task.Task, e *task.Event, _ dialect.Notify) (body []byte, mediaType string, err error) {
	if dialect.Direct(t, e) {
		return nil, "", nil
	}
	body, err = c.Result(engine.OpGet, t, dialect.View{History: engine.AllHistory})
	return body, dialect.TypeJSON, err
}
