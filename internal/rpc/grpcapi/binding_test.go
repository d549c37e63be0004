package grpcapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb03 "github.com/a2aproject/a2a-go/a2apb"
	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rawjson"
	"github.com/holdfast-a2a/holdfast/internal/rpc"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/dialecttest"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/rpc/grpcapi"
	"github.com/holdfast-a2a/holdfast/internal/rpc/jsonrpc"
	"github.com/holdfast-a2a/holdfast/internal/rpc/rest"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/rpctest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/internal/web"
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
func serve(t testing.TB, e func(task.Caller, string) dispatch.Engine, o grpcapi.Options, more ...func(*dispatch.Options)) *server {
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
		pipes := new(nettest.Network).Listen()
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

// golden compares a message with a golden file, as JSON.
func golden(t *testing.T, name string, m proto.Message) {
	t.Helper()
	b, err := protojson.Marshal(m)
	require.NoError(t, err)
	dialecttest.Golden(t, name, rawjson.Compact(b))
}

// unary calls a method by its name.
func (s *server) unary(ctx context.Context, method string, in, out proto.Message) error {
	return s.conn.Invoke(ctx, "/"+method, in, out)
}

const (
	service10 = "lf.a2a.v1.A2AService/"
	service03 = "a2a.v1.A2AService/"
)

// Tests every unary operation of both versions. The answers are golden files.
func TestOperations(t *testing.T) {
	t.Parallel()
	e := recorder()
	s := serve(t, e.As, grpcapi.Options{})
	for _, tt := range []struct {
		golden, method string
		in, out        proto.Message
		want           any // the type of the engine's request; nil: no request, but an error
	}{
		{"1.0/send", service10 + "SendMessage", send10("hi"), new(pb10.SendMessageResponse), new(engine.SendRequest)},
		{"1.0/get", service10 + "GetTask", &pb10.GetTaskRequest{Id: "t-1"}, new(pb10.Task), new(engine.GetRequest)},
		{"1.0/get-no-history", service10 + "GetTask", &pb10.GetTaskRequest{Id: "t-1", HistoryLength: proto.Int32(0)}, new(pb10.Task), new(engine.GetRequest)},
		{"1.0/list", service10 + "ListTasks", &pb10.ListTasksRequest{PageSize: proto.Int32(7)}, new(pb10.ListTasksResponse), new(engine.ListRequest)},
		{"1.0/cancel", service10 + "CancelTask", &pb10.CancelTaskRequest{Id: "t-1"}, new(pb10.Task), new(engine.CancelRequest)},
		{"1.0/push-set", service10 + "CreateTaskPushNotificationConfig", &pb10.TaskPushNotificationConfig{TaskId: "t-1", Url: "http://x"}, new(pb10.TaskPushNotificationConfig), new(engine.PushRequest)},
		{"1.0/push-get", service10 + "GetTaskPushNotificationConfig", &pb10.GetTaskPushNotificationConfigRequest{TaskId: "t-1", Id: "p"}, new(pb10.TaskPushNotificationConfig), new(engine.PushRequest)},
		{"1.0/push-list", service10 + "ListTaskPushNotificationConfigs", &pb10.ListTaskPushNotificationConfigsRequest{TaskId: "t-1"}, new(pb10.ListTaskPushNotificationConfigsResponse), new(engine.PushRequest)},
		{"1.0/push-delete", service10 + "DeleteTaskPushNotificationConfig", &pb10.DeleteTaskPushNotificationConfigRequest{TaskId: "t-1", Id: "p"}, new(emptypb.Empty), new(engine.PushRequest)},
		{"1.0/card", service10 + "GetExtendedAgentCard", &pb10.GetExtendedAgentCardRequest{}, new(pb10.AgentCard), "card"},
		{"0.3/send", service03 + "SendMessage", send03("hi"), new(pb03.SendMessageResponse), new(engine.SendRequest)},
		{"0.3/get", service03 + "GetTask", &pb03.GetTaskRequest{Name: "tasks/t-1"}, new(pb03.Task), new(engine.GetRequest)},
		{"0.3/list", service03 + "ListTasks", &pb03.ListTasksRequest{PageSize: 7}, new(pb03.ListTasksResponse), new(engine.ListRequest)},
		{"0.3/cancel", service03 + "CancelTask", &pb03.CancelTaskRequest{Name: "tasks/t-1"}, new(pb03.Task), new(engine.CancelRequest)},
		{"0.3/push-set", service03 + "CreateTaskPushNotificationConfig", &pb03.CreateTaskPushNotificationConfigRequest{Parent: "tasks/t-1", Config: &pb03.TaskPushNotificationConfig{PushNotificationConfig: &pb03.PushNotificationConfig{Url: "http://x"}}}, new(pb03.TaskPushNotificationConfig), new(engine.PushRequest)},
		{"0.3/push-get", service03 + "GetTaskPushNotificationConfig", &pb03.GetTaskPushNotificationConfigRequest{Name: "tasks/t-1/pushNotificationConfigs/p"}, new(pb03.TaskPushNotificationConfig), new(engine.PushRequest)},
		{"0.3/push-list", service03 + "ListTaskPushNotificationConfig", &pb03.ListTaskPushNotificationConfigRequest{Parent: "tasks/t-1"}, new(pb03.ListTaskPushNotificationConfigResponse), new(engine.PushRequest)},
		{"0.3/push-delete", service03 + "DeleteTaskPushNotificationConfig", &pb03.DeleteTaskPushNotificationConfigRequest{Name: "tasks/t-1/pushNotificationConfigs/p"}, new(emptypb.Empty), new(engine.PushRequest)},
		{"0.3/card", service03 + "GetAgentCard", &pb03.GetAgentCardRequest{}, new(pb03.AgentCard), "card"},
	} {
		err := s.unary(with(t), tt.method, tt.in, tt.out)
		asked := e.Last()
		require.NoError(t, err, tt.golden)
		golden(t, tt.golden, tt.out)
		if tt.want == "card" {
			require.Nil(t, asked)
			continue
		}
		require.IsType(t, tt.want, asked)
	}
}

// One golden file with every kind of error, for each table.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		method  string
		in, out proto.Message
		opt     grpcapi.Options
	}{
		"0.3/faults":          {service03 + "GetTask", &pb03.GetTaskRequest{Name: "tasks/t-1"}, new(pb03.Task), grpcapi.Options{}},
		"1.0/faults":          {service10 + "GetTask", &pb10.GetTaskRequest{Id: "t-1"}, new(pb10.Task), grpcapi.Options{}},
		"1.0/faults-of-1.0.0": {service10 + "GetTask", &pb10.GetTaskRequest{Id: "t-1"}, new(pb10.Task), grpcapi.Options{FormerStatuses: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := map[string]json.RawMessage{}
			for k := range task.Kind(task.KindCount) {
				if k == task.Internal || k == task.LeaseLost {
					continue // their ids differ each time
				}
				s := serve(t, (&rpctest.Recorder{Err: task.Errorf(k, "the detail")}).As, tt.opt)
				f := faultOf(t, s.unary(with(t), tt.method, tt.in, tt.out))
				b, err := protojson.Marshal(f.Proto())
				require.NoError(t, err)
				all[k.Error()+": "+f.Code().String()] = rawjson.Compact(b)
				require.Equal(t, k == task.Unavailable || k == task.RateLimited, f.retry == time.Second, k.Error())
				require.Equal(t, "t-1", f.info.GetMetadata()["taskId"])
			}
			dump, err := json.Marshal(all)
			require.NoError(t, err)
			dialecttest.Golden(t, name, dump)
		})
	}
}

