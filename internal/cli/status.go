package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/admin/doctor"
	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/store"
)

// state is what status shows.
type state struct {
	Replicas []shown.Replica       `json:"replicas"`
	Database store.DatabaseFacts   `json:"database"`
	Agents   []*shown.Agent        `json:"agents"`
	Webhooks []store.PushLagOfHost `json:"webhooks"` // receivers that fail
	Inbox    int                   `json:"inbox"`    // up to mostQuestions
	Doctor   []doctor.Finding      `json:"doctor"`   // problems
}

func (c *command) status() *cobra.Command {
	cmd := c.operators(&cobra.Command{
		Use: "status", Short: "Show on one screen what works, waits and fails",
		Long: `Show replicas, the database, agents with health and queue, receivers of webhooks that fail,
how many tasks wait for people, and what doctor finds.`,
		Example: `  holdfast status
  holdfast status --watch`,
	}, false)
	cmd.RunE = c.operate(func(ctx context.Context, op *operator, _ []string) error {
		s, err := c.stateOf(ctx, cmd, op)
		if err != nil {
			return err
		}
		return c.printState(s)
	})
	return cmd
}

func (c *command) stateOf(ctx context.Context, cmd *cobra.Command, op *operator) (*state, error) {
	s := &state{}
	var replicas shown.Replicas
	var lags store.PushLags
	for path, into := range map[string]any{"/replicas": &replicas, "/database": &s.Database, "/webhooks/lags": &lags} {
		if err := op.api.Get(ctx, path, nil, into); err != nil {
			return nil, err
		}
	}
	asked, err := op.questions(ctx, "")
	if err != nil {
		return nil, err
	}
	if s.Agents, err = op.agents(ctx); err != nil {
		return nil, err
	}
	found, err := c.examined(cmd, doctorPatience)
	if err != nil {
		return nil, err
	}
	s.Inbox, s.Webhooks = len(asked), lags.Hosts
	s.Replicas = slices.DeleteFunc(replicas.Replicas, func(r shown.Replica) bool { return !r.Alive })
	s.Doctor = slices.DeleteFunc(found.Checks, func(f doctor.Finding) bool { return f.Status == doctor.OK })
	return s, nil
}

func (c *command) printState(s *state) error {
	rows := [][]string{{"REPLICA", "VERSION", "ROLES", "RUNNING", "STARTED"}}
	for _, r := range s.Replicas {
		rows = append(rows, []string{r.Name, r.Version, r.Roles, count(r.Running), stamp(r.StartedAt)})
	}
	if err := c.print(s, rows); err != nil || c.json() {
		return err
	}
	p := &printer{w: c.Out}
	p.line("\nDatabase: PostgreSQL %s, %s, %d of %d connections", s.Database.Version, bytesText(s.Database.Bytes), s.Database.Connections, s.Database.MaxConnections)
	p.line("Waiting for people: %d\n", s.Inbox)
	if err := c.table(c.agentRows(s.Agents)); err != nil {
		return err
	}
	if len(s.Webhooks) > 0 {
		rows := [][]string{{"RECEIVER", "FAILING", "DISABLED", "SINCE", "ERROR"}}
		for _, h := range s.Webhooks {
			rows = append(rows, []string{h.Host, count(h.Failing), count(h.Disabled), stamp(h.Since), h.Error})
		}
		p.line("")
		if err := c.table(rows); err != nil {
			return err
		}
	}
	p.line("")
	r := &doctor.Report{Checks: s.Doctor}
	if c.printFindings(p, r, doctor.Fail)+c.printFindings(p, r, doctor.Warn) == 0 {
		p.line("Doctor finds no problems.")
	}
	return p.err
}
