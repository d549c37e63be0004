package client

import (
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/protojson"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Error is an error that the server reports.
type Error struct {
	Code    int        // of JSON-RPC; 0 if the server does not say
	Status  int        // of HTTP; 0 over JSON-RPC and gRPC
	RPC     codes.Code // of gRPC; OK over others
	Reason  string
	Message string
}

func (e *Error) Error() string {
	said := cutAt(e.Message, 512)
	switch {
	case e.RPC != codes.OK:
		return fmt.Sprintf("%s: %s", e.RPC, said)
	case e.Code != 0 && e.Status == 0:
		return fmt.Sprintf("error %d: %s", e.Code, said)
	case said == "":
		return fmt.Sprintf("%d %s", e.Status, http.StatusText(e.Status))
	}
	return fmt.Sprintf("%d %s: %s", e.Status, http.StatusText(e.Status), said)
}

func cutAt(s string, most int) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return s
}

// Is reports whether the error is of a kind: NotFound, NotCancelable, or Unsupported, which also stands for an unknown
// method. Other kinds are not told apart.
func (e *Error) Is(target error) bool {
	bare := e.RPC
	if e.Reason != "" { // it says more
		bare = codes.OK
	}
	switch target {
	case task.NotFound:
		return bare == codes.NotFound || e.Code == -32001 || e.Reason == "TASK_NOT_FOUND" || e.Status == http.StatusNotFound && e.Reason == "" && e.Code == 0
	case task.NotCancelable:
		return bare == codes.FailedPrecondition || e.Code == -32002 || e.Reason == "TASK_NOT_CANCELABLE"
	case task.Unsupported:
		return bare == codes.Unimplemented || e.Reason == reasonNoMethod || e.Code == -32004 || e.Code == -32601 || e.Reason == "UNSUPPORTED_OPERATION" ||
			e.Status == http.StatusNotImplemented || e.Status == http.StatusMethodNotAllowed
	case task.Internal:
		return e.RPC == codes.Internal || e.RPC == codes.Unknown || e.RPC == codes.DataLoss || e.Code == -32603
	}
	return false
}

const reasonNoMethod = "METHOD_NOT_FOUND"

// named are the reasons that the official Python server of 0.3 writes before the message, with statuses of its own choice.
var named = map[string]string{
	"TaskNotFoundError":         "TASK_NOT_FOUND",
	"TaskNotCancelableError":    "TASK_NOT_CANCELABLE",
	"UnsupportedOperationError": "UNSUPPORTED_OPERATION",
	"MethodNotFoundError":       reasonNoMethod,
}

// StatusError returns the error that a status of gRPC reports.
func StatusError(s *grpcstatus.Status) *Error {
	e := &Error{RPC: s.Code(), Message: s.Message()}
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			e.Reason = info.GetReason()
		}
	}
	if name, _, ok := strings.Cut(e.Message, ": "); ok && e.Reason == "" {
		e.Reason = named[name]
	}
	return e
}

// Failure reads the body of an answer over HTTP+JSON with a status other than 2xx. Any body will do.
func (w *Wire) Failure(status int, body []byte, maxDepth int) *Error {
	e := &Error{Status: status}
	if rawjson.Check(body, maxDepth) != nil || object(body) == nil {
		return e
	}
	r := rawjson.NewReader(body)
	defer r.Close()
	d := reader{w: w, r: r}
	if d.errorObject(e); r.Err() != nil {
		return &Error{Status: status}
	}
	return e
}

func (d *reader) rpcError() *Error {
	e := new(Error)
	d.errorObject(e)
	if e.Code == 0 {
		e.Code = -32603
	}
	return e
}

// errorObject reads the members of an error. Over HTTP+JSON that is {"error": {…}}, or the members themselves: no two libraries of 0.3
// agree.
func (d *reader) errorObject(e *Error) {
	r := d.r
	for r.Object(); r.Next(); {
		switch string(protojson.Member(r)) {
		case "error":
			if r.IsString() {
				r.Skip()
			} else {
				d.errorObject(e)
			}
		case "code":
			e.Code = d.code()
		case "message":
			if r.IsString() {
				e.Message = r.String()
			} else {
				r.Skip()
			}
		case "details":
			d.details(e)
		default:
			r.Skip()
		}
	}
}

// code reads the code of JSON-RPC. Over HTTP+JSON the member is the HTTP status in 1.0, and a name in some libraries:
// neither says more than the answer itself.
func (d *reader) code() int {
	if !d.r.IsNumber() {
		d.r.Skip()
		return 0
	}
	raw := string(d.r.Raw())
	var n int
	if _, err := fmt.Sscanf(raw, "%d", &n); err != nil || n >= 0 {
		return 0
	}
	return n
}

func (d *reader) details(e *Error) {
	if raw := d.r.Raw(); len(raw) > 0 && raw[0] == '[' {
		// The reason of a google.rpc.ErrorInfo is a plain constant: a search finds it without a schema.
		for _, reason := range []string{"TASK_NOT_FOUND", "TASK_NOT_CANCELABLE", "UNSUPPORTED_OPERATION"} {
			if strings.Contains(string(raw), `"`+reason+`"`) {
				e.Reason = reason
			}
		}
	}
}
