package cli

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

func (c *command) migrate() *cobra.Command {
	cmd := &cobra.Command{
		Use: "migrate", Short: "Bring the database schema up to date",
		Long: `Apply the pending migrations. Of several processes one migrates and the others wait. With
migrate: auto, the default, servers also migrate when they start.

To run servers with a database role that owns nothing, call this as the owner of the schema
with --runtime-role: it grants that role what servers need. docs/releases.md (Migrations)
has the steps.`,
		Example: `  holdfast migrate --database-url postgres://holdfast@db/holdfast
  holdfast migrate --database-url postgres://owner@db/holdfast --runtime-role holdfast`,
	}
	cmd.Flags().String("database-url", "", "PostgreSQL to migrate, without a password: other users see it (default: the configured one)")
	servers := cmd.Flags().String("runtime-role", "", "database role of the servers, to which this role grants what they need")
	status := cmd.Flags().Bool("status", false, "list the migrations without applying any")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := c.load(configFlags(cmd.Flags()))
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("database-url") {
			cfg.ListenDatabaseURL = "" // migrations would use it, and it is for the servers: it may have another role
		}
		if !*status {
			_, stop := c.during("migrating the schema")
			defer stop()
			return c.deps.Migrate(cmd.Context(), cfg, *servers, newLogger(c.Err, cfg.Log))
		}
		migrations, err := c.deps.MigrationStatus(cmd.Context(), cfg, newQuietLogger(c.Err, cfg.Log))
		if err != nil {
			return err
		}
		rows := [][]string{{"VERSION", "APPLIED", "NAME"}}
		for _, m := range migrations {
			applied := "pending"
			if m.AppliedAt != nil {
				applied = m.AppliedAt.UTC().Format(time.RFC3339)
			}
			rows = append(rows, []string{strconv.FormatInt(m.Version, 10), applied, m.Name})
		}
		return c.print(migrations, rows)
	}
	return cmd
}
