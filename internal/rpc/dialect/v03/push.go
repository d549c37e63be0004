package v03

import (
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v0"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/wire"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// setPush reads TaskPushNotificationConfig.
func setPush(r *wire.Reader) *engine.PushRequest {
	p := new(engine.PushRequest)
	for r.Object(); r.Next(); {
		switch string(r.Name()) {
		case "taskId":
			p.TaskID = r.String()
		case "pushNotificationConfig":
			p.Set = v0.PushConfig(r, (*wire.Reader).Name, true)
		default:
			r.Skip()
		}
	}
	r.Require(p.TaskID != "", "taskId")
	r.Require(p.Set != nil, "pushNotificationConfig")
	return p
}

// namePush reads the params that name a task, and perhaps one of its configurations.
func namePush(r *wire.Reader, op engine.Op) *engine.PushRequest {
	p := new(engine.PushRequest)
	for r.Object(); r.Next(); {
		switch string(r.Name()) {
		case "id":
			p.TaskID = r.String()
		case "pushNotificationConfigId":
			p.ConfigID = r.String()
		default:
			r.Skip()
		}
	}
	r.Require(p.TaskID != "", "id")
	r.Require(p.ConfigID != "" || op != engine.OpPushDelete, "pushNotificationConfigId")
	return p
}

// Pushes renders a TaskPushNotificationConfig, for a list an array of them, and null for a deletion.
func (Codec) Pushes(op engine.Op, p *engine.Pushes) ([]byte, error) {
	one := func(dst []byte, c *task.PushConfig) []byte {
		dst = wire.AppendString(append(dst, `{"taskId":`...), p.TaskID)
		dst = v0.AppendPushConfig(wire.AppendMember(dst, "pushNotificationConfig"), c, true)
		return append(dst, '}')
	}
	switch op {
	case engine.OpPushDelete:
		return []byte("null"), nil
	case engine.OpPushList:
		return wire.AppendArray(nil, p.Configs, one), nil
	default:
		return one(nil, &p.Configs[0]), nil
	}
}
