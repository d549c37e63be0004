package store

import (
	"bytes"
	"encoding/base64"
	stdjson "encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// The wire structs below read what the append functions write. The functions are hand-written
// because they run for every chunk, and because opaque values must stay the same byte for byte.

type partJSON struct {
	Text      *string        `json:"text"`
	Raw       []byte         `json:"raw"`
	URL       *string        `json:"url"`
	Data      jsontext.Value `json:"data"`
	Filename  string         `json:"filename"`
	MediaType string         `json:"media_type"`
	Metadata  jsontext.Value `json:"metadata"`
}

type messageJSON struct {
	ID         string         `json:"id"`
	Role       string         `json:"role"`
	Parts      []partJSON     `json:"parts"`
	Metadata   jsontext.Value `json:"metadata"`
	Extensions []string       `json:"extensions"`
	References []string       `json:"references"`
	Request    *requestJSON   `json:"request"`
}

type requestJSON struct {
	Metadata    jsontext.Value `json:"metadata"`
	OutputModes []string       `json:"output_modes"`
	Extensions  []string       `json:"extensions"`
	Scopes      []string       `json:"scopes"`
	Traceparent string         `json:"traceparent"`
	Tracestate  string         `json:"tracestate"`
}

type statusJSON struct {
	Message   *messageJSON   `json:"message"`
	Direct    bool           `json:"direct"`
	Cause     string         `json:"cause"`
	Metadata  jsontext.Value `json:"metadata"`
	Artifacts []string       `json:"artifacts"`
}

type artifactJSON struct {
	Index         int            `json:"index"`
	Name          string         `json:"name"`
	Description   string         `json:"description"`
	Parts         []partJSON     `json:"parts"`
	Metadata      jsontext.Value `json:"metadata"`
	Extensions    []string       `json:"extensions"`
	EventMetadata jsontext.Value `json:"event_metadata"`
}

type runJSON struct {
	Outcome    string         `json:"outcome"`
	Error      string         `json:"error"`
	Worker     string         `json:"worker"`
	Checkpoint jsontext.Value `json:"checkpoint"`

	Until         time.Time `json:"until"`
	For           float64   `json:"for"`
	Interruptible bool      `json:"interruptible"`
	Sealed        []byte    `json:"sealed"`

	Calls       []callJSON `json:"calls"`
	Traceparent string     `json:"traceparent"`
}

type callJSON struct {
	ID        string         `json:"id"`
	Agent     string         `json:"agent"`
	Task      uuid.UUID      `json:"task"`
	Answers   bool           `json:"answers"`
	ContextID string         `json:"context_id"`
	Message   *messageJSON   `json:"message"`
	Metadata  jsontext.Value `json:"metadata"`
	RequestID uuid.UUID      `json:"request_id"`
	Relay     bool           `json:"relay"`
}

// buffers has the buffers that EncodePayload uses again.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// EncodePayload returns the part of an event that is stored as payload, besides the columns; ""
// means null.
func EncodePayload(e *task.Event) string {
	const keep = 64 << 10 // bytes
	buffer := buffers.Get().(*[]byte)
	b := appendPayload((*buffer)[:0], e)
	payload := string(b)
	if cap(b) <= keep {
		*buffer = b
		buffers.Put(buffer)
	}
	return payload
}

func appendPayload(b []byte, e *task.Event) []byte {
	switch e.Kind {
	case task.EventMessage:
		b = appendMessage(b, e.Message)
		if !e.Request.Empty() {
			b = appendRequest(b[:len(b)-1], e.Request)
		}
	case task.EventStatus:
		if e.Message == nil && !e.Direct && e.Cause == "" && e.Metadata == nil && len(e.Artifacts) == 0 {
			return b
		}
		w := object(b)
		if e.Message != nil {
			w.name("message")
			w.b = appendMessage(w.b, e.Message)
		}
		if e.Direct {
			w.name("direct")
			w.b = append(w.b, "true"...)
		}
		w.str("cause", e.Cause)
		w.raw("metadata", e.Metadata)
		w.list("artifacts", e.Artifacts)
		return append(w.b, '}')
	case task.EventArtifact:
		a := e.Artifact
		w := object(b)
		w.name("index")
		w.b = strconv.AppendInt(w.b, int64(a.Index), 10)
		w.str("name", a.Name)
		w.str("description", a.Description)
		w.name("parts")
		w.b = appendParts(w.b, a.Parts)
		w.raw("metadata", a.Metadata)
		w.list("extensions", a.Extensions)
		w.raw("event_metadata", e.Metadata)
		return append(w.b, '}')
	case task.EventRun:
		w := object(b)
		w.str("outcome", e.Run.Outcome)
		w.str("error", e.Run.Error)
		w.str("worker", e.Run.Worker)
		w.raw("checkpoint", e.Run.Checkpoint)
		if !e.Run.Until.IsZero() {
			w.str("until", e.Run.Until.UTC().Format(time.RFC3339Nano))
		}
		if e.Run.For != 0 {
			w.name("for")
			w.b = strconv.AppendFloat(w.b, e.Run.For.Seconds(), 'f', -1, 64)
		}
		if e.Run.Interruptible {
			w.name("interruptible")
			w.b = append(w.b, "true"...)
		}
		if len(e.Run.Calls) > 0 {
			w.name("calls")
			w.b = appendCalls(w.b, e.Run.Calls)
		}
		w.str("traceparent", e.Run.Traceparent)
		if len(e.Run.Sealed) > 0 {
			w.name("sealed")
			w.b = append(base64.StdEncoding.AppendEncode(append(w.b, '"'), e.Run.Sealed), '"')
		}
		return append(w.b, '}')
	}
	return b
}

func appendCalls(b []byte, calls []task.Call) []byte {
	b = append(b, '[')
	for i := range calls {
		if i > 0 {
			b = append(b, ',')
		}
		c := &calls[i]
		w := object(b)
		w.str("id", c.ID)
		w.str("agent", c.Agent)
		w.str("task", c.Task.String())
		if c.Answers {
			w.name("answers")
			w.b = append(w.b, "true"...)
			w.str("request_id", c.RequestID.String())
		}
		w.str("context_id", c.ContextID)
		w.name("message")
		w.b = appendMessage(w.b, c.Message)
		w.raw("metadata", c.Metadata)
		if c.Relay {
			w.name("relay")
			w.b = append(w.b, "true"...)
		}
		b = append(w.b, '}')
	}
	return append(b, ']')
}

// writer appends the members of one JSON object.
type writer struct {
	b     []byte
	wrote bool
}

func object(b []byte) *writer { return &writer{b: append(b, '{')} }

func (w *writer) name(n string) {
	if w.wrote {
		w.b = append(w.b, ',')
	}
	w.wrote = true
	w.b = append(w.b, '"')
	w.b = append(w.b, n...)
	w.b = append(w.b, '"', ':')
}

func (w *writer) str(name, v string) {
	if v != "" {
		w.name(name)
		w.b = appendString(w.b, v)
	}
}

func (w *writer) raw(name string, v []byte) {
	if v != nil {
		w.name(name)
		w.b = append(w.b, v...)
	}
}

func (w *writer) list(name string, v []string) {
	if len(v) == 0 {
		return
	}
	w.name(name)
	w.b = append(w.b, '[')
	for i, s := range v {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.b = appendString(w.b, s)
	}
	w.b = append(w.b, ']')
}

// appendString quotes s. Invalid UTF-8 and NUL become U+FFFD: type json would keep the escape of a NUL, but no query could read
// the member.
func appendString(b []byte, s string) []byte {
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	}
	return rawjson.AppendQuoted(b, s)
}

