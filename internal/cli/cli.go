// Package cli is the command line, with a file per verb. The verbs get the rest of the server as Deps, so this package
// starts nothing by itself.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
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
	// Develop is Serve for the verb dev.
	Develop func(ctx context.Context, cfg *config.Config, log *slog.Logger, o server.Development) error
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
	if text := plain(err); text != "" {
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
	watches    bool   // --watch
	server     string // admin address whose API the operators' verbs use; "": the database
	// profileName is the value of --profile, and profile what it names.
	profileName string
	profile     profile
	profileErr  error  // why the profile is not known: a mistake for verbs that need it
	reason      string // of an operator's acts
}

func (c *command) root() *cobra.Command {
	root := &cobra.Command{
		Use: "holdfast", Short: "A durable A2A task server on PostgreSQL",
		Long: `Holdfast serves A2A agents and keeps every task, message and chunk in PostgreSQL, so that any
replica can continue it.`,
		Example: `  holdfast                        # the first time: a server with a database and a demo agent
  holdfast send "echo:hello"      # in another terminal: a task
  holdfast status                 # what works, waits and fails`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          c.unknownVerb,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return &exitError{exitUsage, flagError(cmd, err)} })
	root.PersistentFlags().StringVar(&c.configFile, "config", "", "configuration file (default $HOLDFAST_CONFIG)")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if n, err := cmd.Flags().GetInt("limit"); err == nil && n < 1 {
			return usage("--limit must be at least 1")
		}
		c.profileErr = c.useProfile()
		c.warnOfSecrets(cmd)
		return nil
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
		{"serve", "Run a server:", []*cobra.Command{serve, c.dev(), c.initialize(), c.migrate(), c.config(), c.ready()}},
		{"talk", "Talk to agents:", []*cobra.Command{c.send(), c.stream(), c.card()}},
		{"operate", "Operate (by the database, or by a server):", []*cobra.Command{
			c.status(), c.openConsole(), c.agents(), c.workers(), c.tasks(), c.inbox(), c.jobs(), c.webhooks(), c.apiKeys(), c.reseal(), c.audit(), c.retention(), c.doctor(),
		}},
	} {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, verb := range g.verbs {
			verb.GroupID = g.id
			root.AddCommand(verb)
		}
	}
	root.AddCommand(append(topics(), c.profiles(), c.completion(), c.version())...)
	root.SetUsageFunc(helpOf)
	c.output = outputTable
	c.withOutput(root)
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
		return fmt.Errorf("--%s: %w", wrong.GetFlag().Name, wrong.Unwrap())
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

// argsOf returns the check of the arguments that the usage of a verb names.
func argsOf(cmd *cobra.Command) cobra.PositionalArgs {
	low, high := 0, 0
	for _, word := range strings.Fields(cmd.Use)[1:] {
		if strings.HasPrefix(word, "-") {
			break
		}
		if high++; !strings.HasPrefix(word, "[") {
			low++
		}
		if strings.HasSuffix(word, "...") {
			high = math.MaxInt
		}
	}
	return argCount(low, high)
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
	source := c.configSource(flags)
	source.Serving = true
	cfg, err := config.Load(source)
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
	outputWide  output = "wide" // a table with everything, also on a terminal
	outputJSON  output = "json"
)

func (o *output) String() string { return string(*o) }
func (o *output) Type() string   { return "format" }

// Set implements pflag.Value; it accepts only the known formats.
func (o *output) Set(s string) error {
	if !slices.Contains([]output{outputTable, outputWide, outputJSON}, output(s)) {
		return fmt.Errorf("%q is not a format; write table, wide or json", s)
	}
	*o = output(s)
	return nil
}

// atMost is the usage of --limit.
const atMost = "at most this many"

// withOutput adds -o to a verb, and --watch to what a person may look at for a while. A noun alone lists or shows, if one of its verbs
// does, and takes the flags of that.
func (c *command) withOutput(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		if c.withOutput(sub); cmd.HasParent() && slices.Contains([]string{"list", "show"}, sub.Name()) {
			cmd.RunE = sub.RunE
			cmd.Flags().AddFlagSet(sub.Flags())
		}
	}
	if !cmd.Runnable() || cmd.HasSubCommands() || slices.Contains([]string{"serve", "dev", "completion"}, cmd.Name()) {
		return
	}
	if cmd.Args == nil {
		cmd.Args = argsOf(cmd)
	}
	flags := cmd.Flags()
	flags.VarP(&c.output, "output", "o", "table, wide (every column, uncut) or json (stable names; lists are an array)")
	if slices.Contains([]string{"list", "inbox", "status"}, cmd.Name()) {
		flags.BoolVarP(&c.watches, "watch", "w", false, "show it again every two seconds")
	}
}

func (c *command) json() bool { return c.output == outputJSON }

// print prints a document as JSON, or rows as a table, the first of which is the heading.
func (c *command) print(doc any, rows [][]string) error {
	if c.json() {
		return printJSON(c.Out, doc)
	}
	if c.watches && c.forPerson() {
		(&printer{w: c.Out}).raw(newScreen)
	}
	return c.table(rows)
}

// table prints rows for a person or a program.
func (c *command) table(rows [][]string) error {
	if c.forPerson() && len(rows) > 1 {
		return c.screen(rows)
	}
	return table(c.Out, rows)
}
