package v03proto

import (
	"cmp"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/proto"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v0"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/wire"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

const (
	tasksPrefix   = "tasks/"
	configsInfix  = "/pushNotificationConfigs/"
	configsSuffix = "/pushNotificationConfigs"
)

// resource is what a request names: by ids, which come first, or by the name of a resource.
type resource struct {
	task, config string
	name         string // tasks/{id}/pushNotificationConfigs/{config}
	parent       string // tasks/{id}, or as some have it with the collection
}

// setPush reads CreateTaskPushNotificationConfigRequest, and the two other shapes in use: the TaskPushNotificationConfig
// alone, as the proto file has it for HTTP, and that of JSON-RPC.
func setPush(r *wire.Reader) *engine.PushRequest {
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

// settings reads the object that comes next, in which the configuration may lie one level down.
func settings(r *wire.Reader, at *resource) *engine.PushSetting {
	var found *engine.PushSetting
	for r.Object(); r.Next(); {
		switch string(proto.Member(r)) {
		case "pushNotificationConfig":
			found = v0.PushConfig(r, proto.Member, true)
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

// namePush reads a request that names a task, and perhaps one of its configurations.
func namePush(r *wire.Reader, op engine.Op) *engine.PushRequest {
	var at resource
	for r.Object(); r.Next(); {
		switch string(proto.Member(r)) {
		case "id", "taskId":
			at.task = r.String()
		case "pushNotificationConfigId":
			at.config = r.String()
		case "name":
			at.name = r.String()
		case "parent":
			at.parent = r.String()
		default:
			r.Skip()
		}
	}
	p := &engine.PushRequest{TaskID: at.taskID()}
	if op == engine.OpPushList {
		r.Require(p.TaskID != "", "parent")
		return p
	}
	p.ConfigID = at.configID()
	if p.TaskID == "" || p.ConfigID == "" && op == engine.OpPushDelete {
		r.FailMember("name", "must be tasks/, an id, %s and another", configsInfix)
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

// Pushes renders a TaskPushNotificationConfig, for a list the response with all of them, and an empty message for a deletion.
func (Codec) Pushes(op engine.Op, p *engine.Pushes) ([]byte, error) {
	one := func(dst []byte, c *task.PushConfig) []byte {
		dst = wire.AppendString(append(dst, `{"name":`...), tasksPrefix+p.TaskID+configsInfix+c.ID)
		dst = v0.AppendPushConfig(wire.AppendMember(dst, "pushNotificationConfig"), c, true)
		return append(dst, '}')
	}
	switch op {
	case engine.OpPushDelete:
		return []byte("{}"), nil
	case engine.OpPushList:
		return append(wire.AppendArray([]byte(`{"configs":`), p.Configs, one), '}'), nil
	default:
		return one(nil, &p.Configs[0]), nil
	}
}
