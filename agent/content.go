package agent

import (
	"encoding/json"
	"fmt"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Role says who wrote a message.
type Role string

// The roles.
const (
	User  Role = "user"
	Agent Role = "agent"
)

// Part is one piece of content: text, the bytes of a file, the URL of a file, or a JSON value. Make one with TextPart,
// FilePart, URLPart or DataPart. Kind says which of the first four fields is used.
type Part struct {
	Kind  Kind
	Text  string
	Bytes []byte
	URL   string
	Data  json.RawMessage // kept as it is: numbers, escapes, key order

	Filename  string
	MediaType string
	Metadata  json.RawMessage // a JSON object or nil
}

// Kind says which field of a Part has its content.
type Kind uint8

// The kinds of content.
const (
	KindText Kind = Kind(task.PartText)
	KindFile Kind = Kind(task.PartRaw)
	KindURL  Kind = Kind(task.PartURL)
	KindData Kind = Kind(task.PartData)
)

// TextPart is a part with text.
func TextPart(text string) Part { return Part{Kind: KindText, Text: text} }

// FilePart is a part with the bytes of a file.
func FilePart(filename, mediaType string, content []byte) Part {
	return Part{Kind: KindFile, Bytes: content, Filename: filename, MediaType: mediaType}
}

// URLPart is a part with a file that the client fetches itself.
func URLPart(url, mediaType string) Part {
	return Part{Kind: KindURL, URL: url, MediaType: mediaType}
}

// DataPart is a part with a JSON value.
func DataPart(data json.RawMessage) Part { return Part{Kind: KindData, Data: data} }

// Message is one turn of the conversation. ID and Role may be left empty in a
// message that the agent sends.
type Message struct {
	ID         string
	Role       Role
	Parts      []Part
	Metadata   json.RawMessage // a JSON object or nil
	Extensions []string
	References []string // ids of other tasks

	// EventMetadata is the metadata of the status with the message, a JSON object or nil. A status may have it without
	// Parts. A reply has none.
	EventMetadata json.RawMessage
}

// Say is a message with text.
func Say(text string) Message { return Message{Parts: []Part{TextPart(text)}} }

// Sayf is a message with formatted text.
func Sayf(format string, args ...any) Message { return Say(fmt.Sprintf(format, args...)) }

// Text is the text of the first text part, or "".
func (m Message) Text() string {
	for i := range m.Parts {
		if m.Parts[i].Kind == KindText {
			return m.Parts[i].Text
		}
	}
	return ""
}

// Artifact is an output of a task.
type Artifact struct {
	ID          string // unique in the task; empty for a new artifact
	Name        string
	Description string
	Parts       []Part
	Metadata    json.RawMessage // a JSON object or nil
	Extensions  []string
}

// Text is an artifact with text.
func Text(name, text string) Artifact { return Artifact{Name: name, Parts: []Part{TextPart(text)}} }

// File is an artifact with the bytes of a file.
func File(name, mediaType string, content []byte) Artifact {
	return Artifact{Name: name, Parts: []Part{FilePart(name, mediaType, content)}}
}

// URL is an artifact with a file that the client fetches itself.
func URL(name, url, mediaType string) Artifact {
	return Artifact{Name: name, Parts: []Part{URLPart(url, mediaType)}}
}

// Data is an artifact with a JSON value.
func Data(name string, data json.RawMessage) Artifact {
	return Artifact{Name: name, Parts: []Part{DataPart(data)}}
}

// Chunk is a piece of the artifact with its ID. The first chunk starts the artifact, or replaces the one of an earlier
// try; chunks with Append continue it.
type Chunk struct {
	Artifact
	Append bool
	Last   bool

	EventMetadata json.RawMessage // of the event, not of the artifact; a JSON object or nil
}