func TestInternalErrorIsLoggedOnce(t *testing.T) {
	t.Parallel()
	for what, e := range map[string]*rpctest.Recorder{
		"hunter2": {Err: errors.New("password=hunter2")},
		"panic":   {}, // without a task
	} {
		s := serve(t, e.As, grpcapi.Options{})
		_, err10 := s.young.GetTask(with(t), &pb10.GetTaskRequest{Id: "t-1"})
		_, err03 := s.old.GetTask(with(t), &pb03.GetTaskRequest{Name: "tasks/t-1"})
		for _, err := range []error{err10, err03} {
			f := faultOf(t, err)
			require.Equal(t, codes.Internal, f.Code())
			require.Equal(t, "Internal error", f.Message())
			require.NotContains(t, f.String(), what)
			require.Contains(t, s.logs.String(), "error_id="+f.info.GetMetadata()["errorId"])
		}
		require.Contains(t, s.logs.String(), what)
	}
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	e := recorder()
	s := serve(t, e.As, grpcapi.Options{Limits: web.BodyLimits{Size: 4096}})
	_, err := s.young.SendMessage(with(t), &pb10.SendMessageRequest{Message: &pb10.Message{MessageId: "m", Role: pb10.Role_ROLE_USER}})
	f := faultOf(t, err)
	require.Equal(t, codes.InvalidArgument, f.Code())
	require.Equal(t, "INVALID_PARAMS", f.info.GetReason())
	require.Equal(t, []string{"message.parts: is required"}, f.members)
	_, err = s.old.GetTask(with(t), &pb03.GetTaskRequest{Name: "t-1"})
	require.Equal(t, []string{"name: must have the form tasks/{id}"}, faultOf(t, err).members)

	err = s.conn.Invoke(with(t), "/"+service10+"GetTask", []byte("\xff\xff"), new([]byte), grpc.ForceCodec(rawCodec{}))
	require.Equal(t, codes.InvalidArgument, faultOf(t, err).Code())
	require.Contains(t, err.Error(), "the message cannot be parsed")

	_, err = s.young.SendMessage(with(t), send10(strings.Repeat("x", 5000)))
	require.Error(t, err)
	require.Equal(t, codes.ResourceExhausted, codeOf(err))
	for _, method := range []string{service10 + "Nothing", service03 + "TaskSubscriptions", "a2a.v2.A2AService/GetTask"} {
		require.Equal(t, codes.Unimplemented, codeOf(s.unary(with(t), method, &pb10.GetTaskRequest{}, new(pb10.Task))))
	}
	require.Nil(t, e.Last(), "no request reached the engine")
	require.Empty(t, s.logs.String(), "no request was logged as an error")
}

