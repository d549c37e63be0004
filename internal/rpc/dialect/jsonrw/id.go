package jsonrw

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxID bounds the ids that clients choose, in characters: indexes contain them.
const maxID = 256

// TaskID reads an id that a client chose for a new task. It refuses characters with a meaning in
// the routes of later versions.
func (r *Reader) TaskID() string { return r.checked(TaskIDFault) }

// TaskIDFault says why a string cannot be the id of a new task. It returns "" if it can.
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
