package cli

import (
	"context"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
)

func (c *command) jobs() *cobra.Command {
	return c.operators(&cobra.Command{
		Use: "jobs", Short: "Show and cancel jobs over many tasks",
		Long: `A job cancels, retries or purges the tasks of a filter. Servers continue it until it ends.`,
		Example: `  holdfast jobs
  holdfast jobs cancel 0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f`,
	}, true, c.jobsList(), c.onJob("get", "Show a job with the tasks that failed", "Show a job with its filter, its reason and the tasks that failed.", ""),
		c.onJob("cancel", "End a job", "End a job after the tasks that it works on. Tasks that the job has changed stay so.", "/cancel"))
}

func (c *command) jobsList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List jobs, newest first",
		Long:    `STATE is waiting, running, canceling, canceled or done.`,
		Example: `  holdfast jobs list --limit 5`,
	}
	limit := cmd.Flags().Int("limit", 50, atMost)
	cmd.RunE = c.operate(func(ctx context.Context, op *operator, _ []string) error {
		jobs, err := paged(ctx, op, "/jobs", query(), *limit, func(p *shown.JobsPage) ([]shown.Job, string) { return p.Jobs, p.Next })
		if err != nil {
			return err
		}
		rows := [][]string{{"ID", "ACTION", "STATE", "MATCHED", "DONE", "SKIPPED", "FAILED", "CREATED", "BY", "FILTER"}}
		for i := range jobs {
			j := &jobs[i]
			rows = append(rows, []string{j.ID.String(), j.Action, j.State, count(j.Matched), count(j.Done), count(j.Skipped), count(j.Failed), stamp(j.CreatedAt), j.Actor, string(j.Filter)})
		}
		return c.print(jobs, rows)
	})
	return cmd
}

// onJob makes a verb that shows a job, and before may do something to it.
func (c *command) onJob(verb, short, long, act string) *cobra.Command {
	cmd := &cobra.Command{
		Use: verb + " ID", Short: short, Long: long,
		Example: "  holdfast jobs " + verb + " 0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f",
	}
	cmd.RunE = c.operate(func(ctx context.Context, op *operator, args []string) (err error) {
		var j shown.Job
		if at := "/jobs/" + url.PathEscape(args[0]); act != "" {
			err = op.post(ctx, at+act, nil, &j)
		} else {
			err = op.api.Get(ctx, at, nil, &j)
		}
		if err != nil {
			return err
		}
		if c.json() {
			return printJSON(c.Out, j)
		}
		p := &printer{w: c.Out}
		p.field("job", j.ID.String())
		p.field("action", j.Action)
		if j.DryRun {
			p.field("dry run", "yes")
		}
		p.field("state", j.State)
		p.field("filter", string(j.Filter))
		p.field("by", j.Actor)
		p.field("reason", j.Reason)
		p.field("created", stamp(j.CreatedAt))
		p.field("ended", stamp(j.EndedAt))
		p.field("tasks", tally(&j))
		for _, f := range j.Failures {
			p.field("failed", f.Task+": "+f.Error)
		}
		return p.err
	})
	return cmd
}

// tally writes what a job has done so far.
func tally(j *shown.Job) string {
	return fmt.Sprintf("%d matched, %d done, %d skipped, %d failed", j.Matched, j.Done, j.Skipped, j.Failed)
}
