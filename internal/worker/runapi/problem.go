package runapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

// problem is an answer that is an error (RFC 9457).
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Reason string `json:"reason"` // for programs
	Detail string `json:"detail,omitempty"`
	Field  string `json:"field,omitempty"` // the parameter, the header or the member at fault
	Line   int    `json:"line,omitzero"`   // of the upload
	// Next is the ordinal of the next event: all before it are stored.
	Next *int64 `json:"next,omitempty"`

	after time.Duration // Retry-After
	cause error         // for the log
}

func (p *problem) Error() string { return p.Title + ": " + p.Detail }

// The reasons of problems.
const (
	reasonInvalid      = "invalid"
	reasonToken        = "token"
	reasonNotFound     = "not_found"
	reasonMethod       = "method"
	reasonOver         = "over"
	reasonOrdinal      = "ordinal"
	reasonStateChanged = "state_changed"
	reasonRefused      = "refused"
	reasonTooLarge     = "too_large"
	reasonBusy         = "busy"
	reasonUnavailable  = "unavailable"
	reasonInternal     = "internal"
)

func refuse(status int, reason, field, detail string) *problem {
	return &problem{Title: http.StatusText(status), Status: status, Reason: reason, Field: field, Detail: detail}
}

func malformed(m *wire.Malformed) *problem {
	p := refuse(http.StatusBadRequest, reasonInvalid, m.Member, m.Problem)
	p.Line = m.Line
	return p
}

// kinds has the status and the reason of errors of the domain. Others are internal.
var kinds = map[task.Kind]struct {
	status int
	reason string
}{
	task.NotFound:    {http.StatusNotFound, reasonNotFound},
	task.TooLarge:    {http.StatusRequestEntityTooLarge, reasonTooLarge},
	task.RateLimited: {http.StatusTooManyRequests, reasonBusy},
	task.Unavailable: {http.StatusServiceUnavailable, reasonUnavailable},
}

// toProblem says how an error appears to the agent.
func toProblem(err error) *problem {
	var (
		p       *problem
		over    *worker.Over
		failure *executor.Failure
		http4   *echo.HTTPError
	)
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &over):
		return refuse(http.StatusGone, reasonOver, "", over.Error())
	case errors.Is(err, executor.ErrLeaseLost), errors.Is(err, task.LeaseLost):
		return refuse(http.StatusGone, reasonOver, "", "the run is over")
	case errors.Is(err, executor.ErrStateChanged):
		return refuse(http.StatusConflict, reasonStateChanged, "version", "the stored state has another version")
	case errors.Is(err, store.ErrPosted):
		return refuse(http.StatusConflict, reasonOrdinal, "from", "another upload has posted events meanwhile; go on at next")
	case errors.Is(err, context.Canceled):
		return cut()
	case errors.Is(err, context.DeadlineExceeded):
		return refuse(http.StatusServiceUnavailable, reasonUnavailable, "", "the database does not answer in time")
	case errors.As(err, &failure):
		return refuse(http.StatusUnprocessableEntity, reasonRefused, "", failure.Msg)
	case errors.As(err, &http4):
		reason := reasonInvalid
		switch http4.Code {
		case http.StatusNotFound:
			reason = reasonNotFound
		case http.StatusMethodNotAllowed:
			reason = reasonMethod
		}
		return refuse(http4.Code, reason, "", "docs/run-api.yaml lists the paths and their methods")
	}
	known, ok := kinds[task.KindOf(err)]
	if !ok {
		p = refuse(http.StatusInternalServerError, reasonInternal, "", "")
		p.cause = err
		return p
	}
	p = refuse(known.status, known.reason, "", task.KindOf(err).Error())
	var e *task.Error
	if errors.As(err, &e) { // its cause may name the database
		p.Detail, p.after = cmp.Or(e.Msg, p.Detail), e.RetryAfter
	}
	return p
}

// fail answers with an error.
func (a *API) fail(err error, c echo.Context) {
	r := c.Request()
	if c.Response().Committed || errors.Is(err, context.Canceled) {
		return // the agent has left
	}
	p := toProblem(err)
	if p.Status == http.StatusInternalServerError {
		a.o.Log.Error("a request of the run API failed", "path", r.URL.Path, "error", p.cause)
	}
	h := c.Response().Header()
	if p.Status == http.StatusServiceUnavailable || p.Status == http.StatusTooManyRequests {
		h.Set("Retry-After", strconv.Itoa(int((max(p.after, time.Second)+time.Second-1)/time.Second)))
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	shown := *p
	shown.Detail, shown.Field = task.Shown(p.Detail), task.Shown(p.Field)
	_ = a.answer(c, p.Status, "application/problem+json", &shown)
}
