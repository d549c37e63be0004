package v0

import (
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
func TaskID(r *wire.Reader) string {
	id := boundedID(r)
	if strings.ContainsAny(id, "/:") {
		r.Fail("must not contain / or :")
	}
	return id
}

// ContextID reads the id of a session or context that a client chose.
func ContextID(r *wire.Reader) string { return boundedID(r) }

func boundedID(r *wire.Reader) string {
	id := r.String()
	if utf8.RuneCountInString(id) > maxID {
		r.Fail("must not be longer than %d characters", maxID)
	}
	if strings.ContainsFunc(id, unicode.IsControl) {
		r.Fail("must not contain control characters")
	}
	return id
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
