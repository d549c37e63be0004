package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func (c *command) serve() *cobra.Command {
	cmd := &cobra.Command{
		Use: "serve", Short: "Run the server (the default verb)",
		Long: `Serve the configured agents until SIGINT or SIGTERM, or until the terminal closes. Then drain:
let runs finish within worker.stop_grace and return the others to the queue.

At SIGHUP the server reads changed files of certificates and users again. It also takes new
agents if only they have changed. For other changes it logs which keys need a restart.

Without --database-url, the server starts an embedded PostgreSQL with its data in ./.holdfast.
Flags override environment variables, which override the file.`,
		Example: `  holdfast serve
  holdfast serve --listen :8080 --public-url https://agents.example.com`,
		Args: argCount(0, 0),
	}
	flags := cmd.Flags()
	flags.String("listen", "", "address of the public API over HTTP (default 127.0.0.1:8080)")
	flags.String("grpc-listen", "", "address of the public API over gRPC, or off (default: the port after that of --listen)")
	flags.String("admin-listen", "", "address of metrics and health (default 127.0.0.1:9090)")
	flags.String("database-url", "", "PostgreSQL to use instead of the embedded one")
	flags.String("public-url", "", "base URL in the agent cards")
	flags.String("roles", "", "roles of this replica: api, worker, push, separated by commas (default all)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		source := c.configSource(configFlags(cmd.Flags()))
		cfg, changes, err := source.Watch()
		if err != nil {
			return err
		}
		return c.deps.Serve(cmd.Context(), cfg, newLogger(c.Err, cfg.Log), changes)
	}
	return cmd
}

// configFlags returns the given flags by configuration key: --admin-listen is admin_listen. config.Load ignores flags
// without a key.
func configFlags(flags *pflag.FlagSet) map[string]string {
	given := map[string]string{}
	flags.Visit(func(f *pflag.Flag) {
		given[strings.ReplaceAll(f.Name, "-", "_")] = f.Value.String()
	})
	return given
}
