package grpcapi

import (
	"context"
	"crypto/x509"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/tracing"
)

// call is the state of one call, and of its stream.
type call struct {
	dispatch.Request
	b      *Binding
	s      *service
	op     engine.Op
	stream grpc.ServerStream
	ctx    context.Context //nolint:containedctx // of the call
	cancel context.CancelFunc
	taskID string // as the request names it
	opened bool   // a stream was opened, and counted
	begun  bool   // its headers were sent
	added  [][]byte
	size   int // of added, in bytes
}

// handle answers one call.
func (b *Binding) handle(s *service, op engine.Op, stream grpc.ServerStream) (err error) {
	c := &call{b: b, s: s, op: op, stream: stream, ctx: stream.Context()}
	c.cancel, _ = c.ctx.Value(cancelKey{}).(context.CancelFunc)
	c.Binding, c.Began, c.Codec = "grpc", time.Now(), s.Codec
	if b.Tracer != nil {
		var span *tracing.Span
		method, _ := grpc.MethodFromServerStream(stream)
		c.ctx, span = b.Tracer.RPC(c.ctx, method, c.values)
		defer span.End()
	}
	defer c.contain(&err)
	leave, err := b.takeMetadata(c.ctx)
	if err != nil {
		return err
	}
	defer leave()
	c.Endpoint = b.at(c.ctx, c.values, peerChain(c.ctx), b.client(c.ctx))
	if c.TurnedAway != nil {
		return c.fail(c.TurnedAway)
	}
	leave()
	c.ctx = b.Operations.Arrive(c.ctx, &c.Request)
	account := c.Account
	defer account.Close()
	if !s.Traits().Tenants {
		c.Common = false // no request names another agent
	}
	if err := b.Operations.CountEarly(&c.Request, -1); err != nil {
		return c.fail(err)
	}
	message, err := c.read()
	if err != nil {
		return err
	}
	if err := c.decode(message); err != nil {
		return c.fail(c.Unread(c.s.Tenant(op, message), err))
	}
	if op.Streams() {
		return c.follow()
	}
	return c.answer()
}

func (c *call) values(name string) []string { return values(c.ctx, name) }

// values returns the metadata of a name, as the values of a canonical HTTP header.
func values(ctx context.Context, name string) []string {
	md, _ := metadata.FromIncomingContext(ctx)
	return md.Get(name)
}

// peerChain returns the certificate of the client, and those that lead to an authority.
func peerChain(ctx context.Context) []*x509.Certificate {
	if p, ok := peer.FromContext(ctx); ok {
		if secured, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			return secured.State.PeerCertificates
		}
	}
	return nil
}

// client returns the address of the client: where the connection came from, or what a trusted proxy says.
func (b *Binding) client(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	return b.Proxies.Client(p.Addr.String(), func(header string) []string { return values(ctx, header) })
}

// contain turns a panic into an error, so that the process survives.
func (c *call) contain(err *error) {
	if v := recover(); v != nil {
		*err = c.broken(dispatch.Panicked(v), "stack", string(debug.Stack()))
	}
}

// read reads the request, within its bounds of size, time and memory. Its errors are for the client.
func (c *call) read() (frame, error) {
	late := time.AfterFunc(c.b.Limits.Timeout, c.cancel)
	defer late.Stop()
	var refused error
	request, err := receive(c.ctx, func(size, upto int64) error {
		refused = c.admit(size, upto)
		return refused
	})
	switch {
	case refused != nil:
		return nil, c.fail(refused)
	case err != nil:
		c.observe(dispatch.Refused)
		return nil, err
	}
	defer request.Free()
	return request.Materialize(), nil
}

// admit takes memory for the first bytes of a request, if its size is within the limit.
func (c *call) admit(size, upto int64) error {
	if most := c.b.Limits.Size; size > most {
		c.b.Operations.Limited(&c.Request, dispatch.LimitBody)
		return &task.Error{Kind: task.TooLarge, Msg: fmt.Sprintf("the limit is %d bytes", most)}
	}
	err := c.Account.Body(c.ctx, upto)
	if err != nil {
		c.b.Operations.Limited(&c.Request, dispatch.LimitMemory)
	}
	return err
}

