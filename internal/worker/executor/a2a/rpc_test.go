package a2a_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	pb03 "github.com/a2aproject/a2a-go/a2apb"
	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-a2a/holdfast/internal/secrets"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/certtest"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/a2a"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/executortest"
)

// rpcAgent is a scripted server of both versions over gRPC. It reads and writes the messages of the official library, and
// refuses what they do not have.
type rpcAgent struct {
	script[func(rpcStream) error]
	t       *testing.T
	version string
	address string // host:port
}

// rpcStream is a call of the agent.
type rpcStream struct {
	grpc.ServerStream
	reply protoreflect.MessageType
}

// says sends a message, written in ProtoJSON.
func (s rpcStream) says(document string) error {
	m := s.reply.New().Interface()
	if err := protojson.Unmarshal([]byte(document), m); err != nil {
		return grpcstatus.Errorf(codes.Internal, "the test's own answer: %s", err)
	}
	return s.SendMsg(m)
}

// rpcSays answers with messages. With "cut" it breaks the connection, with "hold" it waits until the client leaves.
func rpcSays(documents ...string) func(rpcStream) error {
	return func(s rpcStream) error {
		for _, document := range documents {
			if document == "hold" {
				<-s.Context().Done()
				return s.Context().Err()
			}
			if err := s.says(document); err != nil {
				return err
			}
		}
		return nil
	}
}

func rpcFails(code codes.Code, message string, details ...protoadapt.MessageV1) func(rpcStream) error {
	return func(rpcStream) error {
		s := grpcstatus.New(code, message)
		if len(details) == 0 {
			return s.Err()
		}
		s, err := s.WithDetails(details...)
		if err != nil {
			return err
		}
		return s.Err()
	}
}

// newRPCAgent starts a server of a version, and makes the executor in front of it. Its card is on another port.
func newRPCAgent(t *testing.T, version string, opts a2a.Options, more ...grpc.ServerOption) (*rpcAgent, *a2a.Front) {
	t.Helper()
	a := &rpcAgent{t: t, version: version}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	a.serve(l, more...)
	a.address = l.Addr().String()
	if opts.CardURL == "" && opts.URL == "" {
		cards := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, a.card()) }))
		t.Cleanup(cards.Close)
		opts.CardURL = cards.URL
	}
	opts.PollInterval, opts.CallTimeout, opts.ConnectTimeout = 20*time.Millisecond, never, never
	f, err := a2a.New(opts)
	require.NoError(t, err)
	return a, f
}

// serve serves a listener until the test ends, or until stop.
func (a *rpcAgent) serve(l net.Listener, more ...grpc.ServerOption) (stop func()) {
	server := grpc.NewServer(append(more, grpc.UnknownServiceHandler(a.handle))...)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	stop = sync.OnceFunc(func() {
		server.Stop()
		<-done
	})
	a.t.Cleanup(stop)
	return stop
}

// card is in the form of the agent's version, with gRPC as its only binding.
func (a *rpcAgent) card() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.version == "0.3" {
		return fmt.Sprintf(`{"name":"Up","description":"d","version":"1","capabilities":{"streaming":true,"pushNotifications":true},"skills":[],
			"supportsAuthenticatedExtendedCard":true,"protocolVersion":"0.3.0","url":%q,"preferredTransport":"GRPC"}`, a.address)
	}
	return fmt.Sprintf(`{"name":"Up","description":"d","version":"1","capabilities":{"streaming":true,"pushNotifications":true,"extendedAgentCard":true},
		"skills":[],"supportedInterfaces":[{"url":%q,"protocolBinding":"GRPC","protocolVersion":"1.0","tenant":"t-1"}]}`, a.address)
}

