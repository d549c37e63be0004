package v03

import (
	"cmp"

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
	call := &dialect.Call{Op: op, View: dialect.View{History: engine.AllHistory}}
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
	case engine.OpPushGet, engine.OpPushList, engine.OpPushDelete:
		call.Push = namePush(r, op)
	case engine.OpExtendedCard: // it has no params
	default:
		return nil, &task.Error{Kind: task.Unsupported}
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return call, nil
}

// send reads MessageSendParams. One published example has the messageId next to the message instead
// of in it.
func send(r *rawjson.Reader, view *dialect.View) *engine.SendRequest {
	s := &engine.SendRequest{Dialect: Version, Wait: true, WaitUnsaid: true}
	var beside struct{ message, task, context string } // where llms.txt of 0.2 has them
	for r.Object(); r.Next(); {
		switch string(r.Name()) {
		case "message":
			s.Message = message(r, s)
		case "configuration":
			configuration(r, s, view)
		case "metadata":
			s.Metadata = r.RawObject()
		case "messageId":
			beside.message = r.String()
		case "taskId":
			beside.task = r.String()
		case "contextId":
			beside.context = r.ClientID()
		default:
			r.Skip()
		}
	}
	if s.Message == nil {
		r.FailMember("message", "is required")
		return s
	}
	s.Message.ID = cmp.Or(s.Message.ID, beside.message)
	s.TaskID, s.ContextID = cmp.Or(s.TaskID, beside.task), cmp.Or(s.ContextID, beside.context)
	r.Require(s.Message.ID != "", "message.messageId")
	return s
}

// message reads a Message. It stores the task and context of the message in s.
func message(r *rawjson.Reader, s *engine.SendRequest) *task.Message {
	m := new(task.Message)
	for r.Object(); r.Next(); {
		switch string(r.Name()) {
		case "kind":
			if r.String() != "message" {
				r.Fail(`must be "message"`)
			}
		case "messageId":
			m.ID = r.String()
		case "role":
			m.Role = v0.Role(r)
		case "parts":
			m.Parts = v0.Parts(r)
		case "taskId":
			s.TaskID = r.String()
		case "contextId":
			s.ContextID = r.ClientID()
		case "metadata":
			m.Metadata = r.RawObject()
		case "extensions":
			m.Extensions = r.Strings()
		case "referenceTaskIds":
			m.References = r.Strings()
		default:
			r.Skip()
		}
	}
	r.Require(m.Role != task.RoleUnspecified, "role")
	r.Require(m.Parts != nil, "parts")
	return m
}

// configuration reads MessageSendConfiguration. A client that does not state blocking waits, as on
// every official server.
func configuration(r *rawjson.Reader, s *engine.SendRequest, view *dialect.View) {
	for r.Object(); r.Next(); {
		switch string(r.Name()) {
		case "acceptedOutputModes":
			s.OutputModes = r.Strings()
		case "blocking":
			s.Wait, s.WaitUnsaid = r.Bool(), false
		case "historyLength":
			*view = newest(r.Count())
		case "pushNotificationConfig":
			s.Push = v0.PushConfig(r, (*rawjson.Reader).Name, true)
		default:
			r.Skip()
		}
	}
}

// newest returns the view of a request that states a length. Its reply contains the member even if
// it is empty.
func newest(n int) dialect.View { return dialect.View{History: n, ShowEmpty: true} }

// get reads TaskQueryParams.
func get(r *rawjson.Reader, view *dialect.View) *engine.GetRequest {
	return &engine.GetRequest{WithArtifacts: true, TaskID: v0.Named(r, true, func(member string) bool {
		if member != "historyLength" {
			return false
		}
		*view = newest(r.Count())
		return true
	})}
}