// decode reads the request in the shape of its version.
func (c *call) decode(message frame) error {
	c.ReadHeaders(func(name string) []string {
		if name == dispatch.LastEventID {
			name = "a2a-" + name
		}
		return c.values(name)
	})
	if err := registry.Admit(c.s, dispatch.First(c.values(dispatch.VersionHeader)), "service", c.b.StrictVersion); err != nil {
		return err
	}
	var err error
	if c.Call, err = c.s.Decode(c.op, message); err != nil {
		return err
	}
	c.taskID = c.Call.TaskID()
	// The endpoint renders JSON; the codec turns it into a message.
	if render := c.ExtendedCard; render != nil {
		c.ExtendedCard = func(r *dispatch.Request) ([]byte, error) {
			document, err := render(r)
			if err != nil {
				return nil, err
			}
			return c.s.Encode(engine.OpExtendedCard, document)
		}
	}
	return nil
}

// answer runs an operation that has one answer.
func (c *call) answer() error {
	result, err := c.b.Operations.Call(c.ctx, &c.Request)
	if err != nil {
		return c.fail(err)
	}
	c.observe(dispatch.Succeeded)
	c.echo()
	return c.stream.SendMsg(frame(result))
}

// follow opens a stream and sends it.
func (c *call) follow() error {
	st, err := c.b.Operations.Open(c.ctx, &c.Request)
	if err != nil {
		return c.fail(err)
	}
	c.opened = true
	c.echo()
	// The stream may live for hours, so it keeps only what it needs.
	c.Request = dispatch.Request{Codec: c.Codec}
	if err := st.Follow(c.ctx, c); err != nil {
		return c.fail(err)
	}
	if st.Cut() {
		return status.Error(codes.Unavailable, "the server is stopping; subscribe to the task again")
	}
	return status.FromContextError(c.ctx.Err()).Err() // the client has left, or stopped reading
}

func (c *call) observe(outcome string) { c.b.Operations.Observe(c.ctx, c.op, &c.Request, outcome) }

// echo names the extensions in force.
func (c *call) echo() {
	c.Echo(func(name, value string) {
		_ = c.stream.SetHeader(metadata.Pairs(strings.ToLower(name), value)) // cannot fail: no headers were sent yet
	})
}

// Each event of a stream is one message.
var _ dispatch.Sink = (*call)(nil)

// Event adds a message. The message contains its id if the client asked for the extension.
func (c *call) Event(_ []byte, document []byte) {
	c.added = append(c.added, document)
	c.size += len(document)
}

// Name does nothing: messages have no names.
func (c *call) Name(string) {}

// KeepAlive adds nothing: the connection sends its own pings.
func (c *call) KeepAlive() {}

// Full reports whether it is time to flush.
func (c *call) Full() bool { return c.size >= 64<<10 }

// Flush sends the added messages, after the headers.
func (c *call) Flush() error {
	if !c.begun {
		c.begun = true
		if err := c.stream.SendHeader(nil); err != nil {
			return err
		}
	}
	defer func() { clear(c.added); c.added, c.size = c.added[:0], 0 }()
	for _, document := range c.added {
		if err := c.send(document); err != nil {
			return err
		}
	}
	return nil
}

// drain is the rate, in bytes per second, at which the client of a stream must read at least.
const drain = 64 << 10

// send sends one message. It waits for the messages before it. If the message is large, it also waits
// until the client has taken it, because the memory of the message is the stream's until then.
func (c *call) send(document []byte) error {
	patience := c.b.WriteTimeout + time.Duration(len(document)/drain)*time.Second
	stuck := time.AfterFunc(patience, c.cancel)
	defer stuck.Stop()
	if len(document) <= large {
		return c.stream.SendMsg(frame(document))
	}
	o := &outgoing{document, make(chan struct{})}
	if err := c.stream.SendMsg(o); err != nil {
		return err
	}
	select {
	case <-o.sent:
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}
