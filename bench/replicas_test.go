package bench

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/load"
)

// manyReplicas measures what replicas cost on one database: while nothing happens, and for each event. Under "one" a replica runs
// tasks whose readers are on another one, and the rest are bystanders. Under "each" every replica runs tasks and has the readers
// of its neighbor's, so that events grow with replicas. Nothing may grow faster than their number. PostgreSQL must have
// pg_stat_statements.
func manyReplicas(b *testing.B) {
	b.Helper()
	url := newMeteredServer(b, map[string]string{"max_connections": "1000"})
	c := &cluster{dbURL: url, config: config}
	most := []int{2, 5, 10, 20}
	if tiny() > 0 {
		most = []int{2, 3}
	}
	for _, n := range most {
		b.Run(fmt.Sprintf("replicas=%d", n), func(b *testing.B) {
			c.replicas, c.db = nil, nil
			for range n {
				c.replicas = append(c.replicas, c.start(b, everything))
			}
			c.db = connect(b, url)
			exec1(b, c.db, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
			for _, r := range c.replicas {
				measure(b, load.Options{Targets: []*load.Target{r.target}, Mode: load.Stream, Text: "chunks=10 size=32", InFlight: 2, Count: 10})
			}
			if tiny() == 0 {
				time.Sleep(10 * time.Second) // a lease: until all know how many they are
			}
			for _, kind := range []string{"idle", "one", "each"} {
				settle(b)
				b.Run(kind, func(b *testing.B) { c.replicasAt(b, kind) })
			}
		})
	}
}

func (c *cluster) replicasAt(b *testing.B, kind string) {
	b.Helper()
	const runs = 5 // of a replica
	window := max(10*time.Second, benchtime())
	if tiny() > 0 {
		window = time.Second
	}
	text := fmt.Sprintf("chunks=%d size=%d delay=%dms", int(window.Seconds())*tokensPerSecond, tokenSize, 1000/tokensPerSecond)
	var readers []*tokenReader
	exec1(b, c.db, "SELECT pg_stat_statements_reset()")
	before := c.processorTime(b)
	begun := time.Now()
	if kind == "idle" {
		time.Sleep(window)
	} else {
		ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
		defer cancel()
		running := 1
		if kind == "each" {
			running = len(c.replicas)
		}
		var all sync.WaitGroup
		for i := range running * runs {
			from, to := c.replicas[i%running].target, c.replicas[(i+1)%len(c.replicas)].target
			if kind == "one" {
				to = c.replicas[1].target
			}
			r := &tokenReader{}
			readers = append(readers, r)
			all.Go(func() {
				// The runs are spread over each pause.
				time.Sleep(time.Duration(i) * time.Second / time.Duration(tokensPerSecond*running*runs))
				if err := r.read(ctx, to, ask(b, from, text, false).TaskID, int(window.Seconds())*tokensPerSecond, 0); err != nil {
					b.Error(err)
				}
			})
		}
		all.Wait()
	}
	if b.Failed() {
		b.FailNow()
	}
	took := time.Since(begun).Seconds()
	now := c.processorTime(b)
	calls := one[map[string]float64](b, c.db, `SELECT json_object_agg(name, calls) FROM (
		SELECT coalesce(substring(query FROM '-- name: (\w+)'), left(query, 30)) AS name, sum(calls) AS calls FROM pg_stat_statements GROUP BY name) s`)

	var server, database, bystanders time.Duration
	for pid, t := range now {
		switch spent := t - before[pid]; {
		case !c.has(pid):
			database += spent
		case pid != c.replicas[0].PID() && pid != c.replicas[1].PID():
			bystanders += spent
			fallthrough
		default:
			server += spent
		}
	}
	n, per := float64(len(c.replicas)), "s"
	statements, most := 0.0, []string{}
	for name, count := range calls {
		statements += count
		most = append(most, name)
	}
	if kind == "idle" {
		// Each replica in each second.
		metric(b, statements/n/took, "statements/s")
	} else {
		events := 0
		var lags []time.Duration
		for _, r := range readers {
			events += len(r.arrived)
			lags = append(lags, r.lags...)
		}
		slices.Sort(lags)
		quantiles(b, lags)
		metric(b, float64(events)/took, "events/s")
		metric(b, calls["NotifySend"]/took, "NOTIFYs/s")
		n, took, per = 1, float64(events), "event"
		metric(b, statements/took, "statements/event")
	}
	if len(now) > 0 {
		metric(b, float64(server.Microseconds())/n/took, "server-µs/"+per)
		metric(b, float64(database.Microseconds())/n/took, "db-µs/"+per)
		if kind == "one" && len(c.replicas) > 2 {
			metric(b, float64(bystanders.Microseconds())/float64(len(c.replicas)-2)/took, "bystander-µs/event")
		}
	}
	slices.SortFunc(most, func(x, y string) int { return cmp.Compare(calls[y], calls[x]) })
	for _, name := range most[:min(len(most), 12)] {
		b.Logf("%s: %.3f for each %s", name, calls[name]/n/took, per)
	}
}
