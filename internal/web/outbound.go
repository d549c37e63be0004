package web

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

// Drain reads the rest of an answer for a short time and drops it. So its sender can finish its last write, and the
// connection can serve the next request. cancel ends the request.
func Drain(body io.Reader, cancel context.CancelFunc) {
	timer := time.AfterFunc(drainTime, cancel)
	defer timer.Stop()
	_, _ = io.Copy(io.Discard, io.LimitReader(body, drainBytes))
}

// ExcerptBytes is the most that an excerpt shows of an answer.
const ExcerptBytes = 512

// ReadExcerpt reads the start of an error answer as one line. cancel ends the request if the sender does not finish its
// answer.
func ReadExcerpt(r *http.Response, cancel context.CancelFunc) string {
	return Excerpt(ReadStart(r, ExcerptBytes, cancel))
}

// ReadStart reads at most the given number of bytes of an error answer. cancel ends the request if the sender does not
// finish its answer.
func ReadStart(r *http.Response, most int64, cancel context.CancelFunc) []byte {
	if r.StatusCode < 200 {
		// The connection was upgraded to another protocol, so its body has no end.
		return nil
	}
	defer time.AfterFunc(drainTime, cancel).Stop()
	// Bytes that were read before an error are still of use.
	start, _ := io.ReadAll(io.LimitReader(r.Body, most))
	return start
}

// Excerpt returns the start of foreign bytes in a form that fits on one line of a message.
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

// RetryAfter reads both forms of the header, seconds and a date. It returns 0 for a date in the past or an unreadable
// value, and at most longest.
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

// WorthRetrying reports whether a status is temporary.
func WorthRetrying(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	default:
		return status >= 500
	}
}
