package jsonrpc

import (
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/holdfast-a2a/holdfast/internal/rpc/fault"
	"github.com/holdfast-a2a/holdfast/internal/rpc/sse"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

const envelopeHead = `{"jsonrpc":"2.0","id":`

// reply writes a plain JSON answer.
func (x *exchange) reply(status int, member string, value []byte) {
	h := x.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(envelopeHead)+len(x.id)+len(member)+len(value)+1))
	x.w.WriteHeader(status)
	b := make([]byte, 0, len(envelopeHead)+len(x.id)+len(member)+len(value)+1)
	b = append(b, envelopeHead...)
	b = append(b, x.id...)
	b = append(b, member...)
	b = append(b, value...)
	b = append(b, '}')
	_, _ = x.w.Write(b)
}

// refuse answers with an error of the binding itself.
func (x *exchange) refuse(code int, message string) { x.status(http.StatusOK, code, message) }

func (x *exchange) status(status, code int, message string) {
	x.observe(refused)
	x.reply(status, `,"error":`, errorObject(code, message))
}

func errorObject(code int, message string) []byte {
	b := append([]byte(nil), `{"code":`...)
	b = strconv.AppendInt(b, int64(code), 10)
	b = append(b, `,"message":`...)
	b, _ = jsontext.AppendQuote(b, message)
	return append(b, '}')
}

// fail answers with an error of an operation, in the words of the request's version.
// Once asked for, a stream is what the failure of a task is told on: clients of 0.2
// and the Go client read nothing else.
func (x *exchange) fail(err error, asStream bool) {
	var e *task.Error
	if !errors.As(err, &e) {
		e = &task.Error{Kind: task.KindOf(err), Cause: err}
	}
	kind := e.Kind
	if kind == task.Internal || kind == task.LeaseLost {
		if x.r.Context().Err() != nil {
			return
		}
		id := uuid.NewString()
		x.b.opt.Log.Error("request failed", "error_id", id, "operation", opNames[x.op], "task_id", x.taskID(), "error", err)
	}
	code, message := x.codec.Error(e)
	x.observe(fault.Base.Row(kind).Reason)
	object := errorObject(code, message)
	status := http.StatusOK
	switch kind {
	case task.Unavailable, task.RateLimited:
		status = fault.Base.Row(kind).HTTP
		wait := e.RetryAfter
		if wait <= 0 {
			wait = time.Second
		}
		x.w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	case task.TooLarge, task.Unauthenticated, task.Forbidden:
		status = fault.Base.Row(kind).HTTP
	}
	if asStream && status == http.StatusOK && toldOnStream(kind) {
		out := sse.Start(x.w, x.b.opt.WriteTimeout)
		out.Event(0, []byte(envelopeHead), []byte(x.id), []byte(`,"error":`), object, []byte("}"))
		_ = out.Flush()
		return
	}
	x.reply(status, `,"error":`, object)
}

// toldOnStream tells failures of the task from those of the request.
func toldOnStream(k task.Kind) bool {
	switch k {
	case task.NotFound, task.Terminal, task.Busy, task.ContentType, task.NotCancelable, task.Internal:
		return true
	}
	return false
}

func (x *exchange) taskID() string {
	if x.call == nil {
		return ""
	}
	return x.call.TaskID()
}

// readAll reads a body whose length may be announced.
func readAll(r io.Reader, announced int64) ([]byte, error) {
	if announced <= 0 {
		return io.ReadAll(r)
	}
	body := make([]byte, announced)
	_, err := io.ReadFull(r, body)
	return body, err
}
