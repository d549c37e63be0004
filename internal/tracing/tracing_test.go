package tracing_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/otlptest"
	"github.com/holdfast-a2a/holdfast/internal/tracing"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	parent  = "00-" + traceID + "-00f067aa0ba902b7-01"
)

// environment sets these variables of OpenTelemetry and no others.
func environment(t *testing.T, variables ...string) {
	t.Helper()
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
	for _, pair := range variables {
		name, value, _ := strings.Cut(pair, "=")
		t.Setenv(name, value)
	}
}

func open(t *testing.T) (*tracing.Tracer, error) {
	t.Helper()
	return tracing.FromEnvironment(t.Context(), tracing.Service{Version: "1", Instance: "host/1"}, slog.New(slog.DiscardHandler))
}

func TestTheEnvironmentTurnsItOn(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"
	for _, c := range []struct {
		variables []string
		on        bool
		err       string
	}{
		{nil, false, ""},
		{[]string{"OTEL_SERVICE_NAME=x", "OTEL_TRACES_SAMPLER=always_on"}, false, ""},
		{[]string{endpoint}, true, ""},
		{[]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:1/v1/traces"}, true, ""},
		{[]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://127.0.0.1:1"}, false, ""},
		{[]string{"OTEL_TRACES_EXPORTER=otlp"}, true, ""},
		{[]string{endpoint, "OTEL_TRACES_EXPORTER=none"}, false, ""},
		{[]string{endpoint, "OTEL_SDK_DISABLED=true"}, false, ""},
		{[]string{endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, true, ""},
		{[]string{endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=http/json"}, false, `OTEL_EXPORTER_OTLP_PROTOCOL: "http/json" is not supported; write http/protobuf or grpc`},
		{[]string{endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=http/json", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=grpc"}, true, ""},
		{[]string{"OTEL_TRACES_EXPORTER=zipkin"}, false, `OTEL_TRACES_EXPORTER: "zipkin" is not supported; write otlp or none`},
	} {
		t.Run(strings.Join(c.variables, " "), func(t *testing.T) {
			environment(t, c.variables...)
			tracer, err := open(t)
			if c.err != "" {
				require.EqualError(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.on, tracer != nil)
			require.NoError(t, tracer.Close(t.Context()))
		})
	}
}

func TestInvalidContextsCountAsAbsent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		parents, states []string
		want            tracing.Context
	}{
		{[]string{parent}, nil, tracing.Context{Parent: parent}},
		{[]string{parent}, []string{"a=1", "b=2"}, tracing.Context{Parent: parent, State: "a=1,b=2"}},
		{[]string{"cc-" + traceID + "-00f067aa0ba902b7-01-later"}, nil, tracing.Context{Parent: parent}}, // a later version
		{[]string{parent}, []string{"not a state"}, tracing.Context{Parent: parent}},
		{[]string{parent}, []string{"a=" + strings.Repeat("x", 250), "b=" + strings.Repeat("y", 300)}, tracing.Context{Parent: parent}},
		{nil, []string{"a=1"}, tracing.Context{}},
		{[]string{"not a trace"}, []string{"a=1"}, tracing.Context{}},
		{[]string{parent, parent}, nil, tracing.Context{}},
		{[]string{strings.ToUpper(parent)}, nil, tracing.Context{}},
		{[]string{"00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01"}, nil, tracing.Context{}},
	} {
		h := http.Header{"Traceparent": c.parents, "Tracestate": c.states}
		require.Equal(t, c.want, tracing.ReadContext(h.Values), "%q %q", c.parents, c.states)
	}
	require.Equal(t, traceID, tracing.Context{Parent: parent}.TraceID())
	require.Empty(t, tracing.Context{}.TraceID())
}

// A tracer that is off is nil, and costs the hot paths nothing.
func TestOffAllocatesNothing(t *testing.T) {
	var off *tracing.Tracer
	ctx := t.Context()
	run := &tracing.Run{Agent: "a"}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_, span := tracing.Send(ctx, "a")
		_, process := off.Process(ctx, run)
		_, invoke := tracing.Invoke(ctx, "a", "c")
		if span != nil || process != nil || invoke != nil || tracing.Current(ctx) != nil || tracing.TraceID(ctx) != "" {
			t.Error("there is a span")
		}
		span.End()
		tracing.Take(ctx).End()
	}))
	require.Nil(t, off.Statements())
	handler := http.NewServeMux()
	require.Same(t, handler, off.Handler(handler))
	var got http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer server.Close()
	client := &http.Client{Transport: tracing.Transport(http.DefaultTransport)}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.NotContains(t, got, "Traceparent")
}

// handle serves one request with a handler under a tracer.
func handle(t *testing.T, tracer *tracing.Tracer, do func(context.Context)) {
	t.Helper()
	server := httptest.NewServer(tracer.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { do(r.Context()) })))
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/secret?secret", nil)
	require.NoError(t, err)
	request.Header.Set("Traceparent", parent)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
}

