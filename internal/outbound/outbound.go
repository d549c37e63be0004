// Package outbound is what our HTTP clients have in common: they go where they were told
// and nowhere else, and they read no more of an answer than they need.
package outbound

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// NoRedirects is a http.Client's CheckRedirect. A redirect would carry the request and its
// credentials to a host that nobody named.
func NoRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

const (
	drainBytes = 64 << 10
	drainTime  = time.Second
)

// Drain reads the rest of an answer in which nothing matters any more, for a moment, so that
// its sender is not cut off in the middle of its last write and the connection can serve the
// next request. cancel ends that request.
func Drain(body io.Reader, cancel context.CancelFunc) {
	timer := time.AfterFunc(drainTime, cancel)
	defer timer.Stop()
	_, _ = io.Copy(io.Discard, io.LimitReader(body, drainBytes))
}

// ExcerptBytes is how much of an answer an excerpt shows at most.
const ExcerptBytes = 512

// ReadExcerpt reads the start of an answer that is a refusal, as one line. cancel ends the
// request of a sender that does not get to the end of its excuse.
func ReadExcerpt(r *http.Response, cancel context.CancelFunc) string {
	if r.StatusCode < 200 {
		// The connection has become another protocol's, and its request has no end to wait for.
		return ""
	}
	defer time.AfterFunc(drainTime, cancel).Stop()
	// What was read before an error is as good an excerpt as any.
	start, _ := io.ReadAll(io.LimitReader(r.Body, ExcerptBytes))
	return Excerpt(start)
}

// Excerpt makes the start of foreign bytes fit for one line of a message.
func Excerpt(raw []byte) string {
	text := strings.ToValidUTF8(string(raw[:min(len(raw), ExcerptBytes)]), "")
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	return strings.Join(strings.Fields(text), " ")
}

// RetryAfter reads the header's two forms, seconds and a date. It is 0 for what it cannot
// read and for a date in the past, and at most longest.
func RetryAfter(value string, now time.Time, longest time.Duration) time.Duration {
	if seconds, err := strconv.ParseUint(value, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, longest)
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), longest)
}

// WorthRetrying tells whether a status is one that may pass.
func WorthRetrying(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	default:
		return status >= 500
	}
}