var roleNames = [...]string{task.RoleUnspecified: "", task.RoleUser: "user", task.RoleAgent: "agent"}

func appendMessage(b []byte, m *task.Message) []byte {
	w := object(b)
	w.str("id", m.ID)
	w.str("role", roleNames[m.Role])
	w.name("parts")
	w.b = appendParts(w.b, m.Parts)
	w.raw("metadata", m.Metadata)
	w.list("extensions", m.Extensions)
	w.list("references", m.References)
	return append(w.b, '}')
}

// appendRequest ends a message with the member for its request.
func appendRequest(b []byte, r *task.Request) []byte {
	b = append(b, `,"request":`...)
	w := object(b)
	w.raw("metadata", r.Metadata)
	w.list("output_modes", r.OutputModes)
	w.list("extensions", r.Extensions)
	w.list("scopes", r.Scopes)
	w.str("traceparent", r.Traceparent)
	w.str("tracestate", r.Tracestate)
	return append(w.b, "}}"...)
}

func appendParts(b []byte, parts []task.Part) []byte {
	b = append(b, '[')
	for i := range parts {
		if i > 0 {
			b = append(b, ',')
		}
		p := &parts[i]
		w := object(b)
		switch p.Kind {
		case task.PartText:
			w.name("text")
			w.b = appendString(w.b, p.Text)
		case task.PartRaw:
			w.name("raw")
			w.b = append(w.b, '"')
			w.b = base64.StdEncoding.AppendEncode(w.b, p.Raw)
			w.b = append(w.b, '"')
		case task.PartURL:
			w.name("url")
			w.b = appendString(w.b, p.URL)
		case task.PartData:
			w.name("data")
			if p.Data == nil {
				w.b = append(w.b, "null"...)
			} else {
				w.b = append(w.b, p.Data...)
			}
		}
		w.str("filename", p.Filename)
		w.str("media_type", p.MediaType)
		w.raw("metadata", p.Metadata)
		b = append(w.b, '}')
	}
	return append(b, ']')
}

