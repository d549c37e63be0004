package cli

import (
	"github.com/spf13/cobra"
)

func (c *command) config() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check the configuration",
		Long: `The configuration is a file (--config, HOLDFAST_CONFIG), variables, and flags.
docs/configuration.md has every key.`,
		Example: `  holdfast config check --config holdfast.yaml`,
	}
	check := &cobra.Command{
		Use:   "check",
		Short: "Read the configuration as the server would, and list all mistakes",
		Long: `Read the file, the variables and the secrets in files and from commands, as serve does, and
list all mistakes with their lines and keys. It starts nothing, and connects to nothing.
holdfast doctor also tries the database and the agents.

Exit codes: 0 the configuration is right; 2 it has mistakes.`,
		Example: `  holdfast config check --config holdfast.yaml
  holdfast config check --config new.yaml && systemctl restart holdfast`,
		Args: argCount(0, 0),
	}
	format := outputFlag(check)
	check.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := c.load(configFlags(cmd.Flags()))
		if err != nil {
			return err
		}
		names := make([]string, len(cfg.Agents))
		for i := range cfg.Agents {
			names[i] = cfg.Agents[i].Name
		}
		if *format == outputJSON {
			return printJSON(c.Out, map[string][]string{"agents": names})
		}
		p := &printer{w: c.Out}
		p.line("no mistakes; %d agents", len(names))
		return p.err
	}
	return group(cmd, check)
}
