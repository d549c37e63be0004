package web_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
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
	"unsafe"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/rpctest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

func TestFrames(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	s := web.StartEvents(w, time.Second)
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "text/event-stream", w.Header().Get("Content-Type"))
	require.Equal(t, "no-cache", w.Header().Get("Cache-Control"))
	require.Equal(t, "no", w.Header().Get("X-Accel-Buffering"))
	s.Event([]byte("7"), []byte(`{"a":`), []byte(`1`), []byte(`}`))
	s.Event(nil, []byte(`{}`))
	s.KeepAlive()
	require.Empty(t, w.Body.String(), "nothing is written before Flush")
	require.NoError(t, s.Flush())
	require.Equal(t, "id: 7\ndata: {\"a\":1}\n\ndata: {}\n\n: keep-alive\n\n", w.Body.String())
	require.True(t, w.Flushed)
	require.NoError(t, s.Flush())
	require.Equal(t, 1, strings.Count(w.Body.String(), "keep-alive"), "nothing is written twice")

	// Some clients end a line at any line separator of Unicode.
	w = httptest.NewRecorder()
	s = web.StartEvents(w, time.Second)
	s.Event(nil, []byte(`"a`+"\u2028 \u2029 \u0085 ”"+`"`))
	require.NoError(t, s.Flush())
	require.Equal(t, `data: "a\u2028 \u2029 \u0085 ”"`+"\n\n", w.Body.String())
}

func TestFull(t *testing.T) {
	t.Parallel()
	s := web.StartEvents(httptest.NewRecorder(), time.Second)
	chunk := []byte(strings.Repeat("x", 16<<10))
	s.Event([]byte("1"), chunk)
	require.False(t, s.Full())
	s.Event([]byte("2"), chunk)
	require.True(t, s.Full())
	require.NoError(t, s.Flush())
	require.False(t, s.Full())
	s.Event([]byte("3"), make([]byte, 1<<20))
	require.True(t, s.Full(), "a large event goes out before the next one")
}

// TestLargeEventsAreNotCopied shows that streams write a large document from where it is: they share it.
func TestLargeEventsAreNotCopied(t *testing.T) {
	t.Parallel()
	document := bytes.Repeat([]byte("x"), 1<<20)
	w := &recorder{ResponseRecorder: httptest.NewRecorder(), of: document}
	s := web.StartEvents(w, time.Second)
	s.KeepAlive()
	s.Event([]byte("7"), []byte(`{"a":"`), document, []byte(`"}`))
	s.Event([]byte("8"), document)
	require.NoError(t, s.Flush())
	require.Equal(t, 2*len(document), w.shared)
	require.Equal(t, ": keep-alive\n\nid: 7\ndata: {\"a\":\""+string(document)+"\"}\n\nid: 8\ndata: "+string(document)+"\n\n", w.Body.String())
}

// recorder counts the bytes that are written from the memory of a document.
type recorder struct {
	*httptest.ResponseRecorder
	of     []byte
	shared int
}

func (r *recorder) Write(p []byte) (int, error) {
	first, last := uintptr(unsafe.Pointer(&r.of[0])), uintptr(unsafe.Pointer(&r.of[len(r.of)-1]))
	if at := uintptr(unsafe.Pointer(&p[0])); first <= at && at <= last {
		r.shared += len(p)
	}
	return r.ResponseRecorder.Write(p)
}

type unwilling struct{ http.ResponseWriter }

func (unwilling) Write([]byte) (int, error) { return 0, errors.New("gone") }

func TestWriterErrorIsReturned(t *testing.T) {
	t.Parallel()
	s := web.StartEvents(unwilling{httptest.NewRecorder()}, time.Second)
	s.KeepAlive()
	require.EqualError(t, s.Flush(), "gone")
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve answers every request with a stream. returned receives a value when a handler has returned.
func serve(t *testing.T, g *web.Streams, http2 bool, run func(context.Context, *web.EventWriter)) (s *httptest.Server, returned chan struct{}) {
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

func wait[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	return waittest.Within(t, "a signal", c)
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

// While a stream begins, net/http no longer counts its connection. Streams must count it, otherwise a stop would not wait for it.
func TestWaitCountsBeginningStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := web.NewStreams(time.Hour)
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
		g.Serve(w, httptest.NewRequest(http.MethodGet, "/", nil), func(context.Context, *web.EventWriter) { ran = true })
		<-waited
		require.True(t, ran)
		_ = client.Close()
	})
}

