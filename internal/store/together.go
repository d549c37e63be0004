package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
)

// together executes queries in one transaction and one round trip, so none of them may depend on the result of another. Each
// of several is called twice: first to say what it sends, then to read its result.
func (p *pool) together(ctx context.Context, queries ...func(db dbsqlc.DBTX) error) error {
	if len(queries) == 1 {
		return queries[0](p)
	}
	ctx, w := p.begin(ctx)
	defer w.end()
	return together(ctx, p.Pool, queries...)
}

// inTwo executes a query, and then others that depend on its result, in one transaction and two round trips.
func (p *pool) inTwo(ctx context.Context, first func(db dbsqlc.DBTX) error, others func() []func(db dbsqlc.DBTX) error) error {
	ctx, w := p.begin(ctx)
	defer w.end()
	c, err := p.Acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release() // closes a connection whose transaction is open
	do := func(sql string) func(dbsqlc.DBTX) error {
		return func(db dbsqlc.DBTX) error {
			_, err := db.Exec(ctx, sql)
			return err
		}
	}
	// A process that stalls between the two must not keep the locks of the first query.
	err = together(ctx, c, do("BEGIN"), do("SET LOCAL idle_in_transaction_session_timeout = '2s'"), first)
	if err == nil {
		err = together(ctx, c, append(others(), do("COMMIT"))...)
	}
	if err != nil && !c.Conn().IsClosed() {
		_, _ = c.Exec(ctx, "ROLLBACK")
	}
	return err
}

type batchSender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

func together(ctx context.Context, db batchSender, queries ...func(db dbsqlc.DBTX) error) error {
	b := &pgx.Batch{}
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

func (r reading) Query(context.Context, string, ...any) (pgx.Rows, error) {
	return r.sent.Query() //nolint:rowserrcheck // the reader of the rows checks it
}

func (r reading) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return r.sent.Exec()
}

func (r reading) QueryRow(context.Context, string, ...any) pgx.Row { return r.sent.QueryRow() }
