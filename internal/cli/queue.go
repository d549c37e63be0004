package cli

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/store"
)

func (c *command) queue() *cobra.Command {
	list := c.queueList()
	cmd := c.operators(&cobra.Command{
		Use:   "queue",
		Short: "Show how many tasks wait, run and are parked",
		Long: `The queue has the tasks that wait for a run or have one, by agent. It is one for all
replicas.`,
		Example: `  holdfast queue
  holdfast queue list`,
	}, false, list)
	cmd.RunE = list.RunE // alone, it lists
	return cmd
}

// queueView is the queue of one agent.
type queueView struct {
	Agent string `json:"agent"`
	store.QueueDepth
}

func (c *command) queueList() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the queues of agents",
		Long: `List the queue of each agent. WAITING tasks wait for a run, also those whose next try is
later. OLDEST is for how long the first of them has been due. RUNNING tasks are leased by a
replica or a worker. TIMERS wait for a time, CALLS for tasks that they have called, PARKED
for their client (counted up to 10,000 for each agent).`,
		Example: `  holdfast queue list
  holdfast queue list --agent weather -o json | jq '.[0].oldest_seconds'`,
		Args: argCount(0, 0),
	}
	agent := cmd.Flags().String("agent", "", "only the queue of this agent")
	c.outputFlag(cmd)
	cmd.RunE = c.operate(func(ctx context.Context, op *operator, _ []string) error {
		all, err := op.agents(ctx)
		if err != nil {
			return err
		}
		if *agent != "" {
			all = slices.DeleteFunc(all, func(a *shown.Agent) bool { return a.Name != *agent })
		}
		views := []queueView{}
		rows := [][]string{{"AGENT", "WAITING", "OLDEST", "RUNNING", "TIMERS", "CALLS", "PARKED"}}
		for _, a := range all {
			if a.Queue == nil {
				return errors.New("queues are of all tenants; your credential sees one tenant only")
			}
			q := a.Queue
			views = append(views, queueView{a.Name, *q})
			rows = append(rows, []string{
				a.Name, count(q.Waiting), ageText(q.OldestSeconds), count(q.Running), count(q.Timers), count(q.Calls), count(q.Parked),
			})
		}
		return c.print(views, rows)
	})
	return cmd
}
