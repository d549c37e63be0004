package bench

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkLatency measures from an executor's emission to a client's SSE reader, on
// the replica that runs the task and on the other one, idle and with 2,000 events/s. It
// comes first: the others leave the database with checkpoints and vacuuming to do.
func BenchmarkLatency(b *testing.B) {
	for _, load := range []struct {
		name  string
		tasks int
		delay time.Duration
	}{{"idle", 1, 20 * time.Millisecond}, {"2000-per-s", 20, 10 * time.Millisecond}} {
		for i, name := range []string{"same", "other"} {
			b.Run(load.name+"/"+name, func(b *testing.B) {
				each := max(b.N/load.tasks, 20)
				req := request("message/stream", fmt.Sprintf("chunks=%d size=64 delay=%s", each, load.delay))
				var mu sync.Mutex
				var lags []time.Duration
				note := func(data []byte) {
					if at, ok := stamp(data); ok && bytes.Contains(data, []byte(`"artifact-update"`)) {
						lag := time.Since(at)
						mu.Lock()
						lags = append(lags, lag)
						mu.Unlock()
					}
				}
				var wg sync.WaitGroup
				for range load.tasks {
					wg.Go(func() {
						if err := follow(req, replicas[i], note); err != nil {
							b.Error(err)
						}
					})
				}
				wg.Wait()
				slices.Sort(lags)
				if len(lags) == 0 {
					b.Fatal("nothing arrived")
				}
				b.ReportMetric(float64(lags[len(lags)/2].Microseconds())/1000, "p50-ms")
				b.ReportMetric(float64(lags[len(lags)*99/100].Microseconds())/1000, "p99-ms")
			})
		}
	}
}

// BenchmarkBlocking counts echo tasks that are created, run, stored and answered,
// each in one blocking message/send.
func BenchmarkBlocking(b *testing.B) {
	for _, inFlight := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("inflight=%d", inFlight), func(b *testing.B) {
			req := request("message/send", "echo:hello")
			parallel(b, inFlight, b.N, func(c *conn) error {
				body, err := c.call(req)
				if err == nil && !bytes.Contains(body, []byte(`"state":"completed"`)) {
					err = fmt.Errorf("answer: %s", body)
				}
				return err
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
		})
	}
}

// BenchmarkStream counts durable chunks of 256 bytes that reach their client by SSE.
func BenchmarkStream(b *testing.B) {
	for _, streams := range []int{4, 64} {
		for _, chunks := range []int{100, 1000, 3000} {
			b.Run(fmt.Sprintf("streams=%d/chunks=%d", streams, chunks), func(b *testing.B) {
				req := request("message/stream", fmt.Sprintf("chunks=%d size=256", chunks))
				parallel(b, streams, b.N, func(c *conn) error {
					n := 0
					err := c.stream(req, func(data []byte) {
						if bytes.Contains(data, []byte(`"artifact-update"`)) {
							n++
						}
					})
					if err == nil && n != chunks {
						err = fmt.Errorf("%d of %d chunks arrived", n, chunks)
					}
					return err
				})
				b.ReportMetric(float64(b.N*chunks)/b.Elapsed().Seconds(), "chunks/s")
			})
		}
	}
}

// follow starts a task on the first replica and reads its stream on addr.
func follow(req []byte, addr string, note func([]byte)) error {
	c, err := dial(replicas[0])
	if err != nil {
		return err
	}
	defer c.close()
	if addr == replicas[0] {
		return c.stream(req, note)
	}
	var once sync.Once
	var wg sync.WaitGroup
	var followed error
	err = c.stream(req, func(data []byte) {
		once.Do(func() {
			id := taskID(data)
			wg.Go(func() { followed = resubscribe(addr, id, note) })
		})
	})
	wg.Wait()
	return errors.Join(err, followed)
}

func resubscribe(addr, id string, note func([]byte)) error {
	c, err := dial(addr)
	if err != nil {
		return err
	}
	defer c.close()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tasks/resubscribe","params":{"id":%q}}`, id)
	return c.stream([]byte(fmt.Sprintf("POST / HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)), note)
}

// parallel spreads n calls over connections to the first replica.
func parallel(b *testing.B, conns, n int, call func(*conn) error) {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	all := make([]*conn, conns)
	for i := range all {
		c, err := dial(replicas[0])
		if err != nil {
			b.Fatal(err)
		}
		defer c.close()
		all[i] = c
	}
	b.ResetTimer()
	for _, c := range all {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := call(c); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
}
