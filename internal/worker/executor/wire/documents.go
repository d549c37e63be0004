package wire

import (
	"encoding/json"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// The documents of the run API (docs/run-api.yaml), besides the run document.

// HistoryDocument is a part of a conversation.
type HistoryDocument struct {
	Entries []entry `json:"history"`
	Next    string  `json:"next,omitempty"` // where older entries begin
}

// NewHistory makes a part of the conversation of a task, or of its context.
func NewHistory(taskID string, said []executor.Said, next string) HistoryDocument {
	doc := HistoryDocument{Entries: make([]entry, 0, len(said)), Next: next}
	for i := range said {
		doc.Entries = append(doc.Entries, fromSaid(&said[i], taskID))
	}
	return doc
}

// TaskDocument is another task of the context.
type TaskDocument struct {
	ID        string    `json:"id"`
	ContextID string    `json:"contextId"`
	State     string    `json:"state"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"` // when it got its state
	*HistoryDocument
}

// NewTask describes a task; history may be nil.
func NewTask(h *task.Task, history *HistoryDocument) TaskDocument {
	return TaskDocument{
		ID: h.PublicID, ContextID: h.ContextID, State: h.Status.State.String(),
		CreatedAt: h.CreatedAt.UTC(), UpdatedAt: h.Status.At.UTC(), HistoryDocument: history,
	}
}

// ArtifactDocument is an artifact with its whole content.
type ArtifactDocument struct {
	ArtifactID  string         `json:"artifactId,omitempty"` // an event may leave it out
	Name        string         `json:"name,omitempty"`
	Description string         `json:"description,omitempty"`
	Parts       []part         `json:"parts"`
	Metadata    jsontext.Value `json:"metadata,omitzero"`
	Extensions  []string       `json:"extensions,omitempty"`
}

// NewArtifact describes an artifact.
func NewArtifact(a *task.Artifact) ArtifactDocument {
	return ArtifactDocument{a.ID, a.Name, a.Description, fromParts(a.Parts), opaque(a.Metadata), a.Extensions}
}

func (a *ArtifactDocument) task() (*task.Artifact, *Malformed) {
	parts, bad := toParts(a.Parts)
	return &task.Artifact{
		ID: a.ArtifactID, Name: a.Name, Description: a.Description, Parts: parts, Metadata: json.RawMessage(a.Metadata), Extensions: a.Extensions,
	}, bad
}

// ArtifactList is a page of the task's artifacts.
type ArtifactList struct {
	Artifacts []ListedArtifact `json:"artifacts"`
	Next      string           `json:"next,omitempty"`
}

// ListedArtifact is an artifact without its content.
type ListedArtifact struct {
	ArtifactID string `json:"artifactId"`
	Name       string `json:"name,omitempty"`
	Chunks     int    `json:"chunks"`
	Bytes      int64  `json:"bytes"`
	Last       bool   `json:"last"`
}

// EventsAnswer is the answer to an upload of events: all before Next are stored.
type EventsAnswer struct {
	Next  int64 `json:"next"`
	Ended bool  `json:"ended"` // the run is over
}

// StateDocument is a stored state.
type StateDocument struct {
	Data    jsontext.Value `json:"data"`
	Version int64          `json:"version"`
}

// Marshal writes a document as the run document is written.
func Marshal(doc any) ([]byte, error) {
	return jsonv2.Marshal(doc, jsontext.PreserveRawStrings(true))
}
