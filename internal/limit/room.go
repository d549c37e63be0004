package limit

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// mostRoom is the most garbage beside a small heap.
const mostRoom = 64 << 20

// Room gives a small heap room for garbage: about 64 MiB, or an eighth of the limit if that is less. Go collects when the heap
// has doubled. With a heap of 10 MB that is several times a second under load, and each time takes as long. A heap of more than
// the room is collected as usual. GOGC, or a percentage that the program has set, takes precedence. After ctx
// has ended, all is as usual.
func (l MemoryLimit) Room(ctx context.Context) {
	if os.Getenv("GOGC") != "" || read("/gc/gogc:percent") != usual {
		return
	}
	r := &room{bytes: min(mostRoom, l.Bytes/8), percent: usual}
	r.adjust()
	r.afterNext(ctx)
}

// The garbage that Go allows, in percent of what a collection visits. The most is bounded because the percentage also holds
// for the first collection after the heap has grown.
const (
	usual = 100
	most  = 400
)

// leastHeap is the heap that Go assumes at least.
const leastHeap = 4 << 20

type room struct {
	bytes   int64
	percent int64 // that is set
}

// afterNext adjusts the percentage after the next collection, and after each further one.
func (r *room) afterNext(ctx context.Context) {
	type garbage struct{ _ *room } // with a pointer: small values without one share their memory, and may live on
	runtime.AddCleanup(&garbage{}, func(r *room) {
		if ctx.Err() != nil {
			debug.SetGCPercent(usual)
			return
		}
		r.adjust()
		r.afterNext(ctx)
	}, r)
}

func (r *room) adjust() {
	percent := percentOf(r.bytes, read("/gc/heap/live:bytes"), read("/gc/scan/stack:bytes")+read("/gc/scan/globals:bytes"))
	if percent != r.percent {
		debug.SetGCPercent(int(percent))
		r.percent = percent
	}
}

// percentOf returns how many percent of a heap and what else a collection visits may be garbage.
func percentOf(room, heap, beside int64) int64 {
	return min(max(100*room/(max(heap, leastHeap)+beside), usual), most)
}

// read returns a metric of the runtime.
func read(name string) int64 {
	s := []metrics.Sample{{Name: name}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64())
}
