package cli

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func (c *command) workers() *cobra.Command {
	return c.operators(&cobra.Command{
		Use: "workers", Short: "List and retire connected workers",
		Long: `Workers are processes of agents with executor.kind worker. A retired worker claims no more,
finishes its runs, and exits.`,
		Example: `  holdfast workers list
  holdfast workers retire 0d9cfb5c-6d68-4a27-9a24-a3a9ad0e3a5b`,
	}, true, c.workersList(), c.workersRetire())
}

func (c *command) workersList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List workers, those that were seen last first",
		Long: `STATE is connected, retired (it finishes its runs) or gone (it was not seen for 90 seconds).
SEEN is accurate to a minute.`,
		Example: `  holdfast workers list -o json | jq -r '.[] | select(.state == "connected") | .version' | sort | uniq -c`,
	}
	most := cmd.Flags().Int("limit", 100, atMost)
	cmd.RunE = c.operate(func(ctx context.Context, op *operator, _ []string) error {
		all, err := op.workers(ctx, query("limit", strconv.Itoa(*most)))
		if err != nil {
			return err
		}
		rows := [][]string{{"ID", "NAME", "VERSION", "STATE", "RUNS", "SEEN", "AGENTS", "SDK"}}
		for i := range all {
			v := &all[i]
			rows = append(rows, []string{
				v.ID.String(), v.Name, v.Version, v.State, strconv.Itoa(v.Running), minute(v.LastSeen), strings.Join(v.Agents, " "), v.SDK,
			})
		}
		return c.print(all, rows)
	})
	return cmd
}

func (o *operator) workers(ctx context.Context, q url.Values) ([]store.RemoteWorker, error) {
	var got shown.Workers
	err := o.api.Get(ctx, "/workers", q, &got)
	return got.Workers, err
}

// workersOf returns the ids of the connected workers of a version that are not retired.
func (o *operator) workersOf(ctx context.Context, version string) (ids []string, err error) {
	all, err := o.workers(ctx, query("connected", "true", "limit", "10000"))
	for i := range all {
		if w := &all[i]; w.State == "connected" && w.Version == version {
			ids = append(ids, w.ID.String())
		}
	}
	return ids, err
}

type retiredWorker struct {
	ID string `json:"id"`
}

func (c *command) workersRetire() *cobra.Command {
	cmd := &cobra.Command{
		Use: "retire ID | --version V", Short: "Tell workers to finish their runs and exit",
		Long: `Tell a worker, or all connected workers of a version, to claim no more. They learn it within
seconds, finish their runs and exit. A worker that starts later is not retired.`,
		Example: `  holdfast workers retire 0d9cfb5c-6d68-4a27-9a24-a3a9ad0e3a5b
  holdfast workers retire --version 3f2c91e`,
		Args: argCount(0, 1),
	}
	version := cmd.Flags().String("version", "", "retire the connected workers of this version")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if (len(args) == 1) == (*version != "") {
			return usage("name one worker by its id, or a version with --version")
		}
		if len(args) == 1 && uuid.Validate(args[0]) != nil {
			return usage("%q is not the id of a worker; holdfast workers list shows the ids", args[0])
		}
		return c.withOperator(cmd, func(ctx context.Context, op *operator) error {
			ids := args
			if *version != "" {
				var err error
				if ids, err = op.workersOf(ctx, *version); err != nil {
					return err
				}
			}
			views := []retiredWorker{}
			var rows [][]string
			for _, id := range ids {
				var did retiredWorker
				err := op.post(ctx, "/workers/"+id+"/retire", nil, &did)
				if errors.Is(err, task.NotFound) {
					continue // it was forgotten meanwhile
				}
				if err != nil {
					return errors.Join(c.print(views, rows), err)
				}
				views, rows = append(views, did), append(rows, []string{did.ID})
			}
			if len(views) == 0 {
				return task.Errorf(task.NotFound, "no such worker is connected; see holdfast workers list")
			}
			return c.print(views, rows)
		})
	}
	return cmd
}
