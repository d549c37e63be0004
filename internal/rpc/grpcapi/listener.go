package grpcapi

import "net"

// listener closes connections that cannot be written to.
//
// The library leaves that to who reads from one, and bounds only how long a connection may
// take to be set up. Where a write meets that bound, its writer ends; the bound is taken
// back then, and the reader waits for as long as the client likes, with nobody left to
// tell it that it was idle for too long.
type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return conn{c}, nil
}

type conn struct{ net.Conn }

func (c conn) Write(b []byte) (n int, err error) {
	if n, err = c.Conn.Write(b); err != nil {
		_ = c.Close()
	}
	return n, err
}
