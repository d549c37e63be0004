package bench

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-a2a/holdfast/bench/load"
)

// spread shares n calls among workers.
func spread[W any](b *testing.B, n int, workers []W, call func(W) error) (time.Duration, []time.Duration) {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(n))
	took := make([][]time.Duration, len(workers))
	var wg sync.WaitGroup
	b.ResetTimer()
	start := time.Now()
	for i, w := range workers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				begun := time.Now()
				if err := call(w); err != nil {
					b.Error(err)
					return
				}
				took[i] = append(took[i], time.Since(begun))
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	b.StopTimer()
	if b.Failed() {
		b.FailNow()
	}
	return elapsed, slices.Sorted(slices.Values(slices.Concat(took...)))
}

// dial connects; the connection ends with b.
func dial(b *testing.B, target *load.Target) *load.Conn {
	b.Helper()
	c, err := target.Dial(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	return c
}

// ask sends a message.
func ask(b *testing.B, target *load.Target, text string) load.Outcome {
	b.Helper()
	c, err := target.Dial(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	body, err := c.Call(target.Request("message/send", load.Message("m-1", text, false), ""))
	if err != nil {
		b.Fatal(err)
	}
	o, err := load.ReadOutcome(body)
	if err != nil {
		b.Fatal(err)
	}
	return o
}
