package cli

import (
	"context"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// WorkersOperator looks after the workers of agents with executor.kind worker.
type WorkersOperator interface {
	// Workers returns those that were seen last first.
	Workers(ctx context.Context, most int) ([]store.RemoteWorker, error)
	// RetireWorkers tells a worker, or the connected ones of a version, to claim no more. task.NotFound: no such worker.
	RetireWorkers(ctx context.Context, id task.ID, version string) ([]store.RemoteWorker, error)
}

func (c *command) workers() *cobra.Command {
	return c.operators(&cobra.Command{
		Use:   "workers",
		Short: "List and retire connected workers",
		Long: `Workers are processes of agents with executor.kind worker. A retired worker claims no
more, finishes its runs, and exits.`,
		Example: `  holdfast workers list
  holdfast workers retire 0d9cfb5c-6d68-4a27-9a24-a3a9ad0e3a5b
  holdfast workers retire --version 3f2c91e`,
	}, true, c.workersList(), c.workersRetire())
}

func (c *command) workersList() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List workers, those that were seen last first",
		Long: `List the workers that are or were connected. STATE is connected, retired (it finishes its
runs) or gone (it was not seen for 90 seconds). SEEN is accurate to a minute.`,
		Example: `  holdfast workers list
  holdfast workers list -o json | jq -r '.[] | select(.state == "connected") | .version' | sort | uniq -c`,
		Args: argCount(0, 0),
	}
	format := outputFlag(cmd)
	most := cmd.Flags().Int("limit", 100, "how many workers to list")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *most < 1 || *most > 100_000 {
			return usage("--limit must be between 1 and 100000")
		}
		return c.withOperator(cmd, func(ctx context.Context, op Operator) error {
			all, err := op.Workers(ctx, *most)
			if err != nil {
				return err
			}
			views := []shown.Worker{}
			rows := [][]string{{"ID", "NAME", "VERSION", "STATE", "RUNS", "SEEN", "AGENTS", "SDK"}}
			for i := range all {
				v := shown.OfWorker(&all[i])
				views = append(views, v)
				rows = append(rows, []string{
					v.ID, v.Name, v.Version, v.State, strconv.Itoa(v.Running), v.LastSeen.UTC().Format("2006-01-02 15:04"), strings.Join(v.Agents, " "), v.SDK,
				})
			}
			if *format == outputJSON {
				return printJSON(c.Out, views)
			}
			return table(c.Out, rows)
		})
	}
	return cmd
}

type retiredWorker struct {
	ID string `json:"id"`
}

func (c *command) workersRetire() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retire ID | --version V",
		Short: "Tell workers to finish their runs and exit",
		Long: `Tell a worker, or all connected workers of a version, to claim no more. They learn it within
a few seconds, finish their runs and exit. A worker that starts later is not retired,
whatever its version.`,
		Example: `  holdfast workers retire 0d9cfb5c-6d68-4a27-9a24-a3a9ad0e3a5b
  holdfast workers retire --version 3f2c91e`,
		Args: argCount(0, 1),
	}
	version := cmd.Flags().String("version", "", "retire the connected workers of this version")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if (len(args) == 1) == (*version != "") {
			return usage("name one worker by its id, or a version with --version")
		}
		var id task.ID
		if len(args) == 1 {
			parsed, err := uuid.Parse(args[0])
			if err != nil {
				return usage("%q is not the id of a worker; holdfast workers list shows the ids", args[0])
			}
			id = task.ID(parsed)
		}
		return c.withOperator(cmd, func(ctx context.Context, op Operator) error {
			retired, err := op.RetireWorkers(ctx, id, *version)
			if err != nil {
				return err
			}
			p := &printer{w: c.Out}
			views := []retiredWorker{}
			for _, w := range retired {
				views = append(views, retiredWorker{w.ID.String()})
				if *format == outputTable {
					p.line("%s", w.ID)
				}
			}
			if *format == outputJSON {
				return printJSON(c.Out, views)
			}
			return p.err
		})
	}
	return cmd
}
