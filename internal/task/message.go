package task

import "encoding/json"

// Role is the role of a message's author.
type Role uint8

// The roles of every A2A version.
const (
	RoleUnspecified Role = iota
	RoleUser
	RoleAgent
)

// PartKind says which member of a Part holds its content.
type PartKind uint8

// The kinds of content, named as in A2A 1.0.
const (
	PartText PartKind = iota + 1
	PartRaw
	PartURL
	PartData
)

// Part is one piece of content, in the form of A2A 1.0. Older forms are mapped to it.
type Part struct {
	Kind      PartKind
	Text      string          // PartText
	Raw       []byte          // PartRaw, decoded
	URL       string          // PartURL; empty for a file that has only a name
	Data      json.RawMessage // PartData: any JSON value, as the sender wrote it
	Filename  string
	MediaType string
	Metadata  json.RawMessage // a JSON object or nil

	// Quoted is the JSON of Text, if it is known already, else "".
	Quoted string `json:"-"`
}

// Size returns the size of the part, in bytes. Files count decoded, not in base64.
func (p *Part) Size() int64 {
	return int64(len(p.Text) + len(p.Raw) + len(p.Data) + len(p.URL) + len(p.Metadata))
}

// Message is one turn of a conversation.
type Message struct {
	ID         string
	Role       Role
	ContextID  string // filled in when stored
	TaskID     string // the public id; filled in when stored
	Parts      []Part
	Metadata   json.RawMessage
	Extensions []string
	References []string // referenceTaskIds
}

// overhead is about what a message or a part takes without its content: names of members, the ids of the task.
const overhead = 256

// Size returns about how many bytes the message takes. Files count decoded, not in base64.
func (m *Message) Size() int64 {
	n := int64(overhead + len(m.ID) + len(m.ContextID) + len(m.TaskID) + len(m.Metadata))
	for i := range m.Parts {
		n += overhead + m.Parts[i].memory()
	}
	return n + lengths(m.Extensions) + lengths(m.References)
}

// memory is Size with what limits do not count.
func (p *Part) memory() int64 { return p.Size() + int64(len(p.Filename)+len(p.MediaType)) }

func lengths(all []string) (n int64) {
	for _, s := range all {
		n += int64(len(s))
	}
	return n
}

// Artifact is an output of a task. In an event it is one chunk.
type Artifact struct {
	ID          string
	Index       int // position of first appearance in its task, the identity in A2A 0.1
	Name        string
	Description string
	Parts       []Part
	Metadata    json.RawMessage
	Extensions  []string
}

// Size returns the size of its parts and metadata, in bytes.
func (a *Artifact) Size() int64 {
	n := int64(len(a.Metadata))
	for i := range a.Parts {
		n += a.Parts[i].Size()
	}
	return n
}

// Memory returns about how many bytes of memory the artifact takes. Size is what limits count.
func (a *Artifact) Memory() int64 {
	n := int64(len(a.ID)+len(a.Name)+len(a.Description)+len(a.Metadata)) + lengths(a.Extensions)
	for i := range a.Parts {
		n += overhead/2 + a.Parts[i].memory()
	}
	return n
}

// Text returns a text part.
func Text(s string) Part { return Part{Kind: PartText, Text: s} }

// FirstText returns the text of the first text part, or "".
func (m *Message) FirstText() string {
	if m == nil {
		return ""
	}
	for i := range m.Parts {
		if m.Parts[i].Kind == PartText {
			return m.Parts[i].Text
		}
	}
	return ""
}
