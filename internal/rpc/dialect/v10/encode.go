package v10

import (
	"encoding/json"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/protojson"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

var style = &protojson.Style{Canceled: "TASK_STATE_CANCELED", Parts: "parts", Part: appendPart, ReadPart: part, References: true}

// Result renders a Task, or for a send a SendMessageResponse.
func (Codec) Result(op engine.Op, t *task.Task, v dialect.View) ([]byte, error) {
	return style.Result(op, t, v), nil
}

// Page renders a ListTasksResponse.
func (Codec) Page(p *engine.Page, v dialect.View) ([]byte, error) { return style.Page(p, v), nil }

// Opening renders a StreamResponse with the task, or with a bare message instead.
func (Codec) Opening(op engine.Op, t *task.Task) ([][]byte, error) {
	return [][]byte{style.Opening(op, t)}, nil
}

// Event renders a StreamResponse with a status or artifact event. No member marks the final status.
func (Codec) Event(t *task.Task, e *task.Event, _ bool) ([]byte, error) {
	return style.Event(t, e, false), nil
}

// Direct renders a StreamResponse with a bare message.
func (Codec) Direct(t *task.Task, e *task.Event) ([]byte, error) { return style.Direct(t, e), nil }

func appendPart(dst []byte, p *task.Part) []byte {
	switch p.Kind {
	case task.PartText:
		dst = rawjson.AppendText(append(dst, `{"text":`...), p)
	case task.PartRaw:
		dst = rawjson.AppendBytes(append(dst, `{"raw":`...), p.Raw)
	case task.PartURL:
		dst = rawjson.AppendString(append(dst, `{"url":`...), p.URL)
	case task.PartData:
		data := p.Data
		if len(data) == 0 {
			data = json.RawMessage("null")
		}
		dst = rawjson.AppendRaw(append(dst, `{"data":`...), data)
	}
	dst = rawjson.AppendStringMember(dst, "filename", p.Filename)
	dst = rawjson.AppendStringMember(dst, "mediaType", p.MediaType)
	dst = rawjson.AppendRawMember(dst, "metadata", p.Metadata)
	return append(dst, '}')
}

// AppendMessage appends a message as a client sends it.
func AppendMessage(dst []byte, m *task.Message) []byte { return style.AppendMessage(dst, m) }
