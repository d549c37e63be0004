package v0

import (
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/jsonrw"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Role reads the role of a message's author.
func Role(r *jsonrw.Reader) task.Role {
	switch r.String() {
	case "user":
		return task.RoleUser
	case "agent":
		return task.RoleAgent
	}
	r.Fail(`must be "user" or "agent"`)
	return task.RoleUnspecified
}

// RoleName returns the name of a role. An unspecified role becomes the agent's.
func RoleName(role task.Role) string {
	if role == task.RoleUser {
		return "user"
	}
	return "agent"
}
