package v10

import (
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/proto"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Decode reads the request message of an operation. It ignores unknown members.
func (Codec) Decode(op engine.Op, params []byte) (*dialect.Call, error) {
	r := rawjson.NewReader(params)
	defer r.Close()
	call := &dialect.Call{Op: op, View: dialect.View{History: engine.AllHistory}}
	switch op {
	case engine.OpSend, engine.OpStream:
		call.Send = send(r, call)
	case engine.OpGet:
		call.Get = get(r, call)
	case engine.OpList:
		call.List = proto.List(r, call)
	case engine.OpCancel:
		call.Cancel = cancel(r, call)
	case engine.OpSubscribe:
		call.Subscribe = subscribe(r, call)
	case engine.OpPushSet:
		call.Push = setPush(r, call)
	case engine.OpPushGet, engine.OpPushList, engine.OpPushDelete:
		call.Push = namePush(r, call)
	case engine.OpExtendedCard:
		extendedCard(r, call)
	default:
		return nil, &task.Error{Kind: task.Unsupported}
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return call, nil
}

// extendedCard reads GetExtendedAgentCardRequest.
func extendedCard(r *rawjson.Reader, call *dialect.Call) {
	for r.Object(); r.Next(); {
		switch string(proto.Member(r)) {
		case "tenant":
			call.Tenant = r.String()
		default:
			r.Skip()
		}
	}
}

// send reads SendMessageRequest.
func send(r *rawjson.Reader, call *dialect.Call) *engine.SendRequest {
	s := &engine.SendRequest{Dialect: Version, Wait: true}
	for r.Object(); r.Next(); {
		switch string(proto.Member(r)) {
		case "tenant":
			call.Tenant = r.String()
		case "message":
			s.Message = style.Message(r, s)
		case "configuration":
			configuration(r, s, call)
		case "metadata":
			s.Metadata = r.RawObject()
		default:
			r.Skip()
		}
	}
	r.Require(s.Message != nil, "message")
	return s
}

// part reads a Part. Exactly one of four members contains its content. For data, null is a value.
func part(r *rawjson.Reader) task.Part {
	var p task.Part
	contents := 0
	for r.Object(); r.NextOr("data"); {
		switch string(proto.Member(r)) {
		case "text":
			p.Kind, p.Text = task.PartText, r.String()
			contents++
		case "raw":
			p.Kind, p.Raw = task.PartRaw, r.Bytes()
			contents++
		case "url":
			p.Kind, p.URL = task.PartURL, r.String()
			contents++
		case "data":
			p.Kind, p.Data = task.PartData, r.Raw()
			contents++
		case "filename":
			p.Filename = r.String()
		case "mediaType":
			p.MediaType = r.String()
		case "metadata":
			p.Metadata = r.RawObject()
		default:
			r.Skip()
		}
	}
	switch contents {
	case 1:
	case 0:
		r.Fail("must have one of text, raw, url and data")
	default:
		r.Fail("must have only one of text, raw, url and data")
	}
	return p
}

// configuration reads SendMessageConfiguration.
func configuration(r *rawjson.Reader, s *engine.SendRequest, call *dialect.Call) {
	for r.Object(); r.Next(); {
		switch string(proto.Member(r)) {
		case "acceptedOutputModes":
			s.OutputModes = r.Strings()
		case "returnImmediately":
			s.Wait = !r.Bool()
		case "historyLength":
			call.View.History = proto.Count(r)
		case "taskPushNotificationConfig":
			_, s.Push = pushConfig(r, "configuration.taskPushNotificationConfig", &call.PushTenant)
		default:
			r.Skip()
		}
	}
}

// get reads GetTaskRequest.
func get(r *rawjson.Reader, call *dialect.Call) *engine.GetRequest {
	g := &engine.GetRequest{WithArtifacts: true}
	for r.Object(); r.Next(); {
		switch string(proto.Member(r)) {
		case "tenant":
			call.Tenant = r.String()
		case "id":
			g.TaskID = r.String()
		case "historyLength":
			call.View.History = proto.Count(r)
		default:
			r.Skip()
		}
	}
	r.Require(g.TaskID != "", "id")
	return g
}

// cancel reads CancelTaskRequest.
func cancel(r *rawjson.Reader, call *dialect.Call) *engine.CancelRequest {
	c := new(engine.CancelRequest)
	for r.Object(); r.Next(); {
		switch string(proto.Member(r)) {
		case "tenant":
			call.Tenant = r.String()
		case "id":
			c.TaskID = r.String()
		case "metadata":
			c.Metadata = r.RawObject()
		default:
			r.Skip()
		}
	}
	r.Require(c.TaskID != "", "id")
	return c
}

// subscribe reads SubscribeToTaskRequest.
func subscribe(r *rawjson.Reader, call *dialect.Call) *engine.SubscribeRequest {
	s := &engine.SubscribeRequest{Live: true}
	for r.Object(); r.Next(); {
		switch string(proto.Member(r)) {
		case "tenant":
			call.Tenant = r.String()
		case "id":
			s.TaskID = r.String()
		default:
			r.Skip()
		}
	}
	r.Require(s.TaskID != "", "id")
	return s
}
