package sse

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
// Over HTTP/1 it takes the connection out of net/http's hands, and the stream goes on
// after the handler has returned: net/http would keep two buffers, the request, and
// the handler's stack for each stream, which is most of what a stream that waits
// costs. Such a connection is closed at the end of its stream.
type Streams struct {
	timeout time.Duration
	base    context.Context //nolint:containedctx // the life of the streams, which outlive their requests
	cut     context.CancelFunc
	open    sync.WaitGroup
}

// NewStreams makes a group of streams that end when their client takes nothing for longer
// than timeout.
func NewStreams(timeout time.Duration) *Streams {
	base, cut := context.WithCancel(context.Background())
	return &Streams{timeout: timeout, base: base, cut: cut}
}

// Serve begins a stream and calls run to write it, at once or from another goroutine:
// what run uses must not be bound to the request. Its context ends when the client leaves.
func (s *Streams) Serve(w http.ResponseWriter, r *http.Request, run func(ctx context.Context, out *Writer)) {
	// Counted before net/http stops counting the connection.
	s.open.Add(1)
	defer s.open.Done()
	c := take(w, r)
	if c == nil {
		run(r.Context(), Start(w, s.timeout))
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
		// There is no net/http below to contain a panic that run itself did not.
		defer func() {
			if recover() != nil {
				_ = c.Close()
			}
		}()
		run(ctx, &Writer{to: c, timeout: s.timeout})
		c.end(s.timeout)
	})
}

// Wait returns when every stream has ended. When ctx ends before, it cuts them.
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

// sendBuffer is what the kernel may hold of a stream for a client that is behind. Left alone
// it is megabytes, for each of the dead; and since a full one takes no more before a third is
// free again, a client that reads slowly would look like one that reads nothing.
const sendBuffer = 128 << 10

// connection is an HTTP/1 connection after the request.
type connection struct {
	net.Conn
	head    []byte // not sent yet
	chunked bool
	broken  error // of a write: what was cut off there must not go on with anything else
}

// take returns nil where there is no such connection (HTTP/2, tests).
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
		_ = tcp.SetWriteBuffer(sendBuffer) // a stream on the system's buffer is still a stream
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
	_ = h.Write(head) // a buffer does not fail
	head.WriteString("\r\n")
	c.head = head.Bytes()
	return c
}

// maxIgnored is how much a client may send behind its request.
const maxIgnored = 64 << 10

// untilLeft returns when the client has closed the connection. It has nothing more to say.
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

// Flush sends the head, if nothing was written yet.
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

// linger is how long the client may take to close the connection, too. Closing it under
// bytes that the client still sends would destroy what it has not yet read.
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
