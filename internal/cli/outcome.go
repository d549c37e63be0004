package cli

import (
	"context"
	"strconv"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// The outcomes of a verb for one task, besides those of the admin API.
const (
	outcomeCanceled  = "canceled"
	outcomeRequested = "requested" // its worker was asked; the verb did not wait for the end
	outcomeEnded     = "ended"     // it ended in another way
	outcomeFailed    = "failed"    // the call failed
)

// outcome is what a verb did to a task, or to a webhook of it.
type outcome struct {
	ID        task.ID    `json:"id,omitzero"`
	TaskID    string     `json:"task_id"`
	ConfigID  string     `json:"config_id,omitempty"`
	Outcome   string     `json:"outcome"`
	State     task.State `json:"state,omitzero"`
	NewTaskID string     `json:"new_task_id,omitempty"`
	Exported  int        `json:"exported_lines,omitempty"`
	Error     string     `json:"error,omitempty"`
}

// of takes the answer of an action, or why it failed.
func (v *outcome) of(did *acted, err error) {
	if v.Outcome, v.NewTaskID, v.Exported = did.Outcome, did.NewTask, did.ExportedLines; err != nil {
		v.Outcome, v.Error = outcomeFailed, plain(err)
	}
	if did.Task != nil {
		v.ID, v.State = did.Task.ID, did.Task.State
	}
}

// onEach acts on tasks by their ids.
func (o *operator) onEach(ctx context.Context, ids []string, act string) []outcome {
	views := make([]outcome, len(ids))
	for i, id := range ids {
		views[i].TaskID = id
		views[i].of(o.act(ctx, id, nil, act))
	}
	return views
}

// printOutcomes prints the outcomes of a verb for several tasks, in a table with these columns. It returns the exit code for all: a
// failed call decides, else code.
func (c *command) printOutcomes(ctx context.Context, views []outcome, code int, columns ...string) error {
	rows := [][]string{columns}
	for i := range views {
		v := &views[i]
		switch {
		case v.Error != "" && v.ConfigID != "":
			c.note("holdfast: webhook %s of task %s: %s", v.ConfigID, v.TaskID, v.Error)
		case v.Error != "":
			c.note("holdfast: task %s: %s", v.TaskID, v.Error)
		}
		if v.Error != "" {
			code = exitFailed
		}
		row := make([]string, len(columns))
		for j, column := range columns {
			row[j] = v.column(column)
		}
		rows = append(rows, row)
	}
	err := c.print(views, rows)
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case code != exitOK:
		return &exitError{code: code}
	}
	return nil
}

func (v *outcome) column(name string) string {
	switch name {
	case "TASK":
		return v.TaskID
	case "CONFIG":
		return v.ConfigID
	case "NEW TASK":
		return v.NewTaskID
	case "EXPORTED LINES":
		return strconv.Itoa(v.Exported)
	case "STATE":
		if v.State == task.StateUnspecified {
			return ""
		}
		return v.State.String()
	}
	return v.Outcome
}
