package wire

import (
	"context"
	"fmt"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// DefaultHistory is the default number of previous messages in a run document.
const DefaultHistory = 100

type runDocument struct {
	Version        int               `json:"version"`
	IdempotencyKey string            `json:"idempotencyKey"`
	Task           taskDocument      `json:"task"`
	Message        *message          `json:"message,omitempty"`
	Input          *input            `json:"input,omitempty"`
	Metadata       jsontext.Value    `json:"metadata,omitzero"`
	Turn           int               `json:"turn"`
	Try            int               `json:"try"`
	Attempt        int               `json:"attempt"`
	History        []message         `json:"history,omitempty"`
	Checkpoint     jsontext.Value    `json:"checkpoint,omitzero"`
	Earlier        []earlierArtifact `json:"earlier,omitempty"`
}

type taskDocument struct {
	ID        string `json:"id"`
	ContextID string `json:"contextId"`
	Agent     string `json:"agent"`
	Tenant    string `json:"tenant,omitempty"`
	Owner     string `json:"owner,omitempty"`
}

// earlierArtifact summarizes an artifact, so that an agent can continue after an earlier attempt. Its size does not
// grow with that attempt's output.
type earlierArtifact struct {
	ArtifactID string `json:"artifactId"`
	Name       string `json:"name,omitempty"`
	Chunks     int    `json:"chunks"`
	Last       bool   `json:"last"`
}

// EncodeRun writes the run document, with at most history previous messages. It queries the log only if there can be
// something: a first try of a first turn needs no query.
func EncodeRun(ctx context.Context, run *executor.Run, history int) ([]byte, error) {
	doc := runDocument{
		Version:        Version,
		IdempotencyKey: run.IdempotencyKey(),
		Task: taskDocument{
			ID: run.TaskID, ContextID: run.ContextID, Agent: run.Agent, Tenant: run.Tenant, Owner: run.Owner,
		},
		Input:    fromInput(run.Input),
		Metadata: jsontext.Value(run.Metadata),
		Turn:     run.Turn,
		Try:      run.Try,
		Attempt:  int(run.Attempt),
	}
	if run.Input == nil || run.Input.Interrupted {
		m := fromMessage(run.Message)
		doc.Message = &m
	}
	if run.Turn > 1 && history > 0 {
		if err := doc.recall(ctx, run, history); err != nil {
			return nil, err
		}
	}
	if run.Attempt > 1 { // not Try: an attempt that was handed back does not count there, but may have written
		if err := doc.resume(ctx, run); err != nil {
			return nil, err
		}
	}
	raw, err := jsonv2.Marshal(&doc, jsontext.PreserveRawStrings(true))
	if err != nil {
		return nil, fmt.Errorf("encode the run document: %w", err)
	}
	return raw, nil
}

func (d *runDocument) recall(ctx context.Context, run *executor.Run, limit int) error {
	messages, err := run.Memory.History(ctx)
	if err != nil {
		return fmt.Errorf("read the history: %w", err)
	}
	messages = messages[max(0, len(messages)-limit):]
	for i := range messages {
		d.History = append(d.History, fromMessage(&messages[i]))
	}
	return nil
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
	return nil
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
