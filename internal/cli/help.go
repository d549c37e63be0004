package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpOf prints the help of a verb below what it is for: examples first, and flags by what they are about.
func helpOf(cmd *cobra.Command) error {
	p := &printer{w: cmd.OutOrStderr()}
	if cmd.IsAdditionalHelpTopicCommand() {
		return nil
	}
	p.line("Examples:\n%s\n\nUsage:\n  %s", cmd.Example, cmd.UseLine())
	if len(cmd.Aliases) > 0 {
		p.line("\nAlso called: %s", strings.Join(cmd.Aliases, ", "))
	}
	for _, g := range append(cmd.Groups(), &cobra.Group{Title: "Verbs:"}) {
		title := "\n" + g.Title + "\n"
		for _, sub := range cmd.Commands() {
			if sub.GroupID == g.ID && sub.Name() != "help" && !sub.IsAdditionalHelpTopicCommand() {
				p.line("%s  %-11s %s", title, sub.Name(), sub.Short)
				title = ""
			}
		}
	}
	for _, heading := range []string{"Message flags", "Target flags", "Filters", "Flags", "Output flags", "Credentials", "Database or server"} {
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		for _, all := range []*pflag.FlagSet{cmd.LocalFlags(), cmd.InheritedFlags()} {
			all.VisitAll(func(f *pflag.Flag) {
				if headingOf(cmd, f) == heading {
					flags.AddFlag(f)
				}
			})
		}
		if flags.HasFlags() {
			p.line("\n%s:\n%s", heading, strings.TrimRight(flags.FlagUsagesWrapped(100), "\n"))
		}
	}
	p.line("\nSee also: holdfast help exit-codes, filters or profiles; docs/cli.md.")
	return p.err
}

// headingOf returns what a flag is about.
func headingOf(cmd *cobra.Command, f *pflag.Flag) string {
	among := func(names ...string) bool { return slices.Contains(names, f.Name) }
	talks := cmd.Flags().Lookup("url") != nil
	switch {
	case talks && among("task", "context", "data", "file", "file-url", "metadata"):
		return "Message flags"
	case talks && among("url", "agent", "endpoint", "protocol", "binding"):
		return "Target flags"
	case strings.HasPrefix(f.Usage, "only ") || strings.HasSuffix(f.Usage, "instead of ids"):
		return "Filters"
	case among("header", "signing-keys", "token-file", "authorization-file"):
		return "Credentials"
	case among("output", "watch", "verbose", "save", "limit"):
		return "Output flags"
	case among("config", "server", "profile", "database-url"):
		return "Database or server"
	}
	return "Flags"
}

// topics are the helps that belong to no verb.
func topics() (all []*cobra.Command) {
	for _, t := range [][3]string{
		{"exit-codes", "What the exit code says", `0    done; if the verb waited for a task: it completed
1    the call failed; for doctor, ready and webhooks test: something fails
2    the command line or the configuration is wrong; nothing was done
3    the task failed, or was rejected or canceled; for tasks cancel: it had
     ended otherwise; for audit verify: a chain is broken
4    the task waits for input or authentication
130  interrupted; the task continues`},
		{"filters", "How verbs select tasks", `tasks list:                 --agent, --state, --tenant, --owner, --context, --since, --until,
                            --text (what the client said) and --reason (why tasks failed)
tasks cancel, retry, purge: --agent, --state, --tenant, --owner, --context; --dry-run counts them
tasks tail:                 --agent, --state, --tenant, --owner, --context

--tenant "" and --owner "" select callers without one. Times are ages (24h) or dates
(2026-01-31, 2026-01-31T12:00:00Z).`},
		{"profiles", "How verbs find a server", `A profile names a server and where its credential is:

  holdfast profile add prod --server https://holdfast-admin.example.com --credential-file ~/.holdfast-prod
  holdfast tasks list --profile prod
  export HOLDFAST_PROFILE=prod

They are in ~/.config/holdfast/profiles.yaml, or in the file that HOLDFAST_PROFILES names.
Without a profile: --server or HOLDFAST_SERVER, with HOLDFAST_SERVER_CREDENTIAL_FILE. Without
a server, the verbs use the database of the configuration.`},
	} {
		all = append(all, &cobra.Command{Use: t[0], Short: t[1], Long: t[2]})
	}
	return all
}
