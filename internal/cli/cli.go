// Package cli is the command line, with a file per verb. The verbs get the rest of the server as Deps, so this package
// starts nothing by itself.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-a2a/holdfast/internal/admin/doctor"
	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/pg/schema"
	"github.com/holdfast-a2a/holdfast/internal/server"
)

// The exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // the call failed
	exitUsage  = 2 // the command line or the configuration is wrong
	exitEnded  = 3 // the task failed, was rejected or canceled
	exitWaits  = 4 // the task waits for input or authentication

	exitInterrupted = 130 // a signal ended the call; shells use this code
)

// IO connects a command to its environment.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
	Env      func(name string) (string, bool) // as os.LookupEnv
	Environ  func() []string                  // as os.Environ
}

// Deps are the functions that the verbs call. The configuration that they get is complete.
type Deps struct {
	Agents []string // the names of those that the program implements
	Serve  func(ctx context.Context, cfg *config.Config, log *slog.Logger, changes server.Changes) error
	// Develop is Serve for the verb dev: it calls ready instead of writing lines for the user.
	Develop func(ctx context.Context, cfg *config.Config, log *slog.Logger, ready func(server.Developing)) error
	// Migrate brings the schema up to date, and admits the role of servers unless it is "". Many replicas may run it at once.
	Migrate func(ctx context.Context, cfg *config.Config, servers string, log *slog.Logger) error
	// MigrationStatus lists every migration, oldest first, and changes nothing.
	MigrationStatus func(ctx context.Context, cfg *config.Config, log *slog.Logger) ([]schema.Step, error)
	// OpenOperator makes the admin API in this process, over the database.
	OpenOperator func(ctx context.Context, cfg *config.Config, log *slog.Logger) (OperatorAPI, error)
	// Examine reports each finding at once, and changes nothing.
	Examine func(ctx context.Context, o doctor.Options, report func(doctor.Finding))
}

// exitError is an error with its own exit code. An empty text means that the output already says everything.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// Run executes a command line without the program's name and returns the exit code.
func Run(ctx context.Context, args []string, stdio IO, deps Deps) int {
	c := &command{IO: stdio, deps: deps}
	root := c.root()
	root.SetArgs(append([]string{}, args...)) // nil would be the arguments of the process
	root.SetIn(stdio.In)
	root.SetOut(stdio.Out)
	root.SetErr(stdio.Err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	code := codeOf(err)
	if code == exitFailed && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		code, err = exitInterrupted, errors.New("interrupted")
	}
	if text := err.Error(); text != "" {
		c.note("holdfast: %s", text)
	}
	return code
}

// codeOf returns the exit code for an error.
func codeOf(err error) int {
	var coded *exitError
	var mistakes *config.Error
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &mistakes):
		return exitUsage
	}
	return exitFailed
}

// command is the state that the verbs share.
type command struct {
	IO
	deps       Deps
	configFile string
	output     output // of -o
	server     string // admin address whose API the operators' verbs use; "": the database
	// profileName is the value of --profile, and profile what it names.
	profileName string
	profile     profile
	profileErr  error  // why the profile is not known: a mistake for verbs that need it
	reason      string // of an operator's acts
}

func (c *command) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "holdfast",
		Short: "A durable A2A task server on PostgreSQL",
		Long: `Holdfast serves A2A agents and keeps their tasks in PostgreSQL. It stores every message,
status and chunk before a client sees it, and any replica can continue a task of another.

The first holdfast without a verb starts a server with a PostgreSQL of its own and a demo
agent. Later, in a terminal, it prints this help: write holdfast serve. send, stream and card
talk to an agent. The other verbs are for operators, and use the database or the
admin API of a server. docs/cli.md has every verb and flag on one page.

Exit codes: 0 done; 1 the call failed; 2 wrong usage or configuration; 3 the task
failed, or was rejected or canceled; 4 the task waits for input or authentication;
130 interrupted.`,
		Example: `  holdfast
  holdfast serve --config holdfast.yaml
  holdfast send "echo:hello"
  holdfast stream "chunks=20 size=64 delay=100ms"
  holdfast tasks tail
  holdfast agents list --server https://holdfast-admin.example.com
  holdfast doctor`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          c.unknownVerb,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return &exitError{exitUsage, flagError(cmd, err)} })
	root.PersistentFlags().StringVar(&c.configFile, "config", "", "configuration file (default $HOLDFAST_CONFIG)")
	root.PersistentPreRun = func(cmd *cobra.Command, _ []string) {
		c.profileErr = c.useProfile()
		c.warnOfSecrets(cmd)
	}
	root.SuggestionsMinimumDistance = 2

	serve := c.serve()
	// Without a verb, the root command takes the flags of serve, and serves or helps.
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if helped, err := c.helpInstead(cmd); helped || err != nil {
			return err
		}
		return serve.RunE(cmd, args)
	}
	root.Flags().AddFlagSet(serve.Flags())
	for _, g := range []struct {
		id, title string
		verbs     []*cobra.Command
	}{
		{"serve", "Run a server:", []*cobra.Command{serve, c.dev(), c.migrate(), c.config(), c.ready()}},
		{"talk", "Talk to agents:", []*cobra.Command{c.send(), c.stream(), c.card()}},
		{"operate", "Operate (by the database, or by a server):", []*cobra.Command{
			c.agents(), c.queue(), c.workers(), c.tasks(), c.inbox(), c.push(), c.apiKeys(), c.secretKeys(), c.audit(), c.retention(), c.doctor(),
		}},
	} {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, verb := range g.verbs {
			verb.GroupID = g.id
			root.AddCommand(verb)
		}
	}
	root.AddCommand(c.completion(), c.version())
	c.completions(root)
	return root
}

