package executor

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/web"
)

// Send sends a request to what an agent runs on. Its error is that of a run: Unavailable if the run has not begun, or retryable.
func Send(client *http.Client, request *http.Request, what string) (*http.Response, error) {
	var sent atomic.Bool // some of the request may have arrived
	request = request.WithContext(httptrace.WithClientTrace(request.Context(), &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }}))
	response, err := client.Do(request)
	if err == nil {
		return response, nil
	}
	// Drop the URL, whose query may contain a key: the error is logged, and stored with the task.
	if of, ok := errors.AsType[*url.Error](err); ok {
		err = of.Err
	}
	err = fmt.Errorf("call %s: %w", what, err)
	var timeout net.Error
	switch {
	case !sent.Load():
		return nil, &Unavailable{Err: err}
	case errors.As(err, &timeout) && timeout.Timeout(): // header_timeout
		return nil, &Unavailable{Err: Retryable(err, 0), Answered: true}
	}
	return nil, Retryable(err, 0)
}

// Refused returns the error of a run for an answer with a status other than 2xx. again says that other answers than those of an
// agent that is away are worth a retry.
func Refused(status int, failure error, after time.Duration, again bool) error {
	switch class := web.StatusClass(status); {
	case class == web.Overloaded:
		return &Unavailable{Err: failure, RetryAfter: after, Answered: true}
	case class == web.Gateway:
		// A gateway answers so, too, if this message made the agent crash.
		return &Unavailable{Err: Retryable(failure, after), RetryAfter: after, Answered: true}
	case again:
		return Retryable(failure, after)
	}
	return failure
}
