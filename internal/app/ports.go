package app

import (
	"context"
	"fmt"
	"net"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/limit"
)

// ports are the listeners of a server. They are opened first, so that an address in use shows before work begins.
type ports struct {
	public net.Listener // nil without the api role
	grpc   net.Listener // nil without the api role, or when gRPC is off
	admin  net.Listener
}

func listen(ctx context.Context, e *env) (_ *ports, err error) {
	p := &ports{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	connections := limit.NewConnections(limit.ConnectionOptions{
		Most: e.cfg.Limits.MaxConnections, OfAddress: e.cfg.Limits.ConnectionsPerAddress,
		Opened: e.metrics.ConnectionOpened, Refused: e.metrics.ConnectionRefused,
	})
	var on net.ListenConfig
	if e.cfg.HasRole(config.RoleAPI) {
		if p.public, err = on.Listen(ctx, "tcp", e.cfg.Listen); err != nil {
			return nil, fmt.Errorf("listen: %w", err)
		}
		p.public = connections.Listener(p.public)
	}
	if e.cfg.ServesGRPC() {
		if p.grpc, err = on.Listen(ctx, "tcp", e.cfg.GRPCListen); err != nil {
			return nil, fmt.Errorf("grpc_listen: %w", err)
		}
		p.grpc = connections.Listener(p.grpc)
	}
	if p.admin, err = on.Listen(ctx, "tcp", e.cfg.AdminListen); err != nil {
		return nil, fmt.Errorf("admin_listen: %w", err)
	}
	p.admin = limit.NewConnections(limit.ConnectionOptions{Most: adminConnections, OfAddress: adminConnectionsOfAddress}).Listener(p.admin)
	return p, nil
}

// Bounds of the open connections to the admin address, in total and from one address. Probes and scrapes need few.
const (
	adminConnections          = 512
	adminConnectionsOfAddress = 64
)

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