func (a *rpcAgent) handle(_ any, stream grpc.ServerStream) error {
	full, _ := grpc.MethodFromServerStream(stream)
	service, method, _ := strings.Cut(strings.TrimPrefix(full, "/"), "/")
	files := map[string]protoreflect.FileDescriptor{"1.0": pb10.File_a2av1_proto, "0.3": pb03.File_a2a_proto}
	known := files[a.version].Services().ByName("A2AService")
	m := known.Methods().ByName(protoreflect.Name(method))
	if string(known.FullName()) != service || m == nil {
		a.t.Errorf("%s is not a method of %s", full, a.version)
		return grpcstatus.Error(codes.Unimplemented, "unknown method")
	}
	in := typeOf(a.t, m.Input()).New().Interface()
	if err := stream.RecvMsg(in); err != nil {
		return err
	}
	if len(in.ProtoReflect().GetUnknown()) > 0 {
		a.t.Errorf("%s has unknown fields", full)
	}
	params, err := protojson.Marshal(in)
	if err != nil {
		return err
	}
	header, _ := metadata.FromIncomingContext(stream.Context())
	answer, ok := a.answerTo(call{Method: method, Params: params, Header: http.Header(header)})
	if !ok {
		return grpcstatus.Errorf(codes.Unimplemented, "method %s not implemented", method)
	}
	return answer(rpcStream{stream, typeOf(a.t, m.Output())})
}

func typeOf(t *testing.T, d protoreflect.MessageDescriptor) protoreflect.MessageType {
	t.Helper()
	m, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		t.Error(err)
	}
	return m
}

func eachRPC(t *testing.T, do func(t *testing.T, version string)) {
	t.Helper()
	for _, version := range []string{"1.0", "0.3"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			do(t, version)
		})
	}
}

func TestGRPCPassesAStreamOn(t *testing.T) {
	t.Parallel()
	eachRPC(t, func(t *testing.T, version string) {
		t.Helper()
		a, f := newRPCAgent(t, version, a2a.Options{
			Headers: map[string]string{"X-Mine": "1", "User-Agent": "mine"}, Auth: a2a.Auth{Bearer: secrets.Text("s3cret")}, Forward: []string{"X-Theirs"},
		})
		a.on("SendStreamingMessage", rpcSays(working(""), status("WORKING", "reading"), chunk("one ", false), chunk("two", true), status("COMPLETED", "done")))
		run, out := executortest.NewRun("hello"), executortest.NewRecorder()
		run.TurnMetadata, run.Forwarded = []byte(`{"n":1}`), task.Forwarded{"X-Theirs": "2"}
		run.AcceptedOutputModes, run.Extensions = []string{"text/plain"}, []string{"urn:x"}
		run.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		require.NoError(t, executortest.Wait(t, executortest.Go(t.Context(), f, run, &linkedFirst{out, t, run})))

		got := out.Task(t)
		require.Equal(t, task.StateCompleted, got.Status.State)
		require.Equal(t, "done", got.Status.Message.FirstText())
		require.Equal(t, "one two", out.Text(t))
		require.Equal(t, "s-reading", got.History[0].ID)
		sent := a.called("SendStreamingMessage")
		require.Len(t, sent, 1)
		tenant := map[string]string{"1.0": `"tenant":"t-1",`}[version]
		require.JSONEq(t, `{`+tenant+`"message":{"messageId":"01020304-0506-0708-0900-000000000000:1","role":"ROLE_USER","parts":[{"text":"hello"}]},
			"configuration":{"acceptedOutputModes":["text/plain"]},"metadata":{"n":1}}`, string(sent[0].Params))
		for name, want := range map[string]string{
			"a2a-version": version, "authorization": "Bearer s3cret", "x-mine": "1", "x-theirs": "2", "traceparent": run.Traceparent,
			"idempotency-key": "01020304-0506-0708-0900-000000000000:1",
		} {
			require.Equal(t, []string{want}, sent[0].Header[name], name)
		}
		require.Regexp(t, "^mine ", metadata.MD(sent[0].Header).Get("user-agent")[0])
		require.NotContains(t, sent[0].Header, "accept")
	})
}

