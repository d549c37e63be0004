package wire

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// The names of the roles in both directions.
const (
	roleUser  = "user"
	roleAgent = "agent"
)

type message struct {
	MessageID        string         `json:"messageId,omitempty"`
	Role             *string        `json:"role,omitzero"`
	Parts            []part         `json:"parts"`
	Metadata         jsontext.Value `json:"metadata,omitzero"`
	Extensions       []string       `json:"extensions,omitempty"`
	ReferenceTaskIDs []string       `json:"referenceTaskIds,omitempty"`
}

// part has the shape of A2A 1.0: one of the first four members is the content.
type part struct {
	Text      *string        `json:"text,omitzero"`
	Raw       *string        `json:"raw,omitzero"`
	URL       *string        `json:"url,omitzero"`
	Data      jsontext.Value `json:"data,omitzero"`
	Filename  string         `json:"filename,omitempty"`
	MediaType string         `json:"mediaType,omitempty"`
	Metadata  jsontext.Value `json:"metadata,omitzero"`
}

// speech is a message, or a string that means one text part.
type speech struct{ message }

func (s *speech) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	switch dec.PeekKind() {
	case jsontext.KindString:
		token, err := dec.ReadToken()
		if err != nil {
			return err
		}
		text := token.String()
		s.Parts = []part{{Text: &text}}
		return nil
	case jsontext.KindBeginObject:
		return jsonv2.UnmarshalDecode(dec, &s.message)
	default:
		if err := dec.SkipValue(); err != nil {
			return err
		}
		return malformed("", "must be a string or a message")
	}
}

// said returns the member message of an event, or nil without one.
func (s *speech) said(needed bool) (*task.Message, *Malformed) {
	switch {
	case s == nil && needed:
		return nil, malformed("message", "is missing")
	case s == nil:
		return nil, nil
	case s.Role != nil && *s.Role != roleAgent:
		return nil, malformed("message.role", "must be %q or left out", roleAgent)
	}
	bad := check(s.Parts, &s.Metadata, s.Extensions)
	if bad == nil {
		bad = names("referenceTaskIds", s.ReferenceTaskIDs)
	}
	if bad != nil {
		return nil, bad.inside("message")
	}
	msg, bad := s.task()
	if bad != nil {
		return nil, bad.inside("message")
	}
	msg.Role = task.RoleAgent
	return msg, nil
}

// check refuses content of an agent that is not complete, or that clients could not read.
func check(parts []part, metadata *jsontext.Value, extensions []string) *Malformed {
	if len(parts) == 0 {
		return malformed("parts", "needs at least one part")
	}
	for i := range parts {
		if bad := parts[i].check(); bad != nil {
			return bad.inside(fmt.Sprintf("parts[%d]", i))
		}
	}
	if bad := object(metadata); bad != nil {
		return bad.inside("metadata")
	}
	return names("extensions", extensions)
}

func (p *part) check() *Malformed {
	if bad := object(&p.Metadata); bad != nil {
		return bad.inside("metadata")
	}
	contents := 0
	for _, given := range []bool{p.Text != nil, p.Raw != nil, p.URL != nil, p.Data != nil} {
		if given {
			contents++
		}
	}
	switch {
	case p.URL != nil && *p.URL == "":
		return malformed("url", "must not be empty")
	case contents > 1:
		return malformed("", "has more than one of text, raw, url, data")
	}
	p.Data = jsontext.Value(compact(p.Data))
	return unreadable("data", p.Data)
}

// task returns a message. One that the server has sent may be without parts.
func (m *message) task() (*task.Message, *Malformed) {
	role := task.RoleUser
	if m.Role != nil && *m.Role == roleAgent {
		role = task.RoleAgent
	}
	parts, bad := toParts(m.Parts)
	return &task.Message{
		ID: m.MessageID, Role: role, Parts: parts, Metadata: json.RawMessage(m.Metadata), Extensions: m.Extensions, References: m.ReferenceTaskIDs,
	}, bad
}

func toParts(parts []part) ([]task.Part, *Malformed) {
	out := make([]task.Part, len(parts))
	for i := range parts {
		var bad *Malformed
		if out[i], bad = parts[i].task(); bad != nil {
			return nil, bad.inside(fmt.Sprintf("parts[%d]", i))
		}
	}
	return out, nil
}

func (p *part) task() (task.Part, *Malformed) {
	out := task.Part{Filename: p.Filename, MediaType: p.MediaType, Metadata: json.RawMessage(p.Metadata)}
	switch {
	case p.Text != nil:
		out.Kind, out.Text = task.PartText, *p.Text
	case p.Raw != nil:
		raw, ok := task.DecodeBase64([]byte(*p.Raw))
		if !ok {
			return out, malformed("raw", "must be base64")
		}
		out.Kind, out.Raw = task.PartRaw, raw
	case p.URL != nil:
		out.Kind, out.URL = task.PartURL, *p.URL
	case p.Data != nil:
		out.Kind, out.Data = task.PartData, json.RawMessage(p.Data)
	default:
		return out, malformed("", "needs one of text, raw, url, data")
	}
	return out, nil
}

func names(member string, list []string) *Malformed {
	if i := slices.Index(list, ""); i >= 0 {
		return malformed(fmt.Sprintf("%s[%d]", member, i), "must be a string that is not empty")
	}
	return nil
}

// object checks that opaque JSON is an object or absent.
func object(v *jsontext.Value) *Malformed {
	switch v.Kind() {
	case jsontext.KindBeginObject:
		*v = jsontext.Value(compact(*v))
		return unreadable("", *v)
	case jsontext.KindInvalid, jsontext.KindNull:
		*v = nil
		return nil
	default:
		return malformed("", "must be an object, not %s", found(v.Kind()))
	}
}

// unreadable refuses JSON that libraries of clients could not read.
func unreadable(member string, v jsontext.Value) *Malformed {
	if task.Deeper(v, task.MaxNesting) {
		return malformed(member, "nests deeper than the %d levels that clients can read", task.MaxNesting)
	}
	return nil
}

// compact removes white space and changes nothing else: the log must not get the line breaks of a pretty-printed
// answer.
func compact(v jsontext.Value) json.RawMessage {
	_ = v.Compact() // fails only for invalid JSON, and the decoder has accepted v
	return json.RawMessage(v)
}

func fromMessage(m *task.Message) message {
	return message{
		MessageID: m.ID, Role: roleOf(m), Parts: fromParts(m.Parts), Metadata: opaque(m.Metadata),
		Extensions: m.Extensions, ReferenceTaskIDs: m.References,
	}
}

func fromParts(parts []task.Part) []part {
	out := make([]part, len(parts))
	for i := range parts {
		out[i] = fromPart(&parts[i])
	}
	return out
}

// opaque leaves out what is empty.
func opaque(raw json.RawMessage) jsontext.Value {
	if len(raw) == 0 {
		return nil
	}
	return jsontext.Value(raw)
}

func roleOf(m *task.Message) *string {
	role := roleUser
	if m.Role == task.RoleAgent {
		role = roleAgent
	}
	return &role
}

func fromPart(p *task.Part) part {
	out := part{Filename: p.Filename, MediaType: p.MediaType, Metadata: opaque(p.Metadata)}
	switch p.Kind {
	case task.PartText:
		out.Text = &p.Text
	case task.PartRaw:
		raw := base64.StdEncoding.EncodeToString(p.Raw)
		out.Raw = &raw
	case task.PartURL:
		out.URL = &p.URL
	case task.PartData:
		out.Data = jsontext.Value(p.Data)
	}
	return out
}
