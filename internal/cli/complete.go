package cli

import (
	"context"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/admin/adminclient"
	"github.com/holdfast-a2a/holdfast/internal/pg/pgembed"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
)

// completion replaces cobra's verb, which is four verbs with little help.
func (c *command) completion() *cobra.Command {
	shells := map[string]func(*cobra.Command, io.Writer) error{
		"bash":       func(root *cobra.Command, w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		"zsh":        func(root *cobra.Command, w io.Writer) error { return root.GenZshCompletion(w) },
		"fish":       func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) },
		"powershell": func(root *cobra.Command, w io.Writer) error { return root.GenPowerShellCompletionWithDesc(w) },
	}
	names := slices.Sorted(maps.Keys(shells))
	return &cobra.Command{
		Use: "completion SHELL", Short: "Print a script that completes verbs, flags and names in a shell",
		Long: `Print the completion script of a SHELL: bash, fish, powershell or zsh. It offers verbs, flags,
states and profiles, and the agents, tasks, webhooks, workers and API keys of a server or
database that answers within two seconds. bash needs the package bash-completion.`,
		Example:   `  holdfast completion bash > /etc/bash_completion.d/holdfast`,
		ValidArgs: names,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || shells[args[0]] == nil {
				return usage("name one shell: %s", either(names))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return shells[args[0]](cmd.Root(), c.Out) },
	}
}

const (
	// completeWithin bounds a look at a server or a database for a completion. A shell waits for it.
	completeWithin = 2 * time.Second
	// offered bounds the tasks, webhooks and workers that a shell offers.
	offered = 50
)

// completer returns what a shell may offer for the next argument, or for the value of a flag. A description follows a tab.
type completer func(cmd *cobra.Command, args []string) []string

func words(names ...string) completer {
	return func(*cobra.Command, []string) []string { return names }
}

// complete makes a completer one of cobra.
func (f completer) complete(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return f(cmd, args), cobra.ShellCompDirectiveNoFileComp
}

// completions tells shells what to offer: names that a server or a database knows, if it answers soon.
func (c *command) completions(root *cobra.Command) {
	flags := map[string]completer{
		"output": words("table", "wide", "json"), "state": words(stateNames()...), "profile": c.profileNames, "roles": words("api", "worker", "push"),
		"protocol": words(registry.Versions()...), "binding": words("jsonrpc", "http", "grpc"),
		"dialect": words(registry.Versions()...),
	}
	ofOperators := map[string]completer{"agent": c.agentNames, "task": c.taskIDs}
	arguments := map[string]completer{
		"agents get": atFirst(c.agentNames), "inbox": atFirst(c.taskIDs), "init": atFirst(words(languages...)), "open": atFirst(c.taskIDs), "tasks get": atFirst(c.taskIDs), "tasks events": atFirst(c.taskIDs), "tasks tail": atFirst(c.taskIDs),
		"tasks cancel": c.taskIDs, "tasks purge": c.taskIDs, "tasks retry": c.taskIDs, "tasks hold": c.taskIDs, "tasks release": c.taskIDs,
		"webhooks attempts": c.webhookIDs, "webhooks redeliver": c.webhookIDs, "webhooks disable": c.webhookIDs, "webhooks enable": c.webhookIDs,
		"workers retire": atFirst(c.workerIDs), "api-keys revoke": c.apiKeyIDs, "webhooks test": words(), "send": words(), "stream": words(),
	}
	eachVerb(root, func(cmd *cobra.Command) {
		if f, ok := arguments[verbOf(cmd)]; ok {
			cmd.ValidArgsFunction = f.complete
		} else if !strings.Contains(cmd.Use, " ") && !cmd.HasSubCommands() {
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
		add := func(f completer, name string) {
			if cmd.LocalFlags().Lookup(name) != nil {
				_ = cmd.RegisterFlagCompletionFunc(name, f.complete) // its errors are a missing flag and a second call
			}
		}
		for name, f := range flags {
			add(f, name)
		}
		if cmd.InheritedFlags().Lookup("database-url") != nil {
			for name, f := range ofOperators {
				add(f, name)
			}
		}
	})
}

// eachVerb visits a command and all below it, parents first.
func eachVerb(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		eachVerb(sub, visit)
	}
}

