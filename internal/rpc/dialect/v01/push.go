package v01

import (
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v0"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/wire"
)

// A task of this version has one webhook at most, the default one. One without any is told by null.

// setPush reads TaskPushNotificationConfig.
func setPush(r *wire.Reader) *engine.PushRequest {
	p := new(engine.PushRequest)
	for r.Object(); r.Next(); {
		switch string(r.Name()) {
		case "id":
			p.TaskID = r.String()
		case "pushNotificationConfig":
			p.Set = v0.PushConfig(r, (*wire.Reader).Name, false)
		default:
			r.Skip()
		}
	}
	r.Require(p.TaskID != "", "id")
	return p
}

// getPush reads TaskIdParams.
func getPush(r *wire.Reader) *engine.PushRequest {
	p := &engine.PushRequest{MayLack: true}
	for r.Object(); r.Next(); {
		if string(r.Name()) == "id" {
			p.TaskID = r.String()
		} else {
			r.Skip()
		}
	}
	r.Require(p.TaskID != "", "id")
	return p
}

// Pushes renders a TaskPushNotificationConfig.
func (Codec) Pushes(_ engine.Op, p *engine.Pushes) ([]byte, error) {
	dst := wire.AppendString([]byte(`{"id":`), p.TaskID)
	dst = wire.AppendMember(dst, "pushNotificationConfig")
	if len(p.Configs) == 0 {
		return append(dst, `null}`...), nil
	}
	return append(v0.AppendPushConfig(dst, &p.Configs[0], false), '}'), nil
}
