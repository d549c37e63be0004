package outbound_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/outbound"
)

func TestRequestsHaveAClass(t *testing.T) {
	t.Parallel()
	answers := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(code)
		}
	}
	hold := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	held := make(chan struct{}) // closed by the request that its caller gives up
	for name, c := range map[string]struct {
		serve http.HandlerFunc // nil: nobody listens
		want  outbound.Class
		gives bool // the caller gives up
	}{
		"200": {answers(200), outbound.OK, false}, "202": {answers(202), outbound.OK, false}, "302": {answers(302), outbound.Redirected, false},
		"404": {answers(404), outbound.Refused, false}, "429": {answers(429), outbound.Overloaded, false}, "503": {answers(503), outbound.Overloaded, false},
		"529": {answers(529), outbound.Overloaded, false}, "500": {answers(500), outbound.Failed, false}, "502": {answers(502), outbound.Gateway, false},
		"504":       {answers(504), outbound.Gateway, false},
		"no answer": {hold, outbound.TimedOut, false},
		"given up": {func(w http.ResponseWriter, r *http.Request) {
			close(held)
			hold(w, r)
		}, outbound.Canceled, true},
		"nobody there": {nil, outbound.Unreachable, false},
		"cut": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			conn, _, _ := w.(http.Hijacker).Hijack()
			_ = conn.Close()
		}, outbound.Broken, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := "http://127.0.0.1:1"
			if c.serve != nil {
				server := httptest.NewServer(c.serve)
				t.Cleanup(server.Close)
				url = server.URL
			}
			wait := time.Hour
			if c.want == outbound.TimedOut {
				wait = 50 * time.Millisecond
			}
			var told []outbound.Class
			client := outbound.ToAgents(time.Hour, wait, func(class outbound.Class, took time.Duration) {
				require.Positive(t, took)
				told = append(told, class)
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.gives {
				go func() {
					<-held
					cancel()
				}()
			}
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
			require.NoError(t, err)
			if response, err := client.Do(request); err == nil {
				response.Body.Close()
			}
			require.Equal(t, []outbound.Class{c.want}, told)
			client.CloseIdleConnections()
		})
	}
}

// expired is a context whose deadline passes when a test says so.
type expired struct {
	context.Context
	done chan struct{}
}

func (e *expired) Done() <-chan struct{} { return e.done }

func (e *expired) Err() error {
	select {
	case <-e.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// A deadline that passes before the request was sent finds the receiver away, as a refused connection does.
func TestADeadlineInTheHandshakeIsUnreachable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	var told []outbound.Class
	client := outbound.ToAgents(time.Minute, 0, func(class outbound.Class, _ time.Duration) { told = append(told, class) })
	ctx := &expired{t.Context(), make(chan struct{})}
	go func() {
		if c, err := l.Accept(); err == nil {
			defer func() { _ = c.Close() }()
			_, _ = c.Read(make([]byte, 1)) // the handshake has begun
			close(ctx.done)
			<-t.Context().Done()
		}
	}()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+l.Addr().String(), http.NoBody)
	require.NoError(t, err)
	_, err = client.Do(request) //nolint:bodyclose // there is no answer
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, []outbound.Class{outbound.Unreachable}, told)
}
