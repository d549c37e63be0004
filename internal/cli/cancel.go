package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// The outcomes of a cancel for one task.
const (
	outcomeCanceled  = "canceled"
	outcomeRequested = "requested" // its worker was asked; the verb did not wait for the end
	outcomeEnded     = "ended"     // it ended in another way
	outcomeFailed    = "failed"    // the call failed
)

type canceledView struct {
	ID      task.ID    `json:"id,omitzero"`
	TaskID  string     `json:"task_id"`
	Outcome string     `json:"outcome"`
	State   task.State `json:"state,omitzero"`
	Error   string     `json:"error,omitempty"`
}

func (c *command) tasksCancel() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cancel [ID...]",
		Short: "Cancel tasks of any owner",
		Long: `Cancel tasks as a client would. A task that is queued or parked is canceled at once. For
a running task, this verb asks its worker to end the run and waits for that. If the agent
does not end it within its cancel_grace, the worker gives the run up.` + bulkHelp + `

Exit codes: 0 all tasks are canceled (with --no-wait: canceled or asked to end); 3 a task
had ended otherwise or did so meanwhile; 1 a call failed, or a task still runs after
--timeout.`,
		Example: `  holdfast tasks cancel 0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f
  holdfast tasks cancel --agent weather --state working --dry-run`,
	}
	selected := bulkFlags(cmd)
	noWait := cmd.Flags().Bool("no-wait", false, "do not wait for running tasks")
	timeout := cmd.Flags().Duration("timeout", time.Minute, "how long to wait for each running task")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		if len(ids) == 0 {
			return c.runBulk(cmd, "cancel", selected, nil, *format)
		}
		return c.withOperator(cmd, func(ctx context.Context, op *operator) error {
			views := make([]canceledView, len(ids))
			running := make([]*shown.Task, len(ids))
			// Ask for all cancels before waiting for the first one.
			for i, id := range ids {
				views[i], running[i] = cancelTask(ctx, op, id)
			}
			for i, t := range running {
				if t != nil && !*noWait {
					t, err := c.await(ctx, op, t, *timeout, task.State.Terminal)
					views[i] = viewCanceled(ids[i], t, err)
				}
			}
			rows := [][]string{{"TASK", "OUTCOME", "STATE"}}
			code := exitOK
			for _, v := range views {
				rows = append(rows, []string{v.TaskID, v.Outcome, stateText(v.State)})
				switch {
				case v.Outcome == outcomeFailed:
					c.note("holdfast: task %s: %s", v.TaskID, v.Error)
					code = exitFailed
				case v.Outcome == outcomeEnded && code == exitOK:
					code = exitEnded
				}
			}
			return c.printOutcomes(ctx, views, rows, *format, code)
		})
	}
	return cmd
}

// cancelTask asks for a cancel. If the task is still running and its worker was asked, it also returns the task.
func cancelTask(ctx context.Context, op *operator, id string) (canceledView, *shown.Task) {
	did, err := op.act(ctx, id, nil, "cancel")
	if err != nil {
		return viewCanceled(id, nil, err), nil
	}
	v := canceledView{ID: did.Task.ID, TaskID: id, Outcome: did.Outcome, State: did.Task.State}
	if did.Outcome != outcomeRequested {
		return v, nil
	}
	return v, did.Task
}

func viewCanceled(id string, t *shown.Task, err error) canceledView {
	v := canceledView{TaskID: id}
	if t != nil {
		v.ID, v.State = t.ID, t.State
	}
	switch {
	case err != nil:
		v.Outcome, v.Error = outcomeFailed, err.Error()
	case t.State == task.StateCanceled:
		v.Outcome = outcomeCanceled
	default:
		v.Outcome = outcomeEnded
	}
	return v
}

// stateText is empty if the state is not known.
func stateText(s task.State) string {
	if s == task.StateUnspecified {
		return ""
	}
	return s.String()
}

// printOutcomes prints the outcomes of a verb for several tasks, and returns the exit code for all.
func (c *command) printOutcomes(ctx context.Context, views any, rows [][]string, format output, code int) error {
	var err error
	if format == outputJSON {
		err = printJSON(c.Out, views)
	} else {
		err = table(c.Out, rows)
	}
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

func atLeastOne(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usage("usage: %s (see --help)", cmd.UseLine())
	}
	return nil
}
