package v01

import (
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v0"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Decode reads the params of an operation. It ignores unknown members.
func (Codec) Decode(op engine.Op, params []byte) (*dialect.Call, error) {
	r := rawjson.NewReader(params)
	defer r.Close()
	call := &dialect.Call{Op: op}
	switch op {
	case engine.OpSend, engine.OpStream:
		call.Send = send(r, &call.View)
	case engine.OpGet:
		call.Get = get(r, &call.View)
	case engine.OpCancel:
		call.Cancel = v0.Cancel(r)
	case engine.OpSubscribe:
		call.Subscribe = v0.Subscribe(r)
	case engine.OpPushSet:
		call.Push = setPush(r)
	case engine.OpPushGet:
		call.Push = getPush(r)
	default:
		return nil, &task.Error{Kind: task.Unsupported}
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return call, nil
}

// send reads TaskSendParams. The client chooses the id, so an unknown id creates a task. The
// version has no flag for waiting, so the answer waits.
func send(r *rawjson.Reader, view *dialect.View) *engine.SendRequest {
	s := &engine.SendRequest{Dialect: Version, MayCreate: true, Wait: true, WaitUnsaid: true}
	for r.Object(); r.Next(); {
		switch string(r.Name()) {
		case "id":
			s.TaskID = r.ClientID()
		case "sessionId":
			s.ContextID = r.ClientID()
		case "message":
			s.Message = message(r)
		case "historyLength":
			view.History = r.Count()
		case "pushNotification":
			s.Push = v0.PushConfig(r, (*rawjson.Reader).Name, false)
		case "metadata":
			s.Metadata = r.RawObject()
		default:
			r.Skip()
		}
	}
	r.Require(s.TaskID != "", "id")
	r.Require(s.Message != nil, "message")
	return s
}

// message reads a Message, which has no id in this version. The send example of the first texts has
// the parts in the member data.
func message(r *rawjson.Reader) *task.Message {
	m := new(task.Message)
	for r.Object(); r.Next(); {
		switch string(r.Name()) {
		case "role":
			m.Role = v0.Role(r)
		case "parts", "data":
			m.Parts = v0.Parts(r)
		case "metadata":
			m.Metadata = r.RawObject()
		default:
			r.Skip()
		}
	}
	r.Require(m.Role != task.RoleUnspecified, "role")
	r.Require(m.Parts != nil, "parts")
	return m
}

// get reads TaskQueryParams.
func get(r *rawjson.Reader, view *dialect.View) *engine.GetRequest {
	return &engine.GetRequest{WithArtifacts: true, TaskID: v0.Named(r, false, func(member string) bool {
		if member != "historyLength" {
			return false
		}
		view.History = r.Count()
		return true
	})}
}
