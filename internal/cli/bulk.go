package cli

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
)

// bulk selects the tasks of a verb by a filter instead of by their ids.
type bulk struct {
	agent, tenant, owner, context string
	states                        []string
	olderThan                     time.Duration // of a purge
	dryRun                        bool
}

// bulkNames are the flags of a bulk that select tasks.
var bulkNames = []string{"agent", "state", "tenant", "owner", "context", "older-than"}

// bulkHelp is what the verbs say about their filters.
const bulkHelp = `

Instead of ids, --agent, --state, --tenant, --owner and --context select tasks, for a job. The
verb waits for the job, which servers continue if the verb is interrupted. With --dry-run the
job only counts the tasks.`

func bulkFlags(cmd *cobra.Command) *bulk {
	b, flags := new(bulk), cmd.Flags()
	flags.StringVar(&b.agent, "agent", "", "tasks of this agent, instead of ids")
	flags.StringSliceVar(&b.states, "state", nil, "tasks in these states, such as working,input-required, instead of ids")
	flags.StringVar(&b.tenant, "tenant", "", "tasks of this tenant, instead of ids")
	flags.StringVar(&b.owner, "owner", "", "tasks of this owner, instead of ids")
	flags.StringVar(&b.context, "context", "", "tasks of this context, instead of ids")
	flags.BoolVar(&b.dryRun, "dry-run", false, "with a filter: count the tasks, and change none")
	cmd.Args = func(cmd *cobra.Command, ids []string) error {
		switch filtered := b.given(cmd); {
		case filtered && len(ids) > 0:
			return usage("give ids or a filter, not both")
		case !filtered && b.dryRun:
			return usage("--dry-run needs a filter, such as --agent")
		case filtered:
			return nil
		}
		return atLeastOne(cmd, ids)
	}
	return b
}

// given reports whether a flag selects tasks.
func (b *bulk) given(cmd *cobra.Command) bool {
	return slices.ContainsFunc(bulkNames, func(name string) bool { return cmd.Flags().Changed(name) })
}

// filter returns the filter of a job. An empty tenant or owner that is given means that of callers without one.
func (b *bulk) filter(cmd *cobra.Command) (map[string][]string, error) {
	filter := map[string][]string{}
	for name, value := range map[string]string{"agent": b.agent, "tenant": b.tenant, "owner": b.owner, "context": b.context} {
		if cmd.Flags().Changed(name) {
			filter[name] = []string{value}
		}
	}
	for _, name := range b.states {
		if _, err := parseState(name); err != nil {
			return nil, err
		}
	}
	if len(b.states) > 0 {
		filter["state"] = b.states
	}
	if b.olderThan > 0 {
		filter["status_before"] = []string{time.Now().Add(-b.olderThan).UTC().Format(time.RFC3339Nano)}
	}
	return filter, nil
}

// runBulk acts on all tasks of the filter, and prints how many there were. options are those of the action.
func (c *command) runBulk(cmd *cobra.Command, action string, b *bulk, options map[string]any) error {
	filter, err := b.filter(cmd)
	if err != nil {
		return err
	}
	return c.withOperator(cmd, func(ctx context.Context, op *operator) error {
		body := map[string]any{"action": action, "dry_run": b.dryRun, "filter": filter}
		maps.Copy(body, options)
		j, err := op.runJob(ctx, body)
		if err != nil {
			return err
		}
		text := fmt.Sprintf("job %s %s: %d matched, %d done, %d skipped, %d failed", j.ID, j.State, j.Matched, j.Done, j.Skipped, j.Failed)
		err = c.print(j, [][]string{{text}})
		if err == nil && (j.Failed > 0 || j.State != "done") {
			err = &exitError{code: exitFailed}
		}
		return err
	})
}

// runJob creates a job, and waits until it has ended.
func (o *operator) runJob(ctx context.Context, body map[string]any) (j shown.Job, err error) {
	if err := o.post(ctx, "/jobs", body, &j); err != nil {
		return j, err
	}
	id := j.ID.String()
	for j.State != "done" && j.State != "canceled" {
		if err = sleep(ctx, 200*time.Millisecond); err == nil {
			err = o.api.Get(ctx, "/jobs/"+url.PathEscape(id), nil, &j)
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
