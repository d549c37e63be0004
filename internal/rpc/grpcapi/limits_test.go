package grpcapi_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb03 "github.com/a2aproject/a2a-go/a2apb"
	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/rpc/grpcapi"
	"github.com/holdfast-a2a/holdfast/internal/test/rpctest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
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

// within is an operation's memory.
func within(b *limit.Budgets) func(*dispatch.Options) {
	return func(o *dispatch.Options) { o.Memory = b }
}

func TestFullBudgetRefusesLargeMessages(t *testing.T) {
	t.Parallel()
	budgets := limit.NewBudgets(64 << 20)
	budgets.Requests.Large.Patience = time.Millisecond
	limited := make(chan string, 10)
	s := serve(t, recorder().As, grpcapi.Options{}, within(budgets), func(o *dispatch.Options) {
		o.Observer.Limited = func(_, by string) { limited <- by }
	})
	size := budgets.Requests.Large.Stat().Size
	require.True(t, budgets.Requests.Large.TryTake(limit.Holder{Agent: "another"}, size))
	large := send10(strings.Repeat("x", 1<<20))
	_, err := s.young.SendMessage(with(t), large)
	f := faultOf(t, err)
	require.Equal(t, codes.Unavailable, f.Code())
	require.Equal(t, 2*time.Second, f.retry)
	require.Equal(t, "memory", <-limited)
	// Small requests do not compete with large ones.
	_, err = s.young.GetTask(with(t), &pb10.GetTaskRequest{Id: "t-1"})
	require.NoError(t, err)
	budgets.Requests.Large.Give(limit.Holder{Agent: "another"}, size)
	_, err = s.young.SendMessage(with(t), large)
	require.NoError(t, err)
	waittest.Eventually(t, "the bytes", func() error {
		used := int64(0)
		budgets.Each(func(_ string, s limit.BudgetStat) { used += s.Used })
		return waittest.Unless(used == 0, "%d are in use", used)
	})
}

// TestMessageTakesMemoryBeforeItArrives speaks HTTP/2, because a client's library has no half messages.
func TestMessageTakesMemoryBeforeItArrives(t *testing.T) {
	t.Parallel()
	budgets := limit.NewBudgets(64 << 20)
	s := serve(t, recorder().As, grpcapi.Options{}, within(budgets))
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.addr)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	require.NoError(t, c.SetDeadline(time.Now().Add(waittest.Patience)))
	_, err = c.Write([]byte(http2.ClientPreface))
	require.NoError(t, err)
	framer := http2.NewFramer(c, c)
	require.NoError(t, framer.WriteSettings())
	var block strings.Builder
	head := hpack.NewEncoder(&block)
	for _, h := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":authority", s.addr},
		{":path", "/" + service10 + "SendMessage"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		require.NoError(t, head.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}))
	}
	require.NoError(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte(block.String()), EndHeaders: true}))

	const size = 8 << 20
	require.NoError(t, framer.WriteData(1, false, binary.BigEndian.AppendUint32([]byte{0}, size)))
	waittest.Eventually(t, "the call", func() error { return waittest.Unless(budgets.Requests.Small.Stat().Used > 0, "no bytes in use") })
	require.Zero(t, budgets.Requests.Large.Stat().Used, "an announced message holds nothing")
	// The client fills the window, and sends the rest of what is small when the server has read that.
	data := make([]byte, limit.SmallBytes)
	for len(data) > 5 {
		n := min(len(data)-5, 16<<10)
		require.NoError(t, framer.WriteData(1, false, data[:n]))
		data = data[n:]
	}
	for {
		f, err := framer.ReadFrame()
		require.NoError(t, err)
		if w, ok := f.(*http2.WindowUpdateFrame); ok && w.StreamID == 1 {
			break
		}
	}
	require.NoError(t, framer.WriteData(1, false, data))
	waittest.Eventually(t, "the rest", func() error { return waittest.Unless(budgets.Requests.Large.Stat().Used > size, "bytes are in use") })
	require.NoError(t, c.Close())
	waittest.Eventually(t, "the end", func() error {
		return waittest.Unless(budgets.Requests.Large.Stat().Used == 0 && budgets.Requests.Small.Stat().Used == 0, "bytes are in use")
	})
}

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
