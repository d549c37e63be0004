package v0

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/wire"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// maxID bounds the ids that clients choose, in characters: they are kept in indexes.
const maxID = 256

// TaskID reads an id that a client chose for a new task. Characters that take part
// in the routes of later versions are refused.
func TaskID(r *wire.Reader) string { return checked(r, TaskIDFault) }

// TaskIDFault says what keeps a string from being the id of a new task, or "".
func TaskIDFault(id string) string {
	if strings.ContainsAny(id, "/:") {
		return "must not contain / or :"
	}
	return idFault(id)
}

// ContextID reads the id of a session or context that a client chose.
func ContextID(r *wire.Reader) string { return checked(r, idFault) }

func checked(r *wire.Reader, fault func(id string) string) string {
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

// Role reads who wrote a message.
func Role(r *wire.Reader) task.Role {
	switch r.String() {
	case "user":
		return task.RoleUser
	case "agent":
		return task.RoleAgent
	}
	r.Fail(`must be "user" or "agent"`)
	return task.RoleUnspecified
}

// RoleName writes it. A role that nobody stated reads as the agent's.
func RoleName(role task.Role) string {
	if role == task.RoleUser {
		return "user"
	}
	return "agent"
}
