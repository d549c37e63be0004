// Package grpcapi is the gRPC binding, on a port of its own. It has one service for each version
// that defines one. It finds the operation by the method, reads from metadata what HTTP has in
// headers, and shows errors as a status with details. The codecs define the shapes; package
// dispatch runs the operations.
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

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/binary"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/tracing"
	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/web/fault"
)

// Options configures a binding. A number that is 0 means its default.
type Options struct {
	Operations    *dispatch.Runner
	Limits        web.BodyLimits // of a request; Timeout bounds the time for its message
	HeaderTimeout time.Duration  // to set up a connection; default 10 s
	IdleTimeout   time.Duration  // of a connection without calls; default 2 min
	KeepAlive     time.Duration  // between pings on a quiet connection; default 15 s
	WriteTimeout  time.Duration  // for a client to read what a stream sends; default 10 s
	// MaxAge is when the server asks a client to reconnect, which spreads clients over new replicas.
	// Calls in progress continue, for at most MaxGrace. Defaults: 30 min and 12 h.
	MaxAge, MaxGrace time.Duration
	PublicTimeout    time.Duration // of a call of health or reflection; default 30 s
	// Address is where clients reach this port, as host:port. Without it cards do not announce
	// gRPC.
	Address string
	// StrictVersion refuses an a2a-version that is not the service's version. It also refuses
	// calls without one, in versions that require it.
	StrictVersion bool
	// TLS configures the port. Nil: no TLS.
	TLS *tls.Config
	// Proxies tell the addresses of clients. Nil: the address of a client is that of its connection.
	Proxies *web.TrustedProxies
	// FormerStatuses answers errors with the statuses of a version's former edition.
	FormerStatuses bool
	// Headers is for metadata of calls without an accepted credential. Nil: no bound.
	Headers *limit.Budget
	Tracer  *tracing.Tracer // nil: no traces
	Log     *slog.Logger
}

// Limits of a connection that operators cannot set.
const (
	maxCalls    = 250      // concurrent; the server buffers the answers that a client does not read
	maxMetadata = 64 << 10 // of a call, in bytes
	// minPing is the shortest interval at which clients may send pings.
	minPing = 5 * time.Second
)

// Binding serves gRPC.
type Binding struct {
	Options
	server   *grpc.Server
	health   *health.Server
	public   *limit.Places[string] // of calls of health and reflection
	metadata limit.Headers
	services []*service
	at       Arrival
}

// Arrival returns the endpoint of a call. values returns metadata by canonical HTTP header name;
// chain and address describe the client's end of the connection.
type Arrival func(ctx context.Context, values func(name string) []string, chain []*x509.Certificate, address string) dispatch.Endpoint

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
	o.MaxAge = cmp.Or(o.MaxAge, 30*time.Minute)
	o.MaxGrace = cmp.Or(o.MaxGrace, 12*time.Hour)
	o.PublicTimeout = cmp.Or(o.PublicTimeout, publicWithin)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	b := &Binding{Options: o, health: health.NewServer(), public: limit.NewPlaces[string](maxPublic, maxPublicOfAddress), metadata: limit.Headers{Budget: o.Headers}}
	for _, c := range registry.Services(o.Limits.Depth) {
		b.services = append(b.services, &service{c, c.Traits().Statuses(o.FormerStatuses)})
	}
	secured := insecure.NewCredentials()
	if o.TLS != nil {
		secured = credentials.NewTLS(o.TLS)
	}
	b.server = grpc.NewServer(
		grpc.Creds(secured),
		grpc.ForceServerCodecV2(framing{}),
		grpc.InTapHandle(withCancel),
		grpc.StreamInterceptor(b.bound),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connectionWindow),
		grpc.MaxConcurrentStreams(maxCalls),
		grpc.MaxHeaderListSize(maxMetadata),
		grpc.ConnectionTimeout(o.HeaderTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: o.IdleTimeout, MaxConnectionAge: o.MaxAge, MaxConnectionAgeGrace: o.MaxGrace,
			Time: o.KeepAlive, Timeout: o.WriteTimeout,
		}),
	)
	for _, s := range b.services {
		b.server.RegisterService(b.describe(s), nil)
		b.health.SetServingStatus(s.Service(), grpc_health_v1.HealthCheckResponse_SERVING)
	}
	b.registerHealth()
	reflection.Register(b.server)
	return b
}

// describe lists the methods of a service. On the wire a call with one answer is a stream of one
// message, so all methods share one kind of handler.
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

// Announced returns the services as cards list them. One address serves every agent: a version
// whose requests cannot name the agent reaches only the common one.
func (b *Binding) Announced(common string) []card.Binding {
	if b.Address == "" {
		return nil
	}
	var all []card.Binding
	for _, s := range b.services {
		named := s.Traits().Tenants
		all = append(all, card.Binding{
			Name: "GRPC", Versions: []string{s.Traits().Version},
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

// Serve accepts connections on a listener and blocks until Shutdown.
func (b *Binding) Serve(l net.Listener, at Arrival) error {
	b.at = at
	if err := b.server.Serve(listener{l}); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// Drain tells the clients that check the service's health to call another server. Calls are still
// served.
func (b *Binding) Drain() { b.health.Shutdown() }

// Shutdown refuses new calls and waits for those in progress. Streams end when the hub is closed.
// When ctx ends first, Shutdown cuts the remaining calls.
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
