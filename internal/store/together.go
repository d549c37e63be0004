package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
)

// together executes queries in one transaction and one round trip, so none of them may depend on the result of another. Each
// is called twice: first to say what it sends, then to read its result.
func (p *pool) together(ctx context.Context, queries ...func(db dbsqlc.DBTX) error) error {
	ctx, w := p.begin(ctx)
	defer w.end()
	return together(ctx, p.Pool, &pgx.Batch{}, queries)
}

type batchSender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

func together(ctx context.Context, db batchSender, b *pgx.Batch, queries []func(db dbsqlc.DBTX) error) error {
	for _, query := range queries {
		if err := query(queuing{b}); !errors.Is(err, errQueued) {
			return err
		}
	}
	sent := db.SendBatch(ctx, b)
	for _, query := range queries {
		if err := query(reading{sent}); err != nil {
			_ = sent.Close()
			return err
		}
	}
	return sent.Close()
}

// errQueued is the result of a query that has not been sent yet.
var errQueued = errors.New("the query is queued")

// queuing puts a query into a batch.
type queuing struct{ batch *pgx.Batch }

func (q queuing) Query(_ context.Context, sql string, args ...any) (pgx.Rows, error) {
	q.batch.Queue(sql, args...)
	return nil, errQueued
}

func (q queuing) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	q.batch.Queue(sql, args...)
	return pgconn.CommandTag{}, errQueued
}

func (q queuing) QueryRow(_ context.Context, sql string, args ...any) pgx.Row {
	q.batch.Queue(sql, args...)
	return unread{}
}

type unread struct{}

func (unread) Scan(...any) error { return errQueued }

// reading reads the next result of a batch.
type reading struct{ sent pgx.BatchResults }

func (r reading) Query(context.Context, string, ...any) (pgx.Rows, error) { return r.sent.Query() }

func (r reading) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return r.sent.Exec()
}

func (r reading) QueryRow(context.Context, string, ...any) pgx.Row { return r.sent.QueryRow() }
