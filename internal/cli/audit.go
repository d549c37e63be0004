package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/store"
)

type auditView struct {
	store.AuditHead
	Broken  int64  `json:"broken,omitempty"`
	Problem string `json:"problem,omitempty"`
}

func (c *command) audit() *cobra.Command {
	return c.operators(&cobra.Command{
		Use: "audit", Short: "Show and check the audit log",
		Long: `The audit log records who created and canceled tasks, set webhooks, and made and revoked API
keys. docs/audit.md lists the actions.`,
		Example: `  holdfast audit list --limit 20
  holdfast audit verify`,
	}, false, c.auditList(), c.auditVerify())
}

func (c *command) auditList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "Show the newest entries of the audit log",
		Long: `A row has the entries of one commit, each on a line. A filter shows a row if one of its
entries matches. OBJECT is a webhook, an API key or another object of the action; BY is the
subject, and its tenant.`,
		Example: `  holdfast audit list --since 24h
  holdfast audit list --tenant acme --action task.canceled`,
	}
	limit := cmd.Flags().Int("limit", 50, atMost)
	flags := cmd.Flags()
	flags.Var(new(moment), "since", "only rows of this last time, such as 24h, or since a time")
	flags.String("action", "", "only this action, such as task.canceled")
	flags.String("task", "", "only this task, by its UUID")
	flags.String("agent", "", "only tasks of this agent")
	flags.String("subject", "", "only acts of this subject, or with this API key")
	flags.String("tenant", "", "only acts of this tenant")
	cmd.RunE = c.operate(func(ctx context.Context, op *operator, _ []string) error {
		q := given(cmd, "action", "task", "agent", "subject", "tenant", "since")
		rows, err := paged(ctx, op, "/audit", q, *limit, func(p *shown.AuditPage) ([]store.AuditRow, string) { return p.Rows, p.Next })
		if err != nil {
			return err
		}
		lines := [][]string{{"AT", "ACTION", "TASK", "OBJECT", "BY", "METHOD", "REASON"}}
		for _, r := range rows {
			var entries []struct{ Action, Task, Object, Tenant, Subject, Method, Reason string }
			if err := json.Unmarshal(r.Entries, &entries); err != nil {
				return fmt.Errorf("row %d of chain %d: %w", r.N, r.Chain, err)
			}
			for _, e := range entries {
				by := e.Subject
				if e.Tenant != "" {
					by += " of " + e.Tenant
				}
				lines = append(lines, []string{stamp(r.At), e.Action, e.Task, e.Object, by, e.Method, oneLine(e.Reason)})
			}
		}
		return c.print(rows, lines)
	})
	return cmd
}

func (c *command) auditVerify() *cobra.Command {
	cmd := &cobra.Command{
		Use: "verify", Short: "Check all chains of the audit log",
		Long: `Recompute every hash of the audit log, and name the first row of a chain that was changed or
is missing.

The owner of the database can rewrite whole chains. Against that, keep the output of -o json
where the owner cannot change it: --against checks that all of it is still in the log. A
server verifies for two minutes at most; longer logs need the database.`,
		Example: `  holdfast audit verify -o json > heads.json
  holdfast audit verify --against heads.json`,
	}
	against := cmd.Flags().String("against", "", "file with an earlier output of -o json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		noted, err := readHeads(*against)
		if err != nil {
			return err
		}
		return c.withOperator(cmd, func(ctx context.Context, op *operator) error {
			var verified shown.Verified
			if noted == nil {
				err = op.api.Get(ctx, "/audit/verify", nil, &verified)
			} else {
				err = op.api.Post(ctx, "/audit/verify", map[string]any{"heads": noted}, &verified)
			}
			if err != nil {
				return err
			}
			views := []auditView{}
			rows := [][]string{{"CHAIN", "ROWS", "HEAD", "PROBLEM"}}
			code := exitOK
			for _, head := range verified.Heads {
				v, problem := auditView{AuditHead: head}, ""
				for _, b := range verified.Broken {
					if b.Chain == head.Chain {
						v.Broken, v.Problem, code = b.Row, b.Problem, exitEnded
						problem = fmt.Sprintf("row %d: %s", b.Row, b.Problem)
					}
				}
				views = append(views, v)
				rows = append(rows, []string{strconv.Itoa(v.Chain), strconv.FormatInt(v.Length, 10), v.Head, problem})
			}
			if err := c.print(views, rows); err != nil || code == exitOK {
				return err
			}
			return &exitError{code: code}
		})
	}
	return cmd
}

// maxHeads bounds a file of heads, in bytes. Real files have a few thousand.
const maxHeads = 1 << 20

func readHeads(file string) (heads []store.AuditHead, err error) {
	if file == "" {
		return nil, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, usage("--against: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxHeads))
	if err != nil {
		return nil, fmt.Errorf("--against: %w", err)
	}
	if err := json.Unmarshal(text, &heads); err != nil {
		return nil, usage("--against: %s is not the output of audit verify -o json: %w", file, err)
	}
	return heads, nil
}
