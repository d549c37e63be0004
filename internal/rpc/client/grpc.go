package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
	"github.com/holdfast-a2a/holdfast/internal/tracing"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

// messages is a codec of gRPC that passes messages through as they are on the wire: a *[]byte.
type messages struct{}

// Name implements encoding.CodecV2.
func (messages) Name() string { return proto.Name }

// Marshal implements encoding.CodecV2.
func (messages) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

// Unmarshal implements encoding.CodecV2.
func (messages) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// MetadataError says that a header cannot go to an agent that is called over gRPC.
type MetadataError struct{ problem string }

func (e *MetadataError) Error() string {
	return "the agent is called over gRPC, whose metadata " + e.problem
}

// metadataOf returns headers as metadata of gRPC. Names and values with other characters do not exist there.
func metadataOf(headers http.Header) (metadata.MD, error) {
	values := metadata.MD{}
	for name, all := range headers {
		key := strings.ToLower(name)
		other := func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
		}
		if strings.ContainsFunc(key, other) || strings.HasPrefix(key, "grpc-") {
			return nil, &MetadataError{"cannot have the header " + name}
		}
		if key == "user-agent" {
			continue // the connection has it
		}
		for _, value := range all {
			if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
				return nil, &MetadataError{"must be printable ASCII; the header " + name + " is not"}
			}
		}
		values[key] = all
	}
	return values, nil
}

// progress is how far a call has come. The library's errors do not tell.
type progress struct {
	sent     atomic.Bool // the agent may have the request
	begun    atomic.Bool // the agent has sent headers
	answered atomic.Bool // the agent has sent the status
}

type progressKey struct{}

// observer notes the progress of calls.
type observer struct{}

func (observer) HandleRPC(ctx context.Context, event stats.RPCStats) {
	p, ok := ctx.Value(progressKey{}).(*progress)
	if !ok {
		return
	}
	switch event.(type) {
	case *stats.OutHeader:
		p.sent.Store(true)
	case *stats.InHeader:
		p.begun.Store(true)
	case *stats.InTrailer:
		p.answered.Store(true)
	}
}

func (observer) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (observer) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (observer) HandleConn(context.Context, stats.ConnStats)                       {}

// rpc is a call over gRPC.
type rpc struct {
	progress progress
	span     *tracing.Span
	asked    context.Context // of the caller
	tell     func(web.Class) // does something once
	// limit is the largest answer that the library passes on, in bytes. It is not a round number, so that its error cannot be that of a
	// server which refuses a request.
	limit int
}

// invoke does an operation over gRPC.
func (t *Transport) invoke(ctx context.Context, to *Target, op client.Op, request *client.Request) (*Answer, error) {
	if err := t.Sign(ctx, request.Header); err != nil {
		return nil, err
	}
	values, err := metadataOf(request.Header)
	if err != nil {
		return nil, err
	}
	conn, release, err := t.Connections.take(to.URL)
	if err != nil {
		return nil, err
	}
	c := &rpc{asked: ctx, tell: t.telling(), limit: t.MaxAnswer + 1}
	ctx, c.span = tracing.CallRPC(ctx, request.Method, to.URL)
	c.span.Context().Metadata(values)
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(ctx, values))
	a := &Answer{Streams: op.Streams(), awaits: op.Streams(), close: func() { c.span.End(); cancel(); release() }}
	stream, err := conn.NewStream(context.WithValue(ctx, progressKey{}, &c.progress), &grpc.StreamDesc{ServerStreams: op.Streams()}, request.Method,
		grpc.ForceCodecV2(messages{}), grpc.MaxCallRecvMsgSize(c.limit))
	if err == nil {
		err = stream.SendMsg(&request.Body)
	}
	if err == nil {
		err = stream.CloseSend()
	}
	if err != nil && !errors.Is(err, io.EOF) { // io.EOF: the status says what is wrong
		defer a.Close()
		return nil, c.fault(err)
	}
	got := false
	a.next = func() (string, []byte, error) {
		if got && !op.Streams() {
			return "", nil, io.EOF
		}
		var message []byte
		err := stream.RecvMsg(&message)
		if err != nil && !errors.Is(err, io.EOF) {
			return "", nil, c.fault(err)
		}
		got = true
		c.tell(web.OK)
		a.alive()
		return "", message, err
	}
	return a, nil
}

