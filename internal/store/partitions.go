package store

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
)

// Widths says how much time the partitions of each family cover. Zero means a month.
type Widths struct {
	Tasks, Attempts, Audit partition.Width
}

// EnsurePartitions creates the missing partitions for now and for the time ahead, and returns their
// names. Several processes may call it at once.
func (s *Store) EnsurePartitions(ctx context.Context) (created []string, err error) {
	now, err := s.Now(ctx)
	if err != nil {
		return nil, err
	}
	return s.ensurePartitions(ctx, now, now)
}

// ensurePartitions creates the missing partitions ahead of now, and around the time of a task's id.
func (s *Store) ensurePartitions(ctx context.Context, now, at time.Time) (created []string, err error) {
	var failed error
	for _, f := range partition.Families {
		names, err := partition.EnsureAhead(ctx, s.hot, f, s.widthOf(f), now)
		created, failed = append(created, names...), errors.Join(failed, translate("partitions", err))
	}
	if !at.Equal(now) {
		names, err := partition.Ensure(ctx, s.hot, partition.Tasks, s.widths.Tasks, at, at.Add(time.Millisecond))
		created, failed = append(created, names...), errors.Join(failed, translate("partitions", err))
	}
	return created, failed
}

func (s *Store) widthOf(f partition.Family) partition.Width {
	switch f.Name {
	case partition.Tasks.Name:
		return s.widths.Tasks
	case partition.Attempts.Name:
		return s.widths.Attempts
	case partition.Audit.Name:
		return s.widths.Audit
	}
	return partition.Day
}

// provide creates the partition that a write did not find. Usually a partition exists long before.
// provide is for a database without a server for a while, and for a wrong clock.
func (s *Store) provide(ctx context.Context, cause error) {
	at, missing := partition.Missing(cause)
	if !missing {
		return
	}
	now, err := s.Now(ctx)
	if at.IsZero() {
		at = now
	}
	var created []string
	if err == nil {
		created, err = s.ensurePartitions(ctx, now, at)
	}
	if err != nil {
		s.log.Warn("could not create a missing partition", "error", err)
		return
	}
	s.log.Warn("created a partition that a write needed", "partitions", created)
}
