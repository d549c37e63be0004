package grpcapi

import (
	"context"
	"encoding/binary"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/holdfast-a2a/holdfast/internal/limit"
)

// The library takes this many bytes from a client before the binding reads: on a stream, and on a connection.
const (
	streamWindow     = 64 << 10
	connectionWindow = 1 << 20
)

// receive reads the request of a call, first a small part of it and then the rest. Before each it asks
// admit, with the size of the request and the bytes that will have arrived, and returns its error.
// ServerStream.RecvMsg would tell the size only when all has arrived.
func receive(ctx context.Context, admit func(size, upto int64) error) (mem.BufferSlice, error) {
	in, ok := grpc.ServerTransportStreamFromContext(ctx).(interface {
		ReadMessageHeader(header []byte) error
		Read(n int) (mem.BufferSlice, error)
	})
	if !ok {
		return nil, status.Error(codes.Internal, "this version of the gRPC library cannot bound requests")
	}
	var head [5]byte // is it compressed, and its size
	if err := in.ReadMessageHeader(head[:]); err != nil {
		return nil, unread(err)
	}
	if head[0] != 0 {
		return nil, status.Error(codes.Unimplemented, "requests must not be compressed")
	}
	size := int64(binary.BigEndian.Uint32(head[1:]))
	var request mem.BufferSlice
	for read, upto := int64(0), min(size, limit.SmallBytes); ; read, upto = upto, size {
		err := admit(size, upto)
		var part mem.BufferSlice
		if err == nil {
			part, err = in.Read(int(upto - read))
			err = unread(err)
		}
		if err != nil {
			request.Free()
			return nil, err
		}
		request = append(request, part...)
		if upto == size {
			return request, nil
		}
	}
}

// unread returns the error of a request that did not arrive.
func unread(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return status.Error(codes.Internal, "the request is incomplete")
	}
	return err
}
