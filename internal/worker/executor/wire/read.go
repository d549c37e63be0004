package wire

import (
	"encoding/json"
	"fmt"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// Document is a run document as an agent in Go reads it.
type Document struct {
	Run        *executor.Run // without Memory, Buffer and ID
	Checkpoint json.RawMessage
	Records    *RecordList
	Earlier    []string // ids of the artifacts that earlier tries left
	References []executor.Reference
	States     map[executor.Scope]executor.State
}

// DecodeRun reads a run document. Unknown members are ignored, and contents are kept as they are.
func DecodeRun(raw []byte) (*Document, error) {
	var in runDocument
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
	out := &Document{Run: run, Checkpoint: json.RawMessage(in.Checkpoint), Records: in.Records}
	var bad *Malformed
	if in.Message != nil {
		if run.Message, bad = in.Message.task(); bad != nil {
			return nil, bad.inside("message")
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
		r, bad := in.Input.Results[i].executor()
		if bad != nil {
			return nil, bad.inside(fmt.Sprintf("input.results[%d]", i))
		}
		run.Input.Results = append(run.Input.Results, r)
	}
	if in.Input.Source == executor.SourceResume {
		if run.Input.Resumed, bad = in.Input.executor(); bad != nil {
			return nil, bad.inside("input")
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
	a, bad := in.task()
	if bad != nil {
		return nil, bad
	}
	return a, nil
}

func readSaid(entries []entry, taskID string) ([]executor.Said, error) {
	out := make([]executor.Said, len(entries))
	for i := range entries {
		e := &entries[i]
		m, bad := e.task()
		if bad != nil {
			return nil, bad.inside(fmt.Sprintf("history[%d]", i))
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
