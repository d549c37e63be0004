package v10

import (
	"encoding/json"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/protojson"
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
		call.Get = &engine.GetRequest{TaskID: named(r, call, nil), WithArtifacts: true}
	case engine.OpList:
		call.List = protojson.List(r, call)
	case engine.OpCancel:
		call.Cancel = new(engine.CancelRequest)
		call.Cancel.TaskID = named(r, call, &call.Cancel.Metadata)
	case engine.OpSubscribe:
		call.Subscribe = &engine.SubscribeRequest{TaskID: named(r, call, nil), Live: true}
	case engine.OpPushSet:
		call.Push = setPush(r, call)
	case engine.OpPushGet, engine.OpPushList, engine.OpPushDelete:
		call.Push = namePush(r, call)
	case engine.OpExtendedCard:
		named(r, call, nil)
	default:
		return nil, &task.Error{Kind: task.Unsupported}
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return call, nil
}

// send reads SendMessageRequest.
func send(r *rawjson.Reader, call *dialect.Call) *engine.SendRequest {
	s := &engine.SendRequest{Dialect: Version, Wait: true}
	for r.Object(); r.Next(); {
		switch string(protojson.Member(r)) {
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
		switch string(protojson.Member(r)) {
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
		switch string(protojson.Member(r)) {
		case "acceptedOutputModes":
			s.OutputModes = r.Strings()
		case "returnImmediately":
			s.Wait = !r.Bool()
		case "historyLength":
			call.View.History = protojson.Count(r)
		case "taskPushNotificationConfig":
			_, s.Push = pushConfig(r, "configuration.taskPushNotificationConfig", &call.PushTenant)
		default:
			r.Skip()
		}
	}
}

// named reads a request that names a task, or for the extended card only an agent.
func named(r *rawjson.Reader, call *dialect.Call, metadata *json.RawMessage) (id string) {
	card := call.Op == engine.OpExtendedCard
	for r.Object(); r.Next(); {
		switch member := string(protojson.Member(r)); {
		case member == "tenant":
			call.Tenant = r.String()
		case member == "id" && !card:
			id = r.String()
		case member == "historyLength" && call.Op == engine.OpGet:
			call.View.History = protojson.Count(r)
		case member == "metadata" && metadata != nil:
			*metadata = r.RawObject()
		default:
			r.Skip()
		}
	}
	r.Require(id != "" || card, "id")
	return id
}
