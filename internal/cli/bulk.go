package cli

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
)

// bulk selects the tasks of a verb by a filter instead of by their ids.
type bulk struct {
	olderThan time.Duration // of a purge
	dryRun    bool
}

// bulkHelp is what the verbs say about their filters.
const bulkHelp = `

Instead of ids, --agent, --state, --tenant, --owner, --context, --since, --until and --text
select tasks, for a job. The verb waits for the job, which servers continue if the verb is
interrupted. With --dry-run the job only counts the tasks.`

func bulkFlags(cmd *cobra.Command) *bulk {
	b := new(bulk)
	storedFlags(cmd, "tasks %s, instead of ids")
	cmd.Flags().BoolVar(&b.dryRun, "dry-run", false, "with a filter: count the tasks, and change none")
	cmd.Args = func(cmd *cobra.Command, ids []string) error {
		switch filtered := len(given(cmd, append(storedNames, "older-than")...)) > 0; {
		case filtered && len(ids) > 0:
			return usage("give ids or a filter, not both")
		case !filtered && b.dryRun:
			return usage("--dry-run needs a filter, such as --agent")
		case filtered:
			return nil
		}
		return argCount(1, math.MaxInt)(cmd, ids)
	}
	return b
}

// runBulk acts on all tasks of the filter, and prints how many there were. options are those of the action.
func (c *command) runBulk(cmd *cobra.Command, action string, b *bulk, options map[string]any) error {
	filter := given(cmd, storedNames...)
	if b.olderThan > 0 {
		filter.Set("status_before", (&moment{time.Now().Add(-b.olderThan)}).String())
	}
	return c.withOperator(cmd, func(ctx context.Context, op *operator) error {
		body := map[string]any{"action": action, "dry_run": b.dryRun, "filter": filter}
		maps.Copy(body, options)
		j, err := c.runJob(ctx, op, body)
		if err != nil {
			return err
		}
		err = c.print(j, [][]string{{fmt.Sprintf("job %s %s: %s", j.ID, j.State, tally(&j))}})
		if err == nil && (j.Failed > 0 || j.State != "done") {
			err = &exitError{code: exitFailed}
		}
		return err
	})
}

// runJob creates a job, and waits until it has ended.
func (c *command) runJob(ctx context.Context, o *operator, body map[string]any) (j shown.Job, err error) {
	say, stop := c.during(fmt.Sprintf("%s: counting tasks", body["action"]))
	defer stop()
	if err := o.post(ctx, "/jobs", body, &j); err != nil {
		return j, err
	}
	id := j.ID.String()
	for j.State != "done" && j.State != "canceled" {
		if err = sleep(ctx, 200*time.Millisecond); err == nil {
			err = o.api.Get(ctx, "/jobs/"+url.PathEscape(id), nil, &j)
			say(fmt.Sprintf("%s: %s", body["action"], tally(&j)))
		}
		switch {
		case ctx.Err() != nil:
			return j, &exitError{exitInterrupted, fmt.Errorf("interrupted; servers continue the %s as job %s", body["action"], id)}
		case err != nil:
			return j, fmt.Errorf("job %s: %w", id, err)
		}
	}
	return j, nil
}
