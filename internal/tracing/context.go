package tracing

import (
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// The headers of W3C Trace Context, as canonical HTTP headers.
const (
	traceparent = "Traceparent"
	tracestate  = "Tracestate"
)

// maxState bounds a tracestate, in bytes. W3C asks everyone to propagate that many.
const maxState = 512

// Context is a W3C Trace Context: the position in a trace that others continue.
type Context struct{ Parent, State string }

// ReadContext returns the context of a request, by its headers. As W3C demands, an invalid traceparent counts as absent, and so
// does a tracestate that is invalid, too long or alone.
func ReadContext(values func(name string) []string) Context {
	parents := values(traceparent)
	if len(parents) != 1 {
		return Context{}
	}
	read := contextOf(Context{Parent: parents[0]}.span())
	if read.Parent == "" {
		return Context{}
	}
	joined := strings.Join(values(tracestate), ",")
	if state, err := trace.ParseTraceState(joined); err == nil && len(joined) <= maxState {
		read.State = state.String()
	}
	return read
}

// TraceID returns the id of the trace, or "".
func (c Context) TraceID() string {
	if len(c.Parent) < 35 {
		return ""
	}
	return c.Parent[3:35]
}

// Headers sets the headers of a request.
func (c Context) Headers(h http.Header) {
	if c.Parent == "" {
		return
	}
	h.Set(traceparent, c.Parent)
	if c.State != "" {
		h.Set(tracestate, c.State)
	} else {
		h.Del(tracestate)
	}
}

// Metadata sets the metadata of a call over gRPC.
func (c Context) Metadata(m map[string][]string) {
	if c.Parent == "" {
		return
	}
	m["traceparent"] = []string{c.Parent}
	delete(m, "tracestate")
	if c.State != "" {
		m["tracestate"] = []string{c.State}
	}
}

// Variables returns the environment of a program, by the names that OpenTelemetry gives them.
func (c Context) Variables() []string {
	if c.Parent == "" {
		return nil
	}
	all := []string{"TRACEPARENT=" + c.Parent}
	if c.State != "" {
		all = append(all, "TRACESTATE="+c.State)
	}
	return all
}

var format propagation.TraceContext

func contextOf(s trace.SpanContext) Context {
	carrier := propagation.MapCarrier{}
	format.Inject(trace.ContextWithSpanContext(context.Background(), s), carrier)
	return Context{Parent: carrier["traceparent"], State: carrier["tracestate"]}
}

// span returns the context in OpenTelemetry's form.
func (c Context) span() trace.SpanContext {
	carrier := propagation.MapCarrier{"traceparent": c.Parent, "tracestate": c.State}
	return trace.SpanContextFromContext(format.Extract(context.Background(), carrier))
}

// below returns a context whose spans continue a trace; without one they begin a trace.
func below(ctx context.Context, c Context) context.Context {
	if c.Parent == "" {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, c.span())
}
