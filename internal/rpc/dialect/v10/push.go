package v10

import (
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/protojson"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// pushConfig reads a TaskPushNotificationConfig and the id of the task that it names. member is the
// path of the configuration in the request.
func pushConfig(r *rawjson.Reader, member string, tenant *string) (taskID string, s *engine.PushSetting) {
	s = &engine.PushSetting{Member: member}
	for r.Object(); r.Next(); {
		switch string(protojson.Member(r)) {
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
func authentication(r *rawjson.Reader, s *engine.PushSetting) {
	scheme := ""
	for r.Object(); r.Next(); {
		switch string(protojson.Member(r)) {
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

// setPush reads a TaskPushNotificationConfig for the task that it names. Without an id it adds a
// configuration.
func setPush(r *rawjson.Reader, call *dialect.Call) *engine.PushRequest {
	id, s := pushConfig(r, "", &call.Tenant)
	s.Further = true
	r.Require(id != "", "taskId")
	return &engine.PushRequest{TaskID: id, Set: s}
}

// namePush reads a request that names a task, and one of its configurations unless it lists them.
func namePush(r *rawjson.Reader, call *dialect.Call) *engine.PushRequest {
	p := new(engine.PushRequest)
	for r.Object(); r.Next(); {
		switch member := string(protojson.Member(r)); member {
		case "tenant":
			call.Tenant = r.String()
		case "taskId":
			p.TaskID = r.String()
		case "id":
			p.ConfigID = r.String()
		default:
			if call.Op != engine.OpPushList || !protojson.PushPage(r, member, p) {
				r.Skip()
			}
		}
	}
	r.Require(p.TaskID != "", "taskId")
	r.Require(p.ConfigID != "" || call.Op == engine.OpPushList, "id")
	return p
}

// Pushes renders a TaskPushNotificationConfig, a response with all of them for a list, and an empty
// message for a deletion. It omits the secrets, which are for the receiver alone. It does not mask
// them, since a client that sends the configuration back would then set the mask.
func (Codec) Pushes(op engine.Op, p *engine.Pushes) ([]byte, error) {
	one := func(dst []byte, c *task.PushConfig) []byte {
		dst = rawjson.AppendString(append(dst, `{"taskId":`...), p.TaskID)
		dst = rawjson.AppendStringMember(dst, "id", c.ID)
		dst = rawjson.AppendStringMember(dst, "url", c.URL)
		if len(c.Schemes) > 0 {
			dst = append(rawjson.AppendString(append(dst, `,"authentication":{"scheme":`...), c.Schemes[0]), '}')
		}
		return append(dst, '}')
	}
	switch op {
	case engine.OpPushDelete:
		return []byte("{}"), nil
	case engine.OpPushList:
		dst := rawjson.AppendArray([]byte(`{"configs":`), p.Configs, one)
		return append(rawjson.AppendString(rawjson.AppendMember(dst, "nextPageToken"), p.NextToken), '}'), nil
	default:
		return one(nil, &p.Configs[0]), nil
	}
}

// Notification renders a StreamResponse.
func (c Codec) Notification(t *task.Task, e *task.Event, n dialect.Notify) (body []byte, mediaType string, err error) {
	mediaType = MediaType
	if n.PlainJSON {
		mediaType = dialect.TypeJSON
	}
	switch {
	case e == nil:
		documents, err := c.Opening(engine.OpStream, t)
		if err != nil {
			return nil, "", err
		}
		return documents[0], mediaType, nil
	case dialect.Direct(t, e):
		body, err = c.Direct(t, e)
	default:
		body, err = c.Event(t, e, false)
	}
	return body, mediaType, err
}
