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

type artifact struct {
	ArtifactID  string         `json:"artifactId"`
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Parts       []part         `json:"parts"`
	Metadata    jsontext.Value `json:"metadata"`
	Extensions  []string       `json:"extensions"`
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

// task returns the agent's message, or nil without one.
func (s *speech) task() (*task.Message, *Malformed) {
	if s == nil {
		return nil, nil
	}
	if s.Role != nil && *s.Role != roleAgent {
		return nil, malformed("role", "must be %q or left out", roleAgent)
	}
	parts, bad := toParts(s.Parts)
	if bad != nil {
		return nil, bad
	}
	metadata, bad := object(s.Metadata)
	if bad != nil {
		return nil, bad.inside("metadata")
	}
	if bad := names("extensions", s.Extensions); bad != nil {
		return nil, bad
	}
	if bad := names("referenceTaskIds", s.ReferenceTaskIDs); bad != nil {
		return nil, bad
	}
	return &task.Message{
		ID: s.MessageID, Role: task.RoleAgent, Parts: parts, Metadata: metadata,
		Extensions: s.Extensions, References: s.ReferenceTaskIDs,
	}, nil
}

func (a *artifact) task() (task.Artifact, *Malformed) {
	parts, bad := toParts(a.Parts)
	if bad != nil {
		return task.Artifact{}, bad
	}
	metadata, bad := object(a.Metadata)
	if bad != nil {
		return task.Artifact{}, bad.inside("metadata")
	}
	if bad := names("extensions", a.Extensions); bad != nil {
		return task.Artifact{}, bad
	}
	return task.Artifact{
		ID: a.ArtifactID, Name: a.Name, Description: a.Description,
		Parts: parts, Metadata: metadata, Extensions: a.Extensions,
	}, nil
}

func toParts(parts []part) ([]task.Part, *Malformed) {
	if len(parts) == 0 {
		return nil, malformed("parts", "needs at least one part")
	}
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
	metadata, bad := object(p.Metadata)
	if bad != nil {
		return task.Part{}, bad.inside("metadata")
	}
	out := task.Part{Filename: p.Filename, MediaType: p.MediaType, Metadata: metadata}
	contents := 0
	if p.Text != nil {
		out.Kind, out.Text = task.PartText, *p.Text
		contents++
	}
	if p.Raw != nil {
		raw, ok := task.DecodeBase64([]byte(*p.Raw))
		if !ok {
			return task.Part{}, malformed("raw", "must be base64")
		}
		out.Kind, out.Raw = task.PartRaw, raw
		contents++
	}
	if p.URL != nil {
		if *p.URL == "" {
			return task.Part{}, malformed("url", "must not be empty")
		}
		out.Kind, out.URL = task.PartURL, *p.URL
		contents++
	}
	if bad := unreadable("data", p.Data); bad != nil {
		return task.Part{}, bad
	}
	if p.Data != nil {
		out.Kind, out.Data = task.PartData, compact(p.Data)
		contents++
	}
	switch {
	case contents == 0:
		return task.Part{}, malformed("", "needs one of text, raw, url, data")
	case contents > 1:
		return task.Part{}, malformed("", "has more than one of text, raw, url, data")
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
func object(v jsontext.Value) (json.RawMessage, *Malformed) {
	switch v.Kind() {
	case jsontext.KindBeginObject:
		return compact(v), unreadable("", v)
	case jsontext.KindInvalid, jsontext.KindNull:
		return nil, nil
	default:
		return nil, malformed("", "must be an object, not %s", found(v.Kind()))
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
	out := message{
		MessageID: m.ID, Role: roleOf(m), Parts: make([]part, len(m.Parts)), Metadata: jsontext.Value(m.Metadata),
		Extensions: m.Extensions, ReferenceTaskIDs: m.References,
	}
	for i := range m.Parts {
		out.Parts[i] = fromPart(&m.Parts[i])
	}
	return out
}

func roleOf(m *task.Message) *string {
	role := roleUser
	if m.Role == task.RoleAgent {
		role = roleAgent
	}
	return &role
}

func fromPart(p *task.Part) part {
	out := part{Filename: p.Filename, MediaType: p.MediaType, Metadata: jsontext.Value(p.Metadata)}
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
