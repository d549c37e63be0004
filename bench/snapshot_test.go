package bench

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/pgembed"
)

// oldSnapshot measures the mean time and the pages of each statement of a server, before and after another session has held a
// snapshot for BENCH_SNAPSHOT (2m), as a long pg_dump does: nothing can be vacuumed meanwhile. Eight clients send tasks with webhooks
// all the time, or at most BENCH_RATE tasks a second, so that an hour of load leaves time for other work. Both windows are a
// tenth of the time, and at most a minute. Statements that take less than 1 % of either are left out.
func oldSnapshot(b *testing.B) {
	b.Helper()
	during, err := time.ParseDuration(cmp.Or(os.Getenv("BENCH_SNAPSHOT"), "2m"))
	if err != nil {
		b.Fatal(err)
	}
	var rate float64
	if text := os.Getenv("BENCH_RATE"); text != "" {
		if rate, err = strconv.ParseFloat(text, 64); err != nil || !(rate > 0) {
			b.Fatalf("BENCH_RATE: %q is not a number of tasks a second; write 25", text)
		}
	}
	window := min(during/10, time.Minute)
	b.Run(during.String(), func(b *testing.B) {
		url := newMeteredServer(b, nil)
		c := &cluster{dbURL: url, config: pushConfig("")}
		c.replicas = append(c.replicas, c.start(b, everything))
		c.db = connect(b, url)
		exec1(b, c.db, "CREATE EXTENSION pg_stat_statements")
		warmUp(b, c.replicas[0].target)
		to := newReceiver(b, 8)

		begun := time.Now()
		var over atomic.Bool
		var tasks atomic.Int64
		var all sync.WaitGroup
		for range 8 {
			client := newHookClient(b, c.replicas[0])
			all.Go(func() {
				for !over.Load() {
					n := tasks.Add(1)
					if rate > 0 {
						time.Sleep(time.Until(begun.Add(time.Duration(float64(n) / rate * float64(time.Second)))))
					}
					text := "echo:hello"
					if n%8 == 0 {
						text = chunks(20)
					}
					if err := client.send(text, to.hook(int(n)), true); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		b.Cleanup(func() { over.Store(true); all.Wait() })
		before := c.statements(b, window)
		snapshot := connect(b, url)
		exec1(b, snapshot, "BEGIN ISOLATION LEVEL REPEATABLE READ")
		exec1(b, snapshot, "SELECT FROM holdfast.tasks LIMIT 1")
		first := tasks.Load()
		time.Sleep(during - window)
		after := c.statements(b, window)
		metric(b, float64(tasks.Load()-first), "tasks")
		for name, a := range after {
			metric(b, before[name].Ms, name+"-before-ms")
			metric(b, a.Ms, name+"-after-ms")
			metric(b, before[name].Pages, name+"-before-pages")
			metric(b, a.Pages, name+"-after-pages")
		}
	})
}

// newMeteredServer starts a PostgreSQL that counts its statements, and returns the URL of an empty database.
func newMeteredServer(b *testing.B, settings map[string]string) string {
	b.Helper()
	dir, err := os.MkdirTemp("", "holdfast-bench") //nolint:usetesting // as root, PostgreSQL's user cannot enter b.TempDir
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	all := map[string]string{"shared_preload_libraries": "pg_stat_statements"}
	maps.Copy(all, settings)
	server, err := pgembed.Start(b.Context(), pgembed.Options{Dir: dir, Log: slog.New(slog.DiscardHandler), Settings: all})
	if err != nil {
		b.Skipf("PostgreSQL with pg_stat_statements: %v", err)
	}
	b.Cleanup(func() { _ = server.Destroy(context.Background()) })
	return server.DSN()
}

// statement is what one execution of a statement takes on average.
type statement struct{ Ms, Pages float64 }

// statements returns what each named statement took during a window.
func (c *cluster) statements(b *testing.B, window time.Duration) map[string]statement {
	b.Helper()
	exec1(b, c.db, "SELECT pg_stat_statements_reset()")
	time.Sleep(window)
	return one[map[string]statement](b, c.db, `
		SELECT json_object_agg(name, json_build_object('Ms', ms, 'Pages', pages)) FROM (
		    SELECT substring(query FROM '-- name: (\w+)') AS name, sum(total_exec_time) / sum(calls) AS ms,
		           sum(shared_blks_hit + shared_blks_read) / sum(calls) AS pages
		      FROM pg_stat_statements WHERE query LIKE '-- name:%' GROUP BY name
		    HAVING sum(total_exec_time) > 0.01 * (SELECT sum(total_exec_time) FROM pg_stat_statements)
		) s`)
}
