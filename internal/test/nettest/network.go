// Package nettest has networks for tests: one in memory, for servers and clients in a bubble of testing/synctest, and ports of this machine
// that no other process gets. A goroutine that waits for a connection in memory lets the time of the bubble pass, which one that waits for a
// socket does not.
package nettest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Network connects clients with listeners. Its zero value has none.
type Network struct {
	mu        sync.Mutex
	listeners map[string]*Listener
	made      int
}

// Listen opens a listener at an address of its own. Until it is closed, connections to the address reach it.
func (n *Network) Listen() *Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners == nil {
		n.listeners = map[string]*Listener{}
	}
	n.made++
	l := &Listener{network: n, at: address(fmt.Sprintf("127.0.0.1:%d", n.made)), dialed: make(chan net.Conn), closed: make(chan struct{})}
	n.listeners[string(l.at)] = l
	return l
}

// DialContext connects to a listener. The error of an address without one is that of a closed port.
func (n *Network) DialContext(ctx context.Context, network, at string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[at]
	n.mu.Unlock()
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: address(at), Err: syscall.ECONNREFUSED}
	}
	return l.Dial(ctx)
}

// Serve serves HTTP at an address of the network until the test ends.
func (n *Network) Serve(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	s := &httptest.Server{Listener: n.Listen(), Config: &http.Server{Handler: h}}
	s.Start()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// Client returns a client of the network. Its connections close when the test ends.
func (n *Network) Client(t testing.TB) *http.Client {
	t.Helper()
	transport := &http.Transport{DialContext: n.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// Listener is a listener of a network. Its connections buffer one write of up to 4 KiB in each direction.
type Listener struct {
	// Accepted changes the server's end of each connection. Nil: it stays as it is.
	Accepted func(net.Conn) net.Conn

	network *Network
	at      address
	dialed  chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

// Dial connects to the listener.
func (l *Listener) Dial(ctx context.Context) (net.Conn, error) {
	client, beneath := net.Pipe()
	above, server := net.Pipe()
	pump := func(to, from net.Conn) {
		_, _ = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, 4<<10))
		_ = to.Close()
		_ = from.Close()
	}
	select {
	case l.dialed <- server:
		go pump(beneath, above)
		go pump(above, beneath)
		return client, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: l.at, Err: syscall.ECONNREFUSED}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.dialed:
		if l.Accepted != nil {
			conn = l.Accepted(conn)
		}
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.network.mu.Lock()
		defer l.network.mu.Unlock()
		delete(l.network.listeners, string(l.at))
	})
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return l.at }

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// Pause lets the time of a bubble pass, as a server does that works for so long. It returns early with the cause of the context's end.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
