package store

import (
	"context"
	"errors"
	"fmt"
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
	within time.Duration // longer than statement_timeout, so that a live server answers first
	waits                // for a connection and for the answer to a statement
}

// waits are what waits for the database at the moment.
type waits struct {
	mu  sync.Mutex
	all map[*wait]struct{}
}

type wait struct {
	of        *waits
	began     time.Time
	cancel    context.CancelFunc
	abandoned bool
}

func newPool(ctx context.Context, cfg *pgxpool.Config, statementTimeout time.Duration) (*pool, error) {
	p, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &pool{Pool: p, within: statementTimeout + 10*time.Second}, nil
}

func (p *pool) begin(ctx context.Context) (context.Context, *wait) {
	ctx, cancel := context.WithTimeout(ctx, p.within)
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

// errAbandoned ends a statement whose server is silent. Its outcome is unknown.
var errAbandoned = errors.New("the database server fell silent")

// end ends the wait. It returns err, which says if the statement was abandoned.
func (w *wait) end(err error) error {
	w.cancel()
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	delete(w.of.all, w)
	return w.because(err)
}

func (w *wait) because(err error) error {
	if err != nil && w.abandoned {
		return fmt.Errorf("%w: %w", errAbandoned, err)
	}
	return err
}

// abandon gives up all waits, and closes the connections of their statements.
func (s *waits) abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.all {
		w.abandoned = true
		w.cancel()
	}
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
	tag, err := p.Pool.Exec(ctx, sql, args...)
	return tag, w.end(err)
}

func (p *pool) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	ctx, w := p.begin(ctx)
	rows, err := p.Pool.Query(ctx, sql, args...) //nolint:rowserrcheck // the reader of the rows checks it
	if err != nil {
		return nil, w.end(err)
	}
	return &boundedRows{Rows: rows, wait: w}, nil
}

func (p *pool) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	ctx, w := p.begin(ctx)
	return &boundedRow{p.Pool.QueryRow(ctx, sql, args...), w}
}

// Begin begins a transaction in which each statement and the end have the bound of a statement.
func (p *pool) Begin(ctx context.Context) (pgx.Tx, error) {
	bounded, w := p.begin(ctx)
	tx, err := p.Pool.Begin(bounded)
	if err = w.end(err); err != nil {
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
	tag, err := t.Tx.Exec(ctx, sql, args...)
	return tag, w.end(err)
}

func (t *boundedTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	ctx, w := t.pool.begin(ctx)
	rows, err := t.Tx.Query(ctx, sql, args...) //nolint:rowserrcheck // the reader of the rows checks it
	if err != nil {
		return nil, w.end(err)
	}
	return &boundedRows{Rows: rows, wait: w}, nil
}

func (t *boundedTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	ctx, w := t.pool.begin(ctx)
	return &boundedRow{t.Tx.QueryRow(ctx, sql, args...), w}
}

func (t *boundedTx) Commit(ctx context.Context) error {
	ctx, w := t.pool.begin(ctx)
	return w.end(t.Tx.Commit(ctx))
}

func (t *boundedTx) Rollback(ctx context.Context) error {
	ctx, w := t.pool.begin(ctx)
	return w.end(t.Tx.Rollback(ctx))
}

type boundedRows struct {
	pgx.Rows
	wait *wait
}

func (r *boundedRows) Close() {
	r.Rows.Close()
	_ = r.wait.end(nil)
}

func (r *boundedRows) Err() error {
	r.wait.of.mu.Lock()
	defer r.wait.of.mu.Unlock()
	return r.wait.because(r.Rows.Err())
}

type boundedRow struct {
	pgx.Row
	wait *wait
}

func (r *boundedRow) Scan(dest ...any) error {
	return r.wait.end(r.Row.Scan(dest...))
}
