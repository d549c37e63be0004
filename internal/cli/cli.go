// Package cli is the command line: a file per verb. What the verbs need from the rest
// of the server comes in as Deps, so that this package starts nothing by itself.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/doctor"
)

// The exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // the call failed
	exitUsage  = 2 // the command line or the configuration is wrong
	exitEnded  = 3 // the task failed, was rejected or canceled
	exitWaits  = 4 // the task waits for input or authentication

	exitInterrupted = 130 // a signal ended the call, as shells say it
)

// IO is the outside of a command.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
	Env      func(name string) (string, bool) // as os.LookupEnv
	Environ  func() []string                  // as os.Environ
}

// Deps is what the verbs call. The configuration they get is complete.
type Deps struct {
	Serve func(ctx context.Context, cfg *config.Config, log *slog.Logger) error
	// Migrate brings the schema up to date. It may run on many replicas at once.
	Migrate func(ctx context.Context, cfg *config.Config, log *slog.Logger) error
	// MigrationStatus lists every migration, oldest first, and changes nothing.
	MigrationStatus func(ctx context.Context, cfg *config.Config, log *slog.Logger) ([]Migration, error)
	OpenOperator    func(ctx context.Context, cfg *config.Config, log *slog.Logger) (Operator, error)
	// Examine reports each finding as it is made, and changes nothing.
	Examine func(ctx context.Context, o doctor.Options, report func(doctor.Finding))
}

// exitError is an error with an exit code of its own. An empty text means that the
// output has said it all.
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
	root.SetArgs(args)
	root.SetIn(stdio.In)
	root.SetOut(stdio.Out)
	root.SetErr(stdio.Err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	code := codeOf(err)
	if code == exitFailed && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		code = exitInterrupted
	}
	if text := err.Error(); text != "" {
		c.note("holdfast: %s", text)
	}
	return code
}

// codeOf is the exit code that an error stands for.
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

// command is what the verbs share.
type command struct {
	IO
	deps       Deps
	configFile string
}

func (c *command) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "holdfast",
		Short: "A durable A2A task server on PostgreSQL",
		Long: `Holdfast serves A2A agents whose tasks survive: every message, status and chunk is in
PostgreSQL before a client hears of it, and any replica continues what another began.

Without a verb it serves, and without a configuration it brings its own PostgreSQL
and a demo agent. The other verbs talk to an agent, or look into the database.

Exit codes: 0 done; 1 the call failed; 2 wrong usage or configuration; 3 the task
failed, was rejected or canceled; 4 the task waits for input or authentication;
130 interrupted.`,
		Example: `  holdfast
  holdfast serve --config holdfast.yaml
  holdfast send "echo:hello"
  holdfast stream "chunks=20 size=64 delay=100ms"
  holdfast tasks tail
  holdfast doctor`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          c.unknownVerb,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exitError{exitUsage, err} })
	root.PersistentFlags().StringVar(&c.configFile, "config", "", "configuration file (default $HOLDFAST_CONFIG)")
	root.SuggestionsMinimumDistance = 2

	serve := c.serve()
	// The root does what serve does, and takes its flags.
	root.RunE = serve.RunE
	root.Flags().AddFlagSet(serve.Flags())
	root.AddCommand(serve, c.migrate(), c.card(), c.send(), c.stream(), c.tasks(), c.push(), c.keys(), c.audit(), c.bench(), c.ready(), c.doctor(), c.version())
	return root
}

func (c *command) unknownVerb(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown verb %q", args[0])
	if near := root.SuggestionsFor(args[0]); len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return usage("%s (holdfast --help lists them)", text)
}

// note tells the person at the terminal something beside the output. Where that cannot
// be written the exit code still says what matters.
func (c *command) note(format string, args ...any) {
	_, _ = fmt.Fprintln(c.Err, printable(fmt.Sprintf(format, args...)))
}

// argCount is cobra's check of the number of arguments, as a usage error.
func argCount(low, high int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < low || len(args) > high {
			return usage("usage: %s (--help tells more)", cmd.UseLine())
		}
		return nil
	}
}

// load reads the configuration; flags are by the key that they set.
func (c *command) load(flags map[string]string) (*config.Config, error) {
	return config.Load(config.Source{File: c.configFile, Env: c.Env, Flags: flags})
}

// env is a variable, or "" when it is not set.
func (c *command) env(name string) string {
	if c.Env == nil {
		return ""
	}
	v, _ := c.Env(name)
	return v
}

// output is the -o flag.
type output string

const (
	outputTable output = "table"
	outputJSON  output = "json"
)

func (o *output) String() string { return string(*o) }
func (o *output) Type() string   { return "format" }

// Set makes output a flag value that knows its choices.
func (o *output) Set(s string) error {
	if s != string(outputTable) && s != string(outputJSON) {
		return errors.New("must be table or json")
	}
	*o = output(s)
	return nil
}

func outputFlag(cmd *cobra.Command) *output {
	o := outputTable
	cmd.Flags().VarP(&o, "output", "o", "table or json")
	return &o
}