// TestGRPCOperations sends each operation but the stream, as the messages of the official library.
func TestGRPCOperations(t *testing.T) {
	t.Parallel()
	eachRPC(t, func(t *testing.T, version string) {
		t.Helper()
		a, f := newRPCAgent(t, version, a2a.Options{Poll: true, Auth: a2a.Auth{Bearer: secrets.Text("s3cret")}})
		f.Push(func(task.ID) (url, token string) { return "https://holdfast.example/n", "s3cret" })
		extended := map[string]string{"1.0": "GetExtendedAgentCard", "0.3": "GetAgentCard"}[version]
		a.on(extended, rpcSays(strings.Replace(a.card(), `"name":"Up"`, `"name":"More"`, 1)))
		a.on("SendMessage", rpcSays(working("")))
		a.on("CreateTaskPushNotificationConfig", rpcSays("{}"))
		a.on("GetTask", rpcSays(taskIn("WORKING", artifact("one "))))
		a.on("GetTask", rpcSays(`{"id":"up-1","contextId":"ctx-1","status":{"state":"TASK_STATE_INPUT_REQUIRED","message":{"messageId":"q","role":"ROLE_AGENT","parts":[{"text":"which?"}]}}}`))
		a.on("CancelTask", rpcSays(taskIn(map[string]string{"1.0": "CANCELED", "0.3": "CANCELLED"}[version], "")))
		run := executortest.NewRun("hello")
		out := completes(t, f, run)
		require.Equal(t, task.StateInputRequired, out.Task(t).Status.State)
		require.NoError(t, cancelRun(t, f, run, executor.ReasonCanceled))
		a.on("GetTask", rpcSays(taskIn("COMPLETED", artifact("one two"))))
		require.Equal(t, task.StateCompleted, completes(t, f, nextTurn(run, out, "that one")).Task(t).Status.State)
		cards, err := f.Cards(t.Context())
		require.NoError(t, err)
		require.Equal(t, "More", cards.Extended.Name)
		require.Equal(t, []string{"Bearer s3cret"}, metadata.MD(a.called(extended)[0].Header).Get("authorization"))

		for method, want := range map[string]map[string]string{
			"1.0": {
				"GetTask":    `{"tenant":"t-1","id":"up-1"}`,
				"CancelTask": `{"tenant":"t-1","id":"up-1","metadata":{"why":"x"}}`,
				"CreateTaskPushNotificationConfig": `{"tenant":"t-1","id":"holdfast","taskId":"up-1","url":"https://holdfast.example/n","token":"s3cret",
					"authentication":{"scheme":"Bearer","credentials":"s3cret"}}`,
			},
			"0.3": {
				"GetTask":    `{"name":"tasks/up-1"}`,
				"CancelTask": `{"name":"tasks/up-1"}`,
				"CreateTaskPushNotificationConfig": `{"parent":"tasks/up-1","configId":"holdfast","config":{"name":"tasks/up-1/pushNotificationConfigs/holdfast",
					"pushNotificationConfig":{"id":"holdfast","url":"https://holdfast.example/n","token":"s3cret","authentication":{"schemes":["Bearer"],"credentials":"s3cret"}}}}`,
			},
		}[version] {
			require.JSONEq(t, want, string(a.called(method)[0].Params), method)
		}
		first, second := strings.ReplaceAll(string(a.called("SendMessage")[0].Params), " ", ""), strings.ReplaceAll(string(a.called("SendMessage")[1].Params), " ", "")
		require.Equal(t, version == "1.0", strings.Contains(first, `"returnImmediately":true`))
		require.Contains(t, second, `"taskId":"up-1"`)
		require.Contains(t, second, `"contextId":"ctx-1"`)
	})
}

func TestGRPCGoesOnAfterACut(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(rpcStream) error{
		"a clean end":        func(rpcStream) error { return nil },
		"a crash":            rpcFails(codes.Internal, "it broke"),
		"a lost credential":  rpcFails(codes.Unauthenticated, "the token has expired"),
		"a server that ends": rpcFails(codes.Unavailable, "the server is stopping"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, f := newRPCAgent(t, "1.0", a2a.Options{})
			a.on("SendStreamingMessage", func(s rpcStream) error {
				if err := rpcSays(working(""), chunk("one ", false))(s); err != nil {
					return err
				}
				return cut(s)
			})
			a.on("GetTask", rpcSays(taskIn("WORKING", artifact("one ", "two "))))
			a.on("GetTask", rpcSays(taskIn("COMPLETED", artifact("one ", "two ", "three"))))
			require.Equal(t, "one two three", completes(t, f, executortest.NewRun("hello")).Text(t))
			require.Len(t, a.called("SendStreamingMessage"), 1)
		})
	}
}

