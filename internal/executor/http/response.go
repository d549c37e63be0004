package http

import (
	"context"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"slices"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/outbound"
)

const maxRetryAfter = time.Hour

// refusal turns a status other than 2xx into the error that the run ends with.
// cancel ends the request, for an agent that does not get to the end of its excuse.
func refusal(response *nethttp.Response, cancel context.CancelFunc) error {
	code := response.StatusCode
	if code >= 200 && code < 300 {
		return nil
	}
	failure := &executor.Failure{Msg: fmt.Sprintf("the agent answered %d %s", code, nethttp.StatusText(code))}
	if code >= 300 && code < 400 {
		failure.Msg += "; redirects are not followed"
		return failure
	}
	switch text := outbound.ReadExcerpt(response, cancel); {
	case text == "":
	case code >= 500: // a crash speaks to operators, often in stack traces
		failure.Cause = errors.New(text)
	default:
		failure.Msg += ": " + text
	}
	if outbound.WorthRetrying(code) {
		return executor.Retryable(failure, outbound.RetryAfter(response.Header.Get("Retry-After"), time.Now(), maxRetryAfter))
	}
	return failure
}

// framed reports whether the response says where it ends. Without a length and
// without chunks an HTTP/1 body ends when the connection does, and an agent that
// died looks like one that is done.
func framed(response *nethttp.Response) bool {
	return response.ProtoMajor >= 2 || response.ContentLength >= 0 ||
		slices.Contains(response.TransferEncoding, "chunked")
}

// empty reports whether a body ends before it has begun.
func empty(body io.Reader) bool {
	n, err := io.ReadFull(body, make([]byte, 1))
	return n == 0 && errors.Is(err, io.EOF)
}

// body marks what goes wrong with the connection as worth another attempt.
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

// unfinished tells whether a body that ended without a last word is complete.
func (b *body) unfinished() error {
	if b.framed {
		return nil
	}
	return executor.Retryable(&executor.Failure{Msg: "the agent's answer ended with its connection, " +
		"which may as well have broken: it needs a last event such as {\"type\":\"complete\"}, " +
		"or chunked transfer encoding, or a Content-Length"}, 0)
}
