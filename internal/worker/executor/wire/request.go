package wire

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// History says what of the conversation a run document has. The zero History means the entries of the task, within the
// default bounds.
type History struct {
	Of   executor.Scope
	None bool
	executor.Bounds
}

// The default bounds of a History.
const (
	DefaultHistory      = 100
	DefaultHistoryBytes = 1 << 20
)

type runDocument struct {
	Version        int               `json:"version"`
	IdempotencyKey string            `json:"idempotencyKey"`
	Task           taskDocument      `json:"task"`
	Message        *message          `json:"message,omitempty"`
	Input          *input            `json:"input,omitempty"`
	Resume         *resumeDocument   `json:"resume,omitempty"`
	Metadata       jsontext.Value    `json:"metadata,omitzero"`
	Turn           int               `json:"turn"`
	Try            int               `json:"try"`
	Attempt        int               `json:"attempt"`
	History        []entry           `json:"history,omitempty"`
	Checkpoint     jsontext.Value    `json:"checkpoint,omitzero"`
	Earlier        []earlierArtifact `json:"earlier,omitempty"`
	Records        *RecordList       `json:"records,omitempty"`
	State          *stateDocument    `json:"state,omitempty"`

	TurnMetadata        jsontext.Value             `json:"turnMetadata,omitzero"`
	AcceptedOutputModes []string                   `json:"acceptedOutputModes,omitempty"`
	Extensions          []string                   `json:"extensions,omitempty"`
	ExtensionParams     map[string]json.RawMessage `json:"extensionParams,omitempty"`
	Scopes              []string                   `json:"scopes,omitempty"`
	Traceparent         string                     `json:"traceparent,omitempty"`
	Tracestate          string                     `json:"tracestate,omitempty"`
	Deadline            time.Time                  `json:"deadline,omitzero"`
	References          []referenceDocument        `json:"references,omitempty"`
	RunAPI              *apiDocument               `json:"runApi,omitempty"`
	Limits              limitsDocument             `json:"limits,omitzero"`
}

type limitsDocument struct {
	Event int   `json:"event,omitzero"`
	State int64 `json:"state,omitzero"`
}

// apiDocument says where and with which token the agent can act for the run from elsewhere.
type apiDocument struct {
	URL   string `json:"url"`
	Token string `json:"token"`
}

type taskDocument struct {
	ID         string `json:"id"`
	Key        string `json:"key"`
	ContextID  string `json:"contextId"`
	ContextKey string `json:"contextKey"`
	Agent      string `json:"agent"`
	Tenant     string `json:"tenant,omitempty"`
	Owner      string `json:"owner,omitempty"`
}

// entry is a message of the history, or an artifact in the form of a message of the agent.
type entry struct {
	message
	TaskID      string `json:"taskId,omitempty"` // of another task of the context
	State       string `json:"state,omitempty"`
	ArtifactID  string `json:"artifactId,omitempty"`
	Name        string `json:"name,omitempty"`
	Description string `json:"description,omitempty"`
	Omitted     int64  `json:"omitted,omitzero"`
}

func fromSaid(s *executor.Said, taskID string) entry {
	e := entry{Omitted: s.Left}
	if s.TaskID != taskID {
		e.TaskID = s.TaskID
	}
	if a := s.Artifact; a != nil {
		e.message = fromMessage(&task.Message{Role: task.RoleAgent, Parts: a.Parts, Metadata: a.Metadata, Extensions: a.Extensions})
		e.ArtifactID, e.Name, e.Description = a.ID, a.Name, a.Description
		return e
	}
	e.message = fromMessage(s.Message)
	if s.State != task.StateUnspecified {
		e.State = s.State.String()
	}
	return e
}

// referenceDocument is a task that the message refers to.
type referenceDocument struct {
	ID        string  `json:"id"`
	ContextID string  `json:"contextId"`
	State     string  `json:"state"`
	History   []entry `json:"history,omitempty"`
}

// stateDocument has what runs have stored with state events.
type stateDocument struct {
	Task    *StateDocument `json:"task,omitempty"`
	Context *StateDocument `json:"context,omitempty"`
}

// earlierArtifact summarizes an artifact, so that an agent can continue after an earlier attempt. Its size does not
// grow with that attempt's output.
type earlierArtifact struct {
	ArtifactID string `json:"artifactId"`
	Name       string `json:"name,omitempty"`
	Chunks     int    `json:"chunks"`
	Last       bool   `json:"last"`
}

