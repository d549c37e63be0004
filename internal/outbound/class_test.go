package outbound_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/outbound"
)

func TestRequestsHaveAClass(t *testing.T) {
	t.Parallel()
	statuses := map[int]outbound.Class{
		200: outbound.OK, 202: outbound.OK, 302: outbound.Redirected, 404: outbound.Refused, 429: outbound.Overloaded, 503: outbound.Overloaded,
		529: outbound.Overloaded, 500: outbound.Failed, 502: outbound.Gateway, 504: outbound.Gateway,
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
	class := func(ctx context.Context, url string, header time.Duration) outbound.Class {
		var told []outbound.Class
		client := outbound.ToAgents(time.Hour, header, func(class outbound.Class, took time.Duration) {
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
	require.Equal(t, outbound.Canceled, class(ctx, server.URL+"/given-up", time.Hour))
	require.Equal(t, outbound.Broken, class(t.Context(), server.URL+"/cut", time.Hour))
	require.Equal(t, outbound.Unreachable, class(t.Context(), "http://127.0.0.1:1", time.Hour), "nobody is there")
	require.Equal(t, outbound.TimedOut, class(t.Context(), server.URL+"/silent", 50*time.Millisecond))
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
		want outbound.Class
	}{
		{late{t.Context()}, context.DeadlineExceeded, false, outbound.Unreachable},
		{late{t.Context()}, context.DeadlineExceeded, true, outbound.TimedOut},
		{t.Context(), os.ErrDeadlineExceeded, true, outbound.TimedOut},
		{t.Context(), broken, true, outbound.Broken},
		{t.Context(), broken, false, outbound.Unreachable},
		{canceled, broken, false, outbound.Canceled},
		{canceled, broken, true, outbound.Canceled},
	} {
		require.Equal(t, c.want, outbound.FailureClass(c.ctx, c.err, c.sent), "%v %v", c.err, c.sent)
	}
}

// late is a context whose deadline has passed.
type late struct{ context.Context } //nolint:containedctx // it is one

func (late) Err() error { return context.DeadlineExceeded }
