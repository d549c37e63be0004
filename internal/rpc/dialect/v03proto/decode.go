package v03proto

import (
	"encoding/json"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/protojson"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v0"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v03"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Decode reads the request message of an operation. It ignores unknown members. Where the JSON-RPC
// binding of 0.3 uses another name, Decode accepts both.
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
		c := new(engine.CancelRequest)
		c.TaskID = named(r, call, &c.Metadata)
		call.Cancel = c
	case engine.OpSubscribe:
		call.Subscribe = &engine.SubscribeRequest{TaskID: named(r, call, nil)}
	case engine.OpPushSet:
		call.Push = setPush(r)
	case engine.OpPushGet, engine.OpPushList, engine.OpPushDelete:
		call.Push = namePush(r, op)
	case engine.OpExtendedCard: // its message is empty
	default:
		return nil, &task.Error{Kind: task.Unsupported}
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return call, nil
}

// named reads a request that names a task by its id or by its resource name, tasks/{id}. The id
// takes precedence.
func named(r *rawjson.Reader, call *dialect.Call, metadata *json.RawMessage) string {
	var id, name string
	for r.Object(); r.Next(); {
		switch member := string(protojson.Member(r)); {
		case member == "id":
			id = r.String()
		case member == "name":
			name = r.String()
		case member == "historyLength":
			call.View.History = protojson.Count(r)
		case member == "metadata" && metadata != nil:
			*metadata = r.RawObject()
		default:
			r.Skip()
		}
	}
	if id != "" {
		return id
	}
	id, whole := strings.CutPrefix(name, "tasks/")
	if name != "" && !whole {
		r.FailMember("name", "must have the form tasks/{id}")
	}
	r.Require(id != "", "name")
	return id
}

// send reads SendMessageRequest. The message field is called request, and message in JSON.
func send(r *rawjson.Reader, call *dialect.Call) *engine.SendRequest {
	s := &engine.SendRequest{Dialect: v03.Version, Wait: true, WaitUnsaid: true}
	for r.Object(); r.Next(); {
		switch string(protojson.Member(r)) {
		case "message", "request":
			s.Message = style.Message(r, s)
		case "configuration":
			configuration(r, s, &call.View)
		case "metadata":
			s.Metadata = r.RawObject()
		default:
			r.Skip()
		}
	}
	r.Require(s.Message != nil, "message")
	return s
}

// part reads a Part. A part with a kind has the shape of JSON-RPC: its data is not wrapped in a
// DataPart.
func part(r *rawjson.Reader) task.Part {
	var p task.Part
	var kind string
	contents := 0
	for r.Object(); r.Next(); {
		switch string(protojson.Member(r)) {
		case "kind":
			kind = r.String()
		case "text":
			p.Kind, p.Text = task.PartText, r.String()
			contents++
		case "file":
			file(r, &p)
			contents++
		case "data":
			p.Kind, p.Data = task.PartData, r.Raw()
			contents++
		case "metadata":
			p.Metadata = r.RawObject()
		default:
			r.Skip()
		}
	}
	switch {
	case contents == 0:
		r.Fail("must have one of text, file and data")
	case contents > 1:
		r.Fail("must have only one of text, file and data")
	case p.Kind == task.PartData:
		if kind == "" {
			p.Data = ofDataPart(p.Data)
		}
		return v0.Unwrap(p)
	}
	return p
}

// ofDataPart returns the data of a DataPart. A value with other members, or one that is no object,
// is not a DataPart: it is the data itself.
func ofDataPart(raw json.RawMessage) json.RawMessage {
	data, ok := rawjson.Lookup(raw, "data")
	if !ok || rawjson.Without(raw, "data") != nil {
		return raw
	}
	return data
}

// file reads a FilePart.
func file(r *rawjson.Reader, p *task.Part) {
	var raw []byte
	for r.Object(); r.Next(); {
		switch string(protojson.Member(r)) {
		case "fileWithBytes", "bytes":
			raw = r.Bytes()
		case "fileWithUri", "uri":
			p.URL = r.String()
		case "name":
			p.Filename = r.String()
		case "mimeType":
			p.MediaType = r.String()
		default:
			r.Skip()
		}
	}
	if !v0.SetFile(p, raw) {
		r.Fail("must have only one of fileWithBytes and fileWithUri")
	}
}

// configuration reads MessageSendConfiguration. A client that sends one without blocking does not
// wait. ProtoJSON omits a false, so some official clients have no other way to say it. Clients that
// want to wait send true.
func configuration(r *rawjson.Reader, s *engine.SendRequest, view *dialect.View) {
	s.Wait, s.WaitUnsaid = false, false
	for r.Object(); r.Next(); {
		switch string(protojson.Member(r)) {
		case "acceptedOutputModes":
			s.OutputModes = r.Strings()
		case "blocking":
			s.Wait = r.Bool()
		case "historyLength":
			view.History = protojson.Count(r)
		case "pushNotification", "pushNotificationConfig":
			s.Push = v0.PushConfig(r, protojson.Member, true)
		default:
			r.Skip()
		}
	}
}
