// Package grpcapi is the gRPC binding, of 1.0 and of 0.3: a service for each, on a port
// of its own. It finds the operation by the method, takes from metadata what HTTP has in
// headers, and tells errors by a status with details. The shapes belong to the codecs,
// the work to the operations.
package grpcapi

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/holdfast-a2a/holdfast/internal/rpc/body"
	"github.com/holdfast-a2a/holdfast/internal/rpc/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/binary"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/v03"
	"github.com/holdfast-a2a/holdfast/internal/rpc/fault"
	"github.com/holdfast-a2a/holdfast/internal/rpc/operation"
)

// Options configures a binding. The zero value of a number means its default.
type Options struct {
	Operations    *operation.Runner
	Limits        body.Limits   // of a request; Timeout is how long its message may take
	HeaderTimeout time.Duration // for a connection to be set up; default 10 s
	IdleTimeout   time.Duration // of a connection without calls; default 2 min
	KeepAlive     time.Duration // between signs of life on a quiet connection; default 15 s
	WriteTimeout  time.Duration // for a client to take what a stream sends; default 10 s
	// Address is where clients find this port, as host:port. Without it cards do not announce gRPC.
	Address string
	// StrictVersion refuses an a2a-version of another version than the service's, and calls of 1.0 without one.
	StrictVersion bool
	// TLS is that of the port. Nil: it speaks none.
	TLS *tls.Config
	// Statuses100 answers errors of 1.0 with the statuses of 1.0.0 in place of 1.0.1's.
	Statuses100 bool
	Log         *slog.Logger
}

// Limits of a connection that are nobody's to choose.
const (
	maxCalls    = 250      // at a time; what a client does not take of their answers is held for it
	maxMetadata = 64 << 10 // of a call, in bytes
	// maxAge is when a client is asked to connect anew, which spreads it over replicas that
	// came later. Calls under way are not cut.
	maxAge = 30 * time.Minute
	// minPing is how often clients may ask for a sign of life.
	minPing = 5 * time.Second
)

// Binding serves gRPC.
type Binding struct {
	Options
	server   *grpc.Server
	health   *health.Server
	services []*service
	at       Arrival
}

// Arrival is where a call arrives, with the caller's metadata, by their names as canonical
// HTTP headers, and its end of the connection.
type Arrival func(ctx context.Context, values func(name string) []string, chain []*x509.Certificate, address string) operation.Endpoint

// service is the service of a version.
type service struct {
	*binary.Codec
	faults *fault.Table
}

// New makes a binding; Serve starts it.
func New(o Options) *Binding {
	o.Limits = o.Limits.OrDefaults()
	o.HeaderTimeout = cmp.Or(o.HeaderTimeout, 10*time.Second)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 2*time.Minute)
	o.KeepAlive = cmp.Or(o.KeepAlive, 15*time.Second)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 10*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	b := &Binding{Options: o, health: health.NewServer(), services: []*service{
		{binary.New10(o.Limits.Depth), &fault.Base}, {binary.New03(o.Limits.Depth), fault.Table03},
	}}
	if o.Statuses100 {
		b.services[0].faults = fault.Edition100
	}
	secured := insecure.NewCredentials()
	if o.TLS != nil {
		secured = credentials.NewTLS(o.TLS)
	}
	b.server = grpc.NewServer(
		grpc.Creds(secured),
		grpc.ForceServerCodecV2(framing{}),
		grpc.InTapHandle(withCancel),
		grpc.MaxRecvMsgSize(int(o.Limits.Size)),
		grpc.MaxConcurrentStreams(maxCalls),
		grpc.MaxHeaderListSize(maxMetadata),
		grpc.ConnectionTimeout(o.HeaderTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: o.IdleTimeout, MaxConnectionAge: maxAge, Time: o.KeepAlive, Timeout: o.WriteTimeout,
		}),
	)
	for _, s := range b.services {
		b.server.RegisterService(b.describe(s), nil)
		b.health.SetServingStatus(s.Service(), grpc_health_v1.HealthCheckResponse_SERVING)
	}
	grpc_health_v1.RegisterHealthServer(b.server, b.health)
	reflection.Register(b.server)
	return b
}

// describe lists the methods of a service. On the wire a call with one answer is a stream
// of one message, so all of them have one kind of handler.
func (b *Binding) describe(s *service) *grpc.ServiceDesc {
	d := &grpc.ServiceDesc{ServiceName: s.Service()}
	for _, m := range s.Methods() {
		d.Streams = append(d.Streams, grpc.StreamDesc{
			StreamName: m.Name, ServerStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error { return b.handle(s, m.Op, stream) },
		})
	}
	return d
}

// Announced are the services as cards have them. One address serves every agent: 1.0 names
// the agent in each request, and 0.3, which cannot, reaches the common one only.
func (b *Binding) Announced(common string) []card.Binding {
	if b.Address == "" {
		return nil
	}
	var all []card.Binding
	for _, s := range b.services {
		named := s.Version() != v03.Version
		all = append(all, card.Binding{
			Name: "GRPC", Versions: []string{s.Version()},
			Address: func(agent, _ string) (url, tenant string) {
				switch {
				case agent == common:
					return b.Address, ""
				case named:
					return b.Address, agent
				}
				return "", ""
			},
		})
	}
	return all
}

// Serve answers on a listener until Shutdown.
func (b *Binding) Serve(l net.Listener, at Arrival) error {
	b.at = at
	if err := b.server.Serve(listener{l}); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// Shutdown refuses new calls and waits for those under way. Streams end when the hub is
// closed. When ctx ends before, it cuts them.
func (b *Binding) Shutdown(ctx context.Context) error {
	b.health.Shutdown()
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.server.GracefulStop()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		b.server.Stop()
		<-done
		return context.Cause(ctx)
	}
}