// The connection dies, the server comes back on the same port, and the run goes on.
func TestGRPCConnectsAgain(t *testing.T) {
	t.Parallel()
	address := nettest.Reserve(t)
	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	a, _ := newRPCAgent(t, "1.0", a2a.Options{})
	stop := a.serve(l)
	f, err := a2a.New(a2a.Options{URL: "http://" + address, Version: "1.0", Binding: "grpc", PollInterval: 20 * time.Millisecond, CallTimeout: never, ConnectTimeout: never})
	require.NoError(t, err)
	a.on("SendStreamingMessage", rpcSays(working(""), chunk("one ", false), "hold"))
	a.on("GetTask", rpcSays(taskIn("COMPLETED", artifact("one two"))))
	run, out := executortest.NewRun("hello"), executortest.NewRecorder()
	done := executortest.Go(t.Context(), f, run, out)
	out.Await(t, 2)
	stop()
	l, err = net.Listen("tcp", address)
	require.NoError(t, err)
	a.serve(l)
	require.NoError(t, executortest.Wait(t, done))
	require.Equal(t, "one two", out.Text(t))
}

func TestGRPCFaults(t *testing.T) {
	t.Parallel()
	soon := &errdetails.RetryInfo{RetryDelay: durationpb.New(7 * time.Second)}
	for name, c := range map[string]struct {
		answer    func(rpcStream) error
		want      string
		away      bool // the task waits for the agent
		again     bool // another try may help
		after     time.Duration
		forwarded bool
		class     web.Class // of the call, in the metrics; by it the front decides whether the agent is away
	}{
		"away":                  {answer: rpcFails(codes.Unavailable, "later", soon), want: "the agent answered Unavailable", away: true, after: 7 * time.Second, class: web.Overloaded},
		"busy":                  {answer: rpcFails(codes.ResourceExhausted, "too many"), want: "the agent answered ResourceExhausted", away: true},
		"a deadline in between": {answer: rpcFails(codes.DeadlineExceeded, "slow"), want: "the agent answered DeadlineExceeded", away: true, again: true, class: web.Gateway},
		"a message too large":   {answer: rpcFails(codes.ResourceExhausted, "grpc: received message larger than max (2 vs. 1)"), want: "larger than max", class: web.Refused},
		"a request too large": {
			answer: rpcFails(codes.ResourceExhausted, "no", &errdetails.ErrorInfo{Reason: "REQUEST_TOO_LARGE"}), want: "answered with ResourceExhausted: no",
		},
		"an error":           {answer: rpcFails(codes.InvalidArgument, "message.parts: no\nimages"), want: "InvalidArgument: message.parts: no images", class: web.Refused},
		"a refusal":          {answer: rpcFails(codes.Unauthenticated, "no s3cret"), want: "refused the server's credential"},
		"a forbidden call":   {answer: rpcFails(codes.PermissionDenied, "no"), want: "refused the server's credential"},
		"a client's refusal": {answer: rpcFails(codes.PermissionDenied, "no"), want: "of the server or of the client", forwarded: true},
		"an internal error":  {answer: rpcFails(codes.Internal, "trace"), want: "an internal error", again: true, class: web.Failed},
		"an unknown error":   {answer: rpcFails(codes.Unknown, "trace"), want: "an internal error", again: true},
		"a repeated secret":  {answer: rpcFails(codes.InvalidArgument, "Bearer s3cret is bad"), want: "[redacted] is bad"},
		"an unknown method":  {answer: rpcFails(codes.Unimplemented, "no such method"), want: "Unimplemented"},
		"no event":           {answer: rpcSays(), want: "ended without an event", again: true},
		"another task":       {answer: rpcSays(working(""), strings.ReplaceAll(chunk("x", false), "up-1", "up-2")), want: "an event of another task"},
		"an unknown state":   {answer: rpcSays(`{"task":{"id":"up-1","status":{"state":77}}}`), want: "state"},
		"an event that is too long": {
			answer: rpcSays(working(""), chunk(strings.Repeat("x", 5000), false)), want: "the agent's answer is longer than 4000 bytes, four times limits.max_event",
		},
		"a first event that is too long": {answer: rpcSays(chunk(strings.Repeat("x", 5000), false)), want: "longer than 4000 bytes"},
		"no message": {answer: func(s rpcStream) error {
			return s.SendMsg(&pb10.AgentCard{Name: strings.Repeat("\xff", 3)})
		}, want: "an internal error", again: true},
		"a message of another type": {answer: func(s rpcStream) error {
			return s.SendMsg(&pb10.AgentCard{Name: "\x12\x03abc"})
		}, want: "is not A2A 1.0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			told := make(chan web.Class, 10)
			a, f := newRPCAgent(t, "1.0", a2a.Options{
				MaxEvent: 1000, Auth: a2a.Auth{Bearer: secrets.Text("s3cret")}, Forward: []string{"X-Theirs"},
				Observe: func(class web.Class, _ time.Duration) { told <- class },
			})
			a.on("SendStreamingMessage", c.answer)
			a.on("SendMessage", c.answer)
			run := executortest.NewRun("hello")
			if c.forwarded {
				run.Forwarded = task.Forwarded{"X-Theirs": "2"}
			}
			_, err := execute(t, f, run)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "s3cret")
			var away *executor.Unavailable
			require.Equal(t, c.away, errors.As(err, &away), "%#v", err)
			if c.away {
				require.Equal(t, c.after, away.RetryAfter)
				require.True(t, away.Answered)
			}
			_, again := executor.IsRetryable(err)
			require.Equal(t, c.again, again)
			if c.class != "" {
				require.Equal(t, web.OK, waittest.Within(t, "the read of the card is told", told))
				require.Equal(t, c.class, waittest.Within(t, "the call is told", told))
			}
		})
	}
}

