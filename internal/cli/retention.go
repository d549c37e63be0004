package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/upkeep/retention"
)

// RetentionOperator deletes data, and protects data from deletion.
type RetentionOperator interface {
	// PlanRetention returns what the servers would delete now, and changes nothing.
	PlanRetention(ctx context.Context) ([]retention.Step, error)
	// Purge deletes the tasks that a filter selects, as retention.Retention does.
	Purge(ctx context.Context, f *store.PurgeFilter) (retention.Purged, error)
	// Hold exempts a task from retention and purges, or ends the exemption.
	Hold(ctx context.Context, t *task.Task, held bool) error
}

func (c *command) retention() *cobra.Command {
	return c.operators(&cobra.Command{
		Use:   "retention",
		Short: "Show what retention deletes",
		Long: `The servers delete data whose retention is over: ended tasks, their artifacts (which may go
earlier), idempotency keys, delivery attempts, process names and audit entries. The
configuration says when (docs/retention.md).`,
		Example: `  holdfast retention plan`,
	}, false, c.retentionPlan())
}

func (c *command) retentionPlan() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what retention would delete now, and how much space that frees",
		Long: `Show what servers with this configuration would delete now. It changes nothing.

If all tasks of a period are due, the servers drop its partition; FREES is its size on
disk. If an agent keeps its tasks for longer, they delete rows instead; FREES is then the
size of the artifacts, and PostgreSQL reuses that space. HELD tasks stay.`,
		Example: `  holdfast retention plan --config holdfast.yaml
  holdfast retention plan -o json | jq 'map(.bytes) | add'`,
		Args: argCount(0, 0),
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return c.withOperator(cmd, func(ctx context.Context, op Operator) error {
			steps, err := op.PlanRetention(ctx)
			if err != nil {
				return err
			}
			views := make([]shown.Step, len(steps))
			rows := [][]string{{"WHAT", "HOW", "FROM", "TO", "AGENT", "TASKS", "HELD", "FREES"}}
			for i, s := range steps {
				views[i] = shown.OfStep(&s)
				from, to := s.From.UTC().Format(time.RFC3339), s.To.UTC().Format(time.RFC3339)
				if views[i].From.IsZero() {
					from, to = "", ""
				}
				rows = append(rows, []string{
					s.What, s.How, from, to, s.Agent, strconv.FormatInt(s.Tasks, 10), strconv.FormatInt(s.Held, 10), bytesText(s.Bytes),
				})
			}
			if *format == outputJSON {
				return printJSON(c.Out, views)
			}
			if len(steps) == 0 {
				c.note("No data is past its retention.")
				return nil
			}
			return table(c.Out, rows)
		})
	}
	return cmd
}

// bytesText writes a number of bytes with three digits at most.
func bytesText(n int64) string {
	const units = "KMGTP"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, unit := float64(n)/1024, 0
	for f >= 1000 && unit < len(units)-1 {
		f, unit = f/1024, unit+1
	}
	return fmt.Sprintf("%.3g %ciB", f, units[unit])
}

type heldView struct {
	ID      string `json:"id,omitempty"`
	TaskID  string `json:"task_id"`
	Outcome string `json:"outcome"`
	Error   string `json:"error,omitempty"`
}

func (c *command) tasksHold() *cobra.Command {
	return c.holding("hold", "held", true, "Exempt tasks from retention and purges",
		`Hold tasks until they are released. Retention and purges keep a held task with its log and
artifacts. A held task does not expire while it is parked.`)
}

func (c *command) tasksRelease() *cobra.Command {
	return c.holding("release", "released", false, "Release held tasks",
		`End the hold of tasks. The servers delete those past their retention in their next round.`)
}

func (c *command) holding(verb, outcome string, held bool, short, long string) *cobra.Command {
	cmd := &cobra.Command{
		Use: verb + " ID...", Short: short, Long: long,
		Example: `  holdfast tasks ` + verb + ` 0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f`,
		Args:    atLeastOne,
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		return c.withOperator(cmd, func(ctx context.Context, op Operator) error {
			views := make([]heldView, len(ids))
			rows := [][]string{{"TASK", "OUTCOME"}}
			code := exitOK
			for i, id := range ids {
				v := heldView{TaskID: id, Outcome: outcome}
				t, err := op.FindTask(ctx, id)
				if err == nil {
					v.ID = t.ID.String()
					err = op.Hold(ctx, t, held)
				}
				if err != nil {
					v.Outcome, v.Error, code = outcomeFailed, err.Error(), exitFailed
					c.note("holdfast: task %s: %s", id, v.Error)
				}
				views[i] = v
				rows = append(rows, []string{v.TaskID, v.Outcome})
			}
			return c.printOutcomes(ctx, views, rows, *format, code)
		})
	}
	return cmd
}

type purgedView struct {
	Tasks    int `json:"tasks"`
	Held     int `json:"held"`
	Exported int `json:"exported_lines"` // -1: not counted
}

func (c *command) tasksPurge() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Delete tasks for good",
		Long: `Delete the tasks that match all of the given flags, with their logs, artifacts, webhooks,
pending deliveries and idempotency keys. Their lines in the exports of this machine
(retention.export_directory) are deleted, too. Runs and streams of the tasks end. For
clients, the tasks never existed. The audit log records the purge. Held tasks stay.

If only --older-than or --agent are given, they select only tasks that have ended. Backups
keep their copies.

A purge cannot be undone, so the verb needs --yes.`,
		Example: `  holdfast tasks purge --tenant acme --owner alice --yes
  holdfast tasks purge --task 0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f --yes
  holdfast tasks purge --older-than 8760h --yes`,
		Args: argCount(0, 0),
	}
	var f store.PurgeFilter
	var taskID, tenant, owner string
	flags := cmd.Flags()
	flags.StringVar(&taskID, "task", "", "id of one task")
	flags.StringVar(&tenant, "tenant", "", "tasks of this tenant")
	flags.StringVar(&owner, "owner", "", "tasks of this owner")
	flags.StringVar(&f.ContextID, "context", "", "tasks of this context")
	flags.StringVar(&f.Agent, "agent", "", "tasks of this agent")
	flags.DurationVar(&f.OlderThan, "older-than", 0, "tasks whose newest status is older than this")
	yes := flags.Bool("yes", false, "confirm the purge")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if flags.Changed("tenant") {
			f.Tenant = &tenant
		}
		if flags.Changed("owner") {
			f.Owner = &owner
		}
		switch {
		case taskID == "" && !f.Any():
			return usage("no tasks are selected; give --task, --tenant, --owner, --context, --agent or --older-than")
		case f.OlderThan < 0:
			return usage("--older-than must not be negative")
		case !*yes:
			return usage("a purge cannot be undone; confirm it with --yes")
		}
		return c.withOperator(cmd, func(ctx context.Context, op Operator) error {
			if taskID != "" {
				t, err := op.FindTask(ctx, taskID)
				if err != nil {
					return fmt.Errorf("task %s: %w", taskID, err)
				}
				f.Task = t.ID
			}
			done, err := op.Purge(ctx, &f)
			if err != nil {
				return err
			}
			if *format == outputJSON {
				return printJSON(c.Out, purgedView(done))
			}
			return table(c.Out, [][]string{
				{"TASKS", "HELD", "EXPORTED LINES"},
				{strconv.Itoa(done.Tasks), strconv.Itoa(done.Held), exportedText(done.Exported)},
			})
		})
	}
	return cmd
}

func exportedText(lines int) string {
	if lines == unknownExports {
		return "not counted"
	}
	return strconv.Itoa(lines)
}
