package a2atest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Result is a task, a message or an event of any version.
type Result struct {
	Kind      string      `json:"kind"`
	ID        string      `json:"id"`
	OfTask    string      `json:"taskId"`
	ContextID string      `json:"contextId"`
	SessionID string      `json:"sessionId"`
	Status    *Status     `json:"status"`
	Artifact  *Artifact   `json:"artifact"`
	Artifacts []*Artifact `json:"artifacts"`
	History   []Message   `json:"history"`
	Parts     []Part      `json:"parts"`
	Append    bool        `json:"append"`
	LastChunk bool        `json:"lastChunk"`
	Final     bool        `json:"final"`
	Tasks     []*Result   `json:"tasks"`
	NextPage  string      `json:"nextPageToken"`
}

// Status is the status of a task.
type Status struct {
	State   string   `json:"state"`
	Message *Message `json:"message"`
}

// Message is a message.
type Message struct {
	Role  string `json:"role"`
	Parts []Part `json:"parts"`
}

// Artifact is an artifact, or a chunk of one.
type Artifact struct {
	ArtifactID string `json:"artifactId"`
	Name       string `json:"name"`
	Parts      []Part `json:"parts"`
	Append     bool   `json:"append"`
	LastChunk  bool   `json:"lastChunk"`
}

// Part is a part with text or data.
type Part struct {
	Text string          `json:"text"`
	Data json.RawMessage `json:"data"`
}

// readResult reads a result, without its wrapper if the version has one.
func readResult(raw []byte) (*Result, error) {
	var r struct {
		Result
		Task           *Result
		StatusUpdate   *Result
		ArtifactUpdate *Result
	}
	if len(raw) > 0 && raw[0] == '[' { // a list of webhooks
		return &r.Result, nil
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("%w: %s", err, raw)
	}
	return cmp.Or(r.Task, r.StatusUpdate, r.ArtifactUpdate, &r.Result), nil
}

// Task is the id of the task.
func (r *Result) Task() string { return cmp.Or(r.OfTask, r.ID) }

// State is the state of the task, or "".
func (r *Result) State() string {
	if r.Status == nil {
		return ""
	}
	return r.Status.State
}

// Said is the text of the status message.
func (r *Result) Said() string {
	if r.Status == nil || r.Status.Message == nil {
		return ""
	}
	return Text(r.Status.Message.Parts)
}

// Text is the text of all parts.
func Text(parts []Part) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// Pieces takes the text of parts apart into the demo agent's chunks of a size, at least 32. A task has them in one part.
func Pieces(parts []Part, size int) []string {
	var out []string
	for piece := range slices.Chunk([]byte(Text(parts)), size) {
		out = append(out, string(piece))
	}
	return out
}

// Error is an error of any version and binding. Members that a binding lacks are empty.
type Error struct {
	Code    int
	Message string
	Reason  string // of an ErrorInfo
	ErrorID string // of an internal error
}

func (e *Error) Error() string { return fmt.Sprintf("%d %s", e.Code, e.Message) }

// UnmarshalJSON reads the error object of JSON-RPC or HTTP+JSON.
func (e *Error) UnmarshalJSON(raw []byte) error {
	var doc struct {
		Code          int
		Message       string
		Data, Details json.RawMessage
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return err
	}
	e.Code, e.Message = doc.Code, doc.Message
	for _, raw := range []json.RawMessage{doc.Data, doc.Details} {
		type detail struct{ ErrorID, Reason string }
		var all []detail
		if json.Unmarshal(raw, &all) != nil {
			all = make([]detail, 1)
			_ = json.Unmarshal(raw, &all[0]) // otherwise the details have neither form
		}
		for _, d := range all {
			e.ErrorID, e.Reason = cmp.Or(e.ErrorID, d.ErrorID), cmp.Or(e.Reason, d.Reason)
		}
	}
	return nil
}
