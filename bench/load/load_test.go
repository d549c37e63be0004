package load

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// request is a request as the agents of these tests read it.
type request struct {
	Method string
	Params struct {
		ID      string
		Message struct {
			MessageID string
			Parts     []struct{ Text string }
		}
		Configuration struct{ Blocking bool }
	}
}

type answerer func(w http.ResponseWriter, r request)

func serve(t *testing.T, answer answerer) *Target {
	t.Helper()
	server := httptest.NewServer(handler(t, answer))
	t.Cleanup(server.Close)
	return target(t, server.URL)
}

func handler(t *testing.T, answer answerer) http.Handler {
	t.Helper()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body request
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Errorf("read the request: %v", err)
		}
		answer(w, body)
	})
}

func target(t *testing.T, url string) *Target {
	t.Helper()
	target, err := NewTarget(url, http.Header{"X-Test": {"yes"}})
	require.NoError(t, err)
	return target
}

func answered(state string) string { return `{"jsonrpc":"2.0","id":1,"result":` + taskIn(state) + `}` }

func taskIn(state string) string {
	return fmt.Sprintf(`{"kind":"task","id":"t1","contextId":"c1","status":{"state":%q}}`, state)
}

func say(text string) answerer {
	return func(w http.ResponseWriter, _ request) { _, _ = io.WriteString(w, text) }
}

func run(t *testing.T, target *Target, mode Mode, count int) *Result {
	t.Helper()
	r, err := Run(t.Context(), Options{
		Targets: []*Target{target}, Mode: mode, Text: "echo:a \"b\" <c>", InFlight: 2, Count: count, PollEvery: time.Millisecond,
		Timeout: time.Hour,
	})
	require.NoError(t, err)
	require.Len(t, r.Latencies, r.Tasks)
	return r
}

func TestBlockingSendsDistinctMessages(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]bool{}
	agent := serve(t, func(w http.ResponseWriter, r request) {
		mu.Lock()
		seen[r.Params.Message.MessageID] = true
		mu.Unlock()
		if r.Method != "message/send" || !r.Params.Configuration.Blocking || r.Params.Message.Parts[0].Text != "echo:a \"b\" <c>" {
			t.Errorf("asked %+v", r)
		}
		_, _ = io.WriteString(w, answered("completed"))
	})
	r := run(t, agent, Blocking, 25)
	require.Equal(t, 25, r.Tasks)
	require.Zero(t, r.Failed(), r.Errors)
	require.Len(t, seen, 25)
}

func TestStreamsAreReadToEnd(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200<<10) // longer than any buffer
	agent := serve(t, func(w http.ResponseWriter, r request) {
		w.Header().Set("Content-Type", "text/event-stream")
		event := func(result string) {
			_, _ = fmt.Fprintf(w, ": life\n\nid: 1\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":%s}\n\n", result)
			_ = http.NewResponseController(w).Flush()
		}
		event(taskIn("submitted"))
		for _, text := range []string{"one", long, "three"} {
			event(fmt.Sprintf(`{"kind":"artifact-update","taskId":"t1","artifact":{"artifactId":"a","parts":[{"kind":"text","text":%q}]}}`, text))
		}
		event(`{"kind":"status-update","taskId":"t1","final":true,"status":{"state":"completed"}}`)
	})
	r := run(t, agent, Stream, 9)
	require.Equal(t, 9, r.Tasks, r.Errors)
	require.Equal(t, 27, r.Chunks)
}

func TestPollUntilTaskHasEnded(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	agent := serve(t, func(w http.ResponseWriter, r request) {
		switch {
		case r.Method == "message/send":
			_, _ = io.WriteString(w, answered("submitted"))
		case r.Method != "tasks/get" || r.Params.ID != "t1":
			t.Errorf("asked %+v", r)
		case asked.Add(1)%3 == 0:
			_, _ = io.WriteString(w, answered("completed"))
		default:
			_, _ = io.WriteString(w, answered("working"))
		}
	})
	r := run(t, agent, Poll, 10)
	require.Equal(t, 10, r.Tasks, r.Errors)
	require.Equal(t, int(asked.Load()), r.Polls)
}