// A panic in a stream is outside the recovery of net/http handlers.
func TestPanicEndsOnlyItsStream(t *testing.T) {
	t.Parallel()
	g := web.NewStreams(time.Hour)
	s, returned := serve(t, g, false, func(_ context.Context, out *web.EventWriter) {
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

// A client has nothing to send after its request. The server ignores some bytes, and drops a client that sends more.
func TestClientThatKeepsSendingIsDropped(t *testing.T) {
	t.Parallel()
	g := web.NewStreams(time.Hour)
	left := make(chan struct{})
	s, _ := serve(t, g, false, func(ctx context.Context, out *web.EventWriter) {
		_ = out.Flush()
		<-ctx.Done()
		close(left)
	})
	c := rpctest.Dial(t, s, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	_, err := bufio.NewReader(c).ReadString('\n') // the stream has begun
	require.NoError(t, err)
	_, err = c.Write(make([]byte, 128<<10))
	if err != nil { // dropped before it had sent everything
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	}
	wait(t, left)
	require.NoError(t, g.Wait(t.Context()))
}

const timeout = 10 * time.Second

// both runs a test in a bubble: of a stream that its handler writes, and of one that outlives its handler.
func both(t *testing.T, test func(t *testing.T, serve func(run func(*web.EventWriter)) *httptest.Server)) {
	t.Helper()
	for _, outlives := range []bool{false, true} {
		t.Run(fmt.Sprintf("outlives its handler: %v", outlives), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := web.NewStreams(timeout)
				test(t, func(run func(*web.EventWriter)) *httptest.Server {
					return rpctest.Piped(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						w.Header().Set("X-Set-Before", "kept")
						if outlives {
							g.Serve(w, r, func(_ context.Context, out *web.EventWriter) { run(out) })
						} else {
							run(web.StartEvents(w, timeout))
						}
					}))
				})
				require.NoError(t, g.Wait(t.Context()))
			})
		})
	}
}

// Each flush reaches the client by itself. The stream ends cleanly even long after the deadline of the last write.
func TestFlushReachesTheClient(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, serve func(func(*web.EventWriter)) *httptest.Server) {
		next := make(chan struct{})
		s := serve(func(out *web.EventWriter) {
			_ = out.Flush()
			<-next
			out.Event([]byte("1"), []byte("{}"))
			_ = out.Flush()
			<-next
			waittest.Advance(2 * timeout)
			out.KeepAlive()
			_ = out.Flush()
			_ = out.Flush()
		})
		resp := get(t, s) //nolint:bodyclose // in get; returns after the headers
		require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
		require.Equal(t, "no-cache", resp.Header.Get("Cache-Control"))
		require.Equal(t, "kept", resp.Header.Get("X-Set-Before"))
		require.NotEmpty(t, resp.Header.Get("Date"))
		next <- struct{}{}
		const event = "id: 1\ndata: {}\n\n"
		body := make([]byte, len(event))
		_, err := io.ReadFull(resp.Body, body)
		require.NoError(t, err)
		require.Equal(t, event, string(body))
		next <- struct{}{}
		body, err = io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, ": keep-alive\n\n", string(body))
	})
}

// A connection with a failed write ends in the middle of an event. If the proper end of a stream followed, the client
// would read it as part of the event.
func TestClientThatReadsNothing(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, serve func(func(*web.EventWriter)) *httptest.Server) {
		event := strings.Repeat("x", 128<<10)
		flushed := make(chan error, 1)
		began := time.Now()
		s := serve(func(out *web.EventWriter) {
			out.Event([]byte("1"), []byte(event))
			flushed <- out.Flush()
		})
		resp := get(t, s)
		require.ErrorContains(t, <-flushed, "timeout")
		require.Equal(t, timeout, waittest.Elapsed(began))
		body, err := io.ReadAll(resp.Body)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.NoError(t, resp.Body.Close())
		require.True(t, strings.HasPrefix("id: 1\ndata: "+event, string(body)), "the body ends in %q", body[max(0, len(body)-20):])
	})
}

