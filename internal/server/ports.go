package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/limit"
)

// ports are the listeners of a server. They are opened first, so that an address in use shows before a database is made
// or migrated.
type ports struct {
	public net.Listener // nil without the api role
	grpc   net.Listener // nil without the api role, or when gRPC is off
	admin  net.Listener
	moved  []string // what is said of ports that are in use
}

// Bounds of the connections to the admin address, in total and from one address.
const (
	adminConnections          = 512
	adminConnectionsOfAddress = 64
)

func listen(ctx context.Context, e *env) (_ *ports, err error) {
	p := &ports{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	trusted := e.cfg.TrustedProxies()
	connections := limit.NewConnections(limit.ConnectionOptions{
		Most: e.cfg.Limits.MaxConnections, OfAddress: e.cfg.Limits.ConnectionsPerAddress, Exempt: trusted.Has,
		Opened: e.metrics.ConnectionOpened, Refused: e.metrics.ConnectionRefused, Headers: e.memory.Headers,
	})
	if e.cfg.HasRole(config.RoleAPI) {
		if p.public, err = p.open(ctx, e, "listen", &e.cfg.Listen); err != nil {
			return nil, err
		}
		p.public = trusted.Listener(connections.Listener(p.public), e.cfg.Limits.HeaderTimeout())
	}
	if e.cfg.ServesGRPC() {
		if p.grpc, err = p.open(ctx, e, "grpc_listen", &e.cfg.GRPCListen); err != nil {
			return nil, err
		}
		p.grpc = trusted.Listener(connections.Listener(p.grpc), e.cfg.Limits.HeaderTimeout())
	}
	if p.admin, err = p.open(ctx, e, "admin_listen", &e.cfg.AdminListen); err != nil {
		return nil, err
	}
	p.admin = limit.NewConnections(limit.ConnectionOptions{Most: adminConnections, OfAddress: adminConnectionsOfAddress}).Listener(p.admin)
	return p, nil
}

// sockets are the addresses of a process, on which its servers listen.
type sockets struct {
	mu     sync.Mutex
	of     map[string]*net.TCPListener // by key of the configuration
	closed bool
}

func (s *sockets) open(ctx context.Context, key, address string) (net.Listener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, net.ErrClosed
	}
	if s.of[key] == nil {
		l, err := listenOn(ctx, key, address)
		if err != nil {
			return nil, err
		}
		if s.of == nil {
			s.of = map[string]*net.TCPListener{}
		}
		s.of[key] = l.(*net.TCPListener)
	}
	f, err := s.of[key].File()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	defer func() { _ = f.Close() }()
	return net.FileListener(f)
}

// next opens an address on the next free port, and sets address to it.
func (s *sockets) next(ctx context.Context, key string, address *string) (l net.Listener, err error) {
	host, text, err := net.SplitHostPort(*address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, err
	}
	for range triedPorts {
		port++
		at := net.JoinHostPort(host, strconv.Itoa(port))
		if l, err = s.open(ctx, key, at); !errors.Is(err, syscall.EADDRINUSE) {
			*address = at
			break
		}
	}
	return l, err
}

const triedPorts = 100

func (s *sockets) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, l := range s.of {
		_ = l.Close()
	}
}

// open opens the address of a key. A server that takes over accepts nothing until it is up: the one before serves.
func (p *ports) open(ctx context.Context, e *env, key string, address *string) (net.Listener, error) {
	l, err := e.sockets.open(ctx, key, *address)
	if errors.Is(err, syscall.EADDRINUSE) && slices.Contains(e.Movable, key) {
		before := *address
		if l, err = e.sockets.next(ctx, key, address); err == nil {
			p.moved = append(p.moved, fmt.Sprintf("%s is in use; %s is %s", before, key, *address))
		}
	}
	if err != nil || e.first {
		return l, err
	}
	return &later{Listener: l, up: e.up, closed: make(chan struct{})}, nil
}

// later is a listener that accepts nothing until a server is up.
type later struct {
	net.Listener
	up     <-chan struct{}
	closed chan struct{}
	once   sync.Once
}

func (l *later) Accept() (net.Conn, error) {
	select {
	case <-l.up:
		return l.Listener.Accept()
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *later) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// Bounds of a connection of HTTP/2 to the admin address: requests at a time, and bytes of bodies that no handler has read.
const (
	adminRequests = 32
	adminWindow   = 64 << 10
)

// listenOn opens the address of a key of the configuration.
func listenOn(ctx context.Context, key, address string) (net.Listener, error) {
	var on net.ListenConfig
	l, err := on.Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s: %s is in use by another process, perhaps another Holdfast; stop it or set %s to another address: %w",
			key, address, key, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return l, nil
}

func (p *ports) close() {
	for _, l := range []net.Listener{p.public, p.grpc, p.admin} {
		if l != nil {
			_ = l.Close()
		}
	}
}

// baseURL returns the URL where clients reach this server.
func (p *ports) baseURL(cfg *config.Config) string {
	if p.public == nil {
		return cfg.BaseURL(cfg.Listen)
	}
	return cfg.BaseURL(p.public.Addr().String())
}
