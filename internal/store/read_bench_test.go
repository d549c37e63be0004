package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// BenchmarkFirstRead reads a task of many chunks, which has ended, at a process that keeps none in memory.
func BenchmarkFirstRead(b *testing.B) {
	for _, chunks := range []int{100, 1000} {
		b.Run(fmt.Sprintf("chunks=%d", chunks), func(b *testing.B) {
			f := newFixture(b)
			n := fresh("a")
			f.create(n)
			p := &pen{s: f.Store, c: f.claim(f.worker(time.Hour), "a", 1)[0]}
			p.must(b, status(task.StateWorking))
			for range chunks {
				p.must(b, chunk(strings.Repeat("x", 256)))
			}
			p.must(b, status(task.StateCompleted))
			cold := f.replica(nil)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := owner.of(cold).ReadTask(b.Context(), n.Task.PublicID, true); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
