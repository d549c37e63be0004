package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
)

// pageBytes is how much one statement reads of logs, unless one event alone is larger.
const pageBytes = 8 << 20

// meter is a database whose answers end after a number of bytes. A row is counted when the driver
// has read it, so a statement holds one row that was not counted.
type meter struct {
	dbsqlc.DBTX
	most    int64          // bytes of all rows; a first row may have more
	account *limit.Account // takes the bytes, too; nil: does not count
	read    int64
	cut     bool
	row     int64 // size of the row that did not fit
}

// Query implements dbsqlc.DBTX.
func (m *meter) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	ctx, cancel := context.WithCancel(ctx)
	rows, err := m.DBTX.Query(ctx, sql, args...) //nolint:rowserrcheck // the reader of the rows checks it
	if err != nil {
		cancel()
		return nil, err
	}
	return &meteredRows{rows, m, cancel}, nil
}

type meteredRows struct {
	pgx.Rows
	m      *meter
	cancel context.CancelFunc
}

func (r *meteredRows) Next() bool {
	m := r.m
	if m.cut || !r.Rows.Next() {
		r.Close()
		return false
	}
	n := int64(0)
	for _, v := range r.RawValues() {
		n += int64(len(v))
	}
	if m.read > 0 && m.read+n > m.most || !m.account.Use(n) {
		m.cut, m.row = true, n
		// The rest may be gigabytes. Without a cancel the driver would read all of it.
		r.cancel()
		r.Close()
		return false
	}
	m.read += n
	return true
}

func (r *meteredRows) Close() {
	r.Rows.Close()
	r.cancel()
}

// Err returns no error if the meter has ended the answer.
func (r *meteredRows) Err() error {
	if r.m.cut {
		return nil
	}
	return r.Rows.Err()
}

// slow reports whether a statement took too long, so that a smaller one may succeed.
func slow(ctx context.Context, err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "57014" || errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
}
