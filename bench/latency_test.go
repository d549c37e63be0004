package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-a2a/holdfast/bench/load"
)

// watch reads the stream of a task from its beginning to its end, and passes on each chunk's data. It calls ready
// with every event, also with the first one.
func watch(ctx context.Context, target *load.Target, id string, ready func(), chunk func(at time.Time)) error {
	c, err := target.Dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	return c.Stream(target.Request("tasks/resubscribe", load.TaskQuery(id), ""), func(data []byte) error {
		ready()
		if !load.IsChunk(data) {
			return nil
		}
		at, ok := load.Stamp(data)
		if !ok {
			return fmt.Errorf("a chunk without a stamp: %.200s", data)
		}
		chunk(at)
		return nil
	})
}

// latency measures the time from an executor's emission to a client's SSE reader, on the replica that runs the task
// and on another one.
func latency(b *testing.B) {
	b.Helper()
	c := newCluster(b, whole, apiOnly)
	const delay = 10 * time.Millisecond
	each := 100
	if tiny() == 0 {
		each = max(500, int(benchtime()/delay))
	}
	for _, l := range []struct {
		name  string
		tasks int
	}{{"idle", 1}, {"2000-per-s", 22}} { // a pause of 10 ms takes a bit more
		for i, where := range []string{"same", "other"} {
			settle(b)
			b.Run(l.name+"/"+where, func(b *testing.B) {
				lags, during := lagsOf(b, c, i, l.tasks, each, delay)
				quantiles(b, lags)
				metric(b, float64(len(lags))/during.Seconds(), "events/s")
			})
		}
	}
}

// lagsOf has runs on the first replica that emit chunks, each with a reader on a replica. It returns the time from emission to arrival
// of each chunk, sorted, and how long they were emitted. A reader misses the chunks before it.
func lagsOf(b *testing.B, c *cluster, reader, runs, chunks int, delay time.Duration) (lags []time.Duration, during time.Duration) {
	b.Helper()
	var mu sync.Mutex
	var first, last time.Time
	var wg sync.WaitGroup
	for n := range runs {
		wg.Go(func() {
			// Spread the tasks over each pause.
			time.Sleep(delay * time.Duration(n) / time.Duration(runs))
			id := ask(b, c.replicas[0].target, fmt.Sprintf("chunks=%d size=64 delay=%s", chunks, delay)).TaskID
			err := watch(b.Context(), c.replicas[reader].target, id, func() {}, func(at time.Time) {
				lag := time.Since(at)
				mu.Lock()
				defer mu.Unlock()
				lags = append(lags, lag)
				if first.IsZero() || at.Before(first) {
					first = at
				}
				if at.After(last) {
					last = at
				}
			})
			if err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	if b.Failed() || len(lags) < runs*chunks*9/10 {
		b.Fatalf("%d of %d chunks arrived", len(lags), runs*chunks)
	}
	slices.Sort(lags)
	return lags, last.Sub(first)
}

// fanOut has 200 readers of one task, half of them on each of two replicas. "Paced" emits 50 chunks a second,
// "flooding" as many as it can.
func fanOut(b *testing.B) {
	b.Helper()
	const readers = 200
	c := newCluster(b, whole, apiOnly)
	// The agent runs one task at a time: the task waits behind another one until all readers are connected.
	serial := []*load.Target{targetOf(b, c.replicas[0].URL+"/agents/serial"), targetOf(b, c.replicas[1].URL+"/agents/serial")}
	for _, f := range []struct {
		name  string
		count int
		delay string
	}{{"paced", 250, "20ms"}, {"flood", 1000, "0ms"}} {
		settle(b)
		b.Run(f.name, func(b *testing.B) {
			var all []time.Duration
			var active time.Duration // from each task's first emission to its last arrival
			var used cost
			for range rounds(1) {
				used.of(b, c, func() (int, float64) {
					lags, took := fanOutOnce(b, serial, fmt.Sprintf("chunks=%d size=256 delay=%s", f.count, f.delay), readers)
					if len(lags) != readers*f.count {
						b.Fatalf("%d of %d chunks arrived", len(lags), readers*f.count)
					}
					all = append(all, lags...)
					active += took
					return len(lags), 0
				})
			}
			slices.Sort(all)
			quantiles(b, all)
			metric(b, float64(len(all))/active.Seconds(), "deliveries/s")
			if used.spent > 0 {
				metric(b, used.each(), "cpu-µs")
			}
		})
	}
}

// fanOutOnce has readers on all targets of one task, and returns the latency of each chunk for each reader.
func fanOutOnce(b *testing.B, serial []*load.Target, text string, readers int) (lags []time.Duration, took time.Duration) {
	b.Helper()
	before := ask(b, serial[0], "hold").TaskID
	id := ask(b, serial[0], text).TaskID
	var joined, left sync.WaitGroup
	joined.Add(readers)
	var mu sync.Mutex
	var first, last time.Time
	for n := range readers {
		left.Go(func() {
			var mine []time.Duration
			var from, to time.Time
			ready := sync.OnceFunc(joined.Done)
			defer ready() // a failed reader must not block the others
			err := watch(b.Context(), serial[n%len(serial)], id, ready, func(at time.Time) {
				to = time.Now()
				mine = append(mine, to.Sub(at))
				if from.IsZero() {
					from = at
				}
			})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				b.Error(err)
			}
			lags = append(lags, mine...)
			if first.IsZero() || from.Before(first) {
				first = from
			}
			if to.After(last) {
				last = to
			}
		})
	}
	joined.Wait()
	conn := dial(b, serial[0])
	if _, err := conn.Call(serial[0].Request("tasks/cancel", load.TaskQuery(before), "")); err != nil {
		b.Fatal(err)
	}
	left.Wait()
	return lags, last.Sub(first)
}
