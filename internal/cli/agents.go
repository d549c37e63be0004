package cli

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
)

func (c *command) agents() *cobra.Command {
	return c.operators(&cobra.Command{
		Use:   "agents",
		Short: "Show agents, their health and their queues",
		Long: `Agents are those of the configuration. Health, queues and workers are the same for all
replicas. On a database, give the servers' configuration with --config. An agent that it
lacks shows without a kind, while a live server has it or it has tasks in the queue. Without
--config those show that live servers have or that have tasks.`,
		Example: `  holdfast agents list
  holdfast agents get weather`,
	}, false, c.agentsList(), c.agentsGet())
}

func (c *command) agentsList() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List agents with health, queue and workers",
		Long: `List agents. HEALTH is healthy, unknown (no task has completed yet), failing (many of the
newest tasks failed), away (its runs do not begin), no worker, or draining (all its workers
are retired). Tasks of the last three wait without losing tries. QUEUE is the number of
tasks that wait for a run, OLDEST for how long the first of them has been due, RUNNING those
that a replica or a worker runs, PARKED those that wait for their client (counted up to
10,000). WORKERS are connected, for the kind
worker. holdfast workers list shows them.`,
		Example: `  holdfast agents list
  holdfast agents list -o json | jq -r '.[] | select(.health == "away") | .name'`,
		Args: argCount(0, 0),
	}
	c.outputFlag(cmd)
	cmd.RunE = c.operate(func(ctx context.Context, op *operator, _ []string) error {
		all, err := op.agents(ctx)
		if err != nil {
			return err
		}
		rows := [][]string{{"AGENT", "KIND", "HEALTH", "QUEUE", "OLDEST", "RUNNING", "PARKED", "WORKERS"}}
		for _, a := range all {
			row := []string{a.Name, dash(a.Kind), a.Health, "-", "-", "-", "-", "-"}
			if q := a.Queue; q != nil {
				row[3], row[4], row[5], row[6] = count(q.Waiting), ageText(q.OldestSeconds), count(q.Running), count(q.Parked)
			}
			if a.Workers != nil {
				row[7] = count(*a.Workers)
			}
			rows = append(rows, row)
		}
		if !c.json() && slices.ContainsFunc(all, func(a *shown.Agent) bool { return a.Kind == "" }) {
			c.note("The configuration of the servers has the kinds: name it with --config, or a server with --server.")
		}
		return c.print(all, rows)
	})
	return cmd
}

// agents returns the agents of the configuration (that of the server, or of this program) with their health and queues.
func (o *operator) agents(ctx context.Context) ([]*shown.Agent, error) {
	var got shown.Agents
	err := o.api.Get(ctx, "/agents", nil, &got)
	return got.Agents, err
}

func (c *command) agentsGet() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get AGENT",
		Short: "Show an agent",
		Long: `Show an agent: its kind, limits, health, queue and workers. A server (--server) also shows
whether clients can verify the signature of its card, and with -o json the card itself.`,
		Example: `  holdfast agents get weather
  holdfast agents get weather -o json | jq .queue`,
		Args: argCount(1, 1),
	}
	c.outputFlag(cmd)
	cmd.RunE = c.operate(func(ctx context.Context, op *operator, args []string) error {
		var a shown.AgentDetail
		if err := op.api.Get(ctx, "/agents/"+url.PathEscape(args[0]), nil, &a); err != nil {
			return fmt.Errorf("agent %s: %w", args[0], err)
		}
		if c.json() {
			return printJSON(c.Out, a)
		}
		return printAgent(&printer{w: c.Out}, a.Agent)
	})
	return cmd
}

func printAgent(p *printer, a *shown.Agent) error {
	p.field("agent", a.Name)
	p.field("kind", dash(a.Kind))
	if a.Default {
		p.field("default", "yes")
	}
	health := a.Health
	if !a.Since.IsZero() {
		health += " since " + stamp(a.Since)
	}
	p.field("health", health)
	p.field("reason", a.Reason)
	if a.MaxAttempts > 0 {
		concurrency := "that of its workers"
		if a.Concurrency > 0 {
			concurrency = fmt.Sprintf("%d runs in each replica", a.Concurrency)
		}
		p.field("concurrency", concurrency)
		p.field("attempts", fmt.Sprintf("%d for each message", a.MaxAttempts))
	}
	if q := a.Queue; q != nil {
		p.field("queue", count(q.Waiting))
		p.field("oldest", ageText(q.OldestSeconds))
		p.field("running", count(q.Running))
		p.field("timers", count(q.Timers))
		p.field("calls", count(q.Calls))
		p.field("parked", count(q.Parked))
	}
	if a.Workers != nil {
		p.field("workers", fmt.Sprintf("%d connected", *a.Workers))
	}
	if s := a.Signature; s != nil {
		text := s.Status
		if s.Detail != "" {
			text += ": " + s.Detail
		}
		p.field("signature", text)
	}
	return p.err
}

func count(n int64) string { return strconv.FormatInt(n, 10) }

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// ageText writes seconds as a duration for people; "-" for none.
func ageText(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second)).Round(100 * time.Millisecond)
	switch {
	case d <= 0:
		return "-"
	case d >= time.Minute:
		d = d.Round(time.Second)
	}
	return d.String()
}
