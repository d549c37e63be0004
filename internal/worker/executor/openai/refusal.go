package openai

import (
	"errors"
	"fmt"
	nethttp "net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

const (
	maxErrorBody  = 64 << 10
	maxRetryAfter = time.Hour
)

// rejection says that the model or its provider will not answer. The client reads the reason.
type rejection struct{ reason string }

func (r *rejection) Error() string { return r.reason }

const filtered = "The content filter of the model's provider stopped the answer."

// apiError is an error as APIs report it, in many shapes.
type apiError struct {
	message string
	code    string // a name or a status
	status  int    // a code that is a number
}

// errorIn reads the member error of a document; nil without one.
func errorIn(v jsontext.Value) *apiError {
	switch v.Kind() {
	case jsontext.KindInvalid, jsontext.KindNull:
		return nil
	case jsontext.KindString:
		return &apiError{message: unquote(v)}
	case jsontext.KindBeginObject:
	default:
		return &apiError{message: string(v)}
	}
	var in struct {
		Message jsontext.Value `json:"message"`
		Code    jsontext.Value `json:"code"`
		Type    jsontext.Value `json:"type"`
	}
	_ = wire.Unmarshal(v, &in) // any JSON fits
	e := &apiError{message: unquote(in.Message), code: unquote(in.Code), status: int(count(in.Code))}
	if n, err := strconv.Atoi(e.code); err == nil { // of LiteLLM
		e.status = n
	}
	if e.code == "" {
		e.code = unquote(in.Type)
	}
	return e
}

// errorOf reads the body of an answer that is an error.
func errorOf(body []byte) *apiError {
	var in struct {
		Error   jsontext.Value `json:"error"`
		Message jsontext.Value `json:"message"` // of older vLLM
		Detail  jsontext.Value `json:"detail"`  // of FastAPI
	}
	if wire.Unmarshal(body, &in) != nil {
		return &apiError{message: string(body)}
	}
	if e := errorIn(in.Error); e != nil {
		return e
	}
	if m := unquote(in.Message); m != "" {
		return &apiError{message: m}
	}
	if d := unquote(in.Detail); d != "" {
		return &apiError{message: d}
	}
	return &apiError{message: string(body)}
}

// shown returns the message on one line, without secrets.
func (e *apiError) shown(redact func(string) string) string {
	return web.Excerpt([]byte(redact(e.message)))
}

// filters reports whether a content filter caused the error. Azure answers 400 then.
func (e *apiError) filters() bool {
	return e.code == "content_filter" || strings.HasSuffix(e.code, "content_policy_violation")
}

// during is the error of a run whose answer has begun with status 200.
func (e *apiError) during(redact func(string) string) error {
	if e.filters() {
		return &rejection{filtered}
	}
	switch {
	case e.status != 0:
	case e.code == "rate_limit_exceeded":
		e.status = nethttp.StatusTooManyRequests
	case e.code == "invalid_prompt", strings.Contains(e.code, "image"): // of the Responses API
		e.status = nethttp.StatusBadRequest
	}
	return classify(e.status, "the model's API reported an error", e.shown(redact), 0, e.status < 400 || e.status > 499)
}

// refused is the error of a run whose call was answered with a status other than 2xx.
func refused(response *nethttp.Response, body []byte, redact func(string) string) error {
	code := response.StatusCode
	msg := fmt.Sprintf("the model's API answered %d %s", code, nethttp.StatusText(code))
	if code >= 300 && code < 400 {
		return &executor.Failure{Msg: msg + "; redirects are not followed"}
	}
	e := errorOf(body)
	if e.filters() {
		return &rejection{filtered}
	}
	after := web.RetryAfter(response.Header.Get("Retry-After"), time.Now(), maxRetryAfter)
	return classify(code, msg, e.shown(redact), after, web.WorthRetrying(code))
}

// classify returns the error of a run for a status. The text of an error in the request is for the client. The others are
// for operators: they are about the provider, the model or the credentials.
func classify(code int, msg, text string, after time.Duration, again bool) error {
	failure := &executor.Failure{Msg: msg}
	switch {
	case text == "":
	case code == nethttp.StatusBadRequest, code == nethttp.StatusRequestEntityTooLarge, code == nethttp.StatusUnprocessableEntity:
		failure.Msg += ": " + text
	default:
		failure.Cause = errors.New(text)
	}
	return executor.Refused(code, failure, after, again)
}
