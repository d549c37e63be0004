package bench

import (
	"slices"
	"testing"

	"github.com/holdfast-a2a/holdfast/internal/load"
)

// wal measures the write-ahead log for one artifact of 1,000 chunks of 256 bytes of pseudo-random text. It measures
// right after a checkpoint, when the first change of a page logs the whole page, and between checkpoints, when
// PostgreSQL logs only the changes.
func wal(b *testing.B) {
	b.Helper()
	c := newCluster(b, whole)
	const megabyte = 1 << 20
	written := func(checkpoint bool) float64 {
		if checkpoint {
			exec1(b, c.db, "CHECKPOINT")
		}
		before := c.lsn(b)
		r := measure(b, load.Options{Targets: c.targets(), Mode: load.Stream, Text: chunks(1000), InFlight: 1, Count: 1})
		if r.Chunks != 1000 {
			b.Fatalf("%d chunks arrived", r.Chunks)
		}
		return c.walSince(b, before)
	}
	b.Run("chunks=1000", func(b *testing.B) {
		var fresh, between []float64
		for range rounds(5) {
			fresh = append(fresh, written(true))
			between = append(between, written(false))
		}
		slices.Sort(fresh)
		slices.Sort(between)
		metric(b, between[len(between)/2]/megabyte, "MB-between")
		metric(b, fresh[len(fresh)/2]/megabyte, "MB-after-checkpoint")
		metric(b, fresh[len(fresh)-1]/megabyte, "MB-largest")
	})
}

// lsn is the present end of the write-ahead log.
func (c *cluster) lsn(b *testing.B) string {
	b.Helper()
	return one[string](b, c.db, "SELECT pg_current_wal_insert_lsn()::text")
}

// walSince is how many bytes all databases have written to the log since then.
func (c *cluster) walSince(b *testing.B, lsn string) float64 {
	b.Helper()
	return one[float64](b, c.db, "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1::pg_lsn)::float8", lsn)
}
