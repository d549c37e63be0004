package memory

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/waittest"
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
		waittest.Eventually(t, want, func() error {
			runtime.GC()
			percent := read("/gc/gogc:percent")
			return waittest.Unless(is(percent), "it is %d", percent)
		})
	}
	unchanged := func(want int64) {
		t.Helper()
		Limit{Bytes: 1 << 30}.Room(ctx)
		for range 3 {
			runtime.GC()
			require.Equal(t, want, read("/gc/gogc:percent"))
		}
	}
	runtime.GC()
	for _, visited := range []string{"/gc/scan/stack:bytes", "/gc/scan/globals:bytes", "/gc/heap/live:bytes"} {
		require.Positive(t, read(visited), visited)
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
