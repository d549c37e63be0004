package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// PartitionsAhead is how many months beyond the present one have their partition.
const PartitionsAhead = 2

// partition is one month of task_events: the UUIDv7 ids whose time falls in it.
type partition struct {
	name     string
	from, to task.ID
}

func partitionOf(month time.Time) partition {
	first := time.Date(month.Year(), month.Month(), 1, 0, 0, 0, 0, time.UTC)
	return partition{
		name: "task_events_" + first.Format("2006_01"),
		from: firstID(first),
		to:   firstID(first.AddDate(0, 1, 0)),
	}
}

// firstID is the smallest UUID whose 48-bit millisecond time is t. The version
// bits are left out, so that the bound lies below every id of that time.
func firstID(t time.Time) task.ID {
	var id task.ID
	ms := uint64(t.UnixMilli())
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id
}

// EnsurePartitions creates the partitions of the present month and of those
// ahead. It is safe to run on several processes at once; a month whose events
// already went to the default partition stays there, and the error says so, but
// the other months get theirs.
func (s *Store) EnsurePartitions(ctx context.Context) (created []string, err error) {
	now, err := s.Now(ctx)
	if err != nil {
		return nil, err
	}
	var failed error
	for i := range PartitionsAhead + 1 {
		p := partitionOf(time.Date(now.Year(), now.Month()+time.Month(i), 1, 0, 0, 0, 0, time.UTC))
		made, err := s.ensurePartition(ctx, p)
		if made {
			created = append(created, p.name)
		}
		failed = errors.Join(failed, translate("partition "+p.name, err))
	}
	return created, failed
}

// ensurePartition builds the table aside and attaches it: CREATE … PARTITION OF
// would lock out every reader and writer of the log while it waits its turn.
func (s *Store) ensurePartition(ctx context.Context, p partition) (made bool, err error) {
	exists := func(tx pgx.Tx) (yes bool, err error) {
		err = tx.QueryRow(ctx, `SELECT EXISTS (
			SELECT FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
			 WHERE i.inhparent = 'holdfast.task_events'::regclass AND c.relname = $1)`, p.name).Scan(&yes)
		return yes, err
	}
	err = pgx.BeginFunc(ctx, s.hot, func(tx pgx.Tx) error {
		yes, err := exists(tx)
		if err != nil || yes {
			return err
		}
		// One at a time: ten replicas may start in the same second.
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext('holdfast.partitions'))"); err != nil {
			return err
		}
		if yes, err = exists(tx); err != nil || yes {
			return err
		}
		table := pgx.Identifier{"holdfast", p.name}.Sanitize()
		for _, sql := range []string{
			fmt.Sprintf("CREATE TABLE %s (LIKE holdfast.task_events INCLUDING ALL)", table),
			fmt.Sprintf("ALTER TABLE holdfast.task_events ATTACH PARTITION %s FOR VALUES FROM ('%s') TO ('%s')", table, p.from, p.to),
		} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		made = true
		return nil
	})
	return made && err == nil, err
}
