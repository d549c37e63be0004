package wire

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// Document is a run document as an agent in Go reads it.
type Document struct {
	Run        *executor.Run // without Memory, Buffer and ID
	Checkpoint json.RawMessage
	Earlier    []string // ids of the artifacts that earlier tries left
	References []executor.Reference
	States     map[executor.Scope]executor.State
}

// readDocument is runDocument with the member input in a form that can be decoded.
type readDocument struct {
	runDocument
	Input *struct {
		Source      string    `json:"source"`
		Until       time.Time `json:"until"`
		Interrupted bool      `json:"interrupted"`
		Results     []result  `json:"results"`
		resumed
	} `json:"input"`
}

// DecodeRun reads a run document. Unknown members are ignored, and contents are kept as they are.
func DecodeRun(raw []byte) (*Document, error) {
	var in readDocument
	if err := jsonv2.Unmarshal(raw, &in); err != nil {
		return nil, fmt.Errorf("the run document is not understood: %w", explain(err))
	}
	if in.Version != Version {
		return nil, fmt.Errorf("the run document has the version %d; this program knows %d", in.Version, Version)
	}
	run := &executor.Run{
		Key: in.IdempotencyKey, TaskID: in.Task.ID, ContextID: in.Task.ContextID, Agent: in.Task.Agent, Tenant: in.Task.Tenant, Owner: in.Task.Owner,
		Keys:    executor.Keys{Task: in.Task.Key, Context: in.Task.ContextKey},
		Message: &task.Message{Role: task.RoleUser}, Metadata: json.RawMessage(in.Metadata), TurnMetadata: json.RawMessage(in.TurnMetadata),
		AcceptedOutputModes: in.AcceptedOutputModes, Extensions: in.Extensions, ExtensionParams: in.ExtensionParams, Scopes: in.Scopes,
		Traceparent: in.Traceparent, Deadline: in.Deadline, Attempt: task.Attempt(in.Attempt), Try: in.Try, Turn: in.Turn, Limits: executor.Limits(in.Limits),
	}
	out := &Document{Run: run, Checkpoint: json.RawMessage(in.Checkpoint)}
	var err error
	if in.Message != nil {
		if run.Message, err = in.Message.past(); err != nil {
			return nil, fmt.Errorf("message: %w", err)
		}
	}
	if in.Resume != nil {
		run.ResumeURL = in.Resume.URL
	}
	if in.RunAPI != nil {
		run.API = &executor.API{URL: in.RunAPI.URL, Token: in.RunAPI.Token}
	}
	for _, a := range in.Earlier {
		out.Earlier = append(out.Earlier, a.ArtifactID)
	}
	if s := in.State; s != nil {
		out.States = map[executor.Scope]executor.State{}
		for of, stored := range map[executor.Scope]*StateDocument{executor.OfTask: s.Task, executor.OfContext: s.Context} {
			if stored != nil {
				out.States[of] = executor.State{Value: json.RawMessage(stored.Data), Version: stored.Version}
			}
		}
	}
	for i, r := range in.References {
		said, err := readSaid(r.History, r.ID)
		if err != nil {
			return nil, fmt.Errorf("references[%d]: %w", i, err)
		}
		state, _ := task.ParseState(r.State)
		out.References = append(out.References, executor.Reference{TaskID: r.ID, ContextID: r.ContextID, State: state, Said: said})
	}
	if in.Input == nil {
		return out, nil
	}
	run.Input = &executor.Input{Source: in.Input.Source, Until: in.Input.Until, Interrupted: in.Input.Interrupted}
	for i := range in.Input.Results {
		r, err := in.Input.Results[i].past()
		if err != nil {
			return nil, fmt.Errorf("input.results[%d]: %w", i, err)
		}
		run.Input.Results = append(run.Input.Results, r)
	}
	if in.Input.Source == executor.SourceResume {
		if run.Input.Resumed, err = in.Input.past(); err != nil {
			return nil, fmt.Errorf("input: %w", err)
		}
	}
	return out, nil
}

// DecodeHistory reads a part of the conversation of a task. next is where older entries begin.
func DecodeHistory(raw []byte, taskID string) (said []executor.Said, next string, err error) {
	var in HistoryDocument
	if err := jsonv2.Unmarshal(raw, &in); err != nil {
		return nil, "", fmt.Errorf("the history is not understood: %w", explain(err))
	}
	said, err = readSaid(in.Entries, taskID)
	return said, in.Next, err
}

