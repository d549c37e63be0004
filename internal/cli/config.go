package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/config"
)

func (c *command) config() *cobra.Command {
	cmd := &cobra.Command{
		Use: "config", Short: "Check and show the configuration",
		Long: `The configuration is a file (--config, HOLDFAST_CONFIG), variables, and flags.
docs/configuration.md has every key.`,
		Example: `  holdfast config check --config holdfast.yaml`,
	}
	check := &cobra.Command{
		Use: "check", Short: "Read the configuration as the server would, and list all mistakes",
		Long: `Read the file, the variables and the secrets as serve does, and list all mistakes with their
lines and keys. The verb starts nothing and connects to nothing; holdfast doctor also tries
the database and the agents.`,
		Example: `  holdfast config check --config holdfast.yaml
  holdfast config check --config new.yaml && systemctl restart holdfast`,
	}
	check.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := c.load(configFlags(cmd.Flags()))
		if err != nil {
			return err
		}
		names := make([]string, len(cfg.Agents))
		for i := range cfg.Agents {
			names[i] = cfg.Agents[i].Name
		}
		return c.print(map[string][]string{"agents": names}, [][]string{{fmt.Sprintf("no mistakes; %d agents", len(names))}})
	}
	return group(cmd, check, c.configShow())
}

func (c *command) configShow() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show", Short: "Show every key with its value, and where that comes from",
		Long: `Show the value of every key as the server would use it, with the line of the file, the
variable or the flag that it comes from, or default. Secrets are shown as ***, and values that
name variables as the file has them.`,
		Example: `  holdfast config show --config holdfast.yaml
  holdfast config show --config holdfast.yaml | grep -v 'default$'`,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		settings, err := config.Settings(c.configSource(configFlags(cmd.Flags())))
		if err != nil {
			return &exitError{exitUsage, err}
		}
		rows := [][]string{{"KEY", "VALUE", "FROM"}}
		for _, s := range settings {
			rows = append(rows, []string{s.Key, printable(s.Value), s.From})
		}
		return c.print(map[string][]config.Setting{"settings": settings}, rows)
	}
	return cmd
}
