// Command torture tests whether an A2A server keeps its promises: docs/torture.md. The server need not be Holdfast.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/cmd/torture/checks"
	"github.com/holdfast-a2a/holdfast/internal/rpc/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// errViolated ends the program with 1. The output already says everything.
var errViolated = errors.New("")

// usageError is a mistake in the command line.
type usageError struct{ error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// run returns the exit code: 1 after a violation or an unknown verdict, or if the server cannot be reached, and 2 for a wrong
// command line.
func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	note := func(format string, args ...any) { _, _ = fmt.Fprintf(errs, format+"\n", args...) }
	cmd := command(in, out, note)
	cmd.SetArgs(args)
	cmd.SetOut(out)
	cmd.SetErr(errs)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	err := cmd.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errViolated):
		return 1
	}
	note("torture: %v", err)
	if errors.As(err, new(usageError)) {
		return 2
	}
	return 1
}

func command(in io.Reader, out io.Writer, note func(format string, args ...any)) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "torture URL...",
		Short: "Test whether an A2A server keeps its promises",
		Long: `Create tasks on an A2A server, disturb it, and check that all clients learn the same:
that acknowledged tasks survive restarts, that streams are whole and in order, that a
cancel and an answer at the same time have one winner, and more. The server need not be
Holdfast. Several URLs are addresses of one server, such as its replicas.

The agent must understand scripts: those of Holdfast's demo agent, or the contract that
docs/torture.md describes. The tasks are real and stay on the server.

--kill and --start are commands of the shell that break the server and repair it. Give
both, any number of times; the pairs are used in their order. Without them, no check
looks beyond a restart.

Each check ends with a verdict: pass; violation, with what went over the wire; not
applicable, if the card does not announce what it tests or an option is missing; or
unknown, if it could not be made. The exit code is 1 after a violation or an unknown
verdict.`,
		Example: `  torture http://127.0.0.1:8080
  torture http://a:8080 http://b:8080 --kill "docker kill a" --start "docker start a"
  torture https://agents.example.com --scripts contract -H @owner --other-header @other
  torture http://127.0.0.1:8080 --check streams,races --report out.md --report out.xml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("usage: torture URL... (see --help)")
			}
			return nil
		},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	o := checks.Options{Progress: note}
	flags := cmd.Flags()
	owner := flags.StringArrayP("header", "H", nil, `header to send, as "Name: value"; @FILE has such lines, which other users do not see, and @- is standard input; may be repeated`)
	other := flags.StringArray("other-header", nil, "header of another caller, who must not see the tasks; @FILE and @- as with -H; may be repeated")
	format := flags.StringP("output", "o", "table", "table, or json with stable names")
	flags.StringVar(&o.Version, "protocol", "", "version of A2A: 0.3 or 1.0 (default: the newest that the card offers)")
	flags.StringVar(&o.Binding, "binding", "", "jsonrpc, http or grpc (default: the first of them that the card offers)")
	scripts := flags.String("scripts", checks.Languages[0].Name, "what the agent understands: "+strings.Join(languages(), " or "))
	kill := flags.StringArray("kill", nil, "command that breaks the server; may be repeated")
	start := flags.StringArray("start", nil, "command that repairs it; as many as --kill")
	flags.Uint64Var(&o.Seed, "seed", rand.Uint64(), "number that decides the choices of the run (default: a random one)")
	flags.Lookup("seed").DefValue = "0"
	flags.StringSliceVar(&o.Checks, "check", nil, "checks to make: "+strings.Join(checks.Names(), ", ")+" (default: all)")
	flags.IntVar(&o.Load, "load", 8, "tasks of a kind at a time")
	flags.DurationVar(&o.Patience, "patience", 30*time.Second, "how long the server may take for an answer, a task or a start")
	flags.StringVar(&o.HookListen, "webhook-listen", "", "address of a receiver of webhooks, such as 127.0.0.1:9999 (default: none)")
	flags.StringVar(&o.HookURL, "webhook-url", "", "URL of the receiver as the server reaches it (default: http:// and the address)")
	reports := flags.StringArray("report", nil, "file for the report, with evidence: .json, .md, or .xml for JUnit; may be repeated")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		o.URLs = args
		if err := check(&o, *scripts, *format, *kill, *start, *reports); err != nil {
			return err
		}
		client.WarnOfSecrets("header", *owner, note)
		if o.Header, err = client.ReadHeaders(in, *owner); err != nil {
			return usage("--header: %w", err)
		}
		if len(*other) > 0 {
			client.WarnOfSecrets("other-header", *other, note)
			if o.Other, err = client.ReadHeaders(in, *other); err != nil {
				return usage("--other-header: %w", err)
			}
		}
		note("This creates real tasks at %s; they stay there. Seed %d.", strings.Join(args, ", "), o.Seed)
		return endure(cmd.Context(), o, *reports, *format == "json", out)
	}
	return cmd
}

func languages() (names []string) {
	for i := range checks.Languages {
		names = append(names, checks.Languages[i].Name)
	}
	return names
}

// check completes the options, and says what is wrong with them.
func check(o *checks.Options, scripts, format string, kill, start, reports []string) error {
	for _, u := range o.URLs {
		if !isURL(u) {
			return usage("%q is not a URL; write http://host:port or https://host", u)
		}
	}
	for _, name := range o.Checks {
		if !slices.Contains(checks.Names(), name) {
			return usage("--check: %q is unknown; use %s", name, strings.Join(checks.Names(), ", "))
		}
	}
	for _, file := range reports {
		if checks.Formats[filepath.Ext(file)] == nil {
			return usage("--report: %q has no known suffix; use .json, .md or .xml", file)
		}
	}
	if strings.EqualFold(o.Binding, "http") {
		o.Binding = client.HTTPJSON
	}
	language := slices.Index(languages(), scripts)
	switch {
	case language < 0:
		return usage("--scripts: %q is unknown; use %s", scripts, strings.Join(languages(), " or "))
	case format != "table" && format != "json":
		return usage("--output must be table or json")
	case o.Version != "" && o.Version != "0.3" && o.Version != "1.0":
		return usage("--protocol: use 0.3 or 1.0")
	case len(kill) != len(start):
		return usage("--kill is given %d times and --start %d times; give both, in pairs", len(kill), len(start))
	case o.Load < 1 || o.Load > 1000:
		return usage("--load: use a number from 1 to 1000")
	case o.Patience <= 0:
		return usage("--patience must be above 0")
	case o.HookURL != "" && o.HookListen == "":
		return usage("--webhook-url needs --webhook-listen, the address of the receiver")
	case o.HookURL != "" && !isURL(o.HookURL):
		return usage("--webhook-url: %q is not a URL; write http://host:port or https://host", o.HookURL)
	}
	o.Scripts = checks.Languages[language]
	for i := range kill {
		o.Faults = append(o.Faults, checks.Fault{Kill: checks.Command(kill[i]), Start: checks.Command(start[i])})
	}
	return nil
}

func isURL(s string) bool {
	return strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://")
}

// endure runs the checks, and prints and writes the report.
func endure(ctx context.Context, o checks.Options, reports []string, inJSON bool, out io.Writer) error {
	report, err := checks.Run(ctx, o)
	if err != nil {
		return err
	}
	for _, file := range reports {
		if err := write(report, file); err != nil {
			return err
		}
	}
	if inJSON {
		err = report.WriteJSON(out)
	} else {
		err = report.WriteTable(out)
	}
	if err == nil && report.Count(checks.Violated)+report.Count(checks.Unknown) > 0 {
		return errViolated
	}
	return err
}

func write(report *checks.Report, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := checks.Formats[filepath.Ext(file)](report, f); err != nil {
		_ = f.Close()
		return fmt.Errorf("%s: %w", file, err)
	}
	return f.Close()
}
