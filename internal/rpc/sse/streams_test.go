package sse_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-a2a/holdfast/internal/rpc/sse"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// serve answers every request with a stream. returned receives a value when a handler has returned.
func serve(t *testing.T, g *sse.Streams, http2 bool, run func(context.Context, *sse.Writer)) (s *httptest.Server, returned chan struct{}) {
	t.Helper()
	returned = make(chan struct{}, 1)
	s = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Set-Before", "kept")
		g.Serve(w, r, run)
		returned <- struct{}{}
	}))
	s.EnableHTTP2 = http2
	if http2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s, returned
}

func get(t *testing.T, s *httptest.Server) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
	require.NoError(t, err)
	resp, err := s.Client().Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func wait[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		require.FailNow(t, "timed out")
	}
	return v
}

// slowly is a response whose connection takes long to be hijacked.
type slowly struct {
	http.ResponseWriter
	conn     net.Conn
	hijacked func()
}

func (w *slowly) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.hijacked()
	return w.conn, nil, nil
}

// While a stream begins, net/http no longer counts its connection. Streams must count it, otherwise a stop would not
// wait for it.
func TestWaitCountsBeginningStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := sse.NewStreams(time.Second)
		client, server := net.Pipe()
		waited, ran := make(chan struct{}), false
		w := &slowly{ResponseWriter: httptest.NewRecorder(), conn: server, hijacked: func() {
			go func() {
				defer close(waited)
				_ = g.Wait(context.Background())
			}()
			synctest.Wait() // until it waits, or has returned
			select {
			case <-waited:
				t.Error("Wait did not wait")
			default:
			}
		}}
		go func() { _, _ = io.Copy(io.Discard, client) }()
		g.Serve(w, httptest.NewRequest(http.MethodGet, "/", nil), func(context.Context, *sse.Writer) { ran = true })
		<-waited
		require.True(t, ran)
		_ = client.Close()
	})
}

// A panic in a stream is outside the recovery of net/http handlers.
func TestPanicEndsOnlyItsStream(t *testing.T) {
	t.Parallel()
	g := sse.NewStreams(time.Second)
	s, returned := serve(t, g, false, func(_ context.Context, out *sse.Writer) {
		out.Event([]byte("1"), []byte("{}"))
		_ = out.Flush()
		panic("oops")
	})
	for range 2 {
		resp := get(t, s) //nolint:bodyclose // in get
		wait(t, returned)
		body, err := io.ReadAll(resp.Body)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "the stream was cut, and does not look complete")
		require.Equal(t, "id: 1\ndata: {}\n\n", string(body))
	}
	require.NoError(t, g.Wait(t.Context()))
}

// A client has nothing to send after its request. The server ignores some bytes, and drops a client
// that sends more.
func TestClientThatKeepsSendingIsDropped(t *testing.T) {
	t.Parallel()
	g := sse.NewStreams(time.Second)
	left := make(chan struct{})
	s, _ := serve(t, g, false, func(ctx context.Context, out *sse.Writer) {
		_ = out.Flush()
		<-ctx.Done()
		close(left)
	})
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	_, err = bufio.NewReader(c).ReadString('\n') // the stream has begun
	require.NoError(t, err)
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	_, err = c.Write(make([]byte, 128<<10))
	if err != nil { // dropped before it had sent everything
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	}
	wait(t, left)
	require.NoError(t, g.Wait(t.Context()))
}

func TestStreamOutlivesItsHandler(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	big := strings.Repeat("x", 1<<20)
	g := sse.NewStreams(time.Second)
	s, returned := serve(t, g, false, func(_ context.Context, out *sse.Writer) {
		_ = out.Flush()
		<-next
		out.Event([]byte("1"), []byte("{}"))
		_ = out.Flush()
		out.Event([]byte("2"), []byte(big))
		out.KeepAlive()
		_ = out.Flush()
		_ = out.Flush()
	})
	resp := get(t, s) //nolint:bodyclose // in get; returns after the headers
	wait(t, returned)
	require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	require.Equal(t, "no-cache", resp.Header.Get("Cache-Control"))
	require.Equal(t, "kept", resp.Header.Get("X-Set-Before"))
	require.NotEmpty(t, resp.Header.Get("Date"))
	require.True(t, resp.Close, "the connection serves no further request")
	close(next)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "id: 1\ndata: {}\n\nid: 2\ndata: "+big+"\n\n: keep-alive\n\n", string(body))
	require.NoError(t, g.Wait(t.Context()))
}

// HTTP/2 has no connection to hijack: the handler writes the stream.
func TestStreamOverHTTP2(t *testing.T) {
	t.Parallel()
	g := sse.NewStreams(time.Second)
	next := make(chan struct{})
	s, returned := serve(t, g, true, func(_ context.Context, out *sse.Writer) {
		_ = out.Flush()
		<-next
		out.Event([]byte("1"), []byte("{}"))
		_ = out.Flush()
	})
	resp := get(t, s) //nolint:bodyclose // in get
	require.Equal(t, 2, resp.ProtoMajor)
	require.Empty(t, returned)
	close(next)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "id: 1\ndata: {}\n\n", string(body))
	wait(t, returned)
}

