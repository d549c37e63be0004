package protojson

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Member returns the name of the current member. ProtoJSON parsers also accept the names of the
// proto file, such as message_id. A member that an object has in two spellings is refused: a proxy
// in front may have read the other one.
func Member(r *rawjson.Reader) []byte {
	name := CamelCase(r.Name())
	if len(name) != len(r.Name()) {
		r.RefuseTwins(CamelCase)
	}
	return name
}

// CamelCase returns the JSON name of a field.
func CamelCase(name []byte) []byte {
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

// Count reads an integer that is not negative, as a number or a string.
func Count(r *rawjson.Reader) int {
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

// Role reads a Role, by name or number. With short it also accepts the names of JSON-RPC. A client
// is the user. A message of a client in the role of the agent would reach the model as its own
// words.
func Role(r *rawjson.Reader, short bool) task.Role {
	role := len(roleNames)
	if r.IsNumber() {
		role = r.Count()
	} else {
		name := r.String()
		if short && (name == "user" || name == "agent") {
			name = "ROLE_" + strings.ToUpper(name)
		}
		if i := slices.Index(roleNames[:], name); i >= 0 {
			role = i
		}
	}
	switch role {
	case int(task.RoleUnspecified), int(task.RoleUser):
		return task.Role(role)
	case int(task.RoleAgent):
		r.Fail("must be ROLE_USER: only the agent speaks as the agent")
	default:
		r.Fail("must be ROLE_USER")
	}
	return task.RoleUnspecified
}

// State reads a TaskState, by name or number. An example of 1.0.0 has the name in lower case and
// without its prefix.
func State(r *rawjson.Reader) task.State {
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
	r.Fail("must be a task state such as TASK_STATE_WORKING")
	return task.StateUnspecified
}

// Message reads a Message. It stores the task and context of the message in send. In every version
// the parts may be in the member parts.
func (s *Style) Message(r *rawjson.Reader, send *engine.SendRequest) *task.Message {
	m := new(task.Message)
	for r.Object(); r.Next(); {
		switch string(Member(r)) {
		case "messageId":
			m.ID = r.String()
		case "role":
			m.Role = Role(r, s.ShortRoles)
		case "parts", s.Parts:
			m.Parts = s.readParts(r)
		case "taskId":
			send.TaskID = r.String()
		case "contextId":
			send.ContextID = r.ClientID()
		case "metadata":
			m.Metadata = r.RawObject()
		case "extensions":
			m.Extensions = r.Strings()
		case "referenceTaskIds":
			m.References = r.Strings()
		default:
			r.Skip()
		}
	}
	r.Require(m.ID != "", "messageId")
	r.Require(m.Role != task.RoleUnspecified, "role")
	r.Require(m.Parts != nil, s.Parts)
	return m
}

func (s *Style) readParts(r *rawjson.Reader) []task.Part {
	var all []task.Part
	for r.Array(); r.Item(); {
		if len(all) > rawjson.MaxParts {
			r.Skip() // refused by their number
			continue
		}
		all = append(all, s.ReadPart(r))
	}
	if len(all) == 0 {
		r.Fail("must hold at least one part")
	}
	return all
}

// Sizes of a page of tasks.
const (
	defaultPage = 50
	maxPage     = 100
)

// List reads ListTasksRequest.
func List(r *rawjson.Reader, call *dialect.Call) *engine.ListRequest {
	l := &engine.ListRequest{PageSize: defaultPage}
	for r.Object(); r.Next(); {
		switch string(Member(r)) {
		case "tenant":
			call.Tenant = r.String()
		case "contextId":
			l.ContextID = r.String()
		case "status":
			l.State = State(r)
		case "pageSize":
			l.PageSize = pageSize(r)
		case "pageToken":
			l.PageToken = r.String()
		case "historyLength":
			call.View.History = Count(r)
		case "statusTimestampAfter", "lastUpdatedTime": // lastUpdatedTime is in the younger proto files of 0.3
			l.Since = r.Time()
		case "includeArtifacts":
			l.WithArtifacts = r.Bool()
			call.View.ShowArtifacts = l.WithArtifacts
		default:
			r.Skip()
		}
	}
	l.WithHistory = call.View.History != 0
	return l
}

func pageSize(r *rawjson.Reader) int {
	n := Count(r)
	if n < 1 || n > maxPage {
		r.Fail("must be a number from 1 to %d", maxPage)
	}
	return n
}

// PushPage reads a member of a request for the configurations of a task, if it is one of its page.
func PushPage(r *rawjson.Reader, member string, p *engine.PushRequest) bool {
	switch member {
	case "pageSize":
		p.PageSize = pageSize(r)
	case "pageToken":
		p.PageToken = r.String()
	default:
		return false
	}
	return true
}