// EncodeRun writes the run document, with what was said before as its history. It queries only what can be there: a first
// try of a first turn needs one query, for the state of the context.
func EncodeRun(ctx context.Context, run *executor.Run, history History) ([]byte, error) {
	doc := runDocument{
		Version:        Version,
		IdempotencyKey: run.IdempotencyKey(),
		Task: taskDocument{
			ID: run.TaskID, Key: run.Keys.Task, ContextID: run.ContextID, ContextKey: run.Keys.Context,
			Agent: run.Agent, Tenant: run.Tenant, Owner: run.Owner,
		},
		Input:    fromInput(run.Input),
		Metadata: jsontext.Value(run.Metadata),
		Turn:     run.Turn,
		Try:      run.Try,
		Attempt:  int(run.Attempt),

		AcceptedOutputModes: run.AcceptedOutputModes, Extensions: run.Extensions, ExtensionParams: run.ExtensionParams, Scopes: run.Scopes, Traceparent: run.Traceparent, Tracestate: run.Tracestate, Deadline: run.Deadline,
	}
	if run.ResumeURL != "" {
		doc.Resume = &resumeDocument{run.ResumeURL}
	}
	if run.API != nil {
		doc.RunAPI = &apiDocument{run.API.URL, run.API.Token}
	}
	doc.Limits = limitsDocument(run.Limits)
	if run.Turn > 1 {
		doc.TurnMetadata = jsontext.Value(run.TurnMetadata)
	}
	if run.Input == nil || run.Input.Interrupted {
		m := fromMessage(run.Message)
		doc.Message = &m
	}
	if err := doc.recall(ctx, run, history); err != nil {
		return nil, err
	}
	if run.Attempt > 1 { // not Try: an attempt that was handed back does not count there, but may have written
		if err := doc.resume(ctx, run); err != nil {
			return nil, err
		}
	}
	if err := doc.refer(ctx, run, history); err != nil {
		return nil, err
	}
	if err := doc.states(ctx, run); err != nil {
		return nil, err
	}
	raw, err := jsonv2.Marshal(&doc, jsontext.PreserveRawStrings(true))
	if err != nil {
		return nil, fmt.Errorf("encode the run document: %w", err)
	}
	return raw, nil
}

// Read returns what was said before the message of the run.
func (h History) Read(ctx context.Context, run *executor.Run) ([]executor.Said, error) {
	h.Of, h.Count, h.Bytes = cmp.Or(h.Of, executor.OfTask), cmp.Or(h.Count, DefaultHistory), cmp.Or(h.Bytes, DefaultHistoryBytes)
	if h.None || run.Turn == 1 && h.Of == executor.OfTask {
		return nil, nil
	}
	said, err := run.Memory.Dialogue(ctx, h.Of, h.Bounds)
	if err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	return said, nil
}

func (d *runDocument) recall(ctx context.Context, run *executor.Run, h History) error {
	said, err := h.Read(ctx, run)
	if err != nil {
		return err
	}
	for i := range said {
		d.History = append(d.History, fromSaid(&said[i], run.TaskID))
	}
	return nil
}

// refer adds the tasks that the message refers to.
func (d *runDocument) refer(ctx context.Context, run *executor.Run, h History) error {
	if len(run.Message.References) == 0 {
		return nil
	}
	within := executor.Bounds{Count: cmp.Or(h.Count, DefaultHistory), Bytes: cmp.Or(h.Bytes, DefaultHistoryBytes) / int64(len(run.Message.References))}
	refs, err := run.Memory.References(ctx, within)
	if err != nil {
		return fmt.Errorf("read the referenced tasks: %w", err)
	}
	for _, r := range refs {
		doc := referenceDocument{ID: r.TaskID, ContextID: r.ContextID, State: r.State.String()}
		for i := range r.Said {
			doc.History = append(doc.History, fromSaid(&r.Said[i], r.TaskID))
		}
		d.References = append(d.References, doc)
	}
	return nil
}

func (d *runDocument) states(ctx context.Context, run *executor.Run) (err error) {
	scopes := []executor.Scope{executor.OfContext}
	if run.Attempt > 1 { // every turn and every try has its own attempt
		scopes = append(scopes, executor.OfTask)
	}
	d.State, err = states(func(of executor.Scope) (executor.State, error) { return run.Memory.State(ctx, of) }, scopes...)
	return err
}

func (d *runDocument) resume(ctx context.Context, run *executor.Run) error {
	checkpoint, err := run.Memory.Checkpoint(ctx)
	if err != nil {
		return fmt.Errorf("read the checkpoint: %w", err)
	}
	d.Checkpoint = jsontext.Value(checkpoint)
	events, err := run.Memory.Earlier(ctx)
	if err != nil {
		return fmt.Errorf("read the earlier events: %w", err)
	}
	d.Earlier = partialArtifacts(events)
	records, err := Records(ctx, run, 0)
	if err == nil && len(records.Records) > 0 {
		d.Records = records
	}
	return err
}

// partialArtifacts folds the events of earlier attempts into one summary per artifact, in order of appearance.
func partialArtifacts(events []task.Event) []earlierArtifact {
	var out []earlierArtifact
	at := make(map[string]int)
	for i := range events {
		e := &events[i]
		if e.Kind != task.EventArtifact || e.Artifact == nil {
			continue
		}
		n, ok := at[e.Artifact.ID]
		if !ok {
			n = len(out)
			at[e.Artifact.ID] = n
			out = append(out, earlierArtifact{ArtifactID: e.Artifact.ID})
		}
		a := &out[n]
		if !e.Append {
			*a = earlierArtifact{ArtifactID: e.Artifact.ID, Name: e.Artifact.Name}
		}
		a.Chunks++
		a.Last = e.Last
	}
	return out
}
