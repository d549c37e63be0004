package tracing

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Statements makes a span of each statement in a context whose span is recorded. Statements that many requests share, such as
// batched creates, have no such context. It returns nil when tracing is off.
func (t *Tracer) Statements() pgx.QueryTracer {
	if t == nil {
		return nil
	}
	return statements{}
}

// statements has no state: the span of a statement is in its context.
type statements struct{}

type statementKey struct{}

func begin(ctx context.Context, sql string) context.Context {
	t := of(ctx)
	if t == nil || !trace.SpanFromContext(ctx).IsRecording() {
		return ctx
	}
	name := statement(sql)
	ctx, span := t.start(ctx, name, trace.SpanKindClient, trace.WithAttributes(
		semconv.DBSystemNamePostgreSQL, semconv.DBQuerySummary(name)))
	return context.WithValue(ctx, statementKey{}, span)
}

func end(ctx context.Context, err error) {
	span, ok := ctx.Value(statementKey{}).(*Span)
	if !ok {
		return
	}
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		class := classOf(err)
		if failed, ok := errors.AsType[*pgconn.PgError](err); ok {
			class = failed.Code
			span.Set(semconv.DBResponseStatusCode(class))
		}
		span.Fail(class)
	}
	span.End()
}

// statement returns the name of a statement, from its first line, or else its first word.
func statement(sql string) string {
	sql = strings.TrimSpace(sql)
	if named, ok := strings.CutPrefix(sql, "-- name: "); ok {
		sql = named
	}
	if i := strings.IndexAny(sql, " \n\t;("); i > 0 {
		sql = sql[:i]
	}
	return sql
}

// TraceQueryStart implements pgx.QueryTracer.
func (statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return begin(ctx, data.SQL)
}

// TraceQueryEnd implements pgx.QueryTracer.
func (statements) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	end(ctx, data.Err)
}

// TraceBatchStart implements pgx.BatchTracer. The store's batches are settings and one statement, which is the last.
func (statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	if n := len(data.Batch.QueuedQueries); n > 0 {
		return begin(ctx, data.Batch.QueuedQueries[n-1].SQL)
	}
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (statements) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	end(ctx, data.Err)
}
