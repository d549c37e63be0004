package bench

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/load"
)

// retention compares a server that keeps tasks forever with one that deletes them a minute after their end, under the
// same load for BENCH_RETENTION (90s). MB-half and MB-end are the size of all tables and indexes, after half the time
// and at the end. lock-ms is the longest wait for a lock that a check every 10 ms has seen. It excludes the wait of
// the detach itself, which waits for readers.
func retention(b *testing.B) {
	b.Helper()
	during, err := time.ParseDuration(os.Getenv("BENCH_RETENTION"))
	if err != nil {
		during = 90 * time.Second
	}
	for _, kind := range []struct{ name, config string }{
		{"forever", ""},
		{"minute", "retention: {tasks: 1m, idempotency_keys: 1m}\n"},
	} {
		b.Run(kind.name, func(b *testing.B) {
			c := newClusterWith(b, config+kind.config, whole, whole)
			ctx, stop := context.WithCancel(b.Context())
			defer stop()
			half, longest := make(chan float64, 1), make(chan float64, 1)
			go c.watchLocks(ctx, b, longest)
			go func() {
				select {
				case <-time.After(during / 2):
					half <- c.size(b)
				case <-ctx.Done():
				}
			}()
			r := measure(b, load.Options{Targets: c.targets(), Mode: load.Blocking, Text: "echo:hello", InFlight: 16, Duration: during})
			metric(b, r.TasksPerSecond(), "tasks/s")
			quantiles(b, r.Latencies)
			metric(b, <-half, "MB-half")
			metric(b, c.size(b), "MB-end")
			stop()
			metric(b, <-longest, "lock-ms")
		})
	}
}

// size is the size of the schema on disk, in MB.
func (c *cluster) size(b *testing.B) float64 {
	b.Helper()
	return one[float64](b, connect(b, c.dbURL), `SELECT sum(pg_relation_size(oid))::float8 / 1e6 FROM pg_class
		WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'i')`)
}

// watchLocks records waits for locks until ctx ends.
func (c *cluster) watchLocks(ctx context.Context, b *testing.B, longest chan<- float64) {
	b.Helper()
	conn, most := connect(b, c.dbURL), 0.0
	for ctx.Err() == nil {
		most = max(most, one[float64](b, conn, `SELECT coalesce(max(extract(epoch FROM clock_timestamp() - l.waitstart) * 1000), 0)::float8
			FROM pg_locks l JOIN pg_stat_activity a USING (pid)
			WHERE NOT l.granted AND a.datname = current_database() AND a.query NOT LIKE 'ALTER TABLE%DETACH%'`))
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	longest <- most
}
