package v03proto

import (
	"cmp"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/protojson"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v0"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

const (
	tasksPrefix   = "tasks/"
	configsInfix  = "/pushNotificationConfigs/"
	configsSuffix = "/pushNotificationConfigs"
)

// resource is what a request names: by ids, which take precedence, or by a resource name.
type resource struct {
	task, config string
	name         string // tasks/{id}/pushNotificationConfigs/{config}
	parent       string // tasks/{id}; some clients append the collection
}

// setPush reads CreateTaskPushNotificationConfigRequest, and two other shapes in use. One is the
// bare TaskPushNotificationConfig, which the proto file has for HTTP. The other is the shape of
// JSON-RPC.
func setPush(r *rawjson.Reader) *engine.PushRequest {
	var at resource
	s := settings(r, &at)
	r.Require(s != nil, "config")
	if s == nil {
		return nil
	}
	if s.ID == "" {
		s.ID = at.configID()
	}
	at.config = s.ID
	p := &engine.PushRequest{TaskID: at.taskID(), Set: s}
	r.Require(p.TaskID != "", "parent")
	return p
}

// settings reads the next object. The configuration may be one level deeper.
func settings(r *rawjson.Reader, at *resource) *engine.PushSetting {
	var found *engine.PushSetting
	for r.Object(); r.Next(); {
		switch string(protojson.Member(r)) {
		case "pushNotificationConfig":
			found = v0.PushConfig(r, protojson.Member, true)
		case "config":
			var inner resource
			found = settings(r, &inner)
			at.task, at.config, at.name = cmp.Or(at.task, inner.task), cmp.Or(at.config, inner.config), cmp.Or(at.name, inner.name)
		case "configId":
			at.config = r.String()
		case "taskId":
			at.task = r.String()
		case "name":
			at.name = r.String()
		case "parent":
			at.parent = r.String()
		default:
			r.Skip()
		}
	}
	return found
}

// namePush reads a request that names a task, and optionally one of its configurations.
func namePush(r *rawjson.Reader, op engine.Op) *engine.PushRequest {
	var at resource
	p := new(engine.PushRequest)
	for r.Object(); r.Next(); {
		switch member := string(protojson.Member(r)); member {
		case "id", "taskId":
			at.task = r.String()
		case "pushNotificationConfigId":
			at.config = r.String()
		case "name":
			at.name = r.String()
		case "parent":
			at.parent = r.String()
		default:
			if op != engine.OpPushList || !protojson.PushPage(r, member, p) {
				r.Skip()
			}
		}
	}
	p.TaskID = at.taskID()
	if op == engine.OpPushList {
		r.Require(p.TaskID != "", "parent")
		return p
	}
	p.ConfigID = at.configID()
	if p.TaskID == "" || p.ConfigID == "" && op == engine.OpPushDelete {
		r.FailMember("name", "must have the form tasks/{id}%s{id}", configsInfix)
	}
	return p
}

func (at *resource) taskID() string {
	switch {
	case at.task != "":
		return at.task
	case at.parent != "":
		id, _ := strings.CutPrefix(at.parent, tasksPrefix)
		return strings.TrimSuffix(id, configsSuffix)
	}
	id, _ := strings.CutPrefix(at.name, tasksPrefix)
	if whole, ok := strings.CutSuffix(id, configsInfix+at.config); ok {
		return whole
	}
	id, _, _ = strings.Cut(id, configsInfix)
	return id
}

func (at *resource) configID() string {
	if at.config != "" {
		return at.config
	}
	_, id, _ := strings.Cut(at.name, configsInfix)
	return id
}

// Pushes renders a TaskPushNotificationConfig, a response with all of them for a list, and an empty
// message for a deletion.
func (Codec) Pushes(op engine.Op, p *engine.Pushes) ([]byte, error) {
	one := func(dst []byte, c *task.PushConfig) []byte {
		dst = rawjson.AppendString(append(dst, `{"name":`...), tasksPrefix+p.TaskID+configsInfix+c.ID)
		dst = v0.AppendPushConfig(rawjson.AppendMember(dst, "pushNotificationConfig"), c, true)
		return append(dst, '}')
	}
	switch op {
	case engine.OpPushDelete:
		return []byte("{}"), nil
	case engine.OpPushList:
		dst := rawjson.AppendArray([]byte(`{"configs":`), p.Configs, one)
		return append(rawjson.AppendStringMember(dst, "nextPageToken", p.NextToken), '}'), nil
	default:
		return one(nil, &p.Configs[0]), nil
	}
}
