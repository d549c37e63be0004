package wire

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxID bounds the ids that clients choose, in characters: they are kept in indexes.
const maxID = 256

// TaskID reads an id that a client chose for a new task. Characters that take part
// in the routes of later versions are refused.
func (r *Reader) TaskID() string { return r.checked(TaskIDFault) }

// TaskIDFault says what keeps a string from being the id of a new task, or "".
func TaskIDFault(id string) string {
	if strings.ContainsAny(id, "/:") {
		return "must not contain / or :"
	}
	return idFault(id)
}

// ContextID reads the id of a session or context that a client chose.
func (r *Reader) ContextID() string { return r.checked(idFault) }

func (r *Reader) checked(fault func(id string) string) string {
	id := r.String()
	if complaint := fault(id); complaint != "" {
		r.Fail("%s", complaint)
	}
	return id
}

func idFault(id string) string {
	switch {
	case utf8.RuneCountInString(id) > maxID:
		return "must not be longer than " + strconv.Itoa(maxID) + " characters"
	case strings.ContainsFunc(id, unicode.IsControl):
		return "must not contain control characters"
	}
	return ""
}
