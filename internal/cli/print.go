package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// printer writes lines and keeps the first error, so that a closed pipe makes the command fail.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	p.raw(printable(fmt.Sprintf(format, args...)) + "\n")
}

// raw writes text that is printable already.
func (p *printer) raw(s string) {
	if p.err == nil {
		_, p.err = io.WriteString(p.w, s)
	}
}

// field writes a name and a value, unless the value is empty.
func (p *printer) field(name, value string) {
	if value != "" {
		p.line("%-12s %s", name, value)
	}
}

// printable removes control characters: the text comes from others, and they could control a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || !unicode.IsControl(r) {
			return r
		}
		return -1
	}, s)
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// printLine writes v as JSON on one line. It keeps the numbers and the order of keys, even if the server sent several
// lines.
func printLine(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// printRaw writes JSON unchanged.
func printRaw(w io.Writer, raw json.RawMessage) error {
	_, err := fmt.Fprintln(w, strings.TrimSpace(string(raw)))
	return err
}

// table writes rows in aligned columns. The first row is the heading.
func table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		if _, err := fmt.Fprintln(t, printable(strings.Join(row, "\t"))); err != nil {
			return err
		}
	}
	return t.Flush()
}

// oneLine writes a text on one line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// indented indents a text of several lines under its heading.
func indented(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n  ")
}

// minutes is the form of times for which seconds do not matter.
const minutes = "2006-01-02 15:04"

func minute(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.UTC().Format(minutes)
}
