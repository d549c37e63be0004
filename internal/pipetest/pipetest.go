// Package pipetest is a network in memory, for servers and clients in a bubble of testing/synctest. A goroutine that waits for one of its
// connections lets the time of the bubble pass, which one that waits for a socket does not.
package pipetest

import (
	"context"
	"fmt"
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
	listeners map[string]*listener
	made      int
}

// Listen opens a listener at an address of its own. Until it is closed, connections to the address reach it.
func (n *Network) Listen() net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners == nil {
		n.listeners = map[string]*listener{}
	}
	n.made++
	l := &listener{network: n, at: address(fmt.Sprintf("127.0.0.1:%d", n.made)), dialed: make(chan net.Conn), closed: make(chan struct{})}
	n.listeners[string(l.at)] = l
	return l
}

// DialContext connects to a listener. The error of an address without one is that of a closed port.
func (n *Network) DialContext(ctx context.Context, network, at string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[at]
	n.mu.Unlock()
	refused := &net.OpError{Op: "dial", Net: network, Addr: address(at), Err: syscall.ECONNREFUSED}
	if l == nil {
		return nil, refused
	}
	client, server := net.Pipe()
	select {
	case l.dialed <- server:
		return client, nil
	case <-l.closed:
		return nil, refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
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

type listener struct {
	network *Network
	at      address
	dialed  chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.dialed:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.network.mu.Lock()
		defer l.network.mu.Unlock()
		delete(l.network.listeners, string(l.at))
	})
	return nil
}

func (l *listener) Addr() net.Addr { return l.at }

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
