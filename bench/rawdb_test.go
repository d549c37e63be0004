package bench

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/pg/schema"
)

// rawTable is a table like a partition of the log, in a database without servers.
func rawTable(b *testing.B) (dbURL string) {
	b.Helper()
	dbURL = newDatabase(b)
	if err := schema.Migrate(b.Context(), dbURL, slog.New(slog.DiscardHandler)); err != nil {
		b.Fatal(err)
	}
	exec1(b, connect(b, dbURL), "CREATE TABLE raw_events (LIKE holdfast.events_kept INCLUDING ALL)")
	settle(b)
	return dbURL
}

// rawPayload is the payload of a chunk of 256 bytes.
var rawPayload = `{"index":0,"name":"chunks","parts":[{"text":"` + strings.Repeat("0123456789abcdef", 16) + `"}]}`

// rawConns are connections with the prepared statements of rawInsert and rawUnnest.
func rawConns(b *testing.B, dbURL string, n int) []*pgx.Conn {
	b.Helper()
	if limit, err := strconv.Atoi(one[string](b, pg, "SHOW max_connections")); err != nil || limit < n+20 {
		b.Skipf("the database allows %d connections (max_connections)", limit)
	}
	out := make([]*pgx.Conn, n)
	for i := range out {
		out[i] = connect(b, dbURL)
		for name, sql := range map[string]string{
			"one": `INSERT INTO raw_events (task, seq, kind, attempt, append, last, artifact_id, payload)
			        VALUES ($1, $2, 3, 1, true, false, 'chunks', CAST($3::text AS json))`,
			// As in EventsAppend, without its locks, fences and projection.
			"many": `INSERT INTO raw_events (task, seq, kind, attempt, append, last, artifact_id, payload)
			         SELECT t, s, 3, 1, true, false, 'chunks', CAST(p AS json)
			           FROM unnest($1::uuid[], $2::bigint[], $3::text[]) AS u(t, s, p)`,
		} {
			if _, err := out[i].Prepare(b.Context(), name, sql); err != nil {
				b.Fatal(err)
			}
		}
	}
	return out
}

// rawInsert measures one row per transaction.
func rawInsert(b *testing.B) {
	b.Helper()
	dbURL := rawTable(b)
	for _, n := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("conns=%d", n), func(b *testing.B) {
			conns := rawConns(b, dbURL, n)
			elapsed, took := spread(b, b.N, conns, func(c *pgx.Conn) error {
				_, err := c.Exec(context.Background(), "one", uuid.Must(uuid.NewV7()), int64(1), rawPayload)
				return err
			})
			metric(b, float64(b.N)/elapsed.Seconds(), "commits/s")
			quantiles(b, took)
		})
	}
}

// rawUnnest measures many rows per transaction.
func rawUnnest(b *testing.B) {
	b.Helper()
	dbURL := rawTable(b)
	for _, n := range []int{1, 2} { // the server has two writers
		for _, rows := range []int{100, 500} {
			b.Run(fmt.Sprintf("conns=%d/rows=%d", n, rows), func(b *testing.B) {
				elapsed, _ := spread(b, b.N, rawConns(b, dbURL, n), func(c *pgx.Conn) error {
					task := uuid.Must(uuid.NewV7())
					tasks, seqs, payloads := slices.Repeat([]uuid.UUID{task}, rows), make([]int64, rows), slices.Repeat([]string{rawPayload}, rows)
					for i := range seqs {
						seqs[i] = int64(i + 1)
					}
					_, err := c.Exec(context.Background(), "many", tasks, seqs, payloads)
					return err
				})
				metric(b, float64(b.N*rows)/elapsed.Seconds(), "rows/s")
			})
		}
	}
}

// rawNotify measures the time from NOTIFY on one connection to its arrival on another.
func rawNotify(b *testing.B) {
	b.Helper()
	dbURL := newDatabase(b)
	sender, listener := connect(b, dbURL), connect(b, dbURL)
	exec1(b, listener, "LISTEN raw")
	b.Run("idle", func(b *testing.B) {
		var took []time.Duration
		for range rounds(500) {
			start := time.Now()
			sent := make(chan error, 1)
			go func() {
				_, err := sender.Exec(b.Context(), "SELECT pg_notify('raw', 'x')")
				sent <- err
			}()
			if _, err := listener.WaitForNotification(b.Context()); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(start))
			if err := <-sent; err != nil {
				b.Fatal(err)
			}
		}
		slices.Sort(took)
		quantiles(b, took)
	})
}
