package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func (c *command) tasksCancel() *cobra.Command {
	cmd := &cobra.Command{
		Use: "cancel [ID...]", Short: "Cancel tasks of any owner",
		Long: `A task that is queued or parked is canceled at once. For a running task, the verb asks its
worker to end the run and waits for that. After cancel_grace the worker gives the run up.` + bulkHelp,
		Example: `  holdfast tasks cancel 0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f
  holdfast tasks cancel --agent weather --state working --dry-run`,
	}
	selected := bulkFlags(cmd)
	noWait := cmd.Flags().Bool("no-wait", false, "do not wait for running tasks")
	timeout := cmd.Flags().Duration("timeout", time.Minute, "how long to wait for each running task")
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		if len(ids) == 0 {
			return c.runBulk(cmd, "cancel", selected, nil)
		}
		return c.withOperator(cmd, func(ctx context.Context, op *operator) error {
			views := make([]outcome, len(ids))
			running := make([]*shown.Task, len(ids))
			// Ask for all cancels before waiting for the first one.
			for i, id := range ids {
				did, err := op.act(ctx, id, nil, "cancel")
				views[i].TaskID = id
				views[i].of(did, err)
				if did.Outcome == outcomeRequested {
					running[i] = did.Task
				}
			}
			code := exitOK
			for i, t := range running {
				v := &views[i]
				if t != nil && !*noWait {
					t, err := c.await(ctx, op, t, *timeout, task.State.Terminal)
					v.State, v.Outcome = t.State, outcomeEnded
					switch {
					case err != nil:
						v.Outcome, v.Error = outcomeFailed, plain(err)
					case t.State == task.StateCanceled:
						v.Outcome = outcomeCanceled
					}
				}
				if v.Outcome == outcomeEnded {
					code = exitEnded
				}
			}
			return c.printOutcomes(ctx, views, code, "TASK", "OUTCOME", "STATE")
		})
	}
	return cmd
}