// lenient accepts all stored values. Other packages validated the opaque values, and an odd one
// must not make its whole task unreadable.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// decodePayload fills the members of e that live in the payload.
func decodePayload(e *task.Event, payload []byte, owner *task.Task) error {
	if len(payload) == 0 {
		return nil
	}
	var err error
	switch e.Kind {
	case task.EventMessage:
		var m messageJSON
		if err = json.Unmarshal(payload, &m, lenient); err == nil {
			e.Message = m.message(owner)
			if q := m.Request; q != nil {
				e.Request = &task.Request{
					Metadata: raw(q.Metadata), OutputModes: q.OutputModes, Extensions: q.Extensions, Scopes: q.Scopes, Traceparent: q.Traceparent, Tracestate: q.Tracestate,
				}
			}
		}
	case task.EventStatus:
		var s statusJSON
		if err = json.Unmarshal(payload, &s, lenient); err == nil {
			e.Direct, e.Cause, e.Metadata, e.Artifacts = s.Direct, s.Cause, raw(s.Metadata), s.Artifacts
			if s.Message != nil {
				e.Message = s.Message.message(owner)
			}
		}
	case task.EventArtifact:
		if plainChunk(e, payload) {
			return nil
		}
		var a artifactJSON
		if err = json.Unmarshal(payload, &a, lenient); err == nil {
			e.Artifact.Index, e.Artifact.Name, e.Artifact.Description = a.Index, a.Name, a.Description
			e.Artifact.Parts = parts(a.Parts)
			e.Artifact.Metadata, e.Artifact.Extensions = raw(a.Metadata), a.Extensions
			e.Metadata = raw(a.EventMetadata)
		}
	case task.EventRun:
		var r runJSON
		if err = json.Unmarshal(payload, &r, lenient); err == nil {
			e.Run = &task.RunNote{
				Outcome: r.Outcome, Error: r.Error, Worker: r.Worker, Checkpoint: raw(r.Checkpoint), Traceparent: r.Traceparent,
				Until: r.Until.UTC(), For: time.Duration(r.For * float64(time.Second)), Interruptible: r.Interruptible, Sealed: r.Sealed,
			}
			for i := range r.Calls {
				c := &r.Calls[i]
				if c.Message == nil {
					c.Message = &messageJSON{}
				}
				e.Run.Calls = append(e.Run.Calls, task.Call{
					ID: c.ID, Agent: c.Agent, Task: task.ID(c.Task), Answers: c.Answers, ContextID: c.ContextID,
					Message: c.Message.message(nil), Metadata: raw(c.Metadata), RequestID: task.ID(c.RequestID), Relay: c.Relay,
				})
			}
		}
	}
	if err != nil {
		return fmt.Errorf("payload of event %d of task %s: %w", e.Seq, e.Task, err)
	}
	return nil
}

