package admin

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// problem is an answer that is an error (RFC 9457).
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Reason string `json:"reason"` // for programs
	Detail string `json:"detail,omitempty"`
	Field  string `json:"field,omitempty"` // the parameter, the header or the member at fault

	// Login says how a browser can log in, if there is no credential.
	Login *Login `json:"login,omitempty"`

	after      time.Duration // Retry-After
	challenges []string
	cause      error // for the log
}

func (p *problem) Error() string { return p.Title + ": " + p.Detail }

// The reasons of problems.
const (
	reasonInvalid         = "invalid"
	reasonUnauthenticated = "unauthenticated"
	reasonForbidden       = "forbidden"
	reasonNotFound        = "not_found"
	reasonMethod          = "method"
	reasonConflict        = "conflict"
	reasonTooLarge        = "too_large"
	reasonBusy            = "busy"
	reasonUnavailable     = "unavailable"
	reasonInternal        = "internal"
)

func refuse(status int, reason, field, detail string) *problem {
	if field != "" {
		detail = field + ": " + detail
	}
	return &problem{Title: http.StatusText(status), Status: status, Reason: reason, Field: field, Detail: detail}
}

func invalid(field, detail string) *problem {
	return refuse(http.StatusBadRequest, reasonInvalid, field, detail)
}

// kinds has the status and the reason of errors of the domain. Others are internal.
var kinds = map[task.Kind]struct {
	status int
	reason string
}{
	task.NotFound:        {http.StatusNotFound, reasonNotFound},
	task.Invalid:         {http.StatusBadRequest, reasonInvalid},
	task.ContentType:     {http.StatusBadRequest, reasonInvalid},
	task.NotCancelable:   {http.StatusConflict, reasonConflict},
	task.Terminal:        {http.StatusConflict, reasonConflict},
	task.Busy:            {http.StatusConflict, reasonConflict},
	task.Unsupported:     {http.StatusConflict, reasonConflict},
	task.Unauthenticated: {http.StatusUnauthorized, reasonUnauthenticated},
	task.Forbidden:       {http.StatusForbidden, reasonForbidden},
	task.TooLarge:        {http.StatusRequestEntityTooLarge, reasonTooLarge},
	task.RateLimited:     {http.StatusTooManyRequests, reasonBusy},
	task.Unavailable:     {http.StatusServiceUnavailable, reasonUnavailable},
}

// toProblem says how an error appears to the operator.
func toProblem(err error) *problem {
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	known, ok := kinds[task.KindOf(err)]
	switch {
	case ok:
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return refuse(http.StatusServiceUnavailable, reasonUnavailable, "", "the database did not answer in time")
	default:
		p = refuse(http.StatusInternalServerError, reasonInternal, "", "")
		p.cause = err
		return p
	}
	p = refuse(known.status, known.reason, "", task.KindOf(err).Error())
	var e *task.Error
	if errors.As(err, &e) { // its cause may name the database
		p.Detail, p.Field, p.after, p.challenges = cmp.Or(e.Msg, p.Detail), e.Field, e.RetryAfter, e.Challenges
	}
	return p
}

// Refuse answers a request beside the API with an error.
func (a *API) Refuse(w http.ResponseWriter, r *http.Request, err error) { a.fail(w, r, err) }

// fail answers with an error.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // the client has left
	}
	p := toProblem(err)
	if p.Status == http.StatusInternalServerError {
		a.o.Log.Error("a request of the admin API failed", "path", r.URL.Path, "error", p.cause)
	}
	if p.Status == http.StatusUnauthorized {
		p.Login = a.o.Login
	}
	h := w.Header()
	if p.Status == http.StatusServiceUnavailable || p.Status == http.StatusTooManyRequests {
		h.Set("Retry-After", strconv.Itoa(int((max(p.after, time.Second)+time.Second-1)/time.Second)))
	}
	for _, c := range p.challenges {
		h.Add("WWW-Authenticate", c)
	}
	shown := *p
	shown.Detail, shown.Field = task.Shown(p.Detail), task.Shown(p.Field)
	raw, err := marshal(&shown)
	if err != nil {
		return
	}
	send(w, p.Status, "application/problem+json", raw)
}
