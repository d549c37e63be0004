package bench

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-a2a/holdfast/bench/load"
)

// tasks reports a load of whole tasks, and returns their number.
func tasks(b *testing.B, o load.Options) int {
	b.Helper()
	r := measure(b, o)
	metric(b, r.TasksPerSecond(), "tasks/s")
	quantiles(b, r.Latencies)
	if o.Mode == load.Poll {
		metric(b, float64(r.Polls)/float64(r.Tasks), "polls/task")
	}
	return r.Tasks
}

// blocking counts echo tasks that are created, run, stored and answered, each in one blocking message/send to the
// first of two replicas.
func blocking(b *testing.B) {
	b.Helper()
	c := newCluster(b, whole, whole)
	for _, n := range []int{1, 4, 16, 64, 256} {
		b.Run(fmt.Sprintf("inflight=%d", n), func(b *testing.B) {
			blockingAt(b, c, n)
		})
	}
}

// blockingAt does it with so many tasks in flight. It also reports the processor time of a task.
func blockingAt(b *testing.B, c *cluster, inFlight int) {
	b.Helper()
	costly(b, c, func() int {
		return tasks(b, load.Options{Targets: c.targets()[:1], Mode: load.Blocking, Text: "echo:hello", InFlight: inFlight, Count: b.N})
	})
}

// poll does the same for clients that poll for the result.
func poll(b *testing.B) {
	b.Helper()
	c := newCluster(b, whole, whole)
	for _, n := range []int{16, 64, 256} {
		b.Run(fmt.Sprintf("inflight=%d", n), func(b *testing.B) {
			costly(b, c, func() int {
				return tasks(b, load.Options{
					Targets: c.targets()[:1], Mode: load.Poll, Text: "echo:hello", InFlight: n, Count: b.N, PollEvery: 10 * time.Millisecond,
				})
			})
		})
	}
}

// streamed reports durable chunks that reach their clients, and returns their number. The number of tasks is a multiple of the
// number of streams, so no stream is idle at the end.
func streamed(b *testing.B, targets []*load.Target, streams, n, size int) int {
	b.Helper()
	count := (b.N + streams - 1) / streams * streams
	r := measure(b, load.Options{Targets: targets, Mode: load.Stream, Text: chunksOf(n, size), InFlight: streams, Count: count})
	if r.Chunks != count*n {
		b.Fatalf("%d of %d chunks arrived", r.Chunks, count*n)
	}
	metric(b, r.ChunksPerSecond(), "chunks/s")
	return r.Chunks
}

func stream(b *testing.B) {
	b.Helper()
	c := newCluster(b, whole, whole)
	for _, streams := range []int{4, 64} {
		for _, n := range []int{100, 1000, 3000} {
			b.Run(fmt.Sprintf("streams=%d/chunks=%d", streams, n), func(b *testing.B) { costlyStream(b, c, streams, n, 256) })
		}
		b.Run(fmt.Sprintf("streams=%d/chunks=1000/bytes=2048", streams), func(b *testing.B) { costlyStream(b, c, streams, 1000, 2048) })
		settle(b)
	}
}

// costlyStream also reports the processor time of a chunk.
func costlyStream(b *testing.B, c *cluster, streams, n, size int) {
	b.Helper()
	costly(b, c, func() int { return streamed(b, c.targets()[:1], streams, n, size) })
}

// replicated spreads the load over 1, 2 and 4 replicas, which share the machine with everything else.
func replicated(b *testing.B) {
	b.Helper()
	for _, n := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("replicas=%d", n), func(b *testing.B) {
			c := newCluster(b, slices.Repeat([]string{whole}, n)...)
			b.Run("blocking/inflight=64", func(b *testing.B) {
				tasks(b, load.Options{Targets: c.targets(), Mode: load.Blocking, Text: "echo:hello", InFlight: 64, Count: b.N})
			})
			b.Run("blocking/inflight=256", func(b *testing.B) {
				tasks(b, load.Options{Targets: c.targets(), Mode: load.Blocking, Text: "echo:hello", InFlight: 256, Count: b.N})
			})
			b.Run("stream/streams=64", func(b *testing.B) { streamed(b, c.targets(), 64, 1000, 256) })
		})
	}
}