func TestIncompleteRequest(t *testing.T) {
	t.Parallel()
	s := serve(t, recorder().As, grpcapi.Options{Limits: web.BodyLimits{Timeout: 50 * time.Millisecond}})
	for method, streams := range map[string]bool{"GetTask": false, "SubscribeToTask": true} {
		// The client neither sends anything nor ends its side.
		stream, err := s.conn.NewStream(with(t), &grpc.StreamDesc{ServerStreams: streams, ClientStreams: true}, "/"+service10+method)
		require.NoError(t, err)
		require.Equal(t, codes.Canceled, codeOf(stream.RecvMsg(new(pb10.Task))))
	}
}

// The tests of JSON-RPC prove what operations do with metadata, tenants and extensions.
func TestMetadata(t *testing.T) {
	t.Parallel()
	e := recorder()
	s := serve(t, e.As, grpcapi.Options{})
	var header metadata.MD
	toOther := send10("hi")
	toOther.Tenant = "other"
	_, err := s.young.SendMessage(with(t, "idempotency-key", "k-1", "a2a-version", "1.0"), toOther)
	require.NoError(t, err)
	sent, _ := e.Last().(*engine.SendRequest)
	require.Equal(t, []string{"k-1", "1.0"}, []string{sent.IdempotencyKey, sent.Dialect})
	_, asked := e.LastBy()
	require.Equal(t, "other", asked)
	_, err = s.old.SendMessage(with(t, "Idempotency-Key", "k-2"), send03("hi"))
	require.NoError(t, err)
	sent, _ = e.Last().(*engine.SendRequest)
	require.Equal(t, []string{"k-2", "0.3"}, []string{sent.IdempotencyKey, sent.Dialect})
	_, asked = e.LastBy()
	require.Equal(t, "demo", asked, "0.3 cannot name an agent")
	_, err = s.young.ListTasks(with(t, "prefer", "respond-async, count = exact"), &pb10.ListTasksRequest{})
	require.NoError(t, err)
	listed, _ := e.Last().(*engine.ListRequest)
	require.True(t, listed.ExactTotal)

	for _, said := range []string{"a2a-extensions", "x-a2a-extensions"} {
		_, err := s.young.GetTask(with(t, said, "urn:z, urn:a"), &pb10.GetTaskRequest{Id: "t-1"}, grpc.Header(&header))
		require.NoError(t, err)
		require.Equal(t, []string{"urn:a"}, header.Get("a2a-extensions"))
		_, err = s.old.GetTask(with(t, said, "urn:z", said, "urn:a"), &pb03.GetTaskRequest{Name: "tasks/t-1"}, grpc.Header(&header))
		require.NoError(t, err)
		require.Equal(t, []string{"urn:a"}, header.Get("x-a2a-extensions"))
	}
	_, err = s.young.SendMessage(with(t, "idempotency-key", strings.Repeat("k", 256)), send10("hi"))
	require.Contains(t, faultOf(t, err).members[0], "Idempotency-Key: ")
	_, err = s.young.GetTask(with(t), &pb10.GetTaskRequest{Tenant: "nobody", Id: "t-1"})
	require.Equal(t, []string{"tenant: no agent of this name is served here"}, faultOf(t, err).members)
	_, err = s.young.GetTask(with(t), &pb10.GetTaskRequest{Tenant: "strict", Id: "t-1"})
	require.Equal(t, "EXTENSION_SUPPORT_REQUIRED", faultOf(t, err).info.GetReason())
}

