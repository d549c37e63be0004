// Package fault says how an error of the domain appears to clients. It holds the
// only table of errors: one row for each kind, following A2A 1.0. Where an older
// version differs, that version's codec overrides the row.
package fault

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Row is how one kind of error appears, in every binding.
type Row struct {
	Code    int    // JSON-RPC
	Message string // as the published schema words it
	HTTP    int    // status, HTTP+JSON
	GRPC    uint32 // status, gRPC
	Reason  string // google.rpc.ErrorInfo
}

// Table has a row for each task.Kind.
type Table [task.KindCount]Row

// The gRPC status codes that the table uses.
const (
	grpcInvalidArgument    = 3
	grpcNotFound           = 5
	grpcPermissionDenied   = 7
	grpcResourceExhausted  = 8
	grpcFailedPrecondition = 9
	grpcUnimplemented      = 12
	grpcInternal           = 13
	grpcUnavailable        = 14
	grpcUnauthenticated    = 16
)

// Base is the table of A2A 1.0. Kinds that 1.0 gives no JSON-RPC code of their own
// have the nearest: what the HTTP status refuses is -32600, what it excuses is -32603.
var Base = Table{
	task.Internal:             {-32603, "Internal error", 500, grpcInternal, "INTERNAL_ERROR"},
	task.NotFound:             {-32001, "Task not found", 404, grpcNotFound, "TASK_NOT_FOUND"},
	task.NotCancelable:        {-32002, "Task cannot be canceled", 400, grpcFailedPrecondition, "TASK_NOT_CANCELABLE"},
	task.PushUnsupported:      {-32003, "Push Notification is not supported", 400, grpcFailedPrecondition, "PUSH_NOTIFICATION_NOT_SUPPORTED"},
	task.Unsupported:          {-32004, "This operation is not supported", 400, grpcFailedPrecondition, "UNSUPPORTED_OPERATION"},
	task.StreamingUnsupported: {-32004, "Streaming is not supported", 400, grpcFailedPrecondition, "UNSUPPORTED_OPERATION"},
	task.ContentType:          {-32005, "Incompatible content types", 400, grpcInvalidArgument, "CONTENT_TYPE_NOT_SUPPORTED"},
	task.BadAgentReply:        {-32006, "Invalid agent response", 500, grpcInternal, "INVALID_AGENT_RESPONSE"},
	task.NoExtendedCard:       {-32007, "Authenticated Extended Card is not configured", 400, grpcFailedPrecondition, "EXTENDED_AGENT_CARD_NOT_CONFIGURED"},
	task.ExtensionRequired:    {-32008, "A required extension was not named", 400, grpcFailedPrecondition, "EXTENSION_SUPPORT_REQUIRED"},
	task.Version:              {-32009, "Version not supported", 400, grpcFailedPrecondition, "VERSION_NOT_SUPPORTED"},
	task.Invalid:              {-32602, "Invalid parameters", 400, grpcInvalidArgument, "INVALID_PARAMS"},
	task.Terminal:             {-32004, "This operation is not supported", 400, grpcFailedPrecondition, "UNSUPPORTED_OPERATION"},
	task.Busy:                 {-32004, "This operation is not supported", 400, grpcFailedPrecondition, "UNSUPPORTED_OPERATION"},
	task.Unauthenticated:      {-32600, "Authentication required", 401, grpcUnauthenticated, "UNAUTHENTICATED"},
	task.Forbidden:            {-32600, "Authorization failed", 403, grpcPermissionDenied, "FORBIDDEN"},
	task.RateLimited:          {-32603, "Rate limit exceeded", 429, grpcResourceExhausted, "RATE_LIMITED"},
	task.Unavailable:          {-32603, "A required resource is unavailable", 503, grpcUnavailable, "UNAVAILABLE"},
	task.TooLarge:             {-32600, "Request too large", 413, grpcResourceExhausted, "REQUEST_TOO_LARGE"},
	task.LeaseLost:            {-32603, "Internal error", 500, grpcInternal, "INTERNAL_ERROR"},
}

// Edition100 is the table of A2A 1.0.0, whose statuses 1.0.1 has changed. Clients go by
// the reason; the number is seen by conformance suites.
var Edition100 = Base.Statuses(map[task.Kind]Status{
	task.NotCancelable:        {409, grpcFailedPrecondition},
	task.PushUnsupported:      {400, grpcUnimplemented},
	task.Unsupported:          {400, grpcUnimplemented},
	task.StreamingUnsupported: {400, grpcUnimplemented},
	task.ContentType:          {415, grpcInvalidArgument},
	task.BadAgentReply:        {502, grpcInternal},
	task.Version:              {400, grpcUnimplemented},
})

