package memory

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// mostRoom is the most garbage that may lie about beside a small heap.
const mostRoom = 64 << 20

// Room gives a small heap room for garbage: 64 MiB, or an eighth of the limit if that is less. Go collects when the heap has
// doubled. With a heap of 10 MB that is several times a second under load, and each time takes as long. A heap of more than the
// room is collected as usual (decision 0118). GOGC takes precedence.
func (l Limit) Room() {
	if os.Getenv("GOGC") != "" {
		return
	}
	r := &room{bytes: min(mostRoom, l.Bytes/8), percent: usual}
	r.adjust()
	r.afterNext()
}

// The garbage that Go allows, in percent of the heap.
const (
	usual = 100
	most  = 1000
)

type room struct {
	bytes   int64
	percent int // that is set
}

// afterNext adjusts the percentage after the next collection, and after each further one.
func (r *room) afterNext() {
	type garbage struct{ _ *room } // with a pointer: small values without one share their memory, and may live on
	runtime.AddCleanup(&garbage{}, func(r *room) {
		r.adjust()
		r.afterNext()
	}, r)
}

func (r *room) adjust() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	percent := percentOf(r.bytes, int64(live[0].Value.Uint64()))
	// Each change stops the program for a moment.
	if difference := percent - r.percent; 10*max(difference, -difference) > r.percent {
		debug.SetGCPercent(percent)
		r.percent = percent
	}
}

// percentOf returns how many percent of the heap may be garbage.
func percentOf(room, live int64) int {
	return int(min(max(100*room/max(live, 1), usual), most))
}
