package admin

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

// query reads the parameters of a request. It keeps the first error, and done reports parameters that nothing has read: with a
// misspelt filter ignored, every task would match.
type query struct {
	values url.Values
	within string // what is before the names in errors
	read   []string
	err    error
}

func parseQuery(raw string) (*query, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, web.Invalid("", "the query is not valid: "+err.Error())
	}
	return &query{values: values}, nil
}

func (q *query) bad(name, format string, args ...any) {
	if q.err == nil {
		q.err = web.Invalid(q.within+name, fmt.Sprintf(format, args...))
	}
}

// text returns a parameter that is given once at most.
func (q *query) text(name string) (value string, given bool) {
	values := q.texts(name)
	if len(values) == 0 {
		return "", false
	}
	if len(values) > 1 {
		q.bad(name, "must be given once")
	}
	return values[0], true
}

// maxTexts bounds how often a parameter may be given.
const maxTexts = 100

// badText reports whether the database would refuse a text as a value to search for, or whether it is too long for one.
func badText(v string) bool { return len(v) > 1024 || strings.ContainsRune(v, 0) }

// texts returns all values of a parameter.
func (q *query) texts(name string) []string {
	q.read = append(q.read, name)
	values := q.values[name]
	if len(values) > maxTexts {
		q.bad(name, "must not be given more than %d times", maxTexts)
	}
	for _, v := range values {
		if badText(v) {
			q.bad(name, "must not be longer than 1024 bytes, and have no NUL")
		}
	}
	return values
}

// word is text that must not be empty if it is given.
func (q *query) word(name string) string {
	v, given := q.text(name)
	if given && v == "" {
		q.bad(name, "must not be empty; leave it out for all")
	}
	return v
}

// optional is text whose absence means any, and whose emptiness is a value.
func (q *query) optional(name string) *string {
	if v, given := q.text(name); given {
		return &v
	}
	return nil
}

func (q *query) number(name string, otherwise, least, most int64) int64 {
	v, given := q.text(name)
	if !given {
		return otherwise
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < least || n > most {
		q.bad(name, "must be a number from %d to %d", least, most)
		return otherwise
	}
	return n
}

// The number of items of a page.
const (
	defaultPage = 50
	maxPage     = 500
)

func (q *query) limit() int { return q.upto(maxPage) }

// upto is limit for lists of small items without further pages.
func (q *query) upto(most int64) int { return int(q.number("limit", defaultPage, 1, most)) }

func (q *query) flag(name string) bool {
	v, given := q.text(name)
	if given && v != "true" && v != "false" {
		q.bad(name, "must be true or false")
	}
	return v == "true"
}

func (q *query) time(name string) time.Time {
	v, given := q.text(name)
	if !given {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, v)
	if err != nil || t.Year() < 1970 || t.Year() > 9998 {
		q.bad(name, "%q is not a time; write 2026-01-31T12:00:00Z", v)
	}
	return t
}

func (q *query) duration(name string) time.Duration {
	v, given := q.text(name)
	if !given {
		return 0
	}
	d, err := time.ParseDuration(v)
	if err != nil || d <= 0 {
		q.bad(name, "%q is not a duration; write 30s, 5m or 1h30m", v)
	}
	return d
}

// id reads the UUID of a task, or in the parameter before the place of the next page.
func (q *query) id(name string) (id task.ID) {
	v, given := q.text(name)
	if given && id.UnmarshalText([]byte(v)) != nil {
		q.bad(name, "%q is not a UUID", v)
	}
	return id
}

// newestFirst reads the order of a list, which has one without the parameter, too.
func (q *query) newestFirst(without bool) bool {
	switch q.word("order") {
	case "":
		return without
	case "asc":
		return false
	case "desc":
	default:
		q.bad("order", "must be asc or desc")
	}
	return true
}

// mostReason bounds a reason of failures in bytes: those that the API shows have up to 500 characters.
const mostReason = 2048

// reason reads the reason for which tasks failed, which may be empty, and narrows a filter to such tasks.
func (q *query) reason(f *store.AdminFilter) (reason string, given bool) {
	q.read = append(q.read, "reason")
	values, given := q.values["reason"]
	if !given {
		return "", false
	}
	if len(values) > 1 || len(values[0]) > mostReason {
		q.bad("reason", "must be given once, and not be longer than %d bytes", mostReason)
	}
	ended := []task.State{task.StateFailed, task.StateRejected}
	if len(f.States) == 0 {
		f.States = ended
	}
	for _, s := range f.States {
		if !slices.Contains(ended, s) {
			q.bad("reason", "only failed and rejected tasks have a reason; leave out the state %s", s)
		}
	}
	return values[0], true
}

// filter reads the parameters that select tasks. A minus before a name leaves out the tasks that have one of its values.
func (q *query) filter() *store.AdminFilter {
	among := func(name string) store.Among { return store.Among{Is: q.texts(name), Not: q.texts("-" + name)} }
	f := &store.AdminFilter{
		Agent: among("agent"), Tenant: among("tenant"), Owner: among("owner"), ContextID: q.word("context"), Since: q.time("since"), Until: q.time("until"),
		StatusBefore: q.time("status_before"), MinDuration: q.duration("min_duration"), MaxDuration: q.duration("max_duration"),
	}
	if slices.Contains(f.Agent.Is, "") {
		q.bad("agent", "must not be empty; leave it out for all")
	}
	if q.optional("retried") != nil {
		retried := q.flag("retried")
		f.Retried = &retried
	}
	for _, v := range q.texts("metadata") {
		key, value, ok := strings.Cut(v, ":")
		if !ok || key == "" {
			q.bad("metadata", "%q has no member's name; write ticket:T-9", v)
		} else if _, twice := f.Metadata[key]; twice {
			q.bad("metadata", "has two values of %q, which no task has", key)
		} else if f.Metadata == nil {
			f.Metadata = map[string]string{key: value}
		} else {
			f.Metadata[key] = value
		}
	}
	is, not := q.states("state"), q.states("-state")
	for _, s := range task.States {
		if (len(is) == 0 || slices.Contains(is, s)) && !slices.Contains(not, s) {
			f.States = append(f.States, s)
		}
	}
	if len(f.States) == 0 {
		q.bad("-state", "leaves no state")
	}
	if len(f.States) == len(task.States) {
		f.States = nil
	}
	return f
}

func (q *query) states(name string) (out []task.State) {
	for _, v := range q.texts(name) {
		state, ok := task.ParseState(v)
		if !ok {
			q.bad(name, "%q is not a state; use one of %s", v, stateNames())
		}
		out = append(out, state)
	}
	return out
}

func stateNames() string {
	names := make([]string, len(task.States))
	for i, s := range task.States {
		names[i] = s.String()
	}
	return strings.Join(names, ", ")
}

// done returns the first error.
func (q *query) done() error {
	if q.err != nil {
		return q.err
	}
	for name := range q.values {
		if !slices.Contains(q.read, name) {
			known := "it has none"
			if len(q.read) > 0 {
				known = "it has " + strings.Join(q.read, ", ")
			}
			return web.Invalid(q.within+name, "is no parameter of this operation; "+known)
		}
	}
	return nil
}