func TestGRPCCallThatIsGivenUp(t *testing.T) {
	t.Parallel()
	told := make(chan web.Class, 10)
	a, f := newRPCAgent(t, "1.0", a2a.Options{CancelTimeout: time.Millisecond, Observe: func(class web.Class, _ time.Duration) { told <- class }})
	ctx, cancel := context.WithCancelCause(t.Context())
	a.on("SendStreamingMessage", func(s rpcStream) error {
		cancel(executor.ErrCanceled)
		return rpcSays("hold")(s)
	})
	require.ErrorIs(t, f.Execute(ctx, executortest.NewRun("hello"), executortest.NewRecorder()), executor.ErrCanceled)
	require.Equal(t, web.OK, waittest.Within(t, "the read of the card is told", told))
	require.Equal(t, web.Canceled, waittest.Within(t, "the call is told", told))
}

// framing is a listener whose connections tell the types of the frames of HTTP/2 that they have written: the server writes
// what was flushed a moment later.
type framing struct{ net.Listener }

func (l framing) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return &framed{conn, make(chan byte, 1000)}, err
}

type framed struct {
	net.Conn
	written chan byte
}

func (c *framed) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	for rest := p; len(rest) >= 9; {
		c.written <- rest[3]
		rest = rest[min(len(rest), 9+int(rest[0])<<16+int(rest[1])<<8+int(rest[2])):]
	}
	return n, err
}

