package checks

import (
	"cmp"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Verdict is the result of a check.
type Verdict string

// The verdicts.
const (
	Pass          Verdict = "pass"
	Violated      Verdict = "violation"
	NotApplicable Verdict = "not applicable" // the server does not announce it, or an option is missing
	Unknown       Verdict = "unknown"        // the check could not be made
)

// Clause is what a check tests.
type Clause struct {
	Source string `json:"source"` // a section of the specification, an extension, or a promise
	Text   string `json:"text"`
}

// Report is the result of a run.
type Report struct {
	Targets []Target  `json:"targets"`
	Scripts string    `json:"scripts"`
	Seed    uint64    `json:"seed"` // repeats the choices of the run; times on the wire differ
	Faults  int       `json:"faults"`
	Began   time.Time `json:"began"`
	Seconds float64   `json:"seconds"`
	Results []*Result `json:"results"`
}

// Target is an address of the server.
type Target struct {
	URL     string `json:"url"`
	Agent   string `json:"agent"` // name and version in its card
	Version string `json:"version"`
	Binding string `json:"binding"`
}

// Result is that of one check.
type Result struct {
	Check      string         `json:"check"`
	Clause     Clause         `json:"clause"`
	Verdict    Verdict        `json:"verdict"`
	Reason     string         `json:"reason,omitempty"` // of a verdict that is neither pass nor violation
	Did        map[string]int `json:"did"`              // how often the check did what
	Violations []Violation    `json:"violations,omitempty"`
	More       int            `json:"more,omitempty"` // violations that are not listed
	Seconds    float64        `json:"seconds"`
}

// Violation is a broken clause.
type Violation struct {
	Text     string     `json:"text"`
	Task     string     `json:"task,omitempty"`
	Evidence []Exchange `json:"evidence,omitempty"` // what went over the wire, the oldest first
}

// Count returns how many checks have a verdict.
func (r *Report) Count(v Verdict) (n int) {
	for _, result := range r.Results {
		if result.Verdict == v {
			n++
		}
	}
	return n
}

// DidText lists what a check did, sorted.
func (r *Result) DidText() string {
	var all []string
	for what, n := range r.Did {
		all = append(all, fmt.Sprintf("%d %s", n, what))
	}
	slices.SortFunc(all, func(a, b string) int {
		_, a, _ = strings.Cut(a, " ")
		_, b, _ = strings.Cut(b, " ")
		return strings.Compare(a, b)
	})
	return strings.Join(all, ", ")
}

// Formats are the formats that Write knows, by the suffixes of files.
var Formats = map[string]func(*Report, io.Writer) error{
	".json": (*Report).WriteJSON,
	".md":   (*Report).WriteMarkdown,
	".xml":  (*Report).WriteJUnit,
}

// WriteJSON writes the report as a JSON document.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// WriteTable writes the report for people: a table of all checks, and the texts of the violations.
func (r *Report) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "CHECK\tVERDICT\tSECONDS\tDID") // it keeps its error for Flush
	for _, result := range r.Results {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%.1f\t%s\n", result.Check, result.Verdict, result.Seconds, cmp.Or(result.Reason, result.DidText()))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	var b strings.Builder
	for _, result := range r.Results {
		if len(result.Violations) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n%s (%s): %s\n", result.Check, result.Clause.Source, result.Clause.Text)
		for _, v := range result.Violations {
			b.WriteString("  " + strings.ReplaceAll(strings.TrimRight(v.Text, "\n"), "\n", "\n  ") + "\n")
		}
		if result.More > 0 {
			fmt.Fprintf(&b, "  and %d more\n", result.More)
		}
	}
	if r.Count(Violated) > 0 {
		fmt.Fprintf(&b, "\n--report FILE writes what went over the wire. --seed %d repeats the choices.\n", r.Seed)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteMarkdown writes the report as a page: a table of all checks, and the evidence of each violation.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# Torture report\n\n")
	for _, t := range r.Targets {
		fmt.Fprintf(&b, "- %s: %s, A2A %s over %s\n", t.URL, t.Agent, t.Version, t.Binding)
	}
	fmt.Fprintf(&b, "\n%s, %.0f s, scripts `%s`, %d faults, seed %d.\n\n", r.Began.UTC().Format(time.RFC3339), r.Seconds, r.Scripts, r.Faults, r.Seed)
	b.WriteString("| check | verdict | clause | did |\n|---|---|---|---|\n")
	cell := strings.NewReplacer("|", `\|`, "\n", " ").Replace
	for _, result := range r.Results {
		verdict := string(result.Verdict)
		if result.Reason != "" {
			verdict += ": " + result.Reason
		}
		fmt.Fprintf(&b, "| %s | %s | %s: %s | %s |\n", result.Check, cell(verdict), cell(result.Clause.Source), cell(result.Clause.Text), result.DidText())
	}
	for _, result := range r.Results {
		if len(result.Violations) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s: %s\n", result.Check, result.Clause.Source, result.Clause.Text)
		for _, v := range result.Violations {
			fmt.Fprintf(&b, "\n- %s\n", strings.ReplaceAll(v.Text, "\n", "\n  "))
			for i := range v.Evidence {
				fmt.Fprintf(&b, "\n  ```text\n  %s\n  ```\n", strings.ReplaceAll(strings.TrimSpace(v.Evidence[i].String()), "\n", "\n  "))
			}
		}
		if result.More > 0 {
			fmt.Fprintf(&b, "\n%d more.\n", result.More)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

type (
	junitSuite struct {
		XMLName  xml.Name    `xml:"testsuite"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     float64     `xml:"time,attr"`
		Began    string      `xml:"timestamp,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string     `xml:"name,attr"`
		Class   string     `xml:"classname,attr"`
		Time    float64    `xml:"time,attr"`
		Failure *junitText `xml:"failure"`
		Error   *junitText `xml:"error"`
		Skipped *junitText `xml:"skipped"`
		Output  string     `xml:"system-out,omitempty"`
	}
	junitText struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes the report for tools that show results of tests: a violation is a failure, an unknown verdict an error, and a
// check that is not applicable was skipped.
func (r *Report) WriteJUnit(w io.Writer) error {
	suite := junitSuite{
		Name: "torture", Tests: len(r.Results), Failures: r.Count(Violated), Errors: r.Count(Unknown),
		Skipped: r.Count(NotApplicable), Time: r.Seconds, Began: r.Began.UTC().Format("2006-01-02T15:04:05"),
	}
	for _, result := range r.Results {
		c := junitCase{Name: result.Check, Class: "torture", Time: result.Seconds, Output: result.DidText()}
		switch result.Verdict {
		case Violated:
			var b strings.Builder
			for _, v := range result.Violations {
				b.WriteString(v.Text + "\n")
				for i := range v.Evidence {
					b.WriteString(v.Evidence[i].String() + "\n")
				}
			}
			c.Failure = &junitText{result.Clause.Source + ": " + result.Clause.Text, xmlText(b.String())}
		case Unknown:
			c.Error = &junitText{xmlText(result.Reason), ""}
		case NotApplicable:
			c.Skipped = &junitText{xmlText(result.Reason), ""}
		case Pass:
		}
		suite.Cases = append(suite.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(suite); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// xmlText removes characters that XML cannot contain.
func xmlText(s string) string {
	return strings.Map(func(c rune) rune {
		if c == '\n' || c == '\t' || c >= ' ' && c != '\ufffe' && c != '\uffff' {
			return c
		}
		return -1
	}, s)
}
