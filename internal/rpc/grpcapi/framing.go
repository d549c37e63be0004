package grpcapi

import (
	"context"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/tap"
)

// frame is a message as it is on the wire. The codecs of the versions read and write frames, so the
// server encodes a message once for all streams that show it.
type frame []byte

// framing passes frames through. It leaves messages of other services, such as reflection, to the
// usual codec.
type framing struct{}

func (framing) Name() string { return proto.Name }

func (framing) Marshal(v any) (mem.BufferSlice, error) {
	switch f := v.(type) {
	case frame:
		return mem.BufferSlice{mem.SliceBuffer(f)}, nil
	case *outgoing:
		return mem.BufferSlice{mem.NewBuffer((*[]byte)(&f.frame), f)}, nil
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

// outgoing is a large message of a stream. It is a pool for its own buffer, to learn when the library
// no longer needs the message: SendMsg returns before that.
type outgoing struct {
	frame
	sent chan struct{} // closed then
}

// large is the size in bytes above which a stream waits until a message is sent. The library pools,
// and so returns, only buffers of more than a kibibyte.
const large = 64 << 10

// Get is not called: the pool is for a buffer that exists.
func (*outgoing) Get(int) *[]byte { return nil }

// Put takes the buffer back. Its bytes belong to all streams that show the message.
func (o *outgoing) Put(*[]byte) { close(o.sent) }

// cancelKey is the context key of a call's cancel function.
type cancelKey struct{}

// withCancel lets the binding end a call from outside its handler. The handler may be blocked in a
// read or write that depends on the client, and the library has no deadlines for these.
func withCancel(ctx context.Context, _ *tap.Info) (context.Context, error) {
	ctx, cancel := context.WithCancel(ctx) // its parent ends with the call
	return context.WithValue(ctx, cancelKey{}, cancel), nil
}
