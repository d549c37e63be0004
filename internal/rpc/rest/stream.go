package rest

import (
	"context"

	"github.com/holdfast-a2a/holdfast/internal/rpc/operation"
	"github.com/holdfast-a2a/holdfast/internal/rpc/sse"
)

// stream opens a stream and hands it on to whoever runs it from here.
func (x *exchange) stream() {
	st, err := x.b.opt.Operations.Open(x.ctx, &x.Request)
	if err != nil {
		x.fail(err)
		return
	}
	x.Echo(x.w.Header())
	x.b.streams.Serve(x.w, x.r, func(ctx context.Context, out *sse.Writer) {
		x.ctx, x.out = ctx, out
		// It may live for hours and is to hold on to no more than it needs.
		x.w, x.r = nil, nil
		x.Request = operation.Request{Codec: x.Codec}
		defer x.contain()
		if err := st.Follow(ctx, x); err != nil {
			x.fail(err)
		}
	})
}

// A stream is server-sent events, each of them a bare document.
var _ operation.Sink = (*exchange)(nil)

// Event adds a document.
func (x *exchange) Event(id int64, document []byte) { x.out.Event(id, document) }

// KeepAlive adds a comment.
func (x *exchange) KeepAlive() { x.out.KeepAlive() }

// Full reports whether it is time to flush.
func (x *exchange) Full() bool { return x.out.Full() }

// Flush sends what was added.
func (x *exchange) Flush() error { return x.out.Flush() }
