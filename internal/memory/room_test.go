package memory

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestGarbageMayFillTheRoom(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		room, live int64
		want       int
	}{
		{64 * mib, 0, 1000},        // before the first collection
		{64 * mib, 1 * mib, 1000},  // at most
		{64 * mib, 16 * mib, 400},  // 80 MiB
		{64 * mib, 64 * mib, 100},  // as usual
		{64 * mib, 640 * mib, 100}, // never more often
		{8 * mib, 16 * mib, 100},
	} {
		require.Equal(t, c.want, percentOf(c.room, c.live), c)
	}
}

func TestRoomFollowsTheHeap(t *testing.T) {
	t.Setenv("GOGC", "")
	defer debug.SetGCPercent(debug.SetGCPercent(usual))
	percent := func() uint64 {
		s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	becomes := func(is func(percent uint64) bool) {
		t.Helper()
		require.Eventually(t, func() bool { runtime.GC(); return is(percent()) }, time.Minute, time.Millisecond)
	}
	t.Setenv("GOGC", "100")
	Limit{Bytes: 1 << 30}.Room()
	runtime.GC()
	require.EqualValues(t, usual, percent(), "GOGC takes precedence")

	t.Setenv("GOGC", "")
	Limit{Bytes: 1 << 30}.Room()
	becomes(func(percent uint64) bool { return percent > 2*usual })
	func() {
		large := make([]byte, 2*mostRoom)
		becomes(func(percent uint64) bool { return percent == usual })
		runtime.KeepAlive(large)
	}()
	becomes(func(percent uint64) bool { return percent > 2*usual })
}
