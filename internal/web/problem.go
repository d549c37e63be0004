package web

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web/fault"
)

// Problem is an answer of the admin, the run or the worker API that is an error (RFC 9457).
type Problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Reason string `json:"reason"` // for programs
	Detail string `json:"detail,omitempty"`
	Field  string `json:"field,omitempty"` // the parameter, the header or the member at fault

	// Line is that of an upload. Next is the ordinal of its next event: all before it are stored.
	Line int    `json:"line,omitzero"`
	Next *int64 `json:"next,omitempty"`
	// Versions are those of the worker API that the server speaks.
	Versions []string `json:"versions,omitempty"`
	// Login says how a browser can log in, if there is no credential.
	Login any `json:"login,omitempty"`

	After      time.Duration `json:"-"` // Retry-After
	challenges []string
	cause      error // for the log
}

// Error implements error.
func (p *Problem) Error() string { return p.Title + ": " + p.Detail }

// The reasons of problems that are no errors of the domain, or that a handler finds itself.
const (
	ReasonInvalid     = "invalid"
	ReasonForbidden   = "forbidden"
	ReasonNotFound    = "not_found"
	ReasonMethod      = "method"
	ReasonConflict    = "conflict"
	ReasonTooLarge    = "too_large"
	ReasonUnavailable = "unavailable"
)

// Refuse makes a problem. The detail begins with the field, unless that is "".
func Refuse(status int, reason, field, detail string) *Problem {
	if field != "" {
		detail = field + ": " + detail
	}
	return &Problem{Title: http.StatusText(status), Status: status, Reason: reason, Field: field, Detail: detail}
}

// Invalid makes the problem of a parameter, a header or a member that is wrong.
func Invalid(field, detail string) *Problem {
	return Refuse(http.StatusBadRequest, ReasonInvalid, field, detail)
}

// ProblemOf says how an error appears.
func ProblemOf(err error) *Problem {
	var (
		p      *Problem
		unread *BodyFault
	)
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &unread) && unread.Err == nil:
		if unread.Status == http.StatusRequestEntityTooLarge {
			return Refuse(unread.Status, ReasonTooLarge, "", "the body is too large: "+unread.Msg)
		}
		return Refuse(unread.Status, ReasonInvalid, "", unread.Msg)
	}
	kind := task.KindOf(err)
	switch {
	case kind != task.Internal:
	case errors.Is(err, context.DeadlineExceeded):
		return Refuse(http.StatusServiceUnavailable, ReasonUnavailable, "", "the database did not answer in time")
	case errors.Is(err, context.Canceled):
		return Refuse(http.StatusServiceUnavailable, ReasonUnavailable, "", "the server gave the request up")
	}
	row := fault.Base.Row(kind)
	p = Refuse(row.Problem.Status, row.Problem.Name, "", kind.Error())
	var e *task.Error
	switch {
	case p.Status == http.StatusInternalServerError:
		p.Detail, p.cause = "", err
	case errors.As(err, &e): // its cause may name the database
		p.Detail, p.Field, p.After, p.challenges = cmp.Or(e.Msg, p.Detail), e.Field, e.RetryAfter, e.Challenges
	}
	return p
}

// Answer answers a request with the problem, and logs it if the server is at fault.
func (p *Problem) Answer(w http.ResponseWriter, r *http.Request, timeout time.Duration, log *slog.Logger) {
	if p.Status == http.StatusInternalServerError {
		log.Error("a request failed", "path", r.URL.Path, "error", p.cause)
	}
	h := w.Header()
	if p.Status == http.StatusServiceUnavailable || p.Status == http.StatusTooManyRequests {
		h.Set("Retry-After", fault.Seconds(p.After))
	}
	for _, c := range p.challenges {
		h.Add("WWW-Authenticate", c)
	}
	shown := *p
	shown.Detail, shown.Field = task.Shown(p.Detail), task.Shown(p.Field)
	_ = Answer(w, r, timeout, p.Status, "application/problem+json", &shown)
}

// Answer writes a document of one of our own APIs, which its client must read within the timeout. Stored JSON keeps its numbers
// and the order of its members.
func Answer(w http.ResponseWriter, r *http.Request, timeout time.Duration, status int, media string, doc any) error {
	raw, err := Marshal(doc)
	if err != nil {
		return err
	}
	AnswerRaw(w, r, timeout, status, media, raw)
	return nil
}

// Marshal writes JSON as Answer does.
func Marshal(doc any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(doc)
	return b.Bytes(), err
}

// AnswerRaw is Answer for a document that is written already.
func AnswerRaw(w http.ResponseWriter, r *http.Request, timeout time.Duration, status int, media string, raw []byte) {
	if b, ok := r.Body.(*watched); r.ContentLength != 0 && r.ProtoMajor == 1 && (!ok || !b.ended) {
		w.Header().Set("Connection", "close") // otherwise the rest is read before the answer is sent, and the client may go on sending
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(timeout))
	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Length", strconv.Itoa(len(raw)))
	w.WriteHeader(status)
	_, _ = w.Write(raw)
}
