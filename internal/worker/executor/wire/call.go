package wire

import (
	"encoding/json"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

type call struct {
	ID        string         `json:"id,omitzero"`
	Agent     string         `json:"agent,omitzero"`
	Task      string         `json:"task,omitzero"`
	ContextID string         `json:"contextId,omitzero"`
	Message   *speech        `json:"message"`
	Metadata  jsontext.Value `json:"metadata,omitzero"`
	Relay     bool           `json:"relay,omitzero"`
}

func readCall(in *eventDocument) (*Event, *Malformed) {
	event := &Event{Action: Call}
	for i := range in.Calls {
		c := &in.Calls[i]
		at := fmt.Sprintf("calls[%d]", i)
		msg, bad := c.Message.said(true)
		if bad != nil {
			return nil, bad.inside(at)
		}
		if bad := object(&c.Metadata); bad != nil {
			return nil, bad.inside("metadata").inside(at)
		}
		event.Calls = append(event.Calls, executor.Call{
			ID: c.ID, Agent: c.Agent, TaskID: c.Task, ContextID: c.ContextID, Message: msg, Metadata: json.RawMessage(c.Metadata), Relay: c.Relay,
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

func (r *result) executor() (executor.Result, *Malformed) {
	state, _ := task.ParseState(r.State)
	out := executor.Result{ID: r.ID, Agent: r.Agent, TaskID: r.Task, State: state, Omitted: r.Omitted, Error: r.Error}
	var bad *Malformed
	if r.Message != nil {
		if out.Message, bad = r.Message.task(); bad != nil {
			return out, bad.inside("message")
		}
	}
	for i := range r.Artifacts {
		a, bad := r.Artifacts[i].task()
		if bad != nil {
			return out, bad.inside(fmt.Sprintf("artifacts[%d]", i))
		}
		out.Artifacts = append(out.Artifacts, *a)
	}
	return out, nil
}
