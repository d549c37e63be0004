package v10

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/wire"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// member is the name of the present member. ProtoJSON parsers take the names of the
// proto file as well, such as message_id.
func member(r *wire.Reader) []byte {
	name := r.Name()
	if bytes.IndexByte(name, '_') < 0 {
		return name
	}
	camel := make([]byte, 0, len(name))
	for i := 0; i < len(name); i++ {
		if c := name[i]; c != '_' || i+1 == len(name) {
			camel = append(camel, c)
			continue
		}
		i++
		camel = append(camel, bytes.ToUpper(name[i:i+1])...)
	}
	return camel
}

// count reads an integer that is not negative, which may be written as a string.
func count(r *wire.Reader) int {
	if !r.IsString() {
		return r.Count()
	}
	n, err := strconv.ParseInt(r.String(), 10, 32)
	if err != nil || n < 0 {
		r.Fail("must be an integer that is not negative")
		return 0
	}
	return int(n)
}

// role reads a Role, by name or number.
func role(r *wire.Reader) task.Role {
	if r.IsNumber() {
		if n := r.Count(); n < len(roleNames) {
			return task.Role(n)
		}
	} else {
		name := r.String()
		for i, known := range roleNames {
			if name == known {
				return task.Role(i)
			}
		}
	}
	r.Fail("must be ROLE_USER or ROLE_AGENT")
	return task.RoleUnspecified
}

// state reads a TaskState, by name or number. An example of 1.0.0 has the name in
// small letters and without its prefix.
func state(r *wire.Reader) task.State {
	if r.IsNumber() {
		if n := r.Count(); n < len(stateNumbers) {
			return stateNumbers[n]
		}
	} else {
		name := r.String()
		if name == stateNames[task.StateUnspecified] || name == "" {
			return task.StateUnspecified
		}
		short := strings.ToLower(strings.TrimPrefix(name, "TASK_STATE_"))
		if s, ok := task.ParseState(strings.ReplaceAll(short, "_", "-")); ok {
			return s
		}
	}
	r.Fail("is not a state of a task, such as TASK_STATE_WORKING")
	return task.StateUnspecified
}
