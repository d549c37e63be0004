package wire

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

func decodeCall(raw []byte) (*Event, *Malformed) {
	var in struct {
		Type  string `json:"type"`
		Calls []struct {
			ID        string         `json:"id"`
			Agent     string         `json:"agent"`
			Task      string         `json:"task"`
			ContextID string         `json:"contextId"`
			Message   *speech        `json:"message"`
			Metadata  jsontext.Value `json:"metadata"`
			Relay     bool           `json:"relay"`
		} `json:"calls"`
	}
	if bad := unmarshal(raw, &in); bad != nil {
		return nil, bad
	}
	event := &Event{Action: Call}
	for i := range in.Calls {
		c := &in.Calls[i]
		at := fmt.Sprintf("calls[%d]", i)
		msg, bad := c.Message.said(true)
		if bad != nil {
			return nil, bad.inside(at)
		}
		metadata, bad := object(c.Metadata)
		if bad != nil {
			return nil, bad.inside("metadata").inside(at)
		}
		event.Calls = append(event.Calls, executor.Call{
			ID: c.ID, Agent: c.Agent, TaskID: c.Task, ContextID: c.ContextID, Message: msg, Metadata: metadata, Relay: c.Relay,
		})
	}
	// The emitter knows the agent's limit.
	if err := executor.CheckCalls(event.Calls, max(len(event.Calls), 1)); err != nil {
		return nil, malformed("", "%s", err.Error())
	}
	return event, nil
}

// result is what came of a call.
type result struct {
	ID        string             `json:"id"`
	Agent     string             `json:"agent,omitempty"`
	Task      string             `json:"task,omitempty"`
	State     string             `json:"state"`
	Message   *message           `json:"message,omitempty"`
	Artifacts []ArtifactDocument `json:"artifacts,omitempty"`
	Omitted   int64              `json:"omitted,omitzero"`
	Error     string             `json:"error,omitempty"`
}

func fromResult(r *executor.Result) result {
	out := result{ID: r.ID, Agent: r.Agent, Task: r.TaskID, State: r.State.String(), Omitted: r.Omitted, Error: r.Error}
	if r.Message != nil {
		m := fromMessage(r.Message)
		out.Message = &m
	}
	for i := range r.Artifacts {
		out.Artifacts = append(out.Artifacts, NewArtifact(&r.Artifacts[i]))
	}
	return out
}
