package cli

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-a2a/holdfast/internal/admin/doctor"
	"github.com/holdfast-a2a/holdfast/internal/config"
)

// doctorPatience is how long a check may take.
const doctorPatience = 5 * time.Second

func (c *command) doctor() *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Short: "Find faults, present and coming",
		Long: `Check the configuration, the surroundings of the server (addresses, agents, system limits) and
the database. Problems come first, each with what to do.

Run it on the machine of the server, with its configuration and environment, before the first
start or while it serves. It changes and starts nothing, and shows no passwords. With
--server, that server makes the checks itself.`,
		Example: `  holdfast doctor
  holdfast doctor --config holdfast.yaml`,
	}
	c.serverFlags(cmd.Flags())
	cmd.Flags().String("database-url", "", "PostgreSQL to check, without a password: other users see it (default: the configured one)")
	timeout := cmd.Flags().Duration("timeout", doctorPatience, "how long each check may take")
	verbose := cmd.Flags().BoolP("verbose", "v", false, "show the checks that are ok, too")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *timeout <= 0 {
			return usage("--timeout must be above 0")
		}
		r, err := c.examined(cmd, *timeout)
		if err != nil {
			return err
		}
		return c.printDiagnosis(cmd.Context(), r, *verbose)
	}
	return cmd
}

// examined returns what a server, or else this process, finds.
func (c *command) examined(cmd *cobra.Command, timeout time.Duration) (*doctor.Report, error) {
	_, stop := c.during("examining")
	defer stop()
	r, flags := doctor.NewReport(), configFlags(cmd.Flags())
	server, err := c.openServer(cmd.Context(), flags["database_url"])
	if err != nil {
		return nil, err
	}
	if server != nil {
		return r, server.Get(cmd.Context(), "/doctor", nil, r)
	}
	asked := &asked{env: c.Env, names: map[string]bool{}}
	cfg, err := config.Load(config.Source{File: c.configFile, Env: asked.lookup, Flags: flags, Programs: c.deps.Agents, Serving: true})
	var mistakes *config.Error
	switch {
	case errors.As(err, &mistakes):
		for _, m := range mistakes.Problems {
			r.Add(doctor.Finding{Check: "configuration", Status: doctor.Fail, Detail: m.String(), Advice: "see docs/configuration.md for every key"})
		}
	case err != nil:
		r.Add(doctor.Finding{Check: "configuration", Status: doctor.Fail, Detail: plain(err)})
	default:
		c.deps.Examine(cmd.Context(), doctor.Options{
			Config: cfg, Sources: c.sources(asked, flags), Strangers: c.strangers(asked), Timeout: timeout, Unnamed: c.unconfigured(),
		}, r.Add)
	}
	return r, nil
}

// printDiagnosis prints the findings, problems first, and returns the exit code.
func (c *command) printDiagnosis(ctx context.Context, r *doctor.Report, verbose bool) error {
	p := &printer{w: c.Out}
	if c.json() {
		p.err = printJSON(c.Out, r)
	} else {
		n := len(r.Checks) - c.printFindings(p, r, doctor.Fail) - c.printFindings(p, r, doctor.Warn)
		if verbose {
			c.printFindings(p, r, doctor.OK)
		}
		p.line("%d checks ok (-v shows them)", n)
	}
	switch {
	case p.err != nil:
		return p.err
	case ctx.Err() != nil:
		return ctx.Err()
	case r.Status == doctor.Fail:
		return &exitError{code: exitFailed}
	}
	return nil
}

// printFindings prints the findings of a status, and returns their number.
func (c *command) printFindings(p *printer, r *doctor.Report, of doctor.Status) (n int) {
	for _, f := range r.Checks {
		if f.Status != of {
			continue
		}
		n++
		p.raw(c.painted(string(of)))
		p.line("%*s%-14s  %s", 6-len(of), "", f.Check, strings.ReplaceAll(f.Detail, "\n", " "))
		if f.Advice != "" {
			p.line("%22s-> %s", "", f.Advice)
		}
	}
	return n
}

// asked records which variables the configuration looked up.
type asked struct {
	env   func(string) (string, bool)
	names map[string]bool // true: set
}

func (a *asked) lookup(name string) (v string, ok bool) {
	if a.env != nil {
		v, ok = a.env(name)
	}
	a.names[name] = a.names[name] || v != ""
	return v, ok
}

// sources names the inputs of the configuration, never their values.
func (c *command) sources(a *asked, flags map[string]string) string {
	var from []string
	if file := c.configFile; file != "" {
		from = append(from, file)
	} else if file := c.env("HOLDFAST_CONFIG"); file != "" {
		from = append(from, file)
	}
	var variables []string
	for name, set := range a.names {
		if set && name != "HOLDFAST_CONFIG" {
			variables = append(variables, name)
		}
	}
	slices.Sort(variables)
	from = append(from, variables...)
	if _, given := flags["database_url"]; given {
		from = append(from, "--database-url")
	}
	if len(from) == 0 {
		return "defaults only: no file and no variables"
	}
	return strings.Join(from, ", ")
}

// elsewhere are the variables that other parts of this program read.
var elsewhere = []string{"HOLDFAST_CONFIG", "HOLDFAST_URL", "HOLDFAST_SERVER", "HOLDFAST_SERVER_CREDENTIAL", "HOLDFAST_SERVER_CREDENTIAL_FILE", "HOLDFAST_PROFILE", "HOLDFAST_PROFILES", "HOLDFAST_PG_BIN", "HOLDFAST_PG_REPOSITORY"}

// strangers returns the variables that look like ours but that nothing reads.
func (c *command) strangers(a *asked) []string {
	if c.Environ == nil {
		return nil
	}
	var out []string
	for _, entry := range c.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		_, known := a.names[name]
		if strings.HasPrefix(name, "HOLDFAST_") && !known && !slices.Contains(elsewhere, name) &&
			!strings.HasPrefix(name, "HOLDFAST_TEST_") && !strings.HasPrefix(name, "HOLDFAST_BENCH_") {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
