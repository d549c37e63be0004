package v0

import (
	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Role reads the role of a message's author. A client is the user. A message of a client in the role
// of the agent would reach the model as its own words.
func Role(r *rawjson.Reader) task.Role {
	switch r.String() {
	case "user":
		return task.RoleUser
	case "agent":
		r.Fail(`must be "user": only the agent speaks as the agent`)
	default:
		r.Fail(`must be "user"`)
	}
	return task.RoleUnspecified
}

// RoleName returns the name of a role. An unspecified role becomes the agent's.
func RoleName(role task.Role) string {
	if role == task.RoleUser {
		return "user"
	}
	return "agent"
}
