package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// aboutOperators is in the help of the groups of operators' verbs.
const aboutOperators = `The verbs use the database of the configuration (--config, HOLDFAST_DATABASE_URL or
--database-url), with a role that has the server's rights. With --server, --profile or
HOLDFAST_SERVER they use the admin API of that server instead.`

// group completes a command that only has verbs below it.
func group(cmd *cobra.Command, verbs ...*cobra.Command) *cobra.Command {
	names := make([]string, len(verbs))
	for i, v := range verbs {
		names[i] = v.Name()
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return usage("unknown verb %q; use %s", strings.TrimPrefix(cmd.CommandPath(), "holdfast ")+" "+args[0], either(names))
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(verbs...)
	return cmd
}

// serverFlags adds the flags that name a server. Only verbs that can use its API have them.
func (c *command) serverFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.server, "server", "", "admin address of a server, whose API to use instead of the database (default $HOLDFAST_SERVER)")
	flags.StringVar(&c.profileName, "profile", "", "name of a server and its credential in ~/.config/holdfast/profiles.yaml (default $HOLDFAST_PROFILE)")
}

// operators is group for verbs that use the database or a server. With acts they also take --reason.
func (c *command) operators(cmd *cobra.Command, acts bool, verbs ...*cobra.Command) *cobra.Command {
	cmd.Long += "\n\n" + aboutOperators
	flags := cmd.PersistentFlags()
	c.serverFlags(flags)
	flags.String("database-url", "", "PostgreSQL to use, without a password: other users see it (default: the configured one)")
	if acts {
		flags.StringVar(&c.reason, "reason", "", "why you act, for the audit log (default: the verb)")
	}
	return group(cmd, verbs...)
}

// either writes names as "a, b or c".
func either(names []string) string {
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// tenantFlag adds --tenant. The returned function is nil without the flag; "" selects what belongs to callers without a tenant.
func tenantFlag(cmd *cobra.Command, usage string) func() *string {
	tenant := cmd.Flags().String("tenant", "", usage+`; "" means those without a tenant`)
	return func() *string {
		if !cmd.Flags().Changed("tenant") {
			return nil
		}
		return tenant
	}
}