// An answer, or a connection that breaks, has the same class over gRPC as over HTTP. The run also decides the same: whether the agent is
// away, and whether another try may help.
func TestGRPCCallsHaveTheClassOfHTTP(t *testing.T) {
	t.Parallel()
	begin := func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
	}
	part := func(w http.ResponseWriter) {
		begin(w)
		if w.Header().Get("Content-Type") == "application/grpc" {
			_, _ = w.Write([]byte{0, 0, 0, 0, 100, 1, 2, 3}) // of 100 bytes
		} else {
			_, _ = io.WriteString(w, "data: {\"jsonrpc\"")
		}
		_ = http.NewResponseController(w).Flush()
	}
	// half closes a connection behind a frame: what was written arrives, unlike before a reset. HTTP/1 has no frames.
	half := func(w http.ResponseWriter, conn net.Conn, behind byte) {
		of := conn.(*framed)
		for w.Header().Get("Content-Type") == "application/grpc" && <-of.written != behind {
		}
		_ = of.Conn.(*net.TCPConn).CloseWrite()
	}
	says := func(code int) func(http.ResponseWriter, net.Conn) {
		return func(w http.ResponseWriter, _ net.Conn) { http.Error(w, "no", code) }
	}
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter, conn net.Conn)
		want   web.Class
	}{
		"the connection breaks before an answer": {func(_ http.ResponseWriter, conn net.Conn) { _ = conn.Close() }, web.Broken},
		"the stream breaks before an answer":     {func(http.ResponseWriter, net.Conn) { panic(http.ErrAbortHandler) }, web.Broken},
		"the connection breaks before the first event": {func(w http.ResponseWriter, conn net.Conn) {
			begin(w)
			half(w, conn, 1)
		}, web.OK},
		"the stream breaks before the first event": {func(w http.ResponseWriter, _ net.Conn) {
			begin(w)
			panic(http.ErrAbortHandler)
		}, web.OK},
		"the stream ends before the first event": {func(w http.ResponseWriter, _ net.Conn) { begin(w) }, web.OK},
		"the connection breaks within the first event": {func(w http.ResponseWriter, conn net.Conn) {
			part(w)
			half(w, conn, 0)
		}, web.OK},
		"the stream breaks within the first event": {func(w http.ResponseWriter, _ net.Conn) {
			part(w)
			panic(http.ErrAbortHandler)
		}, web.OK},
		"the stream ends within the first event": {func(w http.ResponseWriter, _ net.Conn) {
			w.Header().Set("Trailer", "Grpc-Status")
			part(w)
			w.Header().Set("Grpc-Status", "0")
		}, web.OK},
		"429 of a proxy": {says(http.StatusTooManyRequests), web.Overloaded},
		"502 of a proxy": {says(http.StatusBadGateway), web.Gateway},
		"503 of a proxy": {says(http.StatusServiceUnavailable), web.Overloaded},
		"504 of a proxy": {says(http.StatusGatewayTimeout), web.Gateway},
		"500":            {says(http.StatusInternalServerError), web.Failed},
		"404":            {says(http.StatusNotFound), web.Refused},
		"403":            {says(http.StatusForbidden), web.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			type connKey struct{}
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "text/event-stream")
				if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
					w.Header().Set("Content-Type", "application/grpc")
				}
				c.answer(w, r.Context().Value(connKey{}).(net.Conn))
			}))
			server.Listener = framing{server.Listener}
			server.Config.Protocols = new(http.Protocols)
			server.Config.Protocols.SetHTTP1(true)
			server.Config.Protocols.SetUnencryptedHTTP2(true)
			server.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
				return context.WithValue(ctx, connKey{}, conn)
			}
			server.Start()
			t.Cleanup(server.Close)
			outcomes := map[string]string{}
			for _, binding := range []string{"jsonrpc", "grpc"} {
				told := make(chan web.Class, 100)
				f, err := a2a.New(a2a.Options{
					URL: server.URL, Version: "1.0", Binding: binding, PollInterval: 20 * time.Millisecond, CallTimeout: never, ConnectTimeout: never,
					Observe: func(class web.Class, _ time.Duration) { told <- class },
				})
				require.NoError(t, err)
				_, err = execute(t, f, executortest.NewRun("hello"))
				require.Error(t, err)
				require.Equal(t, c.want, waittest.Within(t, "the call is told", told), "%s: %s", binding, err)
				var away *executor.Unavailable
				_, again := executor.IsRetryable(err)
				outcomes[binding] = fmt.Sprint(errors.As(err, &away), again)
			}
			require.Equal(t, outcomes["jsonrpc"], outcomes["grpc"], "away, and worth another try")
		})
	}
}

