package config

import (
	"fmt"
	"sort"
	"strings"
)

// Problem is one mistake: its position, its key, and what is wrong.
type Problem struct {
	Where string // file:line, a variable or a flag; empty when the value is missing everywhere
	Key   string // path of the key, such as agents[1].executor.http.url
	Text  string

	line int // for the order of the report
}

func (p Problem) String() string {
	var b strings.Builder
	if p.Where != "" {
		b.WriteString(p.Where + ": ")
	}
	if p.Key != "" {
		b.WriteString(p.Key + ": ")
	}
	b.WriteString(p.Text)
	return b.String()
}

// Error has all mistakes of a configuration.
type Error struct {
	Problems []Problem
}

func (e *Error) Error() string {
	if len(e.Problems) == 1 {
		return "configuration: " + e.Problems[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "configuration: %d mistakes", len(e.Problems))
	for _, p := range e.Problems {
		b.WriteString("\n  " + p.String())
	}
	return b.String()
}

// origin is where a value came from.
type origin struct {
	where string
	line  int    // in the file; 0 for the environment and flags
	text  string // as the file has it, if it names variables, which may be secrets
}

// report collects problems. It also remembers where values came from, so that later checks can report it.
type report struct {
	problems []Problem
	origins  map[string]origin
}

// at records a problem with the value of key. If the key is missing, the report names the nearest enclosing key that is
// there.
func (r *report) at(key, format string, args ...any) {
	o, ok := r.origins[key]
	for parent := key; !ok && parent != ""; {
		parent = parent[:max(strings.LastIndexAny(parent, ".["), 0)]
		o, ok = r.origins[parent]
	}
	r.problems = append(r.problems, Problem{Where: o.where, line: o.line, Key: key, Text: fmt.Sprintf(format, args...)})
}

// given reports whether the operator wrote the key.
func (r *report) given(key string) bool {
	_, ok := r.origins[key]
	return ok
}

// hasProblem stops later checks from reporting a value that could not be read.
func (r *report) hasProblem(key string) bool {
	for _, p := range r.problems {
		if p.Key == key {
			return true
		}
	}
	return false
}

func (r *report) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	sort.SliceStable(r.problems, func(i, j int) bool { return r.problems[i].line < r.problems[j].line })
	return &Error{Problems: r.problems}
}
