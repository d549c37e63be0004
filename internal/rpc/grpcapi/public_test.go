package grpcapi_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/holdfast-a2a/holdfast/internal/rpc/grpcapi"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// A Watch would stay open for as long as its client likes, of any service that it names.
func TestHealthHasNoWatch(t *testing.T) {
	t.Parallel()
	s := serve(t, recorder().As, grpcapi.Options{})
	for _, service := range []string{"", strings.Repeat("x", 1<<20)} {
		watch, err := grpc_health_v1.NewHealthClient(s.conn).Watch(with(t), &grpc_health_v1.HealthCheckRequest{Service: service})
		require.NoError(t, err)
		_, err = watch.Recv()
		require.Equal(t, codes.Unimplemented, codeOf(err), "clients then take the service as healthy")
	}
}

// Requests of health and reflection are refused by their announced size, before the server reads them.
func TestPublicRequestsAreSmall(t *testing.T) {
	t.Parallel()
	s := serve(t, recorder().As, grpcapi.Options{})
	long := strings.Repeat("x", 5<<10)
	health := grpc_health_v1.NewHealthClient(s.conn)
	_, err := health.Check(with(t), &grpc_health_v1.HealthCheckRequest{Service: long})
	require.Equal(t, codes.ResourceExhausted, codeOf(err))
	require.Contains(t, faultMessage(err), "the limit is 4096")
	_, err = health.Check(with(t), &grpc_health_v1.HealthCheckRequest{Service: long[:4<<10-3]})
	require.Equal(t, codes.NotFound, codeOf(err), "exactly at the limit")
	list, err := health.List(with(t), &grpc_health_v1.HealthListRequest{})
	require.NoError(t, err)
	require.Len(t, list.GetStatuses(), 3)
	c, err := grpc_reflection_v1.NewServerReflectionClient(s.conn).ServerReflectionInfo(with(t))
	require.NoError(t, err)
	require.NoError(t, c.Send(&grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: long},
	}))
	_, err = c.Recv()
	require.Equal(t, codes.ResourceExhausted, codeOf(err))
}

// Calls of health and reflection are limited for each address. Operations are not affected.
func TestPublicCallsAreLimited(t *testing.T) {
	t.Parallel()
	s := serve(t, recorder().As, grpcapi.Options{})
	reflection := grpc_reflection_v1.NewServerReflectionClient(s.conn)
	var held []grpc_reflection_v1.ServerReflection_ServerReflectionInfoClient
	for range 32 {
		c, err := reflection.ServerReflectionInfo(with(t))
		require.NoError(t, err)
		require.NoError(t, c.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}}))
		_, err = c.Recv()
		require.NoError(t, err)
		held = append(held, c)
	}
	health := grpc_health_v1.NewHealthClient(s.conn)
	_, err := health.Check(with(t), new(grpc_health_v1.HealthCheckRequest))
	require.Equal(t, codes.ResourceExhausted, codeOf(err))
	_, err = s.young.GetTask(with(t), &pb10.GetTaskRequest{Id: "t-1"})
	require.NoError(t, err)
	require.NoError(t, held[0].CloseSend())
	waittest.Eventually(t, "a place is free", func() error {
		_, err := health.Check(with(t), new(grpc_health_v1.HealthCheckRequest))
		return err
	})
	for _, c := range held[1:] {
		require.NoError(t, c.CloseSend())
	}
}

// The server ends a call of reflection whose client does not.
func TestPublicCallsEnd(t *testing.T) {
	t.Parallel()
	s := serve(t, recorder().As, grpcapi.Options{PublicTimeout: 20 * time.Millisecond})
	c, err := grpc_reflection_v1.NewServerReflectionClient(s.conn).ServerReflectionInfo(with(t))
	require.NoError(t, err)
	_, err = c.Recv()
	require.Equal(t, codes.DeadlineExceeded, codeOf(err))
	require.Contains(t, faultMessage(err), "call again")
}

// A connection beyond its age lasts no longer than the grace, whatever calls are open.
func TestConnectionsAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serveStreams(t, grpcapi.Options{MaxAge: time.Minute, MaxGrace: time.Second, HeaderTimeout: piped})
		began := time.Now()
		stream, err := s.young.SendStreamingMessage(with(t), send10("hi"))
		for err == nil {
			_, err = stream.Recv()
		}
		require.Equal(t, codes.Unavailable, codeOf(err), "the server closes the connection")
		require.Less(t, waittest.Elapsed(began), 2*time.Minute, "up to a tenth of the age is random")
	})
}
