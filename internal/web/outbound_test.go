package web_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/secrets"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "soon": 0, "-1": 0, "1.5": 0, "0": 0,
		"120":                 2 * time.Minute,
		"86400":               time.Hour,
		"4294967295":          time.Hour,
		"4294967296000000000": 0,
		now.Add(90 * time.Second).Format(http.TimeFormat):  90 * time.Second,
		now.Add(-90 * time.Second).Format(http.TimeFormat): 0,
		now.Add(9 * time.Hour).Format(http.TimeFormat):     time.Hour,
		now.Add(time.Minute).Format(time.RFC850):           time.Minute,
	} {
		require.Equal(t, want, web.RetryAfter(value, now, time.Hour), value)
	}
}

func TestExcerptIsOneShortLine(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a b é", web.Excerpt([]byte(" a\r\n\x1b\tb\xff é ")))
	require.Len(t, web.Excerpt([]byte(strings.Repeat("a", 10_000))), web.ExcerptBytes)
}

// endless is a body that never ends.
type endless struct {
	ctx  context.Context
	read int
}

func (e *endless) Read(p []byte) (int, error) {
	if e.read > 100 {
		<-e.ctx.Done()
		return 0, e.ctx.Err()
	}
	e.read++
	return copy(p, "x"), nil
}

func TestReadExcerptCutsOffEndlessBody(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	require.Equal(t, strings.Repeat("x", 101), web.ReadExcerpt(&http.Response{StatusCode: 500, Body: io.NopCloser(&endless{ctx: ctx})}, cancel))
	require.Error(t, ctx.Err())

	switched := &http.Response{StatusCode: 101, Body: io.NopCloser(&endless{ctx: t.Context()})}
	require.Empty(t, web.ReadExcerpt(switched, func() {}), "a read ends when the connection does")

	ctx, cancel = context.WithCancel(t.Context())
	web.Drain(&endless{ctx: ctx}, cancel)
	require.Error(t, ctx.Err())

	huge := &io.LimitedReader{R: zeros{}, N: 10 << 20}
	web.Drain(huge, func() {})
	require.Greater(t, huge.N, int64(9<<20), "the rest is not read")
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestURLsAreChecked(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"http://host":                      "",
		"https://u:pw@host/p":              "",
		"http://%s3cret":                   "url is not a URL",
		"ftp://s3cret@host":                "url must begin with http:// or https://",
		"host/s3cret":                      "url must begin with http:// or https://",
		"http:///path/s3cret":              "url has no host",
		"HTTPS://host.example":             "",
		"https://host.example/?q=ä s3cret": "url has a query with characters that must be escaped, such as %20 for a space",
	} {
		got := ""
		u := web.CheckURL("url", value, func(option, format string, args ...any) { got = option + " " + fmt.Sprintf(format, args...) })
		require.Equal(t, want, got, value)
		require.Equal(t, want == "url is not a URL", u == nil, value)
	}
}

func TestHeadersAreChecked(t *testing.T) {
	t.Parallel()
	var got []string
	web.CheckHeaders(map[string]string{
		"Authorization": "Bearer s3cret", "content-type": "s3cret", "X-Ours": "s3cret", "x-value": "s3cret\n", "a b": "s3cret",
	}, func(name string) bool { return name == "X-Ours" }, func(option, format string, args ...any) {
		got = append(got, option+" "+fmt.Sprintf(format, args...))
	})
	require.Equal(t, []string{
		"headers.X-Ours is set by Holdfast; remove it",
		"headers.a b is not the name of an HTTP header",
		"headers.content-type is set by Holdfast; remove it",
		"headers.x-value has a value with characters that HTTP headers forbid",
	}, got)
}

