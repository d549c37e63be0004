package store

import (
	"context"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
)

// Figures describe the database, for metrics.
type Figures struct {
	Bytes      int64
	Tables     []TableFigures
	Partitions []PartitionFigures
	// Keys counts API keys. Expiring ones expire within 7 days, and not because they were made for few days; they are not among the
	// active ones.
	Keys struct{ Active, Expiring, Expired, Revoked int64 }
}

// TableFigures is a table with its indexes and partitions. All detached partitions are one, named detached. The size of a partition is
// that of its last vacuum or analyze.
type TableFigures struct {
	Name        string
	Bytes, Dead int64 // Dead: rows that vacuum has not removed, as PostgreSQL estimates them
}

// PartitionFigures are the partitions of a family.
type PartitionFigures struct {
	Family string
	Ahead  time.Duration // how far ahead of now they are created
	partition.Coverage
}

// Figures measures the database.
func (s *Store) Figures(ctx context.Context) (*Figures, error) {
	out := &Figures{}
	var err error
	if out.Bytes, err = s.q.DatabaseBytes(ctx, s.api); err != nil {
		return nil, translate("measure the database", err)
	}
	tables, err := s.q.TableFigures(ctx, s.api)
	if err != nil {
		return nil, translate("measure tables", err)
	}
	for _, t := range tables {
		out.Tables = append(out.Tables, TableFigures(t))
	}
	keys, err := s.q.APIKeyCounts(ctx, s.api)
	if err != nil {
		return nil, translate("count API keys", err)
	}
	out.Keys.Expiring, out.Keys.Expired, out.Keys.Revoked = keys.Expiring, keys.Expired, keys.Revoked
	out.Keys.Active = keys.Total - keys.Expiring - keys.Expired - keys.Revoked
	now, err := s.Now(ctx)
	if err != nil {
		return nil, err
	}
	for _, f := range partition.Families {
		p := PartitionFigures{Family: f.Name, Ahead: s.widthOf(f).Ahead()}
		if p.Coverage, err = partition.Cover(ctx, s.api, f, now); err != nil {
			return nil, translate("partitions", err)
		}
		out.Partitions = append(out.Partitions, p)
	}
	return out, nil
}
