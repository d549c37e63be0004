package store

import (
	"context"
	"sync"
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
	// bound returns the context of a statement. It ends later than statement_timeout, so that a live server answers first.
	bound func(context.Context) (context.Context, context.CancelFunc)
	waits // for a connection and for the answer to a statement
}

// waits are what waits for the database at the moment.
type waits struct {
	mu  sync.Mutex
	all map[*wait]struct{}
}

type wait struct {
	of     *waits
	began  time.Time
	cancel context.CancelFunc
}

func newPool(ctx context.Context, cfg *pgxpool.Config, statementTimeout time.Duration) (*pool, error) {
	p, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	bound := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, statementTimeout+10*time.Second)
	}
	return &pool{Pool: p, bound: bound}, nil
}

func (p *pool) begin(ctx context.Context) (context.Context, *wait) {
	ctx, cancel := p.bound(ctx)
	return ctx, p.add(cancel)
}

func (s *waits) add(cancel context.CancelFunc) *wait {
	w := &wait{of: s, began: time.Now(), cancel: cancel}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*wait]struct{}{}
	}
	s.all[w] = struct{}{}
	return w
}

func (w *wait) end() {
	w.cancel()
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	delete(w.of.all, w)
}

// longest returns for how long the oldest wait has lasted.
func (s *waits) longest() (d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.all {
		d = max(d, time.Since(w.began))
	}
	return d
}

func (p *pool) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	ctx, w := p.begin(ctx)
	defer w.end()
	return p.Pool.Exec(ctx, sql, args...)
}

func (p *pool) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	ctx, w := p.begin(ctx)
	return bounded(w)(p.Pool.Query(ctx, sql, args...)) //nolint:rowserrcheck // the reader of the rows checks it
}

func (p *pool) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	ctx, w := p.begin(ctx)
	return &boundedRow{p.Pool.QueryRow(ctx, sql, args...), w}
}

// Begin begins a transaction in which each statement and the end have the bound of a statement.
func (p *pool) Begin(ctx context.Context) (pgx.Tx, error) {
	ctx, w := p.begin(ctx)
	defer w.end()
	tx, err := p.Pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &boundedTx{tx, p}, nil
}

type boundedTx struct {
	pgx.Tx
	pool *pool
}

func (t *boundedTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	ctx, w := t.pool.begin(ctx)
	defer w.end()
	return t.Tx.Exec(ctx, sql, args...)
}

func (t *boundedTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	ctx, w := t.pool.begin(ctx)
	return bounded(w)(t.Tx.Query(ctx, sql, args...)) //nolint:rowserrcheck // the reader of the rows checks it
}

func (t *boundedTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	ctx, w := t.pool.begin(ctx)
	return &boundedRow{t.Tx.QueryRow(ctx, sql, args...), w}
}

func (t *boundedTx) Commit(ctx context.Context) error {
	ctx, w := t.pool.begin(ctx)
	defer w.end()
	return t.Tx.Commit(ctx)
}

func (t *boundedTx) Rollback(ctx context.Context) error {
	ctx, w := t.pool.begin(ctx)
	defer w.end()
	return t.Tx.Rollback(ctx)
}

// bounded makes rows end the wait when they are closed.
func bounded(w *wait) func(pgx.Rows, error) (pgx.Rows, error) {
	return func(rows pgx.Rows, err error) (pgx.Rows, error) {
		if err != nil {
			w.end()
			return nil, err
		}
		return &boundedRows{rows, w}, nil
	}
}

type boundedRows struct {
	pgx.Rows
	wait *wait
}

func (r *boundedRows) Close() {
	r.Rows.Close()
	r.wait.end()
}

type boundedRow struct {
	pgx.Row
	wait *wait
}

func (r *boundedRow) Scan(dest ...any) error {
	defer r.wait.end()
	return r.Row.Scan(dest...)
}
