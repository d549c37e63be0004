package grpcapi

import (
	"net"

	"github.com/holdfast-a2a/holdfast/internal/limit"
)

// listener closes connections after a failed write. Calls find the counted connection by the address of their peer.
//
// The library leaves the closing to its reader, and bounds only the time to set up a connection.
// When a write exceeds that bound, the library's writer ends and the bound is lifted. The reader
// then waits for as long as the client likes, and no writer is left to close the idle connection.
type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return conn{c, limit.ConnectionBelow(c)}, nil
}

type conn struct {
	net.Conn
	counted *limit.Connection
}

func (c conn) RemoteAddr() net.Addr { return limit.AddressOf(c.Conn.RemoteAddr(), c.counted) }

func (c conn) Write(b []byte) (n int, err error) {
	if n, err = c.Conn.Write(b); err != nil {
		_ = c.Close()
	}
	return n, err
}
