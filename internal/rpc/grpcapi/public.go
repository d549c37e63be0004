package grpcapi

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/holdfast-a2a/holdfast/internal/limit"
)

// The public services, health and reflection, need no credential. So the server bounds their calls:
// how many are open, in total and from one address, for how long, and the size of a request in bytes.
const (
	maxPublic          = 512
	maxPublicOfAddress = 32
	maxPublicRequest   = 4 << 10
	publicWithin       = 30 * time.Second
)

// registerHealth serves grpc.health.v1.Health without Watch, whose calls would stay open for as long
// as their clients like. Clients then take the service as healthy, as the protocol of health checks
// says. Check and List are registered as streams, whose requests publicStream bounds.
func (b *Binding) registerHealth() {
	b.server.RegisterService(&grpc.ServiceDesc{
		ServiceName: grpc_health_v1.Health_ServiceDesc.ServiceName,
		Metadata:    grpc_health_v1.Health_ServiceDesc.Metadata,
		Streams: []grpc.StreamDesc{
			{StreamName: "Check", ServerStreams: true, Handler: unary(b.health.Check)},
			{StreamName: "List", ServerStreams: true, Handler: unary(b.health.List)},
		},
	}, nil)
}

// unary serves a method with one request and one answer as a stream.
func unary[In, Out any](method func(context.Context, *In) (*Out, error)) grpc.StreamHandler {
	return func(_ any, stream grpc.ServerStream) error {
		in := new(In)
		if err := stream.RecvMsg(in); err != nil {
			return err
		}
		out, err := method(stream.Context(), in)
		if err != nil {
			return err
		}
		return stream.SendMsg(out)
	}
}

// bound is an interceptor, which bounds the calls of the public services, and tells a connection when it has calls.
func (b *Binding) bound(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if p, ok := peer.FromContext(stream.Context()); ok {
		counted := limit.ConnectionAt(p.Addr)
		counted.Begin()
		defer counted.End()
	}
	if !strings.HasPrefix(info.FullMethod, "/grpc.") {
		return next(srv, stream)
	}
	ctx := stream.Context()
	leave, ok := b.public.Take(limit.Sender(b.client(ctx)))
	if !ok {
		return status.Error(codes.ResourceExhausted, "too many calls of health and reflection are open; try again later")
	}
	defer leave()
	large, err := b.takeMetadata(ctx)
	if err != nil {
		return err
	}
	defer large()
	cancel, _ := ctx.Value(cancelKey{}).(context.CancelFunc)
	late := time.AfterFunc(b.PublicTimeout, cancel)
	err = next(srv, publicStream{stream})
	if !late.Stop() {
		return status.Error(codes.DeadlineExceeded, "the call was open for too long; call again")
	}
	return err
}

// takeMetadata takes memory for the metadata of a call, until its credential is accepted.
func (b *Binding) takeMetadata(ctx context.Context) (leave func(), err error) {
	md, _ := metadata.FromIncomingContext(ctx)
	size := 0
	for name, values := range md {
		for _, v := range values {
			size += len(name) + len(v)
		}
	}
	leave, ok := b.metadata.Take(b.client(ctx), size, false)
	switch {
	case !ok:
		return nil, status.Error(codes.ResourceExhausted, "the metadata of all clients holds as much memory as it may; send less, or try again later")
	case leave == nil:
		return func() {}, nil
	}
	return leave, nil
}

// publicStream reads requests of a public service, whose size has a smaller limit than limits.max_body.
type publicStream struct{ grpc.ServerStream }

// RecvMsg implements grpc.ServerStream.
func (s publicStream) RecvMsg(m any) error {
	data, err := receive(s.Context(), func(size, _ int64) error {
		if size > maxPublicRequest {
			return status.Errorf(codes.ResourceExhausted, "the request has %d bytes; the limit is %d", size, maxPublicRequest)
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer data.Free()
	if err := (framing{}).Unmarshal(data, m); err != nil {
		return status.Error(codes.InvalidArgument, "the request is not a message of this service")
	}
	return nil
}
