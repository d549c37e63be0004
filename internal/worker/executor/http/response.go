package http

import (
	"context"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"slices"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

const (
	maxRetryAfter = time.Hour
	maxErrorBody  = 4 << 10
)

// refusal turns a status other than 2xx into the error of the run. cancel ends the request if the agent does not finish
// its answer.
func refusal(response *nethttp.Response, cancel context.CancelFunc, redact func(string) string) error {
	code := response.StatusCode
	if code >= 200 && code < 300 {
		return nil
	}
	failure := &executor.Failure{Msg: fmt.Sprintf("the agent answered %d %s", code, nethttp.StatusText(code))}
	if code >= 300 && code < 400 {
		failure.Msg += "; redirects are not followed"
		return failure
	}
	start := web.ReadStart(response, maxErrorBody, cancel) // more than the excerpt, which might end within a secret
	switch text := web.Excerpt([]byte(redact(string(start)))); {
	case text == "":
	case code >= 500: // the text of a crash is for operators; it is often a stack trace
		failure.Cause = errors.New(text)
	default:
		failure.Msg += ": " + text
	}
	failure.Msg += recognize(start)
	after := web.RetryAfter(response.Header.Get("Retry-After"), time.Now(), maxRetryAfter)
	return executor.Refused(code, failure, after, web.WorthRetrying(code))
}

// framed reports whether the response marks its end. Without a length and without chunks, an HTTP/1 body ends with the
// connection. Then a crashed agent looks like a finished one.
func framed(response *nethttp.Response) bool {
	return response.ProtoMajor >= 2 || response.ContentLength >= 0 ||
		slices.Contains(response.TransferEncoding, "chunked")
}

// empty reports whether a body has no content.
func empty(body io.Reader) bool {
	n, err := io.ReadFull(body, make([]byte, 1))
	return n == 0 && errors.Is(err, io.EOF)
}

// body marks connection errors as retryable.
type body struct {
	in     io.Reader
	framed bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.in.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = executor.Retryable(fmt.Errorf("the connection to the agent broke: %w", err), 0)
	}
	return n, err
}

// unfinished reports whether a body without a final event is complete.
func (b *body) unfinished() error {
	if b.framed {
		return nil
	}
	return executor.Retryable(&executor.Failure{Msg: "the agent's answer ended with its connection, " +
		"so it may be incomplete: send a last event such as {\"type\":\"complete\"}, " +
		"use chunked transfer encoding, or set Content-Length"}, 0)
}
