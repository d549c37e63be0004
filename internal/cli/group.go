package cli

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// aboutOperators is in the help of the groups of operators' verbs.
const aboutOperators = `The verbs use the database of the configuration (--config, HOLDFAST_DATABASE_URL or
--database-url), with a role that has the server's rights. With --server, --profile or
HOLDFAST_SERVER they use the admin API of that server instead.`

// group completes a command that only has verbs below it.
func group(cmd *cobra.Command, verbs ...*cobra.Command) *cobra.Command {
	if len(verbs) == 0 {
		return cmd
	}
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

// given returns the flags of these names that are on the command line, as parameters of the admin API. "" is a value: that of callers
// without a tenant or an owner.
func given(cmd *cobra.Command, names ...string) url.Values {
	q := url.Values{}
	for _, name := range names {
		f := cmd.Flags().Lookup(name)
		if f == nil || !f.Changed {
			continue
		}
		if all, is := f.Value.(*states); is {
			q[name] = *all
		} else {
			q.Set(name, f.Value.String())
		}
	}
	return q
}

// filterFlags adds the flags that select tasks. form is their usage, of the task.
func filterFlags(cmd *cobra.Command, form string) {
	flags := cmd.Flags()
	flags.String("agent", "", fmt.Sprintf(form, "of this agent"))
	flags.Var(new(states), "state", fmt.Sprintf(form, "in these states, such as working,input-required"))
	flags.String("tenant", "", fmt.Sprintf(form, "of this tenant"))
	flags.String("owner", "", fmt.Sprintf(form, "of this owner"))
	flags.String("context", "", fmt.Sprintf(form, "of this context"))
}

// storedFlags select among the tasks that are there.
func storedFlags(cmd *cobra.Command, form string) {
	filterFlags(cmd, form)
	flags := cmd.Flags()
	flags.Var(new(moment), "since", fmt.Sprintf(form, "created in this last time, such as 24h, or since a time"))
	flags.Var(new(moment), "until", fmt.Sprintf(form, "created before this, as with --since"))
	flags.String("text", "", fmt.Sprintf(form, "whose client said this"))
}

// filterNames are the flags that select tasks.
var filterNames = []string{"agent", "state", "tenant", "owner", "context"}

// storedNames are those of storedFlags.
var storedNames = []string{"agent", "state", "tenant", "owner", "context", "since", "until", "text"}

// states is the value of --state.
type states []string

func (s *states) String() string { return strings.Join(*s, ",") }

// Type implements pflag.Value.
func (*states) Type() string { return "states" }

// Set implements pflag.Value.
func (s *states) Set(text string) error {
	for _, name := range strings.Split(text, ",") {
		if _, ok := task.ParseState(name); !ok {
			return fmt.Errorf("%q is not a state; use some of %s", name, strings.Join(stateNames(), ", "))
		}
		*s = append(*s, name)
	}
	return nil
}

func stateNames() []string {
	names := make([]string, len(task.States))
	for i, s := range task.States {
		names[i] = s.String()
	}
	return names
}
