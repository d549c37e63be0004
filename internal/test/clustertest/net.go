package clustertest

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Proxy is one address in front of servers that start and stop.
type Proxy struct {
	Addr string

	mu    sync.Mutex
	to    string
	conns map[net.Conn]struct{}
}

// NewProxy makes a Proxy that leads to a server.
func NewProxy(t testing.TB, to string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &Proxy{Addr: l.Addr().String(), to: to, conns: map[net.Conn]struct{}{}}
	t.Cleanup(func() {
		_ = l.Close()
		p.Cut()
	})
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go p.carry(conn)
		}
	}()
	return p
}

// Lead sends new connections to another server.
func (p *Proxy) Lead(to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.to = to
}

// Cut closes every connection with a reset, like a network that lost its state.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
}

func (p *Proxy) carry(client net.Conn) {
	to, done := p.keep(client)
	defer done()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	_, done = p.keep(server)
	defer done()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
}

// keep registers a connection for Cut, and returns a function that closes and unregisters it.
func (p *Proxy) keep(c net.Conn) (to string, closing func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = struct{}{}
	return p.to, func() {
		_ = c.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c)
	}
}
