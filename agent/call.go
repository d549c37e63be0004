package agent

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// Call is a message for another agent of the server, which answers it in a task of its own, or for a task of an earlier call.
type Call struct {
	ID        string // of the Result; default: the place of the call, from "1"
	Agent     string // the agent's configured name; "" with TaskID
	TaskID    string // the task of an earlier call, which gets the message
	ContextID string // of a new task; default: that of this task
	Message   Message
	Metadata  json.RawMessage // of the request, a JSON object
	// Relay shows clients the progress of the called task as progress of this one: its messages with the state working,
	// at most one per second, the newest.
	Relay bool
}

// Result is what came of a call.
type Result struct {
	ID     string // of the call
	Agent  string
	TaskID string // "" if the call was refused
	// State is Completed, Failed, Canceled or Rejected, or InputRequired or AuthRequired: then another Call with TaskID
	// may answer.
	State     TaskState
	Message   *Message // of the state; may be nil
	Artifacts []Artifact
	Omitted   int64  // bytes of the content that was left out because it is large
	Error     string // why the call was refused
}

// Calls is the source of a turn after Emitter.Call.
const Calls = executor.SourceCalls

func (e *emitter) Call(ctx context.Context, calls ...Call) error {
	out := make([]executor.Call, len(calls))
	for i := range calls {
		c := &calls[i]
		m, err := toMessage(c.Message)
		if err != nil {
			return fmt.Errorf("calls[%d].message: %w", i, err)
		}
		out[i] = executor.Call{ID: c.ID, Agent: c.Agent, TaskID: c.TaskID, ContextID: c.ContextID, Message: m, Metadata: c.Metadata, Relay: c.Relay}
	}
	return e.out.Call(ctx, out)
}

func fromResults(results []executor.Result) []Result {
	var out []Result
	for i := range results {
		r := &results[i]
		to := Result{ID: r.ID, Agent: r.Agent, TaskID: r.TaskID, State: TaskState(r.State.String()), Omitted: r.Omitted, Error: r.Error}
		if r.Message != nil {
			m := fromMessage(r.Message)
			to.Message = &m
		}
		for j := range r.Artifacts {
			to.Artifacts = append(to.Artifacts, fromArtifact(&r.Artifacts[j]))
		}
		out = append(out, to)
	}
	return out
}
