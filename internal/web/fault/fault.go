// Package fault says how an error of the domain appears outside. It holds the only table of errors: one row per kind, following
// A2A 1.0, with the problem document of our own APIs. Where an older version differs, that version's codec overrides the row.
package fault

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Row is how one kind of error appears, in every binding.
type Row struct {
	Code    int       // JSON-RPC
	Message string    // as the published schema words it
	HTTP    int       // status, HTTP+JSON
	GRPC    code.Code // status, gRPC
	Reason  string    // google.rpc.ErrorInfo
	Problem Problem   // our own APIs: admin, run and worker
}

// Problem is how a kind of error appears in a problem document.
type Problem struct {
	Status int
	Name   string // its reason, for programs
}

// Table has a row for each task.Kind.
type Table [task.KindCount]Row

// Base is the table of A2A 1.0. Kinds without a JSON-RPC code in 1.0 take the nearest one: -32600
// where the HTTP status blames the client, -32603 where it blames the server.
var Base = Table{
	task.Internal:             {-32603, "Internal error", 500, code.Code_INTERNAL, "INTERNAL_ERROR", Problem{500, "internal"}},
	task.NotFound:             {-32001, "Task not found", 404, code.Code_NOT_FOUND, "TASK_NOT_FOUND", Problem{404, "not_found"}},
	task.NotCancelable:        {-32002, "Task cannot be canceled", 400, code.Code_FAILED_PRECONDITION, "TASK_NOT_CANCELABLE", Problem{409, "conflict"}},
	task.PushUnsupported:      {-32003, "Push Notification is not supported", 400, code.Code_FAILED_PRECONDITION, "PUSH_NOTIFICATION_NOT_SUPPORTED", Problem{409, "conflict"}},
	task.Unsupported:          {-32004, "This operation is not supported", 400, code.Code_FAILED_PRECONDITION, "UNSUPPORTED_OPERATION", Problem{409, "conflict"}},
	task.StreamingUnsupported: {-32004, "Streaming is not supported", 400, code.Code_FAILED_PRECONDITION, "UNSUPPORTED_OPERATION", Problem{409, "conflict"}},
	task.ContentType:          {-32005, "Incompatible content types", 400, code.Code_INVALID_ARGUMENT, "CONTENT_TYPE_NOT_SUPPORTED", Problem{400, "invalid"}},
	task.BadAgentReply:        {-32006, "Invalid agent response", 500, code.Code_INTERNAL, "INVALID_AGENT_RESPONSE", Problem{500, "internal"}},
	task.NoExtendedCard:       {-32007, "Authenticated Extended Card is not configured", 400, code.Code_FAILED_PRECONDITION, "EXTENDED_AGENT_CARD_NOT_CONFIGURED", Problem{409, "conflict"}},
	task.ExtensionRequired:    {-32008, "A required extension was not named", 400, code.Code_FAILED_PRECONDITION, "EXTENSION_SUPPORT_REQUIRED", Problem{409, "conflict"}},
	task.Version:              {-32009, "Version not supported", 400, code.Code_FAILED_PRECONDITION, "VERSION_NOT_SUPPORTED", Problem{400, "invalid"}},
	task.Invalid:              {-32602, "Invalid parameters", 400, code.Code_INVALID_ARGUMENT, "INVALID_PARAMS", Problem{400, "invalid"}},
	task.Terminal:             {-32004, "This operation is not supported", 400, code.Code_FAILED_PRECONDITION, "UNSUPPORTED_OPERATION", Problem{409, "conflict"}},
	task.Busy:                 {-32004, "This operation is not supported", 400, code.Code_FAILED_PRECONDITION, "UNSUPPORTED_OPERATION", Problem{409, "conflict"}},
	task.Unauthenticated:      {-32600, "Authentication required", 401, code.Code_UNAUTHENTICATED, "UNAUTHENTICATED", Problem{401, "unauthenticated"}},
	task.Forbidden:            {-32600, "Authorization failed", 403, code.Code_PERMISSION_DENIED, "FORBIDDEN", Problem{403, "forbidden"}},
	task.RateLimited:          {-32603, "Rate limit exceeded", 429, code.Code_RESOURCE_EXHAUSTED, "RATE_LIMITED", Problem{429, "busy"}},
	task.Unavailable:          {-32603, "A required resource is unavailable", 503, code.Code_UNAVAILABLE, "UNAVAILABLE", Problem{503, "unavailable"}},
	task.TooLarge:             {-32600, "Request too large", 413, code.Code_RESOURCE_EXHAUSTED, "REQUEST_TOO_LARGE", Problem{413, "too_large"}},
	task.LeaseLost:            {-32603, "Internal error", 500, code.Code_INTERNAL, "INTERNAL_ERROR", Problem{410, "over"}},
}

