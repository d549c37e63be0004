package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/store"
)

type auditView struct {
	store.AuditHead
	Broken  int64  `json:"broken,omitempty"`
	Problem string `json:"problem,omitempty"`
}

func (c *command) audit() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Check the log of who did what",
		Long: `For operators: the audit log tells who created and canceled tasks, set webhooks, made and
revoked keys. Read it with SQL (view v_audit); what is checked here is that nobody has
changed it.`,
		Example: `  holdfast audit verify`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("unknown verb \"audit %s\"; there is verify", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().String("database-url", "", "PostgreSQL to use (default: the configured one)")
	cmd.AddCommand(c.auditVerify())
	return cmd
}

func (c *command) auditVerify() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Walk through all chains of the audit log",
		Long: `Compute every hash of the audit log anew, and compare it, and the end of each chain, with
what is stored. It shows the chains that have rows, and of a broken one the first row that
is not as it was written.

Whoever owns the database can write all of it anew, so that it fits. Keep the output of
-o json where they cannot reach it: with --against, what it tells must still be there.

Exit codes: 0 all are whole; 3 one is broken; 1 the call failed.`,
		Example: `  holdfast audit verify
  holdfast audit verify -o json > heads.json
  holdfast audit verify --against heads.json`,
		Args: argCount(0, 0),
	}
	against := cmd.Flags().String("against", "", "an earlier output with -o json")
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
		return nil, usage("--against: %s is no output of audit verify -o json: %w", file, err)
	}
	return heads, nil
}
