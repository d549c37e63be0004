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
	Status    *Message   // the message of the state, such as the agent's question; nil without one
	History   []Message  // oldest first, without Status
	Artifacts []Artifact // those that existed before the message, with what earlier tries at it have added
	Earlier   []Artifact // those that earlier tries at this message have begun
}

// Task returns the task as it was before this message: the state in which the message found it, and the conversation. Its
// artifacts are those of now. Task returns nil if this is the first run of the task. Each call reads the whole log: if
// History is enough, call that.
func (r *Run) Task(ctx context.Context) (*Task, error) {
	if r.memory == nil || r.Attempt < 2 {
		return nil, nil
	}
	stored, before, err := r.memory.Snapshot(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the task: %w", err)
	}
	return fromTask(stored, before), nil
}

func fromTask(stored *task.Task, before int) *Task {
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
		if a := fromArtifact(&stored.Artifacts[i]); i < before {
			t.Artifacts = append(t.Artifacts, a)
		} else {
			t.Earlier = append(t.Earlier, a)
		}
	}
	return t
}
