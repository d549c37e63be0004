package grpcapi_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	pb03 "github.com/a2aproject/a2a-go/a2apb"
	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/holdfast-a2a/holdfast/internal/identity"
	"github.com/holdfast-a2a/holdfast/internal/rpc"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/rpc/grpcapi"
	"github.com/holdfast-a2a/holdfast/internal/rpc/jsonrpc"
	"github.com/holdfast-a2a/holdfast/internal/rpc/rest"
	"github.com/holdfast-a2a/holdfast/internal/rpctest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is the whole public server with its gRPC port.
type server struct {
	*rpc.Server
	addr    string
	network []grpc.DialOption // how clients reach it
	logs    *rpctest.Logs
	conn    *grpc.ClientConn
	old     pb03.A2AServiceClient
	young   pb10.A2AServiceClient
}

// serve starts a server; more changes the operations behind the binding.
func serve(t testing.TB, e func(identity.Caller, string) dispatch.Engine, o grpcapi.Options, more ...func(*dispatch.Options)) *server {
	t.Helper()
	s := &server{logs: new(rpctest.Logs)}
	o.Log = slog.New(slog.NewTextHandler(s.logs, nil))
	ops := dispatch.Options{Engine: e, Agents: []dispatch.Agent{
		{Name: "demo", Extensions: []dispatch.Extension{{URI: dispatch.ResumeURI}, {URI: "urn:a"}}},
		{Name: "other"},
		{Name: "strict", Extensions: []dispatch.Extension{{URI: "urn:must", Required: true}}},
	}}
	for _, change := range more {
		change(&ops)
	}
	o.Operations = dispatch.New(ops)
	demo := card.Card{Name: "Demo", Version: "1", Capabilities: card.Capabilities{Streaming: true, ExtendedCard: true}}
	var l net.Listener
	if o.HeaderTimeout == piped {
		pipes := rpctest.NewPipes()
		l, s.addr = pipes, "passthrough:///pipe"
		s.network = append(s.network, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipes.Dial(ctx) }))
	} else {
		var err error
		l, err = net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		s.addr = l.Addr().String()
	}
	if o.Address == "" {
		o.Address = "grpc.example.com:443"
	}
	s.Server = rpc.New(rpc.Options{
		Agents:    []rpc.Agent{{Name: "demo", Default: true, Card: demo}, {Name: "other"}, {Name: "strict"}},
		PublicURL: "https://a2a.example.com", GRPC: grpcapi.New(o), Log: o.Log,
		JSONRPC: jsonrpc.New(jsonrpc.Options{Operations: o.Operations}), REST: rest.New(rest.Options{Operations: o.Operations}),
	})
	served := make(chan error, 1)
	go func() { served <- s.ServeGRPC(l) }()
	s.conn = s.dial(t)
	s.old, s.young = pb03.NewA2AServiceClient(s.conn), pb10.NewA2AServiceClient(s.conn)
	t.Cleanup(func() {
		_ = s.conn.Close()
		_ = s.Shutdown(context.Background())
		require.NoError(t, <-served)
	})
	return s
}

// piped as a HeaderTimeout makes a server without a network, for a bubble.
const piped = 1234 * time.Second

func (s *server) dial(t testing.TB, o ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(s.addr, append(append(o, s.network...), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// with returns a context with metadata.
func with(t testing.TB, metadataPairs ...string) context.Context {
	t.Helper()
	return metadata.AppendToOutgoingContext(waittest.Context(t), metadataPairs...)
}

// streams is a server with a real engine and a real hub, on a log in memory.
type streams struct {
	*server
	*rpctest.Log
	closed chan struct{} // receives when a stream ends
}

func serveStreams(t testing.TB, o grpcapi.Options, more ...func(*dispatch.Options)) *streams {
	t.Helper()
	return serveLog(t, rpctest.NewLog(), o, more...)
}

func serveLog(t testing.TB, l *rpctest.Log, o grpcapi.Options, more ...func(*dispatch.Options)) *streams {
	t.Helper()
	s := &streams{Log: l, closed: make(chan struct{}, 100)}
	s.server = serve(t, s.Engine(), o, append(more, func(ops *dispatch.Options) {
		ops.Observer.StreamOpened = func(string) func() { return func() { s.closed <- struct{}{} } }
	})...)
	t.Cleanup(s.Hub.Close)
	return s
}

func send10(text string) *pb10.SendMessageRequest {
	return &pb10.SendMessageRequest{Message: &pb10.Message{
		MessageId: "m-1", Role: pb10.Role_ROLE_USER, Parts: []*pb10.Part{{Content: &pb10.Part_Text{Text: text}}},
	}}
}

func send03(text string) *pb03.SendMessageRequest {
	return &pb03.SendMessageRequest{Request: &pb03.Message{
		MessageId: "m-1", Role: pb03.Role_ROLE_USER, Parts: []*pb03.Part{{Part: &pb03.Part_Text{Text: text}}},
	}}
}

func recorder() *rpctest.Recorder { return &rpctest.Recorder{Task: rpctest.Sample("0.1")} }

// fault is an error as an answer shows it.
type fault struct {
	*grpcstatus.Status
	info    *errdetails.ErrorInfo
	members []string // the invalid members
	retry   time.Duration
}

func faultOf(t testing.TB, err error) *fault {
	t.Helper()
	require.Error(t, err)
	f := &fault{Status: grpcstatus.Convert(err)}
	for _, detail := range f.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			f.info = d
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				f.members = append(f.members, v.GetField()+": "+v.GetDescription())
			}
		case *errdetails.RetryInfo:
			f.retry = d.GetRetryDelay().AsDuration()
		default:
			t.Errorf("a detail of an unknown kind: %v", detail)
		}
	}
	require.NotNil(t, f.info, "%v", err)
	require.Equal(t, "a2a-protocol.org", f.info.GetDomain())
	return f
}

// ends expects a stream to end cleanly.
func ends[M any](t testing.TB, s grpc.ServerStreamingClient[M]) {
	t.Helper()
	m, err := s.Recv()
	if !errors.Is(err, io.EOF) {
		require.FailNow(t, "the stream continues", "%v, %v", m, err)
	}
}

func wait[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	return waittest.Within(t, "a signal", from)
}

func codeOf(err error) codes.Code { return grpcstatus.Code(err) }

func faultMessage(err error) string { return grpcstatus.Convert(err).Message() }
