package a2a

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/tracing"
	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

var errPath = errors.New("a2a.url has a path or a query, which gRPC has no place for; write only scheme, host and port")

// pathless reports whether gRPC can call a URL: it has no place for a path or a query.
func pathless(address string) bool {
	u, err := url.Parse(address)
	return err == nil && strings.Trim(u.Path, "/") == "" && u.RawQuery == ""
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
	front     *Front
	stream    grpc.ClientStream
	progress  progress
	forwarded task.Forwarded
	span      *tracing.Span
	asked     context.Context // of the caller
	tell      func(web.Class) // does something once
	stop      func()
	timer     *time.Timer // of feed.closeAfter

	first    []byte // event
	firstErr error
	begun    bool // Next has returned the first event
}

// begin sends the request of an operation. The caller calls stop.
func (f *Front) begin(ctx context.Context, to *target, op client.Op, p *client.Params) (*rpc, error) {
	p.Tenant = to.tenant
	request, err := to.wire.Request(to.url, op, p)
	if err != nil {
		return nil, err
	}
	if err := f.sign(ctx, request.Header); err != nil {
		return nil, err
	}
	values, err := web.Metadata(request.Header)
	if err != nil {
		return nil, &executor.Failure{Msg: "the agent is called over gRPC, " + err.Error()}
	}
	conn, release, err := f.connections.take(to.url)
	if err != nil {
		return nil, err
	}
	asked := ctx
	ctx, span := tracing.CallRPC(ctx, request.Method, to.url)
	span.Context().Metadata(values)
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(ctx, values))
	c := &rpc{front: f, forwarded: p.Forwarded, span: span, asked: asked, tell: f.telling(), stop: func() { span.End(); cancel(); release() }}
	ctx = context.WithValue(ctx, progressKey{}, &c.progress)
	c.stream, err = conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: op.Streams()}, request.Method,
		grpc.ForceCodecV2(web.Messages{}), grpc.MaxCallRecvMsgSize(c.limit()))
	if err == nil {
		err = c.stream.SendMsg(&request.Body)
	}
	if err == nil {
		err = c.stream.CloseSend()
	}
	if err != nil && !errors.Is(err, io.EOF) { // io.EOF: the status says what is wrong
		c.stop()
		return nil, c.fault(err)
	}
	return c, nil
}

// telling returns the function that tells the observer of the call that begins now.
func (f *Front) telling() func(web.Class) {
	if f.opts.Observe == nil {
		return func(web.Class) {}
	}
	begun, told := time.Now(), false
	return func(class web.Class) {
		if !told {
			told = true
			f.opts.Observe(class, time.Since(begun))
		}
	}
}

// invoke does an operation with one answer, and returns its message.
func (f *Front) invoke(ctx context.Context, to *target, op client.Op, p *client.Params) ([]byte, error) {
	c, err := f.begin(ctx, to, op, p)
	if err != nil {
		return nil, err
	}
	defer c.stop()
	var message []byte
	if err := c.stream.RecvMsg(&message); err != nil {
		return nil, c.fault(err)
	}
	c.tell(web.OK)
	return message, nil
}

// listen begins a stream. It waits for the first event, because only that says that the agent has not refused.
func (f *Front) listen(ctx context.Context, to *target, op client.Op, p *client.Params) (*rpc, error) {
	c, err := f.begin(ctx, to, op, p)
	if err != nil {
		return nil, err
	}
	if c.firstErr = c.stream.RecvMsg(&c.first); c.firstErr != nil && !errors.Is(c.firstErr, io.EOF) {
		defer c.stop()
		return nil, c.fault(c.firstErr)
	}
	c.tell(web.OK)
	return c, nil
}

// Next implements feed.
func (c *rpc) Next() (event []byte, err error) {
	if !c.begun {
		event, err = c.first, c.firstErr
		c.begun, c.first = true, nil
		return event, err
	}
	err = c.stream.RecvMsg(&event)
	if c.timer != nil && err == nil {
		c.timer.Reset(maxIdle)
	}
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return event, err
	case c.tooLong(err):
		return nil, c.front.tooLong()
	}
	return nil, errors.New(c.fault(err).Error()) // a stream that breaks decides nothing: the task says more
}

// closeAfter implements feed.
func (c *rpc) closeAfter(timer *time.Timer) { c.timer = timer }

// Close implements feed.
func (c *rpc) Close() { c.stop() }

// fault returns the error of a call that failed. It is the only place that knows the statuses of gRPC: for a run they become
// what the answers of HTTP are.
func (c *rpc) fault(err error) error {
	s := status.Convert(err)
	c.span.Fail(s.Code().String())
	text := "the agent answered " + s.Code().String()
	var after time.Duration
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			after = min(max(info.GetRetryDelay().AsDuration(), 0), maxRetryAfter)
		}
	}
	reported := client.StatusError(s)
	reported.Message = c.front.redact(reported.Message, c.forwarded)
	if c.tooLong(err) {
		c.tell(web.OK)
		return c.front.tooLong()
	}
	class, broke := c.class(s, reported)
	c.tell(class)
	switch {
	case broke:
		text = "call the agent: " + web.Excerpt([]byte(reported.Message))
		return &callError{err: errors.New(text), unsent: !c.progress.sent.Load()}
	case class == web.Overloaded:
		return &callError{err: errors.New(text), after: after, busy: true, answered: true}
	case class == web.Gateway:
		return &callError{err: errors.New(text), after: after, answered: true}
	case s.Code() == codes.Unauthenticated, s.Code() == codes.PermissionDenied:
		return refused(text, c.forwarded)
	}
	return reported
}

// class returns the class of a call that failed: what the same call over HTTP has, whose class is that of the head of its answer. broke
// says that there is no whole answer.
func (c *rpc) class(s *status.Status, reported *client.Error) (class web.Class, broke bool) {
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
func foreignStatus(s *status.Status) int {
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

// limit is the largest answer that the library passes on, in bytes. It is not a round number, so that its error cannot be that
// of a server which refuses a request.
func (c *rpc) limit() int { return c.front.maxAnswer() + 1 }

// tooLong reports whether the library has refused an answer.
func (c *rpc) tooLong(err error) bool {
	s := status.Convert(err)
	return s.Code() == codes.ResourceExhausted && strings.Contains(s.Message(), tooLarge) && strings.Contains(s.Message(), fmt.Sprintf(" %d)", c.limit()))
}

// reasonTooLarge is the reason of another Holdfast for a request that has more than limits.max_body.
const reasonTooLarge = "REQUEST_TOO_LARGE"
