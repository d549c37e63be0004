package v03

import (
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v0"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/wire"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Decode reads the params of an operation. Unknown members are passed over.
func (Codec) Decode(op engine.Op, params []byte) (*dialect.Call, error) {
	r := wire.NewReader(params)
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
	case engine.OpExtendedCard: // without params
	default:
		return nil, &task.Error{Kind: task.Unsupported}
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return call, nil
}

// send reads MessageSendParams. One published example has the messageId beside the
// message instead of in it.
func send(r *wire.Reader, view *dialect.View) *engine.SendRequest {
	s := &engine.SendRequest{Dialect: Version, Wait: true, WaitUnsaid: true}
	var beside string
	for r.Object(); r.Next(); {
		switch string(r.Name()) {
		case "message":
			s.Message = message(r, s)
		case "configuration":
			configuration(r, s, view)
		case "metadata":
			s.Metadata = r.RawObject()
		case "messageId":
			beside = r.String()
		default:
			r.Skip()
		}
	}
	if s.Message == nil {
		r.FailMember("message", "is required")
		return s
	}
	if s.Message.ID == "" {
		s.Message.ID = beside
	}
	r.Require(s.Message.ID != "", "message.messageId")
	return s
}

// message reads a Message, and into s the task and context it belongs to.
func message(r *wire.Reader, s *engine.SendRequest) *task.Message {
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
			s.ContextID = r.ContextID()
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

// configuration reads MessageSendConfiguration. A client that says nothing about
// blocking waits, as every official server has it.
func configuration(r *wire.Reader, s *engine.SendRequest, view *dialect.View) {
	for r.Object(); r.Next(); {
		switch string(r.Name()) {
		case "acceptedOutputModes":
			s.OutputModes = r.Strings()
		case "blocking":
			s.Wait, s.WaitUnsaid = r.Bool(), false
		case "historyLength":
			*view = newest(r.Count())
		case "pushNotificationConfig":
			s.Push = v0.PushConfig(r, (*wire.Reader).Name, true)
		default:
			r.Skip()
		}
	}
}

// newest is the view of a request that states a length: it sees the member even when
// nothing is in it.
func newest(n int) dialect.View { return dialect.View{History: n, ShowEmpty: true} }

// get reads TaskQueryParams.
func get(r *wire.Reader, view *dialect.View) *engine.GetRequest {
	g := &engine.GetRequest{WithArtifacts: true}
	for r.Object(); r.Next(); {
		switch string(r.Name()) {
		case "id":
			g.TaskID = r.String()
		case "historyLength":
			*view = newest(r.Count())
		default:
			r.Skip()
		}
	}
	r.Require(g.TaskID != "", "id")
	return g
}
