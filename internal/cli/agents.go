package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/store"
)

func (c *command) agents() *cobra.Command {
	return c.operators(&cobra.Command{
		Use: "agents", Short: "Show agents, their health and their queues",
		Long: `Agents are those of the configuration. Health, queues and workers are the same for all
replicas. On a database, name the servers' configuration with --config: it has the kinds.
Without it, the verbs show agents that live servers have or that have tasks.`,
		Example: `  holdfast agents get weather`,
	}, false, c.agentsList(), c.agentsGet())
}

func (c *command) agentsList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List agents with health, queue and workers",
		Long: `HEALTH is healthy, unknown (no task has completed yet), failing (many of the newest tasks
failed), away (its runs do not begin), no worker, or draining (all its workers are retired).
Tasks of the last three wait without losing tries. QUEUE tasks wait for a run, the first of
them for OLDEST. RUNNING tasks have a run, PARKED ones wait for their client (counted up to
10,000). With -o wide, TIMERS wait for a time, and CALLS for tasks that they have called.`,
		Example: `  holdfast agents list -o json | jq -r '.[] | select(.health == "away") | .name'`,
		RunE: c.operate(func(ctx context.Context, op *operator, _ []string) error {
			all, err := op.agents(ctx)
			if err != nil {
				return err
			}
			if !c.json() && slices.ContainsFunc(all, func(a *shown.Agent) bool { return a.Kind == "" }) {
				c.note("The configuration of the servers has the kinds: name it with --config, or a server with --server.")
			}
			return c.print(all, c.agentRows(all))
		}),
	}
}

// agentRows is a table of agents.
func (c *command) agentRows(all []*shown.Agent) [][]string {
	rows := [][]string{{"AGENT", "KIND", "HEALTH", "QUEUE", "OLDEST", "RUNNING", "PARKED", "WORKERS"}}
	if c.output == outputWide {
		rows[0] = append(rows[0], "TIMERS", "CALLS", "REASON")
	}
	for _, a := range all {
		row := []string{a.Name, dash(a.Kind), a.Health, "-", "-", "-", "-", "-"}
		if q := a.Queue; q != nil {
			row[3], row[4], row[5], row[6] = count(q.Waiting), ageText(q.OldestSeconds), count(q.Running), count(q.Parked)
		}
		if a.Workers != nil {
			row[7] = count(*a.Workers)
		}
		if q := cmp.Or(a.Queue, &store.QueueDepth{}); c.output == outputWide {
			row = append(row, count(q.Timers), count(q.Calls), a.Reason)
		}
		rows = append(rows, row)
	}
	return rows
}

// agents returns the agents of the configuration (that of the server, or of this program) with their health and queues.
func (o *operator) agents(ctx context.Context) ([]*shown.Agent, error) {
	var got shown.Agents
	err := o.api.Get(ctx, "/agents", nil, &got)
	return got.Agents, err
}

func (c *command) agentsGet() *cobra.Command {
	return &cobra.Command{
		Use: "get AGENT", Short: "Show an agent",
		Long: `Show an agent: its kind, limits, health, queue and workers. A server (--server) also shows
whether clients can verify the signature of its card, and with -o json the card.`,
		Example: `  holdfast agents get weather
  holdfast agents get weather -o json | jq .queue`,
		RunE: c.operate(func(ctx context.Context, op *operator, args []string) error {
			var a shown.AgentDetail
			if err := op.api.Get(ctx, "/agents/"+url.PathEscape(args[0]), nil, &a); err != nil {
				return fmt.Errorf("agent %s: %w", args[0], err)
			}
			if c.json() {
				return printJSON(c.Out, a)
			}
			return printAgent(&printer{w: c.Out}, a.Agent)
		}),
	}
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
