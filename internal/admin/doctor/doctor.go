// Package doctor finds problems before they hurt: in the configuration, around the process, and in the database. It
// changes nothing, bounds every check, and shows no secret.
//
// Most checks have their own SQL: they must understand a database with any schema, and each check must fail alone. The checks of
// processes, the queue and webhooks read the figures of the admin API, so they need a schema that is not older than this program.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/config"
)

// Status is the outcome of a check.
type Status string

// The outcomes.
const (
	OK   Status = "ok"
	Warn Status = "warn" // it works, but may stop working, or promises less than expected
	Fail Status = "fail" // it does not work
)

// Finding is what a check found, and what to do about it.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Detail string `json:"detail"`
	Advice string `json:"advice,omitempty"`
	Agent  string `json:"agent,omitempty"` // that it is about
}

// Report has all findings of an examination; its status is the worst of theirs.
type Report struct {
	Status Status    `json:"status"`
	Checks []Finding `json:"checks"`
}

// NewReport returns a report without findings.
func NewReport() *Report { return &Report{Status: OK, Checks: []Finding{}} }

// Add adds a finding.
func (r *Report) Add(f Finding) {
	r.Checks = append(r.Checks, f)
	if f.Status == Fail || f.Status == Warn && r.Status == OK {
		r.Status = f.Status
	}
}

// Options configures an examination.
type Options struct {
	Config *config.Config
	// Sources says where the configuration came from, for the report.
	Sources string
	// Strangers are variables that look like ours but that nothing reads.
	Strangers []string
	Unnamed   bool          // no configuration names the agents of the server
	Timeout   time.Duration // of each check; default 5 s

	within  func(check string) time.Duration // replaces Timeout for a check, if it is set
	arrival time.Duration                    // how long a notification may take; 0: 3 s, or half of Timeout if that is less
}

// check may report several findings. An error makes it fail.
type check struct {
	name string
	run  func(ctx context.Context) ([]Finding, error)
}

// Examine makes every check and reports each finding as it is made.
func Examine(ctx context.Context, o Options, report func(Finding)) {
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	e := &examination{Options: o, report: report}
	e.all(ctx, e.surroundings())
	e.database(ctx)
}

type examination struct {
	Options
	report func(Finding)
	late   int // checks that ran into their timeout
}

// all runs the checks one after the other.
func (e *examination) all(ctx context.Context, checks []check) {
	for _, c := range checks {
		if ctx.Err() != nil {
			return
		}
		e.one(ctx, c)
	}
}

// one runs a check in its own goroutine, because some hanging operations ignore a context, such as a read from a lost
// disk. It waits for a check that obeys the context.
func (e *examination) one(ctx context.Context, c check) (passed bool) {
	type outcome struct {
		findings []Finding
		err      error
	}
	limit := e.Timeout
	if e.within != nil {
		limit = e.within(c.name)
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan outcome, 1)
	go func() {
		findings, err := c.run(bounded)
		done <- outcome{findings, err}
	}()
	var got outcome
	select {
	case got = <-done:
	case <-time.After(limit + time.Second):
		got.err = context.DeadlineExceeded
	}
	if ctx.Err() != nil {
		return false
	}
	if got.err != nil && errors.Is(bounded.Err(), context.DeadlineExceeded) {
		e.late++
		got = outcome{findings: fails("no answer within %s", limit).advise("find out why it hangs or is slow, or raise --timeout")}
	}
	if got.err != nil {
		got.findings = fails("could not be checked: %v", got.err).
			advise("see the other lines, first that of the schema: something that this check needs is missing or not allowed")
	}
	passed = true
	for _, f := range got.findings {
		if f.Check == "" {
			f.Check = c.name
		}
		passed = passed && f.Status != Fail
		e.report(f)
	}
	return passed
}

// findings are the findings of one check; the functions below start them.
type findings []Finding

func oks(format string, args ...any) findings {
	return findings{{Status: OK, Detail: fmt.Sprintf(format, args...)}}
}

func warns(format string, args ...any) findings {
	return findings{{Status: Warn, Detail: fmt.Sprintf(format, args...)}}
}

func fails(format string, args ...any) findings {
	return findings{{Status: Fail, Detail: fmt.Sprintf(format, args...)}}
}

// advise says what to do about the last finding.
func (f findings) advise(format string, args ...any) findings {
	f[len(f)-1].Advice = fmt.Sprintf(format, args...)
	return f
}

// orOK returns f, or an ok finding if f is empty.
func (f findings) orOK(format string, args ...any) findings {
	if len(f) > 0 {
		return f
	}
	return oks(format, args...)
}