func TestCredentialsComeFromFiles(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	for content, want := range map[string]string{
		" s3cret\n":        "",
		" \n":              " is empty",
		"s3cret\nanother":  " has more than a credential; write it on one line",
		"s3cret\x00nother": " has more than a credential; write it on one line",
	} {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		got, err := web.Credential(t.Context(), secrets.File(file))
		if want == "" {
			require.NoError(t, err)
			require.Equal(t, "s3cret", got)
			continue
		}
		require.EqualError(t, err, file+want)
	}
	_, err := web.Credential(t.Context(), secrets.File(file+"-missing"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestSecretsAreRemoved(t *testing.T) {
	t.Parallel()
	redact := web.Redactor(map[string]string{"Authorization": "Bearer token-1", "X-Short": "abc"},
		[]string{"https://user:password@host/?key=key-1%2F2", "%"}, "token-1-and-more", "")
	require.Equal(t, "[redacted], [redacted], [redacted], [redacted], [redacted], abc, [redacted], Basic [redacted]",
		redact("Bearer token-1, token-1, password, key=key-1%2F2, key-1/2, abc, token-1-and-more, Basic dXNlcjpwYXNzd29yZA=="))
	require.Equal(t, "[redacted]… and passwor, [redacted]", redact("passwo… and passwor, key=key-1"), "of a text that was cut")
	require.Equal(t, "text", web.Redactor(nil, nil)("text"))
}

func TestRequestsHaveAClass(t *testing.T) {
	t.Parallel()
	statuses := map[int]web.Class{
		200: web.OK, 202: web.OK, 302: web.Redirected, 404: web.Refused, 429: web.Overloaded, 503: web.Overloaded,
		529: web.Overloaded, 500: web.Failed, 502: web.Gateway, 504: web.Gateway,
	}
	giveUp := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/given-up":
			close(giveUp)
			fallthrough
		case "/silent":
			<-r.Context().Done()
		case "/cut":
			_, _ = io.Copy(io.Discard, r.Body)
			conn, _, _ := w.(http.Hijacker).Hijack()
			_ = conn.Close()
		default:
			code, _ := strconv.Atoi(r.URL.Path[1:])
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(code)
		}
	}))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-giveUp; cancel() }()
	class := func(ctx context.Context, url string, header time.Duration) web.Class {
		var told []web.Class
		client := web.ToAgents(time.Hour, header, func(class web.Class, took time.Duration) {
			require.Positive(t, took)
			told = append(told, class)
		})
		defer client.CloseIdleConnections()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
		require.NoError(t, err)
		if response, err := client.Do(request); err == nil {
			response.Body.Close()
		}
		require.Len(t, told, 1)
		return told[0]
	}
	for code, want := range statuses {
		require.Equal(t, want, class(t.Context(), fmt.Sprintf("%s/%d", server.URL, code), time.Hour), code)
	}
	require.Equal(t, web.Canceled, class(ctx, server.URL+"/given-up", time.Hour))
	require.Equal(t, web.Broken, class(t.Context(), server.URL+"/cut", time.Hour))
	require.Equal(t, web.Unreachable, class(t.Context(), "http://127.0.0.1:1", time.Hour), "nobody is there")
	require.Equal(t, web.TimedOut, class(t.Context(), server.URL+"/silent", 50*time.Millisecond))
}

// A deadline that passes before the request was sent finds the receiver away, as a refused connection does.
func TestFailuresHaveAClass(t *testing.T) {
	t.Parallel()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	broken := errors.New("it broke")
	for _, c := range []struct {
		ctx  context.Context //nolint:containedctx // a case
		err  error
		sent bool
		want web.Class
	}{
		{late{t.Context()}, context.DeadlineExceeded, false, web.Unreachable},
		{late{t.Context()}, context.DeadlineExceeded, true, web.TimedOut},
		{t.Context(), os.ErrDeadlineExceeded, true, web.TimedOut},
		{t.Context(), broken, true, web.Broken},
		{t.Context(), broken, false, web.Unreachable},
		{canceled, broken, false, web.Canceled},
		{canceled, broken, true, web.Canceled},
	} {
		require.Equal(t, c.want, web.FailureClass(c.ctx, c.err, c.sent), "%v %v", c.err, c.sent)
	}
}

// late is a context whose deadline has passed.
type late struct{ context.Context } //nolint:containedctx // it is one

func (late) Err() error { return context.DeadlineExceeded }