// flagError says what is wrong with a flag in the user's words.
func flagError(cmd *cobra.Command, err error) error {
	if wrong, is := errors.AsType[*pflag.InvalidValueError](err); is {
		form, known := map[string]string{
			"int": "a whole number", "int64": "a whole number", "uint16": "a whole number", "float64": "a number", "bool": "true or false",
			"duration": "a duration; write 30s, 5m or 1h30m",
		}[wrong.GetFlag().Value.Type()]
		if known {
			return fmt.Errorf("--%s: %q is not %s", wrong.GetFlag().Name, wrong.GetValue(), form)
		}
	}
	unknown, is := errors.AsType[*pflag.NotExistError](err)
	if !is || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	flags := &cobra.Command{SuggestionsMinimumDistance: 2}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		flags.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	if near := flags.SuggestionsFor(unknown.GetSpecifiedName()); len(near) > 0 {
		return fmt.Errorf("%w; did you mean --%s?", err, strings.Join(near, " or --"))
	}
	return err
}

func (c *command) unknownVerb(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown verb %q", args[0])
	if near := root.SuggestionsFor(args[0]); len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return usage("%s (holdfast --help lists the verbs)", text)
}

// note prints a message for the user besides the output. If it cannot be written, the exit code still shows the result.
func (c *command) note(format string, args ...any) {
	_, _ = fmt.Fprintln(c.Err, printable(fmt.Sprintf(format, args...)))
}

// argCount returns cobra's check of the number of arguments; its error is a usage error.
func argCount(low, high int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < low || len(args) > high {
			return usage("usage: %s (see --help)", cmd.UseLine())
		}
		return nil
	}
}

// load reads the configuration. flags are by configuration key.
func (c *command) load(flags map[string]string) (*config.Config, error) {
	cfg, err := config.Load(c.configSource(flags))
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return cfg, nil
}

func (c *command) configSource(flags map[string]string) config.Source {
	return config.Source{File: c.configFile, Env: c.Env, Flags: flags, Programs: c.deps.Agents}
}

// loadForOperator reads the configuration of a verb that acts on a database. Without a configuration its agents are unknown: the demo
// agent that load gives a server says nothing about this one.
func (c *command) loadForOperator(flags map[string]string) (*config.Config, error) {
	cfg, err := c.load(flags)
	if err == nil && c.unconfigured() {
		cfg.Agents = nil
	}
	return cfg, err
}

// unconfigured reports whether neither a file nor this program names agents.
func (c *command) unconfigured() bool {
	return c.configFile == "" && c.env("HOLDFAST_CONFIG") == "" && len(c.deps.Agents) == 0
}

// env returns a variable, or "" if it is not set.
func (c *command) env(name string) string {
	if c.Env == nil {
		return ""
	}
	v, _ := c.Env(name)
	return v
}

// output is the value of the -o flag.
type output string

const (
	outputTable output = "table"
	outputJSON  output = "json"
)

func (o *output) String() string { return string(*o) }
func (o *output) Type() string   { return "format" }

// Set implements pflag.Value; it accepts only the known formats.
func (o *output) Set(s string) error {
	if s != string(outputTable) && s != string(outputJSON) {
		return errors.New("must be table or json")
	}
	*o = output(s)
	return nil
}

// outputFlag adds -o.
func (c *command) outputFlag(cmd *cobra.Command) {
	c.output = outputTable
	cmd.Flags().VarP(&c.output, "output", "o", "table, or json with stable names")
}

func (c *command) json() bool { return c.output == outputJSON }

// print prints a document as JSON, or rows as a table, the first of which is the heading.
func (c *command) print(doc any, rows [][]string) error {
	if c.json() {
		return printJSON(c.Out, doc)
	}
	return table(c.Out, rows)
}