// Package registry has the cases.
func TestVersions(t *testing.T) {
	t.Parallel()
	for _, strict := range []bool{false, true} {
		s := serve(t, recorder().As, grpcapi.Options{StrictVersion: strict})
		get10 := func(version string) error {
			_, err := s.young.GetTask(with(t, "a2a-version", version), &pb10.GetTaskRequest{Id: "t-1"})
			return err
		}
		get03 := func(version string) error {
			_, err := s.old.GetTask(with(t, "a2a-version", version), &pb03.GetTaskRequest{Name: "tasks/t-1"})
			return err
		}
		require.NoError(t, get10("1.0.1"))
		require.NoError(t, get03("0.2.5"))
		require.Equal(t, strict, get03("1.0") != nil)
		_, err := s.young.GetTask(with(t), &pb10.GetTaskRequest{Id: "t-1"})
		require.Equal(t, strict, err != nil, "without a version")
		for code, err := range map[codes.Code]error{codes.FailedPrecondition: get10("99.0"), codes.Unimplemented: get03("x")} {
			f := faultOf(t, err)
			require.Equal(t, "VERSION_NOT_SUPPORTED", f.info.GetReason())
			require.Equal(t, code, f.Code())
		}
	}
}

func TestCardsAnnounceGRPC(t *testing.T) {
	t.Parallel()
	b := grpcapi.New(grpcapi.Options{Address: "grpc.example.com:443"})
	p := card.NewPublisher(card.Options{Bindings: b.Announced("demo")})
	require.Equal(t, []card.Interface{
		{Binding: "GRPC", Version: "1.0", URL: "grpc.example.com:443"}, {Binding: "GRPC", Version: "0.3", URL: "grpc.example.com:443"},
	}, p.Interfaces("demo", "https://a2a.example.com"))
	require.Equal(t, []card.Interface{
		{Binding: "GRPC", Version: "1.0", URL: "grpc.example.com:443", Tenant: "other"},
	}, p.Interfaces("other", "https://a2a.example.com/agents/other"), "0.3 cannot name an agent")
	require.Empty(t, grpcapi.New(grpcapi.Options{}).Announced("demo"), "no address is configured")
}

func TestHealth(t *testing.T) {
	t.Parallel()
	s := serve(t, recorder().As, grpcapi.Options{})
	c := grpc_health_v1.NewHealthClient(s.conn)
	for _, service := range []string{"", strings.TrimSuffix(service10, "/"), strings.TrimSuffix(service03, "/")} {
		r, err := c.Check(with(t), &grpc_health_v1.HealthCheckRequest{Service: service})
		require.NoError(t, err)
		require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, r.GetStatus())
	}
	_, err := c.Check(with(t), &grpc_health_v1.HealthCheckRequest{Service: "nothing"})
	require.Equal(t, codes.NotFound, codeOf(err))
}

