package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
)

// proven reads what an earlier try of a write has committed, so that the store may acknowledge it.
// A read alone proves nothing: if the connection ended while a COMMIT waited for a synchronous
// standby, PostgreSQL shows a commit that only the primary has. So the transaction of the read
// writes, too. Its commit waits for the standby, which then has all earlier commits as well. Read
// and write are one transaction, because after a failover two connections may lead to two servers.
//
// The result of read is valid only if proven returns no error. If read fails, nothing is written.
func (s *Store) proven(ctx context.Context, db querier, read func(db dbsqlc.DBTX) error) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if err := read(tx); err != nil {
			return err
		}
		return s.q.CommitProve(ctx, tx)
	})
}