// Events after the end, in whatever number, do not keep a run.
func TestGRPCStreamsWithoutAnEnd(t *testing.T) {
	t.Parallel()
	a, f := newRPCAgent(t, "1.0", a2a.Options{})
	gone := make(chan struct{})
	a.on("SendStreamingMessage", func(s rpcStream) error {
		defer close(gone)
		err := rpcSays(working(""), status("COMPLETED", ""))(s)
		for err == nil {
			err = s.says(chunk("x", true))
		}
		return err
	})
	require.Equal(t, task.StateCompleted, completes(t, f, executortest.NewRun("hello")).Task(t).Status.State)
	<-gone
}

func TestGRPCAgentsThatAreAway(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ serve, url, want string }{
		"nothing listens":    {url: "http://127.0.0.1:1", want: "connection refused"},
		"another protocol":   {serve: "HTTP/1.1 200 OK\r\n\r\n", want: "call the agent"},
		"no TLS where it is": {serve: "HTTP/1.1 400 no\r\n\r\n", url: "https://", want: "call the agent"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := c.url
			if c.serve != "" {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				require.NoError(t, err)
				t.Cleanup(func() { _ = l.Close() })
				go func() {
					for {
						conn, err := l.Accept()
						if err != nil {
							return
						}
						_, _ = io.WriteString(conn, c.serve)
						_ = conn.Close()
					}
				}()
				scheme := c.url
				if scheme == "" {
					scheme = "http://"
				}
				address = scheme + l.Addr().String()
			}
			told := make(chan web.Class, 10)
			f, err := a2a.New(a2a.Options{
				URL: address, Version: "1.0", Binding: "grpc", ConnectTimeout: never, Observe: func(class web.Class, _ time.Duration) { told <- class },
			})
			require.NoError(t, err)
			_, err = execute(t, f, executortest.NewRun("hello"))
			if c.serve == "" {
				require.Equal(t, web.Unreachable, waittest.Within(t, "the call is told", told))
			}
			var away *executor.Unavailable
			require.ErrorAs(t, err, &away)
			require.False(t, away.Answered)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// An agent over TLS is called over TLS, and its certificate is checked.
func TestGRPCChecksCertificates(t *testing.T) {
	t.Parallel()
	its := certtest.New(t, nil, &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	a, _ := newRPCAgent(t, "1.0", a2a.Options{}, grpc.Creds(credentials.NewServerTLSFromCert(&its.Pair)))
	f, err := a2a.New(a2a.Options{URL: "https://" + a.address, Version: "1.0", Binding: "grpc"})
	require.NoError(t, err)
	_, err = execute(t, f, executortest.NewRun("hello"))
	require.ErrorContains(t, err, "certificate signed by unknown authority")
}

// An agent that takes a call and never answers is told when the front stops waiting. The limit covers the connection, too.
func TestGRPCCallsHaveADeadline(t *testing.T) {
	t.Parallel()
	cancel := func(f *a2a.Front) error {
		return f.Cancel(t.Context(), &executor.Cancellation{Reason: executor.ReasonCanceled, Stored: func(context.Context, executor.Scope) (executor.State, error) {
			return executor.State{Value: []byte(`{"task":"up-1"}`)}, nil
		}})
	}
	a, f := newRPCAgent(t, "1.0", a2a.Options{})
	limited := make(chan bool, 1)
	a.on("CancelTask", func(s rpcStream) error {
		_, ok := s.Context().Deadline()
		limited <- ok
		return s.says(taskIn("CANCELED", ""))
	})
	require.NoError(t, cancel(f))
	require.True(t, <-limited)

	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	f, err = a2a.New(a2a.Options{URL: "http://" + silent.Addr().String(), Version: "1.0", Binding: "grpc", CallTimeout: 50 * time.Millisecond})
	require.NoError(t, err)
	err = cancel(f)
	require.Contains(t, executortest.Outcome(err), "context deadline exceeded while waiting for connections to become ready; away")
}

func TestGRPCAddresses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ named, card, url, want string }{
		"host and port":        {named: "127.0.0.1:7"},
		"TLS at an HTTP card":  {named: "https://127.0.0.1:7"},
		"another host":         {named: "192.0.2.1:7", want: "of another host; set a2a.url to it"},
		"a path in url":        {named: "127.0.0.1:7", url: "http://127.0.0.1:7/a2a", want: "a2a.url has a path or a query"},
		"url overrides":        {named: "192.0.2.1:7", url: "http://127.0.0.1:7"},
		"url may have a slash": {named: "192.0.2.1:7", url: "http://127.0.0.1:7/"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cards := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = fmt.Fprintf(w, `{"name":"Up","supportedInterfaces":[{"url":%q,"protocolBinding":"GRPC","protocolVersion":"1.0"}]}`, c.named)
			}))
			t.Cleanup(cards.Close)
			f, err := a2a.New(a2a.Options{CardURL: cards.URL, URL: c.url})
			require.NoError(t, err)
			_, err = execute(t, f, executortest.NewRun("hello"))
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				return
			}
			require.ErrorContains(t, err, "127.0.0.1:7", "it was called")
		})
	}
}