// plainChunk decodes the payload of a chunk that is one text and perhaps has a name: nearly all payloads of long logs. It reports
// false for any other, without a change of the event.
func plainChunk(e *task.Event, payload []byte) bool {
	rest, ok := bytes.CutPrefix(payload, []byte(`{"index":`))
	index, digits := 0, 0
	for ok && digits < len(rest) && digits < 9 && rest[digits] >= '0' && rest[digits] <= '9' {
		index = index*10 + int(rest[digits]-'0')
		digits++
	}
	if digits == 0 {
		return false
	}
	rest = rest[digits:]
	var name, text string
	if after, named := bytes.CutPrefix(rest, []byte(`,"name":`)); named {
		if name, rest, ok = cutString(after); !ok {
			return false
		}
	}
	if rest, ok = bytes.CutPrefix(rest, []byte(`,"parts":[{"text":`)); !ok {
		return false
	}
	if text, rest, ok = cutString(rest); !ok || string(rest) != `}]}` {
		return false
	}
	e.Artifact.Index, e.Artifact.Name, e.Artifact.Parts = index, name, append(e.Artifact.Parts, task.Text(text))
	return true
}

// cutString reads the JSON string at the beginning of b, and returns what follows it.
func cutString(b []byte) (s string, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '"' {
		return "", nil, false
	}
	end := bytes.IndexByte(b[1:], '"') + 1
	if end < 1 {
		return "", nil, false
	}
	if bytes.IndexByte(b[1:end], '\\') < 0 {
		return string(b[1:end]), b[end+1:], true
	}
	for end = 1; end < len(b) && b[end] != '"'; end++ {
		if b[end] == '\\' {
			end++
		}
	}
	if end >= len(b) {
		return "", nil, false
	}
	out, err := jsontext.AppendUnquote(nil, b[:end+1])
	return string(out), b[end+1:], err == nil
}

func raw(v jsontext.Value) stdjson.RawMessage {
	if v == nil {
		return nil
	}
	return stdjson.RawMessage(v)
}

func (m *messageJSON) message(owner *task.Task) *task.Message {
	out := &task.Message{
		ID: m.ID, Parts: parts(m.Parts), Metadata: raw(m.Metadata),
		Extensions: m.Extensions, References: m.References,
	}
	switch m.Role {
	case "user":
		out.Role = task.RoleUser
	case "agent":
		out.Role = task.RoleAgent
	}
	if owner != nil {
		out.TaskID, out.ContextID = owner.PublicID, owner.ContextID
	}
	return out
}

func parts(in []partJSON) []task.Part {
	out := make([]task.Part, len(in))
	for i := range in {
		p := &in[i]
		q := task.Part{Filename: p.Filename, MediaType: p.MediaType, Metadata: raw(p.Metadata)}
		switch {
		case p.Text != nil:
			q.Kind, q.Text = task.PartText, *p.Text
		case p.URL != nil:
			q.Kind, q.URL = task.PartURL, *p.URL
		case p.Data != nil:
			q.Kind, q.Data = task.PartData, raw(p.Data)
		default:
			q.Kind, q.Raw = task.PartRaw, p.Raw
		}
		out[i] = q
	}
	return out
}