// A slow client gets an event that is larger than what it reads within the timeout.
func TestSlowClientGetsLargeEvent(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, serve func(func(*web.EventWriter)) *httptest.Server) {
		const size = 1 << 20
		flushed := make(chan error, 1)
		s := serve(func(out *web.EventWriter) {
			out.Event([]byte("1"), []byte(strings.Repeat("x", size)))
			flushed <- out.Flush()
		})
		resp := get(t, s) //nolint:bodyclose // in get
		for range size / (32 << 10) {
			_, err := io.CopyN(io.Discard, resp.Body, 32<<10)
			require.NoError(t, err)
			waittest.Advance(timeout - time.Second)
		}
		rest, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Len(t, rest, len("id: 1\ndata: \n\n"))
		require.NoError(t, <-flushed)
	})
}

// sized is a connection that notes the size of the buffer in the kernel.
type sized struct {
	net.Conn
	buffer chan int
}

func (s sized) SetWriteBuffer(bytes int) error {
	s.buffer <- bytes
	return nil
}

// The buffer between the server and a slow client is small: a full one accepts nothing until a third of it is free, so with a
// large one the client would look dead.
func TestSendBufferIsSmall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		buffer := make(chan int, 1)
		s := rpctest.Piped(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			web.NewStreams(timeout).Serve(w, r, func(context.Context, *web.EventWriter) {})
		}))
		s.Listener.(*nettest.Listener).Accepted = func(c net.Conn) net.Conn { return sized{c, buffer} }
		_, err := io.ReadAll(get(t, s).Body) //nolint:bodyclose // by get
		require.NoError(t, err)
		require.Len(t, buffer, 1)
		require.Equal(t, 128<<10, <-buffer)
	})
}

// HTTP/2 has no connection to hijack: the handler writes the stream.
func TestStreamOverHTTP2(t *testing.T) {
	t.Parallel()
	g := web.NewStreams(time.Hour)
	next := make(chan struct{})
	s, returned := serve(t, g, true, func(_ context.Context, out *web.EventWriter) {
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
	s, _ := serve(t, web.NewStreams(time.Hour), false, func(_ context.Context, out *web.EventWriter) {
		out.Event([]byte("1"), []byte("{}"))
		_ = out.Flush()
	})
	all, err := io.ReadAll(rpctest.Dial(t, s, "GET / HTTP/1.0\r\n\r\n"))
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(all), "HTTP/1.0 200 OK\r\n"))
	require.NotContains(t, string(all), "chunked")
	require.True(t, strings.HasSuffix(string(all), "\r\n\r\nid: 1\ndata: {}\n\n"))
}

func TestLeavingClientEndsContext(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		left := make(chan struct{})
		s, _ := serve(t, web.NewStreams(time.Hour), http2, func(ctx context.Context, out *web.EventWriter) {
			_ = out.Flush()
			<-ctx.Done()
			close(left)
		})
		require.NoError(t, get(t, s).Body.Close())
		wait(t, left)
	}
}

// The server ignores what a client sends after its request. The client must still get the end of the stream.
func TestClientThatSendsMoreGetsWholeStream(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	s, _ := serve(t, web.NewStreams(time.Hour), false, func(ctx context.Context, out *web.EventWriter) {
		_ = out.Flush()
		<-next
		if ctx.Err() == nil {
			out.Event([]byte("1"), []byte("{}"))
			_ = out.Flush()
		}
	})
	const request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	conn := rpctest.Dial(t, s, request+request)
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

func TestWait(t *testing.T) {
	t.Parallel()
	g := web.NewStreams(time.Hour)
	ended := make(chan struct{})
	s, returned := serve(t, g, false, func(ctx context.Context, out *web.EventWriter) {
		_ = out.Flush()
		<-ctx.Done()
		close(ended)
	})
	resp := get(t, s) //nolint:bodyclose // in get
	wait(t, returned)
	require.True(t, resp.Close, "the connection serves no further request")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, g.Wait(ctx), context.Canceled)
	wait(t, ended)
	_, err := io.ReadAll(resp.Body)
	require.NoError(t, err, "a stream that is cut also ends cleanly")
	require.NoError(t, g.Wait(t.Context()))
}
