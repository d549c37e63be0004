package limit

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Sizes of headers, in bytes. Headers of up to FreeHeaders are part of the cost of their connection. maxHeld bounds what one
// connection holds: the servers refuse longer headers.
const (
	FreeHeaders = 4 << 10
	maxHeld     = 64 << 10
)

// headerFactor is the bytes of memory for each byte of headers: the buffers, and the strings that are read from them.
const headerFactor = 3

// headersOf returns what n bytes of headers hold of the budget.
func headersOf(n int) int64 { return int64(min(max(n-FreeHeaders, 0), maxHeld)) * headerFactor }

// Connection gives its place back when it is closed. It keeps the methods of a TCP connection, such as those to set buffers
// or to close one half.
//
// While no request is under way, all that arrives is the beginning of one: its headers, or a handshake. What exceeds
// FreeHeaders takes bytes of the budget. If the budget has none for this address, the connection is closed.
type Connection struct {
	*net.TCPConn
	placed  bool
	left    func(placed bool)
	once    sync.Once
	from    Holder
	headers *Budget

	mu     sync.Mutex
	open   int   // requests under way
	read   int   // bytes since the last request
	held   int64 // of headers
	closed bool
}

// errHeaders is the end of a connection whose headers have no room.
var errHeaders = errors.New("the headers of all clients hold as much memory as they may")

// Read implements net.Conn.
func (c *Connection) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	if n > 0 && !c.arrived(n) {
		_ = c.Close()
		return 0, &net.OpError{Op: "read", Net: "tcp", Addr: c.TCPConn.RemoteAddr(), Err: errHeaders}
	}
	return n, err
}

// arrived counts n bytes, and reports whether there is room for them.
func (c *Connection) arrived(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open > 0 || c.closed {
		return true
	}
	c.read += n
	more := headersOf(c.read) - c.held
	if !c.headers.TakeNow(c.from, more) {
		return false
	}
	c.held += more
	return true
}

// Close implements net.Conn.
func (c *Connection) Close() error {
	err := c.TCPConn.Close()
	c.once.Do(func() {
		c.mu.Lock()
		c.closed = true
		c.release()
		c.mu.Unlock()
		c.left(c.placed)
	})
	return err
}

// Begin says that the headers of a request have arrived. A nil Connection does nothing.
func (c *Connection) Begin() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open++
	c.release()
}

// End says that a request has ended.
func (c *Connection) End() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
}

// release returns what the connection holds. The caller has the lock.
func (c *Connection) release() {
	c.headers.Give(c.from, c.held)
	c.held, c.read = 0, 0
}

// RemoteAddr implements net.Conn. ConnectionAt finds the connection by it.
func (c *Connection) RemoteAddr() net.Addr { return address{c.TCPConn.RemoteAddr(), c} }

type address struct {
	net.Addr
	of *Connection
}

// ConnectionBelow returns the connection below TLS and the PROXY protocol, or nil.
func ConnectionBelow(c net.Conn) *Connection {
	if secured, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = secured.NetConn()
	}
	if proxied, ok := c.(interface{ Raw() net.Conn }); ok {
		c = proxied.Raw()
	}
	below, _ := c.(*Connection)
	return below
}

// AddressOf returns a remote address by which ConnectionAt finds a connection. The address may be another one than the
// connection has, such as that in a PROXY header.
func AddressOf(a net.Addr, c *Connection) net.Addr {
	if ConnectionAt(a) != nil || c == nil {
		return a
	}
	return address{a, c}
}

// ConnectionAt returns the connection whose remote address this is, or nil.
func ConnectionAt(a net.Addr) *Connection {
	if a, ok := a.(address); ok {
		return a.of
	}
	return nil
}

// Headers bounds requests whose credential the server has not accepted yet: what their headers hold, and how many there are
// of those that share a connection. Its methods are safe for concurrent use.
type Headers struct {
	// Budget is for headers beyond FreeHeaders. Nil: no bound.
	Budget *Budget
	// Streams bounds requests that share a connection. Nil: no bound.
	Streams *Places[string]
}

// Take takes what a request from an address holds, whose headers have size bytes. shared says that it shares its connection
// with others. If ok, call leave when the credential is accepted, and when the request has ended. leave is nil if the request
// holds nothing.
func (h *Headers) Take(from string, size int, shared bool) (leave func(), ok bool) {
	bytes := headersOf(size)
	if !shared && bytes == 0 {
		return nil, true
	}
	holder := Holder{Address: Sender(from)}
	if !h.Budget.TakeNow(holder, bytes) {
		return nil, false
	}
	left := func() {}
	if shared {
		if left, ok = h.Streams.Take(holder.Address); !ok {
			h.Budget.Give(holder, bytes)
			return nil, false
		}
	}
	return sync.OnceFunc(func() {
		left()
		h.Budget.Give(holder, bytes)
	}), true
}

type acceptKey struct{}

// OnAccept returns a context in which Accept calls f.
func OnAccept(ctx context.Context, f func()) context.Context {
	return context.WithValue(ctx, acceptKey{}, f)
}

type connectionKey struct{}

// WithConnection returns the context of a connection's requests.
func WithConnection(ctx context.Context, c *Connection) context.Context {
	return context.WithValue(ctx, connectionKey{}, c)
}

// Accept says that the server has accepted the credential of the request in ctx, or needs none: its answer has no time limit
// any more.
func Accept(ctx context.Context) {
	if f, ok := ctx.Value(acceptKey{}).(func()); ok {
		f()
		return
	}
	if c, ok := ctx.Value(connectionKey{}).(*Connection); ok {
		_ = c.SetWriteDeadline(time.Time{})
	}
}
