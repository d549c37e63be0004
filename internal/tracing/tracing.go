// Package tracing makes the spans of OpenTelemetry. docs/tracing.md lists them with their attributes.
//
// A nil Tracer is tracing that is off: it starts nothing and allocates nothing. The parts that begin work get the Tracer
// from app: the bindings, the pool, the webhooks and the calls. It travels on in the context, so the parts below find it
// there: Start makes a span only in a context of a Tracer. Spans have ids and names of the configuration, and no contents
// of messages, no credentials, no paths or queries of URLs outside, and no parameters of statements.
package tracing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Tracer makes spans. Nil: tracing is off.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	genAI    bool // spans of agents and models by the experimental conventions
}

// Service describes the process to backends, unless the environment does.
type Service struct {
	Version  string
	Instance string // the name of the process
}

// FromEnvironment returns the tracer that the standard variables of OpenTelemetry ask for. It is nil if they ask for none.
// An exporter that is unreachable delays and fails nothing: its spans are dropped and the errors logged.
func FromEnvironment(ctx context.Context, s Service, log *slog.Logger) (*Tracer, error) {
	on, err := wanted()
	if err != nil || !on {
		return nil, err
	}
	exporter, err := newExporter(ctx)
	if err != nil {
		return nil, err
	}
	about, err := resource.New(ctx,
		resource.WithSchemaURL(semconv.SchemaURL),
		resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName("holdfast"), semconv.ServiceVersion(s.Version), semconv.ServiceInstanceID(s.Instance)),
		resource.WithFromEnv(), // the last one wins
	)
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	otel.SetErrorHandler(&complaints{log: log})
	return New(sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about))), nil
}

// New returns a tracer that makes its spans with a provider.
func New(p *sdk.TracerProvider) *Tracer {
	opted := strings.Split(os.Getenv("OTEL_SEMCONV_STABILITY_OPT_IN"), ",")
	t := &Tracer{provider: p, tracer: p.Tracer("github.com/holdfast-a2a/holdfast", trace.WithSchemaURL(semconv.SchemaURL))}
	t.genAI = slices.ContainsFunc(opted, func(o string) bool { return strings.TrimSpace(o) == "gen_ai_latest_experimental" })
	return t
}

// wanted reports whether the environment asks for traces.
func wanted() (bool, error) {
	if disabled, _ := strconv.ParseBool(os.Getenv("OTEL_SDK_DISABLED")); disabled {
		return false, nil
	}
	switch name := strings.TrimSpace(os.Getenv("OTEL_TRACES_EXPORTER")); name {
	case "otlp":
		return true, nil
	case "none":
		return false, nil
	case "":
		return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "", nil
	default:
		return false, fmt.Errorf("OTEL_TRACES_EXPORTER: %q is not supported; write otlp or none", name)
	}
}

// newExporter returns the OTLP exporter. It reads endpoint, headers, certificates, timeout and compression from the
// environment itself.
func newExporter(ctx context.Context) (sdk.SpanExporter, error) {
	const variable, ofTraces = "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	var client otlptrace.Client
	switch protocol := cmp.Or(os.Getenv(ofTraces), os.Getenv(variable), "http/protobuf"); protocol {
	case "http/protobuf":
		client = otlptracehttp.NewClient()
	case "grpc":
		client = otlptracegrpc.NewClient()
	default:
		return nil, fmt.Errorf("%s: %q is not supported; write http/protobuf or grpc", variable, protocol)
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("start the OTLP exporter: %w", err)
	}
	return exporter, nil
}

// complaints logs the errors of the exporter, one a minute: it fails every few seconds while its backend is away.
type complaints struct {
	log  *slog.Logger
	last atomic.Int64 // Unix time
}

// Handle implements otel.ErrorHandler.
func (c *complaints) Handle(err error) {
	if now, last := time.Now().Unix(), c.last.Load(); now-last >= 60 && c.last.CompareAndSwap(last, now) {
		c.log.Warn("traces were not exported", "error", err)
	}
}

// Close exports the spans that have ended, and stops. The end of ctx bounds that.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// Span is a span that has begun. There is no span while tracing is off: then it is nil. Callers that build attributes check for nil first, so that they
// allocate nothing while tracing is off.
type Span struct{ span trace.Span }

type contextKey struct{}

// start begins a span below the span of ctx, which may be remote.
func (t *Tracer) start(ctx context.Context, name string, kind trace.SpanKind, o ...trace.SpanStartOption) (context.Context, *Span) {
	if ctx.Value(contextKey{}) == nil {
		ctx = context.WithValue(ctx, contextKey{}, t)
	}
	ctx, span := t.tracer.Start(ctx, name, append(o, trace.WithSpanKind(kind))...) //nolint:spancheck // the caller ends it
	return ctx, &Span{span}                                                        //nolint:spancheck // the caller ends it
}

// of returns the tracer of a context; nil without one.
func of(ctx context.Context) *Tracer {
	t, _ := ctx.Value(contextKey{}).(*Tracer)
	return t
}

// Current returns the span of a context that is traced, or nil.
func Current(ctx context.Context) *Span {
	if of(ctx) == nil {
		return nil
	}
	return &Span{trace.SpanFromContext(ctx)}
}

// Set sets attributes. A value that is "" sets none.
func (s *Span) Set(attributes ...attribute.KeyValue) {
	if s == nil || !s.span.IsRecording() {
		return
	}
	for _, a := range attributes {
		if a.Value.Type() != attribute.STRING || a.Value.AsString() != "" {
			s.span.SetAttributes(a)
		}
	}
}

// Name renames the span.
func (s *Span) Name(name string) {
	if s != nil {
		s.span.SetName(name)
	}
}

// Fail marks the span as failed. class comes from a small fixed set. The text of an error stays out, because it may repeat
// what a client or an agent has said.
func (s *Span) Fail(class string) {
	if s != nil {
		s.span.SetStatus(codes.Error, "")
		s.span.SetAttributes(semconv.ErrorTypeKey.String(class))
	}
}

// FailWith is Fail with the class of an error.
func (s *Span) FailWith(err error) {
	if s != nil {
		s.Fail(classOf(err))
	}
}

// End ends the span.
func (s *Span) End() {
	if s != nil {
		s.span.End()
	}
}

// Context returns the W3C Trace Context of the span, for those that continue its trace.
func (s *Span) Context() Context {
	if s == nil {
		return Context{}
	}
	return contextOf(s.span.SpanContext())
}

// TraceID returns the id of the trace that a context belongs to, or "".
func TraceID(ctx context.Context) string {
	if c := trace.SpanContextFromContext(ctx); c.HasTraceID() {
		return c.TraceID().String()
	}
	return ""
}

// classOf names an error for Fail.
func classOf(err error) string {
	switch {
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return "_OTHER"
}