// Statements have their names and no parameters, and failures a class.
func TestStatements(t *testing.T) {
	backend := otlptest.Start(t)
	environment(t, backend.Env()...)
	tracer, err := open(t)
	require.NoError(t, err)
	statements := tracer.Statements()
	batches, ok := statements.(pgx.BatchTracer)
	require.True(t, ok)
	run := func(ctx context.Context, sql string, err error) {
		ctx = statements.TraceQueryStart(ctx, nil, pgx.TraceQueryStartData{SQL: sql, Args: []any{"secret"}})
		statements.TraceQueryEnd(ctx, nil, pgx.TraceQueryEndData{Err: err})
	}
	handle(t, tracer, func(ctx context.Context) {
		run(ctx, "-- name: TaskFind :one\nSELECT 'secret'", nil)
		run(ctx, "begin", nil)
		run(ctx, "-- name: TaskGone :one\nSELECT 1", pgx.ErrNoRows)
		run(ctx, "-- name: TaskLocked :one\nSELECT 1", &pgconn.PgError{Code: "55P03", Message: "secret"})
		run(ctx, "-- name: TaskLate :one\nSELECT 1", errors.New("secret"))
		b := &pgx.Batch{}
		b.Queue("SELECT set_config('holdfast.caller', 'secret', true)")
		b.Queue("-- name: TaskSeen :one\nSELECT 1")
		ctx = batches.TraceBatchStart(ctx, nil, pgx.TraceBatchStartData{Batch: b})
		batches.TraceBatchQuery(ctx, nil, pgx.TraceBatchQueryData{SQL: "x"})
		batches.TraceBatchEnd(ctx, nil, pgx.TraceBatchEndData{})
	})
	run(t.Context(), "-- name: Untraced :one\nSELECT 1", nil)
	require.NoError(t, tracer.Close(t.Context()))
	got := map[string]string{}
	for _, s := range backend.Spans() {
		got[s.Name] = s.Attributes["error.type"]
		require.Equal(t, traceID, s.Trace)
		for _, value := range s.Attributes {
			require.NotContains(t, value, "secret")
		}
	}
	require.Equal(t, map[string]string{
		"POST": "", "TaskFind": "", "begin": "", "TaskGone": "", "TaskLocked": "55P03", "TaskLate": "_OTHER", "TaskSeen": "",
	}, got)
}

// The sampler of the environment decides, and what it drops is still continued by others as not sampled.
func TestSampling(t *testing.T) {
	backend := otlptest.Start(t)
	environment(t, append(backend.Env(), "OTEL_TRACES_SAMPLER=always_off")...)
	tracer, err := open(t)
	require.NoError(t, err)
	var sent tracing.Context
	handle(t, tracer, func(ctx context.Context) {
		_, span := tracing.Send(ctx, "a")
		sent = span.Context()
		span.End()
		ctx = tracer.Statements().TraceQueryStart(ctx, nil, pgx.TraceQueryStartData{SQL: "SELECT 1"})
		tracer.Statements().TraceQueryEnd(ctx, nil, pgx.TraceQueryEndData{})
	})
	require.NoError(t, tracer.Close(t.Context()))
	require.Empty(t, backend.Spans())
	require.Equal(t, traceID, sent.TraceID())
	require.True(t, strings.HasSuffix(sent.Parent, "-00"), sent.Parent)
}
