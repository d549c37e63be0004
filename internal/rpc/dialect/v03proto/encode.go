package v03proto

import (
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/protojson"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v0"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

var style = &protojson.Style{
	Canceled: "TASK_STATE_CANCELLED", Parts: "content", ReadPart: part, ShortRoles: true, Final: true,
	Part: func(dst []byte, p *task.Part) []byte { return appendPart(dst, p, false) },
}

// younger is the style of later editions of the proto file.
var younger = func() *protojson.Style {
	s := *style
	s.Parts, s.References = "parts", true
	s.Part = func(dst []byte, p *task.Part) []byte { return appendPart(dst, p, true) }
	return &s
}()

func (c Codec) style() *protojson.Style {
	if c.Younger {
		return younger
	}
	return style
}

// Result renders a Task, or for a send a SendMessageResponse.
func (c Codec) Result(op engine.Op, t *task.Task, v dialect.View) ([]byte, error) {
	return c.style().Result(op, t, v), nil
}

// Page renders what 1.0 calls a ListTasksResponse. The document of 0.3 has a bare array, with no
// place for the next page token.
func (c Codec) Page(p *engine.Page, v dialect.View) ([]byte, error) { return c.style().Page(p, v), nil }

// Event renders a StreamResponse with a status or artifact event.
func (c Codec) Event(t *task.Task, e *task.Event, passed bool) ([]byte, error) {
	return c.style().Event(t, e, e.State.Settled() && !passed), nil
}

// Direct renders a StreamResponse with a bare message.
func (c Codec) Direct(t *task.Task, e *task.Event) ([]byte, error) {
	return c.style().Direct(t, e), nil
}

// appendPart appends a Part. The proto file got the metadata of a part and the name of a file after
// 0.3.0. Clients generated from the release refuse a document with the name.
func appendPart(dst []byte, p *task.Part, named bool) []byte {
	metadata := p.Metadata
	switch p.Kind {
	case task.PartText:
		dst = rawjson.AppendText(append(dst, `{"text":`...), p)
		metadata = v0.FileMembers(p)
	case task.PartRaw:
		dst = rawjson.AppendBytes(append(dst, `{"file":{"fileWithBytes":`...), p.Raw)
		dst = appendFile(dst, p, named)
	case task.PartURL:
		dst = rawjson.AppendString(append(dst, `{"file":{"fileWithUri":`...), p.URL)
		dst = appendFile(dst, p, named)
	case task.PartData:
		data, with := v0.Wrap(p, false)
		dst = append(rawjson.AppendRaw(append(dst, `{"data":{"data":`...), data), '}')
		metadata = with
	}
	dst = rawjson.AppendRawMember(dst, "metadata", metadata)
	return append(dst, '}')
}

func appendFile(dst []byte, p *task.Part, named bool) []byte {
	dst = rawjson.AppendStringMember(dst, "mimeType", p.MediaType)
	if named {
		dst = rawjson.AppendStringMember(dst, "name", p.Filename)
	}
	return append(dst, '}')
}

// AppendMessage appends a message as a client sends it.
func AppendMessage(dst []byte, m *task.Message) []byte { return style.AppendMessage(dst, m) }

// AppendYoungerMessage appends a message as a client over gRPC sends it, with the names that its messages have.
func AppendYoungerMessage(dst []byte, m *task.Message) []byte { return younger.AppendMessage(dst, m) }
