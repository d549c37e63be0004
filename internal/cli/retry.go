package cli

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func (c *command) tasksRetry() *cobra.Command {
	cmd := &cobra.Command{
		Use: "retry [ID...]", Short: "Retry tasks",
		Long: `A task whose next run waits for its backoff becomes due at once. Its earlier tries still
count.

A task that failed, or was rejected or canceled, stays so, because clients rely on it. The
verb sends its first message again as a new task: for the same agent and owner, in the same
context and A2A version, with the old task in referenceTaskIds. With --last it sends the last
message, for agents that keep a memory per context. A retry by filter leaves out tasks that
were retried.

The verb refuses a task that runs, is due, is parked or is completed.` + bulkHelp,
		Example: `  holdfast tasks retry 0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f --wait
  holdfast tasks retry --agent weather --state failed --dry-run`,
	}
	selected := bulkFlags(cmd)
	last := cmd.Flags().Bool("last", false, "send the client's last message instead of its first")
	wait := cmd.Flags().Bool("wait", false, "wait until the tasks end or park")
	timeout := cmd.Flags().Duration("timeout", 24*time.Hour, "with --wait: how long to wait for each task")
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		if len(ids) == 0 {
			if *wait {
				return usage("--wait is for ids; with a filter the verb waits for the job only")
			}
			return c.runBulk(cmd, "retry", selected, map[string]any{"last": *last})
		}
		return c.withOperator(cmd, func(ctx context.Context, op *operator) error {
			views := make([]outcome, len(ids))
			tasks := make([]*shown.Task, len(ids))
			for i, id := range ids {
				views[i], tasks[i] = retryTask(ctx, op, id, *last)
			}
			for i, t := range tasks {
				if t == nil || !*wait {
					continue
				}
				t, err := c.await(ctx, op, t, *timeout, task.State.Settled)
				views[i].State = t.State
				if err != nil {
					views[i].Error = plain(err)
				}
			}
			code := exitOK
			for _, v := range views {
				if settled := codeOf(verdict(v.State)); *wait && (code == exitOK || code == exitWaits && settled == exitEnded) {
					code = settled
				}
			}
			return c.printOutcomes(ctx, views, code, "TASK", "OUTCOME", "NEW TASK", "STATE")
		})
	}
	return cmd
}

// retryTask retries a task and returns the task that runs now.
func retryTask(ctx context.Context, op *operator, id string, last bool) (outcome, *shown.Task) {
	v := outcome{TaskID: id, Outcome: outcomeFailed}
	t, err := op.find(ctx, id)
	if err != nil {
		v.Error = plain(err)
		return v, nil
	}
	v.ID, v.State = t.ID, t.State
	body := map[string]any{}
	if last {
		body["last"] = true
	}
	did, err := op.act(ctx, t.ID.String(), body, "retry")
	if err == nil {
		t, err = op.find(ctx, cmp.Or(did.NewTask, t.ID.String()))
	}
	if err != nil {
		v.Error = plain(err)
		return v, nil
	}
	v.Outcome, v.NewTaskID, v.State = did.Outcome, did.NewTask, t.State
	return v, &t.Task
}
