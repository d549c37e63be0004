package jsonrpc

import (
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/web/fault"
)

const envelopeHead = `{"jsonrpc":"2.0","id":`

var tail = []byte("}")

// fails writes a plain answer with an error object.
func (x *exchange) fails(status int, object []byte) {
	x.Reply(status, dialect.TypeJSON, []byte(envelopeHead+x.id+`,"error":`), object, tail)
}

// refuse answers with an error of the binding itself.
func (x *exchange) refuse(code int, message string) { x.status(http.StatusOK, code, message) }

func (x *exchange) status(status, code int, message string) {
	x.Observe(dispatch.Refused)
	x.fails(status, errorObject(code, task.Shown(message), nil))
}

// errorObject renders a JSON-RPC error.
func errorObject(code int, message string, data []byte) []byte {
	b := append(make([]byte, 0, 128+len(data)), `{"code":`...)
	b = strconv.AppendInt(b, int64(code), 10)
	b = append(b, `,"message":`...)
	b, _ = jsontext.AppendQuote(b, message)
	if data != nil {
		b = append(b, `,"data":`...)
		b = append(b, data...)
	}
	return append(b, '}')
}

// Fail answers with an error of an operation, in the shape of the request's version.
func (x *exchange) Fail(err error) {
	e := x.Known(x, err)
	if e == nil {
		return
	}
	if x.Out == nil {
		fault.Headers(e, x.W.Header().Add)
	}
	code, message := x.Codec.Traits().Faults.Describe(e)
	x.tell(e.Kind, errorObject(code, message, x.Codec.Details(e, fault.Incident{TaskID: x.taskID})))
}

// Broken answers with an internal fault. The client sees only the id of the log line.
func (x *exchange) Broken(err error, attrs ...any) {
	id := dispatch.LogFault(x.b.Log, x.Op, x.taskID, err, attrs...)
	if x.Replied {
		return
	}
	c := x.Codec
	if c == nil { // no version is known yet
		c = registry.Fallback()
	}
	fatal := &task.Error{Kind: task.Internal}
	code, message := c.Traits().Faults.Describe(fatal)
	x.tell(task.Internal, errorObject(code, message, c.Details(fatal, fault.Incident{ID: id})))
}

// tell sends an error to the client. If the request asked for a stream, it is an event of the stream:
// clients of 0.1 and 0.2 and the Go client read nothing else there.
func (x *exchange) tell(kind task.Kind, object []byte) {
	row := fault.Base.Row(kind)
	if x.Out == nil {
		x.Observe(row.Reason)
		switch {
		case ofHTTP[kind]:
			x.fails(row.HTTP, object)
			return
		case !x.Op.Streams():
			x.fails(http.StatusOK, object)
			return
		}
		x.Out = web.StartEvents(x.W, x.b.WriteTimeout)
	}
	x.Out.Event(nil, []byte(envelopeHead), []byte(x.id), []byte(`,"error":`), object, tail)
	_ = x.Out.Flush()
}

// ofHTTP marks the failures with an HTTP status of their own. They concern the connection or the
// caller, and proxies act on them.
var ofHTTP = [task.KindCount]bool{
	task.Unavailable: true, task.RateLimited: true, task.TooLarge: true, task.Unauthenticated: true, task.Forbidden: true,
}