func TestGRPCMetadata(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header, value, want string
	}{
		"not ASCII":           {"X-Name", "Zoë", "the header X-Name is not"},
		"a name of HTTP":      {"X!Name", "secret", "cannot have the header X!name"},
		"a reserved name":     {"Grpc-Timeout", "secret", "cannot have the header Grpc-Timeout"},
		"a name that ends so": {"X-Key-Bin", "abc", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, f := newRPCAgent(t, "1.0", a2a.Options{Forward: []string{c.header}})
			a.on("SendStreamingMessage", rpcSays(working(""), status("COMPLETED", "")))
			run := executortest.NewRun("hello")
			run.Forwarded = task.Forwarded{http.CanonicalHeaderKey(c.header): c.value}
			_, err := execute(t, f, run)
			if c.want == "" {
				require.NoError(t, err)
				require.Equal(t, []string{c.value}, a.called("SendStreamingMessage")[0].Header[strings.ToLower(c.header)])
				return
			}
			var failure *executor.Failure
			require.ErrorAs(t, err, &failure)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), c.value)
			require.Empty(t, a.called("SendStreamingMessage"))
		})
	}
}

// A server bounds the streams of a connection. More runs use more connections.
func TestGRPCRunsMoreThanAConnectionTakes(t *testing.T) {
	t.Parallel()
	const runs = 150
	a, f := newRPCAgent(t, "1.0", a2a.Options{}, grpc.MaxConcurrentStreams(100))
	all := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Add(runs)
	go func() {
		waiting.Wait()
		close(all)
	}()
	a.on("SendStreamingMessage", func(s rpcStream) error {
		waiting.Done()
		select {
		case <-all:
			return rpcSays(working(""), status("COMPLETED", ""))(s)
		case <-s.Context().Done():
			return s.Context().Err()
		}
	})
	var done []<-chan error
	for range runs {
		done = append(done, executortest.Go(t.Context(), f, executortest.NewRun("hello"), executortest.NewRecorder()))
	}
	for _, d := range done {
		require.NoError(t, executortest.Wait(t, d))
	}
}

// A run keeps the address with which it began when the card names another one.
func TestGRPCCardsChangeTheAddress(t *testing.T) {
	t.Parallel()
	a, f := newRPCAgent(t, "1.0", a2a.Options{})
	other, _ := newRPCAgent(t, "1.0", a2a.Options{})
	a.on("SendStreamingMessage", func(s rpcStream) error {
		if err := rpcSays(working(""))(s); err != nil {
			return err
		}
		waittest.Eventually(t, "the other server has a run", func() error {
			return waittest.Unless(len(other.called("SendStreamingMessage")) == 1, "not yet")
		})
		return rpcSays(status("COMPLETED", ""))(s)
	})
	other.on("SendStreamingMessage", rpcSays(working(""), status("COMPLETED", "")))
	out := executortest.NewRecorder()
	first := executortest.Go(t.Context(), f, executortest.NewRun("hello"), out)
	out.Await(t, 1)
	a.mu.Lock()
	a.address = other.address
	a.mu.Unlock()
	_, err := f.Cards(t.Context())
	require.NoError(t, err)
	completes(t, f, executortest.NewRun("again"))
	require.NoError(t, executortest.Wait(t, first))
	require.Len(t, a.called("SendStreamingMessage"), 1)
}
