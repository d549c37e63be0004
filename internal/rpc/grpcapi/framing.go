package grpcapi

import (
	"context"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/tap"
)

// frame is a message as it is on the wire: the codecs of the versions read and write it,
// and a message that many streams show is encoded once.
type frame []byte

// framing passes frames on. Messages of other services, such as reflection, it leaves to
// the usual codec.
type framing struct{}

func (framing) Name() string { return proto.Name }

func (framing) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(frame); ok {
		return mem.BufferSlice{mem.SliceBuffer(f)}, nil
	}
	return encoding.GetCodecV2(proto.Name).Marshal(v)
}

func (framing) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*frame); ok {
		*f = data.Materialize()
		return nil
	}
	return encoding.GetCodecV2(proto.Name).Unmarshal(data, v)
}

// cancelKey is where a call's context has what ends it.
type cancelKey struct{}

// withCancel lets us end a call from outside of its handler, which may wait in a read or in
// a write that the client does not let go on. The library has no deadlines for these.
func withCancel(ctx context.Context, _ *tap.Info) (context.Context, error) {
	ctx, cancel := context.WithCancel(ctx) // its parent ends with the call
	return context.WithValue(ctx, cancelKey{}, cancel), nil
}