// Await waits for the first event of a stream over gRPC, because only that says that the agent has not refused. Over HTTP the answer
// itself says it.
func (a *Answer) Await() error {
	if !a.awaits {
		return nil
	}
	rest := a.next
	_, document, err := rest()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	a.next = func() (string, []byte, error) {
		a.next = rest
		return "", document, err
	}
	return nil
}

// telling returns the function that tells the observer of the call that begins now.
func (t *Transport) telling() func(web.Class) {
	begun, told := time.Now(), t.Observe == nil
	return func(class web.Class) {
		if !told {
			told = true
			t.Observe(class, time.Since(begun))
		}
	}
}

// fault returns the error of a call that failed. It is the only place that knows the statuses of gRPC: they become what the answers of
// HTTP are.
func (c *rpc) fault(err error) error {
	s := grpcstatus.Convert(err)
	c.span.Fail(s.Code().String())
	if c.tooLong(s) {
		c.tell(web.OK)
		return ErrTooLong
	}
	e := &CallError{Code: s.Code(), Sent: c.progress.sent.Load(), Reported: client.StatusError(s)}
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			e.After = min(max(info.GetRetryDelay().AsDuration(), 0), maxRetryAfter)
		}
	}
	if e.Code == codes.Canceled {
		e.Err = context.Canceled
	}
	e.Class, e.Broke = c.class(s, e.Reported)
	c.tell(e.Class)
	return e
}

// class returns the class of a call that failed: what the same call over HTTP has, whose class is that of the head of its answer. broke
// says that there is no whole answer.
func (c *rpc) class(s *grpcstatus.Status, reported *client.Error) (class web.Class, broke bool) {
	// The agent says OK after a message that has no end, so the library makes a status of its own.
	cut := s.Code() == codes.Internal && s.Message() == io.ErrUnexpectedEOF.Error()
	if code := foreignStatus(s); code != 0 && !c.progress.answered.Load() {
		class = web.StatusClass(code)
		return class, class != web.Overloaded && class != web.Gateway && slices.Contains(ofConnections, s.Code())
	}
	switch {
	case !cut && (c.progress.answered.Load() || !slices.Contains(ofConnections, s.Code())):
	case c.progress.begun.Load():
		return web.OK, true
	case s.Code() == codes.DeadlineExceeded:
		return web.FailureClass(c.asked, context.DeadlineExceeded, c.progress.sent.Load()), true
	default:
		return web.FailureClass(c.asked, s.Err(), c.progress.sent.Load()), true
	}
	if s.Code() == codes.ResourceExhausted && (reported.Reason == reasonTooLarge || strings.Contains(reported.Message, tooLarge)) {
		return web.Refused, false
	}
	return statusClass(s.Code()), false
}

// foreignStatus returns the status of HTTP that answered a call: of a proxy, or of a server that does not speak gRPC. It is 0 if there is
// none. The library tells it in its message alone.
func foreignStatus(s *grpcstatus.Status) int {
	_, rest, found := strings.Cut(s.Message(), "unexpected HTTP status code received from server: ")
	code, _, _ := strings.Cut(rest, " ")
	n, err := strconv.Atoi(code)
	if !found || err != nil {
		return 0
	}
	return n
}

// statusClass returns the class of an answer by its status.
func statusClass(code codes.Code) web.Class {
	switch code {
	case codes.OK:
		return web.OK
	case codes.Unavailable, codes.ResourceExhausted:
		return web.Overloaded
	case codes.Canceled, codes.DeadlineExceeded, codes.Aborted:
		return web.Gateway
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return web.Failed
	default:
		return web.Refused
	}
}

// ofConnections are the statuses that the library chooses itself for a call that gets no answer.
var ofConnections = []codes.Code{codes.Unavailable, codes.Canceled, codes.DeadlineExceeded, codes.Internal, codes.Unknown}

// tooLarge is in the message of every official library of gRPC that refuses a message for its size.
const tooLarge = "larger than max"

// tooLong reports whether the library has refused an answer.
func (c *rpc) tooLong(s *grpcstatus.Status) bool {
	return s.Code() == codes.ResourceExhausted && strings.Contains(s.Message(), tooLarge) && strings.Contains(s.Message(), fmt.Sprintf(" %d)", c.limit))
}

// reasonTooLarge is the reason of another Holdfast for a request that has more than limits.max_body.
const reasonTooLarge = "REQUEST_TOO_LARGE"