func TestFailuresAreCountedByKind(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode   Mode
		answer answerer
		want   string
	}{
		{Blocking, func(w http.ResponseWriter, _ request) { http.Error(w, "slow down", http.StatusTooManyRequests) }, "HTTP 429 Too Many Requests"},
		{Blocking, say(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"no"}}`), "JSON-RPC -32603"},
		{Stream, say(`{"jsonrpc":"2.0","id":1,"error":{"code":-32004,"message":"no"}}`), "JSON-RPC -32004"},
		{Poll, say(`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}`), "JSON-RPC -32602"},
		{Blocking, say(answered("failed")), "task failed"},
		{Poll, say(answered("input-required")), "task input-required"},
		{Blocking, say(answered("working")), "task not settled"},
		{Stream, func(w http.ResponseWriter, _ request) { w.Header().Set("Content-Type", "text/event-stream") }, "task not settled"},
		{Stream, func(w http.ResponseWriter, _ request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprintf(w, "data: {\"result\":%s}\n\n", taskIn("working"))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, "connection cut"},
		{Blocking, func(http.ResponseWriter, request) { panic(http.ErrAbortHandler) }, "connection cut"},
		{Blocking, say("<html>"), "other"},
	} {
		r := run(t, serve(t, c.answer), c.mode, 3)
		require.Zero(t, r.Tasks)
		require.Equal(t, map[string]int{c.want: 3}, r.Errors, c.mode)
		require.Error(t, r.Example)
	}
}

// A load balancer may use another version of HTTP/1 than the server.
func TestHTTPVersionsAndFraming(t *testing.T) {
	t.Parallel()
	body := answered("completed")
	for name, answer := range map[string]string{
		"lower-case headers":   fmt.Sprintf("HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s", len(body), body),
		"chunks and a trailer": fmt.Sprintf("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n%x\r\n%s\r\n0\r\nX-Sum: 1\r\n\r\n", 9, body[:9], len(body)-9, body[9:]),
		"one request each":     fmt.Sprintf("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body),
		"an end without words": "HTTP/1.0 200 OK\r\n\r\n" + body,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			var conns sync.WaitGroup
			conns.Go(func() {
				for {
					c, err := listener.Accept()
					if err != nil {
						return
					}
					conns.Go(func() {
						defer func() { _ = c.Close() }()
						in := bufio.NewReader(c)
						for discardRequest(in) == nil {
							_, _ = io.WriteString(c, answer)
							if strings.Contains(answer, "close") || strings.Contains(answer, "HTTP/1.0") {
								return
							}
						}
					})
				}
			})
			t.Cleanup(func() {
				_ = listener.Close()
				conns.Wait()
			})
			r := run(t, target(t, "http://"+listener.Addr().String()), Blocking, 6)
			require.Equal(t, 6, r.Tasks, "%v: %v", r.Errors, r.Example)
		})
	}
}

func discardRequest(in *bufio.Reader) error {
	r, err := http.ReadRequest(in)
	if err == nil {
		_, err = io.Copy(io.Discard, r.Body)
	}
	return err
}

func TestTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(handler(t, say(answered("completed"))))
	t.Cleanup(server.Close)
	agent := target(t, server.URL+"/agents/x")
	_, err := Run(t.Context(), Options{Targets: []*Target{agent}, Mode: Blocking, InFlight: 1, Count: 1})
	require.ErrorContains(t, err, "certificate")
	agent.tls.RootCAs = server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	require.Equal(t, 4, run(t, agent, Blocking, 4).Tasks)
}

func TestRunEnds(t *testing.T) {
	t.Parallel()
	agent := serve(t, say(answered("completed")))
	r, err := Run(t.Context(), Options{Targets: []*Target{agent}, Mode: Blocking, InFlight: 1, Duration: 500 * time.Millisecond})
	require.NoError(t, err)
	require.Positive(t, r.Tasks)
	require.GreaterOrEqual(t, r.Elapsed, 500*time.Millisecond)

	ctx, cancel := context.WithCancel(t.Context())
	hangs := serve(t, func(http.ResponseWriter, request) {
		cancel()
		<-t.Context().Done()
	})
	r, err = Run(ctx, Options{Targets: []*Target{hangs}, Mode: Blocking, InFlight: 1, Count: 5})
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, r.Failed(), "a request that the caller canceled did not fail")

	_, err = Run(t.Context(), Options{Targets: []*Target{target(t, "http://127.0.0.1:1")}, Mode: Blocking, InFlight: 1, Count: 1})
	require.Error(t, err)
	for _, url := range []string{"ftp://x", "localhost:8080", "http://%zz"} {
		_, err = NewTarget(url, nil)
		require.Error(t, err, url)
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	require.Zero(t, Quantile(nil, 0.5))
	var ms []time.Duration
	for i := range 100 {
		ms = append(ms, time.Duration(i+1)*time.Millisecond)
	}
	require.Equal(t, 51*time.Millisecond, Quantile(ms, 0.5))
	require.Equal(t, 100*time.Millisecond, Quantile(ms, 0.99))
	require.Equal(t, 100*time.Millisecond, Quantile(ms, 1))
}

func TestStamp(t *testing.T) {
	t.Parallel()
	at, ok := Stamp([]byte(`{"parts":[{"kind":"text","text":"00000007 1700000000000000001 xyz"}]}`))
	require.True(t, ok)
	require.Equal(t, int64(1700000000000000001), at.UnixNano())
	for _, data := range []string{``, `{"text":"short"}`, `{"text":"a text that is as long as a stamp would be"}`} {
		_, ok := Stamp([]byte(data))
		require.False(t, ok, data)
	}
	index, _, ok := Piece([]byte(`{"parts":[{"kind":"text","text":"00000007 1700000000000000001 "}]}`))
	require.True(t, ok)
	require.Equal(t, 7, index)
	_, _, ok = Piece([]byte(`{"text":"a number 1700000000000000001"}`))
	require.False(t, ok)
}

func TestStreamsTellTheirLastID(t *testing.T) {
	t.Parallel()
	agent := serve(t, func(w http.ResponseWriter, _ request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprint(w, "id: 7\ndata: {}\n\nid: 8\ndata: {}\n\n")
	})
	c, err := agent.Dial(t.Context())
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	require.Empty(t, c.LastEventID())
	var ids []string
	require.NoError(t, c.Stream(agent.Request("tasks/resubscribe", TaskQuery("t1"), ""), func([]byte) error {
		ids = append(ids, c.LastEventID())
		return nil
	}))
	require.Equal(t, []string{"7", "8"}, ids)
}
