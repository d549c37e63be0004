package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// pool bounds each statement by this process's own clock, too. The server's statement_timeout
// cannot help when its machine or the network fails silently, and TCP would wait for a quarter of
// an hour.
type pool struct {
	*pgxpool.Pool
	within time.Duration // longer than statement_timeout, so that a live server answers first
}

func newPool(ctx context.Context, cfg *pgxpool.Config, statementTimeout time.Duration) (*pool, error) {
	p, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &pool{p, statementTimeout + 10*time.Second}, nil
}

func (p *pool) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	ctx, cancel := context.WithTimeout(ctx, p.within)
	defer cancel()
	return p.Pool.Exec(ctx, sql, args...)
}

func (p *pool) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	ctx, cancel := context.WithTimeout(ctx, p.within)
	rows, err := p.Pool.Query(ctx, sql, args...) //nolint:rowserrcheck // the reader of the rows checks it
	if err != nil {
		cancel()
		return nil, err
	}
	return &boundedRows{rows, cancel}, nil
}

func (p *pool) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	ctx, cancel := context.WithTimeout(ctx, p.within)
	return &boundedRow{p.Pool.QueryRow(ctx, sql, args...), cancel}
}

type boundedRows struct {
	pgx.Rows
	cancel context.CancelFunc
}

func (r *boundedRows) Close() {
	r.Rows.Close()
	r.cancel()
}

type boundedRow struct {
	pgx.Row
	cancel context.CancelFunc
}

func (r *boundedRow) Scan(dest ...any) error {
	defer r.cancel()
	return r.Row.Scan(dest...)
}
