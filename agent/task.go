package agent

import (
	"context"
	"fmt"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// TaskState is the state of a task.
type TaskState string

// The states. Until an agent has answered, a task is submitted or working.
const (
	Submitted     TaskState = "submitted"
	Working       TaskState = "working"
	InputRequired TaskState = "input-required"
	AuthRequired  TaskState = "auth-required"
	Completed     TaskState = "completed"
	Failed        TaskState = "failed"
	Canceled      TaskState = "canceled"
	Rejected      TaskState = "rejected"
)

// Task is what clients see of a task.
type Task struct {
	State     TaskState
	Status    *Message   // the message of the state, such as the agent's question; nil if it has none
	History   []Message  // oldest first, without Status
	Artifacts []Artifact // in the order of their first appearance
}

// Task returns the task as it was before this message: the state in which the message found it, and the conversation. Its
// Artifacts are those of now, so they include what earlier tries at this message have emitted. It returns nil if this is
// the first run of the task. Each call reads the whole log, so do not call it if History is enough.
func (r *Run) Task(ctx context.Context) (*Task, error) {
	if r.memory == nil || r.Attempt < 2 {
		return nil, nil
	}
	stored, err := r.memory.Snapshot(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the task: %w", err)
	}
	return fromTask(stored), nil
}

func fromTask(stored *task.Task) *Task {
	t := &Task{State: Submitted}
	if stored.Status.State != task.StateUnspecified {
		t.State = TaskState(stored.Status.State.String())
	}
	if m := stored.Status.Message; m != nil {
		status := fromMessage(m)
		t.Status = &status
	}
	for i := range stored.History {
		t.History = append(t.History, fromMessage(&stored.History[i]))
	}
	for i := range stored.Artifacts {
		t.Artifacts = append(t.Artifacts, fromArtifact(&stored.Artifacts[i]))
	}
	return t
}