// DecodeArtifact reads an artifact with its whole content.
func DecodeArtifact(raw []byte) (*task.Artifact, error) {
	var in ArtifactDocument
	if err := jsonv2.Unmarshal(raw, &in); err != nil {
		return nil, fmt.Errorf("the artifact is not understood: %w", explain(err))
	}
	return in.past()
}

func readSaid(entries []entry, taskID string) ([]executor.Said, error) {
	out := make([]executor.Said, len(entries))
	for i := range entries {
		e := &entries[i]
		m, err := e.past()
		if err != nil {
			return nil, fmt.Errorf("history[%d]: %w", i, err)
		}
		s := executor.Said{TaskID: e.TaskID, Left: e.Omitted}
		if s.TaskID == "" {
			s.TaskID = taskID
		}
		if e.ArtifactID != "" {
			s.Artifact = &task.Artifact{
				ID: e.ArtifactID, Name: e.Name, Description: e.Description, Parts: m.Parts, Metadata: m.Metadata, Extensions: m.Extensions,
			}
		} else {
			s.Message = m
			s.State, _ = task.ParseState(e.State) // unspecified without one
		}
		out[i] = s
	}
	return out, nil
}

// past returns a message that the server has sent. Unlike an event's it may be without parts.
func (m *message) past() (*task.Message, error) {
	out := &task.Message{
		ID: m.MessageID, Role: task.RoleUser, Metadata: json.RawMessage(m.Metadata), Extensions: m.Extensions, References: m.ReferenceTaskIDs,
		Parts: make([]task.Part, len(m.Parts)),
	}
	if m.Role != nil && *m.Role == roleAgent {
		out.Role = task.RoleAgent
	}
	for i := range m.Parts {
		var err error
		if out.Parts[i], err = m.Parts[i].past(); err != nil {
			return nil, fmt.Errorf("parts[%d]: %w", i, err)
		}
	}
	return out, nil
}

func (p *part) past() (task.Part, error) {
	out := task.Part{Filename: p.Filename, MediaType: p.MediaType, Metadata: json.RawMessage(p.Metadata)}
	switch {
	case p.Text != nil:
		out.Kind, out.Text = task.PartText, *p.Text
	case p.Raw != nil:
		raw, err := base64.StdEncoding.DecodeString(*p.Raw)
		if err != nil {
			return out, fmt.Errorf("raw: %w", err)
		}
		out.Kind, out.Raw = task.PartRaw, raw
	case p.URL != nil:
		out.Kind, out.URL = task.PartURL, *p.URL
	case p.Data != nil:
		out.Kind, out.Data = task.PartData, json.RawMessage(p.Data)
	default:
		return out, malformed("", "has none of text, raw, url, data")
	}
	return out, nil
}

func (a *ArtifactDocument) past() (*task.Artifact, error) {
	m, err := (&message{Parts: a.Parts}).past()
	if err != nil {
		return nil, err
	}
	return &task.Artifact{
		ID: a.ArtifactID, Name: a.Name, Description: a.Description, Parts: m.Parts, Metadata: json.RawMessage(a.Metadata), Extensions: a.Extensions,
	}, nil
}

func (r *result) past() (executor.Result, error) {
	state, _ := task.ParseState(r.State)
	out := executor.Result{ID: r.ID, Agent: r.Agent, TaskID: r.Task, State: state, Omitted: r.Omitted, Error: r.Error}
	if r.Message != nil {
		m, err := r.Message.past()
		if err != nil {
			return out, fmt.Errorf("message: %w", err)
		}
		out.Message = m
	}
	for i := range r.Artifacts {
		a, err := r.Artifacts[i].past()
		if err != nil {
			return out, fmt.Errorf("artifacts[%d]: %w", i, err)
		}
		out.Artifacts = append(out.Artifacts, *a)
	}
	return out, nil
}

// past returns the request by resume URL. Its body is as it came, except for white space around JSON.
func (r *resumed) past() (*executor.Resumed, error) {
	out := &executor.Resumed{Method: r.Method, Query: r.Query, ContentType: r.ContentType}
	switch {
	case r.Data != nil:
		out.Body = r.Data
	case r.Text != nil:
		out.Body = []byte(*r.Text)
	case r.Bytes != nil:
		var err error
		if out.Body, err = base64.StdEncoding.DecodeString(*r.Bytes); err != nil {
			return nil, fmt.Errorf("bytes: %w", err)
		}
	}
	return out, nil
}