// verbOf returns the words of a verb, such as "tasks list"; "" for the program itself.
func verbOf(cmd *cobra.Command) string {
	_, verb, _ := strings.Cut(cmd.CommandPath(), " ")
	return verb
}

// atFirst is for verbs that take one argument.
func atFirst(f completer) completer {
	return func(cmd *cobra.Command, args []string) []string {
		if len(args) > 0 {
			return nil
		}
		return f(cmd, args)
	}
}

func (c *command) profileNames(*cobra.Command, []string) []string {
	all, err := readProfiles(c.profilesFile())
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(all))
}

func (c *command) agentNames(cmd *cobra.Command, _ []string) []string {
	return c.ask(cmd, func(ctx context.Context, op *operator) (out []string, err error) {
		all, err := op.agents(ctx)
		for _, a := range all {
			out = append(out, described(a.Name, a.Kind))
		}
		return out, err
	})
}

// taskIDs offers the newest tasks. Of a group of verbs that take several it leaves out those that are there.
func (c *command) taskIDs(cmd *cobra.Command, args []string) []string {
	return c.ask(cmd, func(ctx context.Context, op *operator) (out []string, err error) {
		rows, err := op.tasks(ctx, query(), offered)
		for i := range rows {
			if r := &rows[i]; !slices.Contains(args, r.TaskID) {
				out = append(out, described(r.TaskID, r.State.String()+" "+r.Agent))
			}
		}
		return out, err
	})
}

// webhookIDs offers tasks that have webhooks, then the webhooks of the task.
func (c *command) webhookIDs(cmd *cobra.Command, args []string) []string {
	if len(args) > 1 {
		return nil
	}
	return c.ask(cmd, func(ctx context.Context, op *operator) (out []string, err error) {
		path := "/webhooks"
		if len(args) == 1 {
			path = adminclient.OfTask(args[0], "webhooks")
		}
		rows, err := op.pushes(ctx, path, query(), offered)
		for i := range rows {
			name := described(rows[i].TaskID, rows[i].Host)
			if len(args) == 1 {
				name = described(rows[i].ConfigID, rows[i].Host)
			}
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
		return out, err
	})
}

func (c *command) workerIDs(cmd *cobra.Command, _ []string) []string {
	return c.ask(cmd, func(ctx context.Context, op *operator) (out []string, err error) {
		all, err := op.workers(ctx, query("limit", strconv.Itoa(offered)))
		for i := range all {
			if w := &all[i]; w.State == "connected" {
				out = append(out, described(w.ID.String(), w.Name+" "+w.Version))
			}
		}
		return out, err
	})
}

func (c *command) apiKeyIDs(cmd *cobra.Command, args []string) []string {
	return c.ask(cmd, func(ctx context.Context, op *operator) (out []string, err error) {
		all, err := op.keys(ctx)
		for _, k := range all {
			if k.RevokedAt.IsZero() && !slices.Contains(args, k.ID) {
				out = append(out, described(k.ID, k.Subject+" "+k.Name))
			}
		}
		return out, err
	})
}

// described is a completion with a description. Both come from others.
func described(name, text string) string {
	one := func(s string) string { return oneLine(printable(s)) }
	return one(name) + "\t" + one(text)
}

// ask asks a server or a database. It starts none: an embedded database must run already. Without an answer there is nothing to offer.
func (c *command) ask(cmd *cobra.Command, do func(context.Context, *operator) ([]string, error)) []string {
	c.profileErr = c.useProfile()
	if c.serverURL() == "" {
		cfg, err := c.load(configFlags(cmd.Flags()))
		if err != nil {
			return nil
		}
		if used, err := pgembed.InUse(cfg.DataDir); cfg.DatabaseURL == "" && (err != nil || !used) {
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
	defer cancel()
	cmd.SetContext(ctx)
	quiet := *c
	quiet.Err = io.Discard
	answers := make(chan []string, 1)
	go func() {
		var out []string
		err := quiet.withOperator(cmd, func(ctx context.Context, op *operator) (err error) {
			out, err = do(ctx, op)
			return err
		})
		if err != nil {
			out = nil
		}
		answers <- out
	}()
	select {
	case out := <-answers:
		return out
	case <-ctx.Done():
		return nil // closing may take longer
	}
}
