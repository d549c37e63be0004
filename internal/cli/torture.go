package cli

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/cli/client"
	"github.com/holdfast-a2a/holdfast/internal/torture"
)

func (c *command) torture() *cobra.Command {
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
		Example: `  holdfast torture http://127.0.0.1:8080
  holdfast torture http://a:8080 http://b:8080 --kill "docker kill a" --start "docker start a"
  holdfast torture https://agents.example.com --scripts contract -H @owner --other-header @other
  holdfast torture http://127.0.0.1:8080 --check streams,races --report out.md --report out.xml`,
		Args: argCount(1, 64),
	}
	var r remote
	var o torture.Options
	flags := cmd.Flags()
	r.register(cmd)
	flags.StringVar(&o.Version, "protocol", "", "version of A2A: 0.3 or 1.0 (default: the newest that the card offers)")
	flags.StringVar(&o.Binding, "binding", "", "jsonrpc, http or grpc (default: the first of them that the card offers)")
	other := flags.StringArray("other-header", nil, "header of another caller, who must not see the tasks; @FILE and @- as with -H; may be repeated")
	scripts := flags.String("scripts", torture.Languages[0].Name, "what the agent understands: "+strings.Join(languages(), " or "))
	kill := flags.StringArray("kill", nil, "command that breaks the server; may be repeated")
	start := flags.StringArray("start", nil, "command that repairs it; as many as --kill")
	flags.Uint64Var(&o.Seed, "seed", 0, "number that decides the choices of the run (default: a random one)")
	flags.StringSliceVar(&o.Checks, "check", nil, "checks to make: "+strings.Join(torture.Names(), ", ")+" (default: all)")
	flags.IntVar(&o.Load, "load", 8, "tasks of a kind at a time")
	flags.DurationVar(&o.Patience, "patience", 30*time.Second, "how long the server may take for an answer, a task or a start")
	flags.StringVar(&o.HookListen, "webhook-listen", "", "address of a receiver of webhooks, such as 127.0.0.1:9999 (default: none)")
	flags.StringVar(&o.HookURL, "webhook-url", "", "URL of the receiver as the server reaches it (default: http:// and the address)")
	reports := flags.StringArray("report", nil, "file for the report, with evidence: .json, .md, or .xml for JUnit; may be repeated")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		o.URLs = args
		if o.Scripts, err = language(*scripts); err != nil {
			return err
		}
		if err := checkTorture(&o, *kill, *start, *reports); err != nil {
			return err
		}
		if o.Header, err = readHeaders(c.In, "header", r.headers); err != nil {
			return err
		}
		if len(*other) > 0 {
			if o.Other, err = readHeaders(c.In, "other-header", *other); err != nil {
				return err
			}
		}
		if !flags.Changed("seed") {
			o.Seed = rand.Uint64()
		}
		for i := range *kill {
			o.Faults = append(o.Faults, torture.Fault{Kill: torture.Command((*kill)[i]), Start: torture.Command((*start)[i])})
		}
		c.note("This creates real tasks at %s; they stay there. Seed %d.", strings.Join(args, ", "), o.Seed)
		return c.endure(cmd.Context(), o, *reports, *r.output)
	}
	return cmd
}

func languages() (names []string) {
	for i := range torture.Languages {
		names = append(names, torture.Languages[i].Name)
	}
	return names
}

func language(name string) (torture.Scripts, error) {
	for _, s := range torture.Languages {
		if s.Name == name {
			return s, nil
		}
	}
	return torture.Scripts{}, usage("--scripts: %q is unknown; use %s", name, strings.Join(languages(), " or "))
}

func checkTorture(o *torture.Options, kill, start, reports []string) error {
	for _, u := range o.URLs {
		if !isURL(u) {
			return usage("%q is not a URL; write http://host:port or https://host", u)
		}
	}
	for _, name := range o.Checks {
		if !slices.Contains(torture.Names(), name) {
			return usage("--check: %q is unknown; use %s", name, strings.Join(torture.Names(), ", "))
		}
	}
	for _, file := range reports {
		if torture.Formats[filepath.Ext(file)] == nil {
			return usage("--report: %q has no known suffix; use .json, .md or .xml", file)
		}
	}
	if strings.EqualFold(o.Binding, "http") {
		o.Binding = client.HTTPJSON
	}
	switch {
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
	return nil
}

// endure runs the checks, and prints and writes the report.
func (c *command) endure(ctx context.Context, o torture.Options, reports []string, format output) error {
	o.Progress = c.note
	report, err := torture.Run(ctx, o)
	if err != nil {
		return explain(err)
	}
	for _, file := range reports {
		if err := writeReport(report, file); err != nil {
			return err
		}
	}
	if format == outputJSON {
		err = report.WriteJSON(c.Out)
	} else {
		err = c.printReport(report)
	}
	if err == nil && report.Count(torture.Violated)+report.Count(torture.Unknown) > 0 {
		return &exitError{code: exitFailed}
	}
	return err
}

func writeReport(report *torture.Report, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := torture.Formats[filepath.Ext(file)](report, f); err != nil {
		_ = f.Close()
		return fmt.Errorf("%s: %w", file, err)
	}
	return f.Close()
}

func (c *command) printReport(report *torture.Report) error {
	rows := [][]string{{"CHECK", "VERDICT", "SECONDS", "DID"}}
	for _, r := range report.Results {
		did := r.DidText()
		if r.Reason != "" {
			did = r.Reason
		}
		rows = append(rows, []string{r.Check, string(r.Verdict), fmt.Sprintf("%.1f", r.Seconds), did})
	}
	if err := table(c.Out, rows); err != nil {
		return err
	}
	p := printer{w: c.Out}
	for _, r := range report.Results {
		if len(r.Violations) == 0 {
			continue
		}
		p.line("\n%s (%s): %s", r.Check, r.Clause.Source, r.Clause.Text)
		for _, v := range r.Violations {
			p.line("%s", indented(v.Text))
		}
		if r.More > 0 {
			p.line("  and %d more", r.More)
		}
	}
	if report.Count(torture.Violated) > 0 {
		p.line("\n--report FILE writes what went over the wire. --seed %d repeats the choices.", report.Seed)
	}
	return p.err
}