func TestReflection(t *testing.T) {
	t.Parallel()
	s := serve(t, recorder().As, grpcapi.Options{})
	c, err := grpc_reflection_v1.NewServerReflectionClient(s.conn).ServerReflectionInfo(with(t))
	require.NoError(t, err)
	require.NoError(t, c.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}}))
	r, err := c.Recv()
	require.NoError(t, err)
	var services []string
	for _, one := range r.GetListServicesResponse().GetService() {
		services = append(services, one.GetName())
	}
	for _, service := range []string{service10, service03} {
		service = strings.TrimSuffix(service, "/")
		require.Contains(t, services, service)
		require.NoError(t, c.Send(&grpc_reflection_v1.ServerReflectionRequest{
			MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service},
		}))
		r, err := c.Recv()
		require.NoError(t, err)
		var file descriptorpb.FileDescriptorProto
		require.NoError(t, proto.Unmarshal(r.GetFileDescriptorResponse().GetFileDescriptorProto()[0], &file))
		// The server serves every method that it describes.
		for _, m := range file.GetService()[0].GetMethod() {
			stream, err := s.conn.NewStream(with(t), &grpc.StreamDesc{ServerStreams: true}, "/"+service+"/"+m.GetName())
			require.NoError(t, err)
			require.NoError(t, stream.SendMsg(new(pb10.GetTaskRequest)))
			require.NoError(t, stream.CloseSend())
			if err := stream.RecvMsg(new(pb10.Task)); err != nil {
				require.NotEqual(t, "unknown method "+m.GetName()+" for service "+service, faultMessage(err))
			}
		}
	}
	require.NoError(t, c.CloseSend())
}

// A canceled call is no fault.
func TestCanceledCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serveStreams(t, grpcapi.Options{HeaderTimeout: piped})
		ctx, cancel := context.WithCancel(with(t))
		failed := make(chan error, 1)
		go func() {
			_, err := s.young.SendMessage(ctx, send10("hi"))
			failed <- err
		}()
		<-s.Created
		cancel()
		require.Equal(t, codes.Canceled, codeOf(<-failed))
		// Its deadline passes first at the server or at the client.
		stream := s.subscribe10(t, s.Task("1.0", task.Event{Kind: task.EventStatus, State: task.StateWorking}))
		expect(t, stream, "task working")
		_, err := stream.Recv()
		require.Equal(t, codes.DeadlineExceeded, codeOf(err))
		s.idle(t)
		require.Empty(t, s.logs.String())
	})
}

func TestClosedListener(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.Error(t, grpcapi.New(grpcapi.Options{}).Serve(l, nil), "a listener that is closed")
}

func TestOutcomesAreCounted(t *testing.T) {
	t.Parallel()
	outcomes := make(chan string, 10)
	s := serve(t, recorder().As, grpcapi.Options{Limits: web.BodyLimits{Size: 1000}}, func(o *dispatch.Options) {
		o.Observer.Answered = func(a dispatch.Answer) {
			if a.Binding != "grpc" || a.Took <= 0 {
				t.Errorf("binding %q, took %s", a.Binding, a.Took)
			}
			outcomes <- fmt.Sprint(a.Operation, " ", a.Version, " ", a.Outcome)
		}
	})
	_, _ = s.young.GetTask(with(t), &pb10.GetTaskRequest{Id: "t-1"})
	require.Equal(t, "get 1.0 ok", wait(t, outcomes))
	_, _ = s.old.GetTask(with(t), &pb03.GetTaskRequest{})
	require.Equal(t, "get 0.3 INVALID_PARAMS", wait(t, outcomes))
	_, _ = s.young.SendMessage(with(t), send10(strings.Repeat("x", 2000)))
	require.Equal(t, "send 1.0 REQUEST_TOO_LARGE", wait(t, outcomes))
}

// rawCodec sends bytes unchanged.
type rawCodec struct{}

func (rawCodec) Name() string                  { return "proto" }
func (rawCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (rawCodec) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = slices.Clone(b)
	return nil
}
