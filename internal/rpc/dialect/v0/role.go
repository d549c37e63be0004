package v0

import (
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/wire"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

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
