package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// problem is an answer that is an error (RFC 9457).
type problem struct {
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Reason   string   `json:"reason"` // for programs
	Detail   string   `json:"detail,omitempty"`
	Field    string   `json:"field,omitempty"`
	Versions []string `json:"versions,omitempty"` // of the protocol, that the server speaks

	after      time.Duration // Retry-After
	challenges []string
	cause      error // for the log
}

func (p *problem) Error() string { return p.Title + ": " + p.Detail }

// The reasons of problems.
const (
	reasonInvalid     = "invalid"
	reasonCredential  = "credential"
	reasonScope       = "scope"
	reasonNotFound    = "not_found"
	reasonVersion     = "version"
	reasonMethod      = "method"
	reasonTooLarge    = "too_large"
	reasonBusy        = "busy"
	reasonUnavailable = "unavailable"
	reasonInternal    = "internal"
)

func refuse(status int, reason, field, detail string) *problem {
	return &problem{Title: http.StatusText(status), Status: status, Reason: reason, Field: field, Detail: detail}
}

func invalid(field, format string, args ...any) *problem {
	return refuse(http.StatusBadRequest, reasonInvalid, field, fmt.Sprintf(format, args...))
}

// kinds has the status and the reason of errors of the domain. Others are internal.
var kinds = map[task.Kind]struct {
	status int
	reason string
}{
	task.Unauthenticated: {http.StatusUnauthorized, reasonCredential},
	task.Forbidden:       {http.StatusForbidden, reasonScope},
	task.TooLarge:        {http.StatusRequestEntityTooLarge, reasonTooLarge},
	task.RateLimited:     {http.StatusTooManyRequests, reasonBusy},
	task.Unavailable:     {http.StatusServiceUnavailable, reasonUnavailable},
}

// toProblem says how an error appears to the worker.
func toProblem(err error) *problem {
	var (
		p     *problem
		http4 *echo.HTTPError
	)
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, context.DeadlineExceeded):
		return refuse(http.StatusServiceUnavailable, reasonUnavailable, "", "the database does not answer in time")
	case errors.As(err, &http4):
		reason := reasonInvalid
		switch http4.Code {
		case http.StatusNotFound:
			reason = reasonNotFound
		case http.StatusMethodNotAllowed:
			reason = reasonMethod
		}
		return refuse(http4.Code, reason, "", "docs/worker-api.yaml lists the paths and their methods")
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
		p.Detail, p.after, p.challenges = cmp.Or(e.Msg, p.Detail), e.RetryAfter, e.Challenges
	}
	return p
}

// fail answers with an error.
func (a *API) fail(err error, c echo.Context) {
	if c.Response().Committed || errors.Is(err, context.Canceled) {
		return // the worker has left
	}
	p := toProblem(err)
	if p.Status == http.StatusInternalServerError {
		a.o.Log.Error("a request of the worker API failed", "path", c.Request().URL.Path, "error", p.cause)
	}
	h := c.Response().Header()
	if p.Status == http.StatusServiceUnavailable || p.Status == http.StatusTooManyRequests {
		h.Set("Retry-After", strconv.Itoa(int((max(p.after, time.Second)+time.Second-1)/time.Second)))
	}
	for _, challenge := range p.challenges {
		h.Add("WWW-Authenticate", challenge)
	}
	shown := *p
	shown.Detail, shown.Field = task.Shown(p.Detail), task.Shown(p.Field)
	_ = a.answer(c, p.Status, "application/problem+json", &shown)
}
