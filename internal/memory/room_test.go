package memory

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestGarbageMayFillTheRoom(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct{ room, heap, beside, want int64 }{
		{64 * mib, 0, 0, 400}, // before the first collection
		{64 * mib, 16 * mib, 0, 400},
		{64 * mib, 24 * mib, 8 * mib, 200}, // Go adds the percentage of stacks and globals
		{64 * mib, 63 * mib, 0, 101},
		{64 * mib, 64 * mib, 0, 100}, // as usual
		{64 * mib, 640 * mib, 64 * mib, 100},
		{8 * mib, 0, 0, 200},
		{8 * mib, 16 * mib, 0, 100},
	} {
		require.Equal(t, c.want, percentOf(c.room, c.heap, c.beside), c)
	}
}

func TestRoomFollowsTheHeap(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(usual))
	ctx, cancel := context.WithCancel(t.Context())
	becomes := func(want string, is func(percent int64) bool) {
		t.Helper()
		require.Eventually(t, func() bool { runtime.GC(); return is(read("/gc/gogc:percent")) }, time.Minute, time.Millisecond, want)
	}
	unchanged := func(want int64) {
		t.Helper()
		Limit{Bytes: 1 << 30}.Room(ctx)
		for range 3 {
			runtime.GC()
			require.Equal(t, want, read("/gc/gogc:percent"))
		}
	}
	t.Setenv("GOGC", "100")
	unchanged(usual)
	t.Setenv("GOGC", "")
	debug.SetGCPercent(50)
	unchanged(50)
	debug.SetGCPercent(usual)

	Limit{Bytes: 1 << 30}.Room(ctx)
	becomes("more", func(percent int64) bool { return percent > 2*usual })
	func() {
		large := make([]byte, 2*mostRoom)
		becomes("as usual", func(percent int64) bool { return percent == usual })
		runtime.KeepAlive(large)
	}()
	becomes("more again", func(percent int64) bool { return percent > 2*usual })
	cancel()
	becomes("as usual in the end", func(percent int64) bool { return percent == usual })
}

func TestWhatACollectionVisits(t *testing.T) {
	runtime.GC()
	require.Positive(t, read("/gc/scan/stack:bytes"))
	require.Positive(t, read("/gc/scan/globals:bytes"))
	require.Positive(t, read("/gc/heap/live:bytes"))
}
