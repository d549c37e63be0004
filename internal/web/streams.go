package web

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Streams runs the streams of a server.
//
// Over HTTP/1 it hijacks the connection from net/http, and the stream continues after the handler
// has returned. net/http would keep two buffers, the request, and the handler's stack for each
// stream, which is most of the cost of an idle stream. The connection closes at the end of its
// stream.
type Streams struct {
	timeout time.Duration
	base    context.Context //nolint:containedctx // the life of the streams, which outlive their requests
	cut     context.CancelFunc
	open    sync.WaitGroup
}

// NewStreams makes a group of streams. A stream ends when its client reads nothing for longer than
// timeout.
func NewStreams(timeout time.Duration) *Streams {
	base, cut := context.WithCancel(context.Background())
	return &Streams{timeout: timeout, base: base, cut: cut}
}

// Serve begins a stream and calls run to write it, either at once or from another goroutine. run
// must not use anything that is bound to the request. Its context ends when the client leaves.
func (s *Streams) Serve(w http.ResponseWriter, r *http.Request, run func(ctx context.Context, out *EventWriter)) {
	// Count the stream before net/http stops counting the connection.
	s.open.Add(1)
	defer s.open.Done()
	c := take(w, r)
	if c == nil {
		run(r.Context(), StartEvents(w, s.timeout))
		return
	}
	ctx, cancel := context.WithCancel(s.base)
	s.open.Go(func() {
		c.untilLeft()
		cancel()
		_ = c.Close()
	})
	s.open.Go(func() {
		defer cancel()
		// No net/http handler contains a panic here.
		defer func() {
			if recover() != nil {
				_ = c.Close()
			}
		}()
		run(ctx, &EventWriter{to: c, timeout: s.timeout})
		c.end(s.timeout)
	})
}

// Wait blocks until every stream has ended. When ctx ends first, Wait cuts them.
func (s *Streams) Wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		s.open.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.cut()
		return context.Cause(ctx)
	}
}

// sendBuffer bounds the kernel's buffer for a client that lags behind, in bytes. The default is
// megabytes, for every dead client too. A full buffer accepts no more until a third of it is free,
// so with a large one a slow client would look dead.
const sendBuffer = 128 << 10

// connection is an HTTP/1 connection after the request.
type connection struct {
	net.Conn
	head    []byte // not sent yet
	chunked bool
	broken  error // the error of a failed write: nothing may follow the truncated bytes
}

// take hijacks the connection. It returns nil where that is impossible (HTTP/2, tests).
func take(w http.ResponseWriter, r *http.Request) *connection {
	if r.ProtoMajor != 1 {
		return nil
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil
	}
	beneath := conn
	if secured, ok := conn.(*tls.Conn); ok {
		beneath = secured.NetConn()
	}
	if tcp, ok := beneath.(interface{ SetWriteBuffer(bytes int) error }); ok {
		_ = tcp.SetWriteBuffer(sendBuffer) // on failure the stream uses the default buffer
	}
	c := &connection{Conn: conn, chunked: r.ProtoAtLeast(1, 1)}
	h := w.Header()
	announce(h)
	h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	h.Set("Connection", "close")
	if c.chunked {
		h.Set("Transfer-Encoding", "chunked")
	}
	head := bytes.NewBufferString(r.Proto + " 200 OK\r\n")
	_ = h.Write(head) // writing to a buffer cannot fail
	head.WriteString("\r\n")
	c.head = head.Bytes()
	return c
}

// maxIgnored bounds the bytes that a client may send after its request.
const maxIgnored = 64 << 10

// untilLeft blocks until the client closes the connection or exceeds maxIgnored.
func (c *connection) untilLeft() {
	ignored := make([]byte, 64)
	for total := 0; total < maxIgnored; {
		n, err := c.Read(ignored)
		if err != nil {
			return
		}
		total += n
	}
}

// Write sends p as one chunk.
func (c *connection) Write(p []byte) (int, error) {
	if !c.chunked {
		return len(p), c.send(p)
	}
	var size [20]byte
	return len(p), c.send(append(strconv.AppendInt(size[:0], int64(len(p)), 16), "\r\n"...), p, []byte("\r\n"))
}

// Flush sends the head, if it was not sent yet.
func (c *connection) Flush() error {
	if c.head == nil {
		return nil
	}
	return c.send()
}

// send writes everything, with the head before it, in one system call.
func (c *connection) send(parts ...[]byte) error {
	if c.broken != nil {
		return c.broken
	}
	all := make(net.Buffers, 0, 4)
	if c.head != nil {
		all = append(all, c.head)
		c.head = nil
	}
	all = append(all, parts...)
	_, c.broken = all.WriteTo(c.Conn)
	return c.broken
}

// linger is how long the server waits for the client to close its side, too. Closing while the
// client still sends would discard data that the client has not read yet.
const linger = 500 * time.Millisecond

func (c *connection) end(timeout time.Duration) {
	_ = c.SetWriteDeadline(time.Now().Add(timeout))
	if c.chunked {
		_ = c.send([]byte("0\r\n\r\n"))
	} else {
		_ = c.Flush()
	}
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = c.SetReadDeadline(time.Now().Add(linger)) // ends untilLeft, and with it the connection
}
