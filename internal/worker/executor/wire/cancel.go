package wire

import (
	"context"
	"fmt"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

type cancelDocument struct {
	Version        int             `json:"version"`
	Reason         executor.Reason `json:"reason"`
	IdempotencyKey string          `json:"idempotencyKey"`
	Task           taskDocument    `json:"task"`
	Turn           int             `json:"turn"`
	Attempt        int             `json:"attempt"`
	Try            int             `json:"try"`
	Metadata       jsontext.Value  `json:"metadata,omitzero"`
	Checkpoint     jsontext.Value  `json:"checkpoint,omitzero"`
	State          *stateDocument  `json:"state,omitempty"`
}

// EncodeCancellation writes the document that tells an agent why its work has ended. It reads the stored states.
func EncodeCancellation(ctx context.Context, c *executor.Cancellation) ([]byte, error) {
	state, err := states(func(of executor.Scope) (executor.State, error) { return c.Stored(ctx, of) }, executor.OfContext, executor.OfTask)
	if err != nil {
		return nil, err
	}
	raw, err := jsonv2.Marshal(&cancelDocument{
		Version: Version, Reason: c.Reason, IdempotencyKey: c.IdempotencyKey(),
		Task: taskDocument{
			ID: c.TaskID, Key: c.Keys.Task, ContextID: c.ContextID, ContextKey: c.Keys.Context,
			Agent: c.Agent, Tenant: c.Tenant, Owner: c.Owner,
		},
		Turn: c.Turn, Attempt: int(c.Attempt), Try: c.Try,
		Metadata: jsontext.Value(c.Metadata), Checkpoint: jsontext.Value(c.Checkpoint), State: state,
	}, jsontext.PreserveRawStrings(true))
	if err != nil {
		return nil, fmt.Errorf("encode the cancel document: %w", err)
	}
	return raw, nil
}

// states reads what runs have stored in these scopes; nil if nothing is.
func states(read func(executor.Scope) (executor.State, error), scopes ...executor.Scope) (*stateDocument, error) {
	var all stateDocument
	for _, of := range scopes {
		s, err := read(of)
		if err != nil {
			return nil, fmt.Errorf("read the state of the %s: %w", of, err)
		}
		if s.Value == nil {
			continue
		}
		stored := &StateDocument{Data: jsontext.Value(s.Value), Version: s.Version}
		if of == executor.OfTask {
			all.Task = stored
		} else {
			all.Context = stored
		}
	}
	if all == (stateDocument{}) {
		return nil, nil
	}
	return &all, nil
}
