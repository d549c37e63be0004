package v10

import (
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/proto"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/wire"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// pushConfig reads a TaskPushNotificationConfig, which is this member of the request, and the task that it names.
func pushConfig(r *wire.Reader, member string, tenant *string) (taskID string, s *engine.PushSetting) {
	s = &engine.PushSetting{Member: member}
	for r.Object(); r.Next(); {
		switch string(proto.Member(r)) {
		case "tenant":
			*tenant = r.String()
		case "id":
			s.ID = r.String()
		case "taskId":
			taskID = r.String()
		case "url":
			s.URL = r.String()
		case "token":
			s.Token = r.String()
		case "authentication":
			authentication(r, s)
		default:
			r.Skip()
		}
	}
	r.Require(s.URL != "", "url")
	return taskID, s
}

// authentication reads an AuthenticationInfo.
func authentication(r *wire.Reader, s *engine.PushSetting) {
	scheme := ""
	for r.Object(); r.Next(); {
		switch string(proto.Member(r)) {
		case "scheme":
			scheme = r.String()
		case "credentials":
			s.Credentials = r.String()
		default:
			r.Skip()
		}
	}
	r.Require(scheme != "", "scheme")
	s.Schemes = []string{scheme}
}

// setPush reads a TaskPushNotificationConfig for the task that it names. Without an id it is one more.
func setPush(r *wire.Reader, call *dialect.Call) *engine.PushRequest {
	id, s := pushConfig(r, "", &call.Tenant)
	s.Further = true
	r.Require(id != "", "taskId")
	return &engine.PushRequest{TaskID: id, Set: s}
}

// namePush reads a request that names a task, and unless it lists them one of its configurations.
func namePush(r *wire.Reader, call *dialect.Call) *engine.PushRequest {
	p := new(engine.PushRequest)
	for r.Object(); r.Next(); {
		switch string(proto.Member(r)) {
		case "tenant":
			call.Tenant = r.String()
		case "taskId":
			p.TaskID = r.String()
		case "id":
			p.ConfigID = r.String()
		default: // a page holds all that a task may have, whatever its size
			r.Skip()
		}
	}
	r.Require(p.TaskID != "", "taskId")
	r.Require(p.ConfigID != "" || call.Op == engine.OpPushList, "id")
	return p
}

// Pushes renders a TaskPushNotificationConfig, for a list the response with all of them, and an empty message for a
// deletion. Secrets are for the receiver alone: they are left out, and not masked, so that a client which sends back what
// it was shown does not set a mask.
func (Codec) Pushes(op engine.Op, p *engine.Pushes) ([]byte, error) {
	one := func(dst []byte, c *task.PushConfig) []byte {
		dst = wire.AppendString(append(dst, `{"taskId":`...), p.TaskID)
		dst = wire.AppendStringMember(dst, "id", c.ID)
		dst = wire.AppendStringMember(dst, "url", c.URL)
		if len(c.Schemes) > 0 {
			dst = append(wire.AppendString(append(dst, `,"authentication":{"scheme":`...), c.Schemes[0]), '}')
		}
		return append(dst, '}')
	}
	switch op {
	case engine.OpPushDelete:
		return []byte("{}"), nil
	case engine.OpPushList:
		return append(wire.AppendArray([]byte(`{"configs":`), p.Configs, one), `,"nextPageToken":""}`...), nil
	default:
		return one(nil, &p.Configs[0]), nil
	}
}