// JSONRPC is a version's own code and message.
type JSONRPC struct {
	Code    int
	Message string // empty keeps the message of the row
}

// Override returns the table with the code and message of some rows replaced.
func (t Table) Override(own map[task.Kind]JSONRPC) *Table {
	for kind, o := range own {
		t[kind].Code = o.Code
		if o.Message != "" {
			t[kind].Message = o.Message
		}
	}
	return &t
}

// Status is a version's own pair of statuses for HTTP+JSON and gRPC.
type Status struct {
	HTTP int
	GRPC code.Code
}

// Statuses returns the table with the statuses of some rows replaced.
func (t Table) Statuses(own map[task.Kind]Status) *Table {
	for kind, o := range own {
		t[kind].HTTP, t[kind].GRPC = o.HTTP, o.GRPC
	}
	return &t
}

// Row returns the row of a kind, and that of Internal for an unknown kind.
func (t *Table) Row(k task.Kind) *Row {
	if int(k) >= len(t) {
		k = task.Internal
	}
	return &t[k]
}

// Describe returns the code and the message of an error: the schema's message, followed by the
// error's own text.
func (t *Table) Describe(err *task.Error) (code int, message string) {
	row := t.Row(err.Kind)
	if d := detail(err, row); d != "" {
		return row.Code, row.Message + ": " + d
	}
	return row.Code, row.Message
}

// Incident is what an answer tells about an error besides the error itself.
type Incident struct {
	TaskID string // that the request named
	ID     string // of the log line, for internal faults
}

// Domain is the domain of the reasons in an ErrorInfo.
const Domain = "a2a-protocol.org"

// Details renders an error as the google.rpc objects of A2A 1.0: an array with an ErrorInfo. If a
// member of the request is at fault, a BadRequest follows.
func (t *Table) Details(err *task.Error, in Incident) []byte {
	b := appendInfo(append(make([]byte, 0, 256), '['), t.Row(err.Kind).Reason, in)
	if err.Field != "" {
		b = append(b, `,{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":`...)
		b, _ = jsontext.AppendQuote(b, task.Shown(err.Field))
		b = append(b, `,"description":`...)
		b, _ = jsontext.AppendQuote(b, task.Shown(strings.TrimPrefix(err.Msg, err.Field+": ")))
		b = append(b, `}]}`...)
	}
	return append(b, ']')
}

// Info renders Details for an error that has a reason but no row: a binding's own error.
func Info(reason string) []byte { return append(appendInfo([]byte{'['}, reason, Incident{}), ']') }

// appendInfo appends an ErrorInfo.
func appendInfo(b []byte, reason string, in Incident) []byte {
	b = append(b, `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"`...)
	b = append(b, reason...)
	b = append(b, `","domain":"`+Domain+`"`...)
	open := `,"metadata":{`
	for _, fact := range [...]struct{ name, value string }{{"taskId", in.TaskID}, {"errorId", in.ID}} {
		if fact.value == "" {
			continue
		}
		b = append(b, open+`"`+fact.name+`":`...)
		b, _ = jsontext.AppendQuote(b, task.Shown(fact.value))
		open = ","
	}
	if open == "," {
		b = append(b, '}')
	}
	return append(b, '}')
}

// RetryAfter returns the value of the Retry-After header, in seconds. It is "" for an error that a
// retry does not clear.
func RetryAfter(err *task.Error) string {
	if err.Kind != task.Unavailable && err.Kind != task.RateLimited {
		return ""
	}
	return Seconds(err.RetryAfter)
}

// Seconds writes a wait for Retry-After: in whole seconds, at least one.
func Seconds(wait time.Duration) string {
	return strconv.Itoa(int(math.Ceil(max(wait, time.Second).Seconds())))
}

// Headers adds the HTTP headers of an error.
func Headers(err *task.Error, set func(name, value string)) {
	if wait := RetryAfter(err); wait != "" {
		set("Retry-After", wait)
	}
	for _, challenge := range err.Challenges {
		set("WWW-Authenticate", challenge)
	}
}

// detail returns what an error says beyond its row.
func detail(err *task.Error, row *Row) string {
	said := err.Msg
	switch err.Kind {
	case task.Internal, task.LeaseLost:
		return "" // an internal fault tells only that it happened
	case task.Terminal, task.Busy:
		// Their rows carry the message of a wider error, which alone explains nothing.
		if said == "" {
			said = err.Kind.Error()
		}
	default:
		if strings.EqualFold(said, err.Kind.Error()) {
			return ""
		}
	}
	if strings.EqualFold(said, row.Message) {
		return ""
	}
	return task.Shown(said)
}