// Table03 is the table of A2A 0.3. It has no code for the state of a task or for
// extensions: such a request has invalid parameters. Its document leaves the statuses
// open, and these are what official servers answer.
var Table03 = Base.Override(map[task.Kind]JSONRPC{
	task.ExtensionRequired: {Code: -32602},
	task.Terminal:          {Code: -32602, Message: "Invalid parameters"},
}).Statuses(map[task.Kind]Status{
	task.NotCancelable:        {409, grpcFailedPrecondition},
	task.PushUnsupported:      {501, grpcUnimplemented},
	task.Unsupported:          {501, grpcUnimplemented},
	task.StreamingUnsupported: {501, grpcUnimplemented},
	task.ContentType:          {415, grpcInvalidArgument},
	task.BadAgentReply:        {502, grpcInternal},
	task.NoExtendedCard:       {404, grpcNotFound},
	task.Version:              {400, grpcUnimplemented},
	task.Busy:                 {409, grpcFailedPrecondition},
})

// JSONRPC is what a version may have of its own: a code and its message.
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

// Status is what a version may have of its own over HTTP+JSON and gRPC.
type Status struct {
	HTTP int
	GRPC uint32
}

// Statuses returns the table with the statuses of some rows replaced.
func (t Table) Statuses(own map[task.Kind]Status) *Table {
	for kind, o := range own {
		t[kind].HTTP, t[kind].GRPC = o.HTTP, o.GRPC
	}
	return &t
}

// Row is the row of a kind; what is out of range is Internal.
func (t *Table) Row(k task.Kind) *Row {
	if int(k) >= len(t) {
		k = task.Internal
	}
	return &t[k]
}

// Describe returns the code and the message of an error: the schema's message, then
// what the error adds to it.
func (t *Table) Describe(err *task.Error) (code int, message string) {
	row := t.Row(err.Kind)
	if d := detail(err, row); d != "" {
		return row.Code, row.Message + ": " + d
	}
	return row.Code, row.Message
}

// Incident is what an answer can tell about an error beside the error itself.
type Incident struct {
	TaskID string // that the request named
	ID     string // of the line in the log, for faults of our own
}

// Domain is whose reasons an ErrorInfo has.
const Domain = "a2a-protocol.org"

// Details renders an error as the google.rpc objects of A2A 1.0, an array: an
// ErrorInfo and, when a member of the request is at fault, a BadRequest.
func (t *Table) Details(err *task.Error, in Incident) []byte {
	b := appendInfo(append(make([]byte, 0, 256), '['), t.Row(err.Kind).Reason, in)
	if err.Field != "" {
		b = append(b, `,{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":`...)
		b, _ = jsontext.AppendQuote(b, err.Field)
		b = append(b, `,"description":`...)
		b, _ = jsontext.AppendQuote(b, strings.TrimPrefix(err.Msg, err.Field+": "))
		b = append(b, `}]}`...)
	}
	return append(b, ']')
}

// Info is Details of an error that has a reason and no row: those of a binding itself.
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
		b, _ = jsontext.AppendQuote(b, fact.value)
		open = ","
	}
	if open == "," {
		b = append(b, '}')
	}
	return append(b, '}')
}

// RetryAfter is the header of this name for an error that may be gone soon, in seconds,
// or "".
func RetryAfter(err *task.Error) string {
	if err.Kind != task.Unavailable && err.Kind != task.RateLimited {
		return ""
	}
	wait := err.RetryAfter
	if wait <= 0 {
		wait = time.Second
	}
	return strconv.Itoa(int(math.Ceil(wait.Seconds())))
}

// Headers adds what an error has as headers over HTTP.
func Headers(err *task.Error, set func(name, value string)) {
	if wait := RetryAfter(err); wait != "" {
		set("Retry-After", wait)
	}
	for _, challenge := range err.Challenges {
		set("WWW-Authenticate", challenge)
	}
}

// StatusName is how google.rpc.Code names a status that the tables use.
func StatusName(status uint32) string {
	switch status {
	case grpcInvalidArgument:
		return "INVALID_ARGUMENT"
	case grpcNotFound:
		return "NOT_FOUND"
	case grpcPermissionDenied:
		return "PERMISSION_DENIED"
	case grpcResourceExhausted:
		return "RESOURCE_EXHAUSTED"
	case grpcFailedPrecondition:
		return "FAILED_PRECONDITION"
	case grpcUnimplemented:
		return "UNIMPLEMENTED"
	case grpcUnavailable:
		return "UNAVAILABLE"
	case grpcUnauthenticated:
		return "UNAUTHENTICATED"
	}
	return "INTERNAL"
}

// detail is what an error says beyond its row.
func detail(err *task.Error, row *Row) string {
	said := err.Msg
	switch err.Kind {
	case task.Internal, task.LeaseLost:
		return "" // faults of our own say no more than that they happened
	case task.Terminal, task.Busy:
		// Their rows have the message of a wider error, which alone would explain nothing.
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
	return said
}
