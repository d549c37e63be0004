package grpcapi_test

import (
	"errors"
	"io"
	"testing"

	pb03 "github.com/a2aproject/a2a-go/a2apb"
	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-a2a/holdfast/internal/rpc/grpcapi"
	"github.com/holdfast-a2a/holdfast/internal/rpctest"
)

// FuzzRequest sends arbitrary bytes to any method. The answer is a message, or an error that is not internal.
func FuzzRequest(f *testing.F) {
	var methods []string
	for _, service := range []*grpc.ServiceDesc{&pb10.A2AService_ServiceDesc, &pb03.A2AService_ServiceDesc} {
		for _, m := range service.Methods {
			methods = append(methods, "/"+service.ServiceName+"/"+m.MethodName)
		}
		for _, m := range service.Streams {
			methods = append(methods, "/"+service.ServiceName+"/"+m.StreamName)
		}
	}
	for i := range methods {
		for _, m := range []proto.Message{
			send10("hi"), send03("hi"), &pb10.GetTaskRequest{Id: "t-1", Tenant: "other"}, &pb03.GetTaskRequest{Name: "tasks/t-1", HistoryLength: -1},
		} {
			b, err := proto.Marshal(m)
			require.NoError(f, err)
			f.Add(uint8(i), b)
		}
		f.Add(uint8(i), []byte{})
	}
	s := serve(f, rpctest.ForAll(new(rpctest.Echo)), grpcapi.Options{})
	f.Fuzz(func(t *testing.T, method uint8, message []byte) {
		name := methods[int(method)%len(methods)]
		stream, err := s.conn.NewStream(with(t), &grpc.StreamDesc{ServerStreams: true}, name, grpc.ForceCodec(rawCodec{}))
		require.NoError(t, err)
		require.NoError(t, stream.SendMsg(message))
		require.NoError(t, stream.CloseSend())
		for {
			var answer []byte
			if err = stream.RecvMsg(&answer); err != nil {
				break
			}
		}
		if !errors.Is(err, io.EOF) {
			require.NotContains(t, []codes.Code{codes.Internal, codes.Unknown}, codeOf(err), "%s: %v", name, err)
		}
		require.Empty(t, s.logs.String())
	})
}
