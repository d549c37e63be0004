package rawjson

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxID bounds the ids that clients choose, in characters: indexes contain them.
const maxID = 256

// ClientID reads the id of a task, session or context that a client chose.
func (r *Reader) ClientID() string {
	id := r.String()
	if complaint := IDFault(id); complaint != "" {
		r.Fail("%s", complaint)
	}
	return id
}

// IDFault says why a string cannot be an id that a client chooses. It returns "" if it can. Slashes
// and colons are allowed: clients escape them where an id is a part of a path.
func IDFault(id string) string {
	switch {
	case utf8.RuneCountInString(id) > maxID:
		return "must not be longer than " + strconv.Itoa(maxID) + " characters"
	case strings.ContainsFunc(id, unicode.IsControl):
		return "must not contain control characters"
	}
	return ""
}
