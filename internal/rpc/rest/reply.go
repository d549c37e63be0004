package rest

import (
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/rpc/body"
	"github.com/holdfast-a2a/holdfast/internal/rpc/fault"
	"github.com/holdfast-a2a/holdfast/internal/rpc/operation"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Codes of JSON-RPC for the binding's own errors, which a body of 0.3 shows.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeMethodNotFound = -32601
	codeContentType    = -32005
)

const mediaJSON = "application/json"

// written are the media types that this binding answers with, over all operations. An
// Accept that names one of them is not taken at its word: clients send the wrong one.
var written = [...]string{mediaJSON, version10.media, "text/event-stream"}

// negotiate refuses a client that can read nothing of ours.
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

// accepted are the media types of an Accept.
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

// mediaType is what a result is sent as: the version's own type to who has shown to
// know it, by Accept or by sending it, and the plain one else.
func (x *exchange) mediaType() string {
	own := x.version.media
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

// reply writes a plain answer.
func (x *exchange) reply(status int, mediaType string, document []byte) {
	x.Replied = true
	// A client that takes nothing must not hold the goroutine and the answer for good.
	_ = http.NewResponseController(x.W).SetWriteDeadline(time.Now().Add(x.b.Limits.Timeout))
	h := x.W.Header()
	x.Echo(h.Set)
	h.Set("Content-Type", mediaType)
	h.Set("Content-Length", strconv.Itoa(len(document)))
	// A task changes, and belongs to its caller.
	h.Set("Cache-Control", "no-store")
	x.W.WriteHeader(status)
	_, _ = x.W.Write(document)
}

// refuse answers with an error of the binding itself.
func (x *exchange) refuse(status int, reason, grpc string, code int, message string) {
	x.observe(operation.Refused)
	f := &failure{http: status, status: grpc, code: code, message: message}
	if x.version == version10 {
		f.details = fault.Info(reason)
	}
	x.reply(status, mediaJSON, x.version.body(f))
}

// unread answers to a body that was not read.
func (x *exchange) unread(bad *body.Fault) {
	switch bad.Status {
	case http.StatusRequestEntityTooLarge:
		x.b.Operations.Limited(&x.Request, operation.LimitBody)
		row := x.faults().Row(task.TooLarge)
		x.refuse(bad.Status, row.Reason, fault.StatusName(row.GRPC), row.Code, row.Message+": "+bad.Msg)
	case http.StatusRequestTimeout:
		x.refuse(bad.Status, "INVALID_REQUEST", "DEADLINE_EXCEEDED", codeInvalidRequest, "Request payload validation error: "+bad.Msg)
	default:
		x.refuse(bad.Status, "PARSE_ERROR", "INVALID_ARGUMENT", codeParse, "Invalid JSON payload: "+bad.Msg)
	}
}

// Fail answers with an error of an operation, in the words of the request's version.
func (x *exchange) Fail(err error) {
	var syntax *syntaxError
	if errors.As(err, &syntax) {
		x.refuse(http.StatusBadRequest, "PARSE_ERROR", "INVALID_ARGUMENT", codeParse, "Invalid JSON payload: "+syntax.Error())
		return
	}
	e, ours := operation.Known(err)
	switch {
	case !ours:
		x.tell(e, fault.Incident{TaskID: x.task})
	case x.Ctx.Err() == nil: // what breaks because the client has left is nobody's fault
		x.Broken(err)
	}
}

// Broken answers for a fault of our own. The client sees no more of it than the id
// that it has in the log.
func (x *exchange) Broken(err error, attrs ...any) {
	id := operation.LogFault(x.b.Log, x.Op, x.task, err, attrs...)
	if !x.Replied {
		x.tell(&task.Error{Kind: task.Internal}, fault.Incident{ID: id})
	}
}

// tell brings an error to the client: by its status, or on a stream that was begun as
// the last document of it.
func (x *exchange) tell(e *task.Error, in fault.Incident) {
	faults := x.faults()
	row := faults.Row(e.Kind)
	f := &failure{http: row.HTTP, status: fault.StatusName(row.GRPC), details: x.Codec.Details(e, in)}
	f.code, f.message = faults.Describe(e)
	document := x.version.body(f)
	if x.Out != nil {
		x.Out.Event(0, document)
		_ = x.Out.Flush()
		return
	}
	x.observe(row.Reason)
	fault.Headers(e, x.W.Header().Add)
	x.reply(row.HTTP, mediaJSON, document)
}
