package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/store"
)

type auditView struct {
	store.AuditHead
	Broken  int64  `json:"broken,omitempty"`
	Problem string `json:"problem,omitempty"`
}

func (c *command) audit() *cobra.Command {
	return c.operators(&cobra.Command{
		Use:   "audit",
		Short: "Show and check the audit log",
		Long: `The audit log records who created and canceled tasks, set webhooks, and made and revoked API
keys. SQL has it as the view v_audit. docs/audit.md lists the actions.`,
		Example: `  holdfast audit list --limit 20
  holdfast audit verify`,
	}, false, c.auditList(), c.auditVerify())
}

// auditRowView is a row of the audit log, as the admin API has it.
type auditRowView struct {
	At      time.Time       `json:"at"`
	Chain   int             `json:"chain"`
	N       int64           `json:"n"`
	Login   string          `json:"login"`
	Entries json.RawMessage `json:"entries"`
}

func (c *command) auditList() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the newest entries of the audit log",
		Long: `Show the newest rows of the audit log first. A row has the entries of one commit, each on a
line. With a filter, a row shows if one of its entries matches. OBJECT is a webhook, an API
key or another object of the action; BY is the subject, and its tenant.`,
		Example: `  holdfast audit list --since 24h
  holdfast audit list --tenant acme --action task.canceled
  holdfast audit list -o json --limit 500 | jq -r '.[].entries[] | select(.action == "task.canceled").reason'`,
		Args: argCount(0, 0),
	}
	limit := cmd.Flags().Int("limit", 50, "how many rows to show at most")
	since := cmd.Flags().Duration("since", 0, "only rows of this last time, such as 24h")
	var f store.AuditFilter
	cmd.Flags().StringVar(&f.Action, "action", "", "only this action, such as task.canceled")
	cmd.Flags().StringVar(&f.Task, "task", "", "only this task, by its UUID")
	cmd.Flags().StringVar(&f.Agent, "agent", "", "only tasks of this agent")
	cmd.Flags().StringVar(&f.Subject, "subject", "", "only acts of this subject, or with this API key")
	tenant := tenantFlag(cmd, "only acts of this tenant")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *limit < 1 || *limit > 100_000 {
			return usage("--limit must be between 1 and 100000")
		}
		var from time.Time
		if *since > 0 {
			from = time.Now().Add(-*since)
		}
		f.Tenant = tenant()
		return c.withOperator(cmd, func(ctx context.Context, op Operator) error {
			rows, err := op.Audit(ctx, &f, from, *limit)
			if err != nil {
				return err
			}
			views := make([]auditRowView, len(rows))
			lines := [][]string{{"AT", "ACTION", "TASK", "OBJECT", "BY", "METHOD", "REASON"}}
			for i, r := range rows {
				views[i] = auditRowView{r.At.UTC(), r.Chain, r.N, r.Login, r.Entries}
				var entries []struct{ Action, Task, Object, Tenant, Subject, Method, Reason string }
				if err := json.Unmarshal(r.Entries, &entries); err != nil {
					return fmt.Errorf("row %d of chain %d: %w", r.N, r.Chain, err)
				}
				for _, e := range entries {
					by := e.Subject
					if e.Tenant != "" {
						by += " of " + e.Tenant
					}
					lines = append(lines, []string{stamp(r.At), e.Action, e.Task, e.Object, by, e.Method, strings.Join(strings.Fields(e.Reason), " ")})
				}
			}
			if *format == outputJSON {
				return printJSON(c.Out, views)
			}
			return table(c.Out, lines)
		})
	}
	return cmd
}

func (c *command) auditVerify() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check all chains of the audit log",
		Long: `Recompute every hash of the audit log and compare it, and the head of each chain, with
the stored values. The output lists the chains that have rows. For a broken chain it
names the first row that was changed or is missing.

The owner of the database can rewrite whole chains without a visible break. Against that,
keep the output of -o json where the owner cannot change it. With --against, this verb
checks that everything in that output is still in the log. It needs the database.

Exit codes: 0 all chains are intact; 3 a chain is broken; 1 the call failed.`,
		Example: `  holdfast audit verify
  holdfast audit verify -o json > heads.json
  holdfast audit verify --against heads.json`,
		Args: argCount(0, 0),
	}
	against := cmd.Flags().String("against", "", "file with an earlier output of -o json")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		noted, err := readHeads(*against)
		if err != nil {
			return err
		}
		return c.withOperator(cmd, func(ctx context.Context, op Operator) error {
			chains, err := op.VerifyAudit(ctx, noted)
			if err != nil {
				return err
			}
			views := []auditView{}
			rows := [][]string{{"CHAIN", "ROWS", "HEAD", "PROBLEM"}}
			code := exitOK
			for _, k := range chains {
				if k.Length == 0 && k.Problem == "" {
					continue
				}
				views = append(views, auditView{store.AuditHead{Chain: k.Chain, Length: k.Length, Head: k.Head}, k.Broken, k.Problem})
				problem := ""
				if k.Problem != "" {
					code, problem = exitEnded, fmt.Sprintf("row %d: %s", k.Broken, k.Problem)
				}
				rows = append(rows, []string{strconv.Itoa(k.Chain), strconv.FormatInt(k.Length, 10), k.Head, problem})
			}
			return c.printOutcomes(ctx, views, rows, *format, code)
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