// HTTP/1.0 has no chunked encoding: the end of the connection ends the body.
func TestStreamOverHTTP10(t *testing.T) {
	t.Parallel()
	s, _ := serve(t, sse.NewStreams(time.Second), false, func(_ context.Context, out *sse.Writer) {
		out.Event([]byte("1"), []byte("{}"))
		_ = out.Flush()
	})
	conn := dial(t, s)
	_, err := fmt.Fprint(conn, "GET / HTTP/1.0\r\n\r\n")
	require.NoError(t, err)
	all, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(all), "HTTP/1.0 200 OK\r\n"))
	require.NotContains(t, string(all), "chunked")
	require.True(t, strings.HasSuffix(string(all), "\r\n\r\nid: 1\ndata: {}\n\n"))
}

func dial(t *testing.T, s *httptest.Server) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestLeavingClientEndsContext(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		left := make(chan struct{})
		s, _ := serve(t, sse.NewStreams(time.Second), http2, func(ctx context.Context, out *sse.Writer) {
			_ = out.Flush()
			<-ctx.Done()
			close(left)
		})
		require.NoError(t, get(t, s).Body.Close())
		wait(t, left)
	}
}

// The server ignores what a client sends after its request. The client must still get the end of
// the stream.
func TestClientThatSendsMoreGetsWholeStream(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	s, _ := serve(t, sse.NewStreams(time.Second), false, func(ctx context.Context, out *sse.Writer) {
		_ = out.Flush()
		<-next
		if ctx.Err() == nil {
			out.Event([]byte("1"), []byte("{}"))
			_ = out.Flush()
		}
	})
	conn := dial(t, s)
	const request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	_, err := fmt.Fprint(conn, request, request)
	require.NoError(t, err)
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	_, err = fmt.Fprint(conn, strings.Repeat(request, 100))
	require.NoError(t, err)
	close(next)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "id: 1\ndata: {}\n\n", string(body))
	_, err = in.ReadByte()
	require.ErrorIs(t, err, io.EOF, "one answer, then the end")
}

func TestDeadClientEndsDetachedFlush(t *testing.T) {
	t.Parallel()
	flushed := make(chan error, 1)
	s, _ := serve(t, sse.NewStreams(50*time.Millisecond), false, func(_ context.Context, out *sse.Writer) {
		out.Event([]byte("1"), []byte(strings.Repeat("x", 64<<20)))
		flushed <- out.Flush()
	})
	_, err := fmt.Fprint(dial(t, s), "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	require.ErrorContains(t, wait(t, flushed), "timeout")
}

func TestWait(t *testing.T) {
	t.Parallel()
	g := sse.NewStreams(time.Second)
	ended := make(chan struct{})
	s, returned := serve(t, g, false, func(ctx context.Context, out *sse.Writer) {
		_ = out.Flush()
		<-ctx.Done()
		close(ended)
	})
	resp := get(t, s) //nolint:bodyclose // in get
	wait(t, returned)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, g.Wait(ctx), context.DeadlineExceeded)
	wait(t, ended)
	_, err := io.ReadAll(resp.Body)
	require.NoError(t, err, "a stream that is cut also ends cleanly")
	require.NoError(t, g.Wait(t.Context()))
}

// A slow client gets an event that is larger than what it reads within the timeout. Even the buffer in between must
// be smaller than the event.
func TestSlowClientGetsLargeEvent(t *testing.T) {
	t.Parallel()
	const size = 12 << 20
	flushed := make(chan error, 1)
	// On a busy machine a second may pass without a byte.
	s, _ := serve(t, sse.NewStreams(3*time.Second), false, func(_ context.Context, out *sse.Writer) {
		out.Event([]byte("1"), []byte(strings.Repeat("x", size)))
		flushed <- out.Flush()
	})
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.(*net.TCPConn).SetReadBuffer(128<<10))
	_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	// Reading everything takes a multiple of the timeout at this pace.
	got, p := 0, make([]byte, 64<<10)
	pace := time.NewTicker(50 * time.Millisecond)
	defer pace.Stop()
	for got < size {
		<-pace.C
		n, err := c.Read(p)
		require.NoError(t, err, "after %d bytes", got)
		got += n
	}
	require.NoError(t, wait(t, flushed))
}

// A connection with a failed write ends in the middle of an event. If the proper end of a stream followed, the client
// would read it as part of the event.
func TestFailedWriteEndsConnection(t *testing.T) {
	t.Parallel()
	event := strings.Repeat("x", 8<<20)
	flushed := make(chan error, 1)
	s, _ := serve(t, sse.NewStreams(50*time.Millisecond), false, func(_ context.Context, out *sse.Writer) {
		out.Event([]byte("1"), []byte(event))
		flushed <- out.Flush()
	})
	resp := get(t, s) // and read nothing
	require.Error(t, wait(t, flushed))
	body, err := io.ReadAll(resp.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.NoError(t, resp.Body.Close())
	require.True(t, strings.HasPrefix("id: 1\ndata: "+event, string(body)), "the body ends in %q", body[max(0, len(body)-20):])
}
