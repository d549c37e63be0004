package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/load"
)

// watch reads the stream of a task from its beginning until it ends, and hands each chunk's data on.
// It calls ready when the server has begun to answer.
func watch(ctx context.Context, target *load.Target, id string, ready func(), chunk func(at time.Time)) error {
	c, err := target.Dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	var begin sync.Once
	return c.Stream(target.Request("tasks/resubscribe", load.TaskQuery(id), ""), func(data []byte) error {
		begin.Do(ready)
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

// latency measures from an executor's emission to a client's SSE reader, on the replica that runs
// the task and on another one, which runs none.
func latency(b *testing.B) {
	c := newCluster(b, whole, apiOnly)
	const delay = 10 * time.Millisecond
	for _, l := range []struct {
		name  string
		tasks int
	}{{"idle", 1}, {"2000-per-s", 21}} { // a pause of 10 ms is a bit more in the end
		for i, where := range []string{"same", "other"} {
			settle(b)
			b.Run(l.name+"/"+where, func(b *testing.B) {
				each := max(b.N/l.tasks, 500)
				var mu sync.Mutex
				var lags []time.Duration
				var first, last time.Time
				var wg sync.WaitGroup
				for n := range l.tasks {
					wg.Go(func() {
						// Not all at the same moment of each pause.
						time.Sleep(delay * time.Duration(n) / time.Duration(l.tasks))
						id := ask(b, c.replicas[0].target, fmt.Sprintf("chunks=%d size=64 delay=%s", each, delay), false).TaskID
						err := watch(b.Context(), c.replicas[i].target, id, func() {}, func(at time.Time) {
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
				if b.Failed() || len(lags) < l.tasks*each*9/10 {
					b.Fatalf("%d of %d chunks arrived", len(lags), l.tasks*each)
				}
				slices.Sort(lags)
				quantiles(b, lags)
				metric(b, float64(len(lags))/last.Sub(first).Seconds(), "events/s")
			})
		}
	}
}

// fanOut has 200 readers of one task, half of them on each of two replicas. Paced, it emits 50
// chunks a second; flooding, as fast as it can.
func fanOut(b *testing.B) {
	const readers = 200
	c := newCluster(b, whole, apiOnly)
	// An agent with room for one run: the task waits behind another one until all readers are there.
	serial := []*load.Target{targetOf(b, "http://"+c.replicas[0].addr+"/agents/serial"), targetOf(b, "http://"+c.replicas[1].addr+"/agents/serial")}
	for _, f := range []struct {
		name  string
		count int
		delay string
	}{{"paced", 250, "20ms"}, {"flood", 1000, "0ms"}} {
		settle(b)
		b.Run(f.name, func(b *testing.B) {
			before := ask(b, serial[0], "hold", false).TaskID
			id := ask(b, serial[0], fmt.Sprintf("chunks=%d size=256 delay=%s", f.count, f.delay), false).TaskID
			var joined, readersLeft sync.WaitGroup
			joined.Add(readers)
			lags := make([][]time.Duration, readers)
			var first, last atomic.Int64
			for n := range readers {
				readersLeft.Go(func() {
					err := watch(b.Context(), serial[n%2], id, joined.Done, func(at time.Time) {
						now := time.Now()
						lags[n] = append(lags[n], now.Sub(at))
						first.CompareAndSwap(0, at.UnixNano())
						for l := last.Load(); now.UnixNano() > l && !last.CompareAndSwap(l, now.UnixNano()); l = last.Load() {
						}
					})
					if err != nil {
						b.Error(err)
					}
				})
			}
			joined.Wait()
			conn := dial(b, serial[0])
			if _, err := conn.Call(serial[0].Request("tasks/cancel", load.TaskQuery(before), "")); err != nil {
				b.Fatal(err)
			}
			readersLeft.Wait()
			for n, l := range lags {
				if len(l) != f.count {
					b.Errorf("reader %d got %d of %d chunks", n, len(l), f.count)
				}
			}
			all := slices.Sorted(slices.Values(slices.Concat(lags...)))
			quantiles(b, all)
			metric(b, float64(len(all))/time.Duration(last.Load()-first.Load()).Seconds(), "deliveries/s")
		})
	}
}
