package http

import (
	"context"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/holdfast-a2a/holdfast/internal/executor"
)

const (
	excerptBytes  = 512
	maxRetryAfter = time.Hour
)

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
	defer time.AfterFunc(drainTime, cancel).Stop()
	// What was read before an error is as good an excerpt as any.
	start, _ := io.ReadAll(io.LimitReader(response.Body, excerptBytes))
	switch text := excerpt(start); {
	case text == "":
	case code >= 500: // a crash speaks to operators, often in stack traces
		failure.Cause = errors.New(text)
	default:
		failure.Msg += ": " + text
	}
	if worthRetrying(code) {
		return executor.Retryable(failure, retryAfter(response.Header.Get("Retry-After"), time.Now()))
	}
	return failure
}

func worthRetrying(code int) bool {
	switch code {
	case nethttp.StatusRequestTimeout, nethttp.StatusTooEarly, nethttp.StatusTooManyRequests:
		return true
	default:
		return code >= 500
	}
}

// retryAfter reads the header's two forms, seconds and a date. What it cannot
// read, or a date in the past, leaves the delay to the worker.
func retryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(value, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	at, err := nethttp.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}

// excerpt makes the start of foreign bytes fit for one line of a message.
func excerpt(raw []byte) string {
	text := strings.ToValidUTF8(string(raw[:min(len(raw), excerptBytes)]), "")
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	return strings.Join(strings.Fields(text), " ")
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
