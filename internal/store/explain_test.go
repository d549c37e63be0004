package store

import (
	"context"
	"math"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

// explained runs statements, and counts the pages that they read of tables and indexes.
type explained struct {
	f     *fixture
	pages int
}

func (x *explained) explain(ctx context.Context, sql string, args []any) {
	c := storetest.Must(x.f.api.Acquire(ctx))(x.f.t)
	defer c.Release()
	x.pages += pagesOf(x.f.t, c.Conn(), sql, args...)
}

func (x *explained) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	x.explain(ctx, sql, args)
	return x.f.api.Query(ctx, sql, args...) //nolint:rowserrcheck // the caller checks it
}

func (x *explained) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	x.explain(ctx, sql, args)
	return x.f.api.QueryRow(ctx, sql, args...)
}

func (x *explained) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	x.explain(ctx, sql, args)
	return x.f.api.Exec(ctx, sql, args...)
}

// pagesOf returns how many pages a statement reads of tables and indexes. It rolls the statement back.
//
// A new connection also reads catalogs. A connection reads them again after the server has emptied its caches, for example because
// sessions in other databases changed many tables. The fewest pages of several executions are without catalogs.
func pagesOf(t testing.TB, c *pgx.Conn, sql string, args ...any) int {
	t.Helper()
	fewest := math.MaxInt
	for range 3 {
		tx := storetest.Must(c.Begin(t.Context()))(t)
		var plans []struct{ Plan planNode }
		require.NoError(t, tx.QueryRow(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+sql, args...).Scan(&plans))
		require.NoError(t, tx.Rollback(t.Context()))
		fewest = min(fewest, plans[0].Plan.pages())
	}
	return fewest
}

// planNode is a part of an explained plan.
type planNode struct {
	Hit   int `json:"Shared Hit Blocks"`
	Read  int `json:"Shared Read Blocks"`
	Plans []*planNode
}

// pages is what the node that reads most has read, with those below it. It may not be the root: parts that write and that no
// other part reads run after it.
func (n *planNode) pages() int {
	most := n.Hit + n.Read
	for _, p := range n.Plans {
		most = max(most, p.pages())
	}
	return most
}
