package rest

import (
	"errors"
	"mime"
	"net/http"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/httpjson"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/web/fault"
)

// JSON-RPC codes for the binding's own errors. Some versions show them.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeMethodNotFound = -32601
	codeContentType    = -32005
)

const mediaJSON = "application/json"

// written are the media types that this binding answers with, over all operations. An Accept that
// names any of them is good enough, because clients often send the wrong one.
var written = func() []string {
	all := []string{mediaJSON, "text/event-stream"}
	for _, v := range httpjson.Versions {
		if v.Media != "" {
			all = append(all, v.Media)
		}
	}
	return all
}()

// negotiate refuses a client that can read none of the written types.
func (x *exchange) negotiate() bool {
	lists := x.R.Header["Accept"]
	if len(lists) == 0 {
		return true
	}
	for media := range accepted(lists) {
		for _, ours := range written {
			kind, whole := strings.CutSuffix(media, "/*")
			if media == "*/*" || media == ours || whole && strings.HasPrefix(ours, kind+"/") {
				return true
			}
		}
	}
	x.refuse(http.StatusNotAcceptable, x.faults().Row(task.ContentType).Reason, "INVALID_ARGUMENT", codeContentType,
		"Incompatible content types: Accept must allow application/json, or text/event-stream for streams")
	return false
}

// accepted returns the media types of an Accept.
func accepted(lists []string) map[string]bool {
	all := map[string]bool{}
	for _, list := range lists {
		for item := range strings.SplitSeq(list, ",") {
			media, parameters, err := mime.ParseMediaType(item)
			q, weighed := parameters["q"]
			if err == nil && (!weighed || strings.Trim(q, "0.") != "") {
				all[media] = true
			}
		}
	}
	return all
}

// mediaType returns the media type of a result. It is the version's own type if the client has
// accepted or sent that type, and application/json otherwise.
func (x *exchange) mediaType() string {
	own := x.version.Media
	if own == "" {
		return mediaJSON
	}
	accepts := accepted(x.R.Header["Accept"])
	sent, _, _ := mime.ParseMediaType(x.R.Header.Get("Content-Type"))
	if accepts[own] || sent == own && !accepts[mediaJSON] {
		return own
	}
	return mediaJSON
}

// refuse answers with an error of the binding itself.
func (x *exchange) refuse(status int, reason, grpc string, code int, message string) {
	x.Observe(dispatch.Refused)
	x.Reply(status, mediaJSON, x.version.ErrorBody(&httpjson.Failure{HTTP: status, Status: grpc, Code: code, Message: task.Shown(message), Reason: reason}))
}

// unread answers to a body that could not be read.
func (x *exchange) unread(bad *web.BodyFault) {
	if bad.Err != nil {
		x.Base.Operations.Limited(&x.Request, dispatch.LimitMemory)
		x.Fail(bad.Err)
		return
	}
	switch bad.Status {
	case http.StatusRequestEntityTooLarge:
		x.Base.Operations.Limited(&x.Request, dispatch.LimitBody)
		row := x.faults().Row(task.TooLarge)
		x.refuse(bad.Status, row.Reason, row.GRPC.String(), row.Code, row.Message+": "+bad.Msg)
	case http.StatusUnsupportedMediaType:
		x.refuse(bad.Status, "INVALID_REQUEST", "INVALID_ARGUMENT", codeInvalidRequest, "Request payload validation error: "+bad.Msg)
	case http.StatusRequestTimeout:
		x.refuse(bad.Status, "INVALID_REQUEST", "DEADLINE_EXCEEDED", codeInvalidRequest, "Request payload validation error: "+bad.Msg)
	default:
		x.refuse(bad.Status, "PARSE_ERROR", "INVALID_ARGUMENT", codeParse, "Invalid JSON payload: "+bad.Msg)
	}
}

// Fail answers with an error of an operation, in the shape of the request's version.
func (x *exchange) Fail(err error) {
	var syntax *syntaxError
	if errors.As(err, &syntax) {
		x.refuse(http.StatusBadRequest, "PARSE_ERROR", "INVALID_ARGUMENT", codeParse, "Invalid JSON payload: "+syntax.Error())
		return
	}
	if e := x.Known(x, err); e != nil {
		x.tell(e, fault.Incident{TaskID: x.Task})
	}
}

// Broken answers with an internal fault. The client sees only the id of the log line.
func (x *exchange) Broken(err error, attrs ...any) {
	id := dispatch.LogFault(x.Base.Log, x.Op, x.Task, err, attrs...)
	if !x.Replied {
		x.tell(&task.Error{Kind: task.Internal}, fault.Incident{ID: id})
	}
}

// tell sends an error to the client: as an answer with a status, or as the last document of an open
// stream.
func (x *exchange) tell(e *task.Error, in fault.Incident) {
	faults := x.faults()
	row := faults.Row(e.Kind)
	f := &httpjson.Failure{HTTP: row.HTTP, Status: row.GRPC.String(), Reason: row.Reason, Details: x.Codec.Details(e, in)}
	f.Code, f.Message = faults.Describe(e)
	document := x.version.ErrorBody(f)
	if x.Out != nil {
		x.Out.Event(nil, document)
		_ = x.Out.Flush()
		return
	}
	x.Observe(row.Reason)
	fault.Headers(e, x.W.Header().Add)
	x.Reply(row.HTTP, mediaJSON, document)
}
