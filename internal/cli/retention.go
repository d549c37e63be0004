package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
)

func (c *command) retention() *cobra.Command {
	cmd := c.operators(&cobra.Command{
		Use: "retention", Short: "Show what retention would delete now, and how much space that frees",
		Long: `Servers delete data whose retention is over (docs/retention.md). FREES is the size of a
partition that they drop. If an agent keeps its tasks for longer, they delete rows instead:
FREES is then the size of the artifacts, and PostgreSQL reuses that space. HELD tasks stay.`,
		Example: `  holdfast retention --config holdfast.yaml
  holdfast retention -o json | jq 'map(.bytes) | add'`,
	}, false)
	cmd.RunE = c.operate(func(ctx context.Context, op *operator, _ []string) error {
		var plan shown.Plan
		if err := op.api.Get(ctx, "/retention/plan", nil, &plan); err != nil {
			return err
		}
		rows := [][]string{{"WHAT", "HOW", "FROM", "TO", "AGENT", "TASKS", "HELD", "FREES"}}
		for i := range plan.Steps {
			s := &plan.Steps[i]
			from, to := s.From.UTC().Format(time.RFC3339), s.To.UTC().Format(time.RFC3339)
			if s.From.IsZero() {
				from, to = "", ""
			}
			rows = append(rows, []string{s.What, s.How, from, to, s.Agent, count(s.Tasks), count(s.Held), bytesText(s.Bytes)})
		}
		if len(plan.Steps) == 0 && !c.json() {
			c.note("No data is past its retention.")
			return nil
		}
		return c.print(plan.Steps, rows)
	})
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

func (c *command) tasksHold() *cobra.Command {
	return c.holding("hold", "Exempt tasks from retention and purges",
		`Hold tasks until they are released. Retention and purges keep a held task with its log and
artifacts. A held task does not expire while it is parked.`)
}

func (c *command) tasksRelease() *cobra.Command {
	return c.holding("release", "Release held tasks",
		`End the hold of tasks. The servers delete those past their retention in their next round.`)
}

func (c *command) holding(verb, short, long string) *cobra.Command {
	return &cobra.Command{
		Use: verb + " ID...", Short: short, Long: long,
		Example: `  holdfast tasks ` + verb + ` 0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f`,
		RunE: c.operate(func(ctx context.Context, op *operator, ids []string) error {
			return c.printOutcomes(ctx, op.onEach(ctx, ids, verb), exitOK, "TASK", "OUTCOME")
		}),
	}
}

func (c *command) tasksPurge() *cobra.Command {
	cmd := &cobra.Command{
		Use: "purge [ID...]", Short: "Delete tasks for good",
		Long: `Delete tasks with their logs, artifacts, webhooks, deliveries and idempotency keys, and their
lines in the exports (retention.export_directory) of the machine that purges: the server's, or
this one with the database. Their runs and streams end. The audit log records the purge. Held
tasks stay.` + bulkHelp + `

If only --older-than or --agent are given, they select only tasks that have ended. A filter
also deletes its lines of tasks that retention has deleted already. Backups keep their copies.
A purge cannot be undone, so the verb needs --yes.`,
		Example: `  holdfast tasks purge 0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f --yes
  holdfast tasks purge --tenant acme --owner alice --yes`,
	}
	selected := bulkFlags(cmd)
	cmd.Flags().DurationVar(&selected.olderThan, "older-than", 0, "tasks whose newest status is older than this, instead of ids")
	yes := cmd.Flags().Bool("yes", false, "confirm the purge")
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		switch {
		case selected.olderThan < 0 || cmd.Flags().Changed("older-than") && selected.olderThan == 0:
			return usage("--older-than must be above 0")
		case !*yes && !selected.dryRun:
			return usage("a purge cannot be undone; confirm it with --yes")
		case len(ids) == 0:
			return c.runBulk(cmd, "purge", selected, nil)
		}
		return c.withOperator(cmd, func(ctx context.Context, op *operator) error {
			return c.printOutcomes(ctx, op.onEach(ctx, ids, "purge"), exitOK, "TASK", "OUTCOME", "EXPORTED LINES")
		})
	}
	return cmd
}
