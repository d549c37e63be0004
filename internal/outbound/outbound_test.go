package outbound_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/outbound"
)

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"":                    0,
		"soon":                0,
		"-1":                  0,
		"1.5":                 0,
		"0":                   0,
		"120":                 2 * time.Minute,
		"86400":               time.Hour,
		"4294967295":          time.Hour,
		"4294967296000000000": 0,
		now.Add(90 * time.Second).Format(http.TimeFormat):  90 * time.Second,
		now.Add(-90 * time.Second).Format(http.TimeFormat): 0,
		now.Add(9 * time.Hour).Format(http.TimeFormat):     time.Hour,
		now.Add(time.Minute).Format(time.RFC850):           time.Minute,
	} {
		require.Equal(t, want, outbound.RetryAfter(value, now, time.Hour), value)
	}
}

func TestExcerptIsOneShortLine(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a b é", outbound.Excerpt([]byte(" a\r\n\x1b\tb\xff é ")))
	require.Len(t, outbound.Excerpt([]byte(strings.Repeat("a", 10_000))), outbound.ExcerptBytes)
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
	require.Equal(t, strings.Repeat("x", 101), outbound.ReadExcerpt(&http.Response{StatusCode: 500, Body: io.NopCloser(&endless{ctx: ctx})}, cancel))
	require.Error(t, ctx.Err())

	switched := &http.Response{StatusCode: 101, Body: io.NopCloser(&endless{ctx: t.Context()})}
	require.Empty(t, outbound.ReadExcerpt(switched, func() {}), "a read ends when the connection does")

	ctx, cancel = context.WithCancel(t.Context())
	outbound.Drain(&endless{ctx: ctx}, cancel)
	require.Error(t, ctx.Err())

	huge := &io.LimitedReader{R: zeros{}, N: 10 << 20}
	outbound.Drain(huge, func() {})
	require.Greater(t, huge.N, int64(9<<20), "the rest is not read")
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
