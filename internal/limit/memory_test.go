package limit

import (
	"context"
	"errors"
	"math"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

const mib = 1 << 20

func TestFind(t *testing.T) {
	t.Parallel()
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	meminfo := file("MemTotal:        8388608 kB\nMemFree: 1 kB\n")
	v2 := fstest.MapFS{
		"proc/self/cgroup": file("0::/kubepods/pod1/c1\n"), "proc/meminfo": meminfo,
		"sys/fs/cgroup/kubepods/pod1/memory.max":    file("536870912\n"),
		"sys/fs/cgroup/kubepods/pod1/c1/memory.max": file("max\n"),
	}
	inside := fstest.MapFS{ // a container that sees only its own group
		"proc/self/cgroup": file("0::/\n"), "proc/meminfo": meminfo, "sys/fs/cgroup/memory.max": file("268435456\n"),
	}
	v1 := fstest.MapFS{
		"proc/self/cgroup": file("12:cpu,cpuacct:/docker/c1\n7:memory:/docker/c1\n"), "proc/meminfo": meminfo,
		"sys/fs/cgroup/memory/memory.limit_in_bytes": file("134217728\n"),
	}
	free := fstest.MapFS{
		"proc/self/cgroup": file("7:memory:/\n"), "proc/meminfo": meminfo,
		"sys/fs/cgroup/memory/memory.limit_in_bytes": file("9223372036854771712\n"),
	}
	for name, c := range map[string]struct {
		root       fstest.MapFS
		configured int64
		env        string
		parsed     int64
		want       MemoryLimit
	}{
		"version 2, of a parent":    {root: v2, parsed: math.MaxInt64, want: MemoryLimit{512 * mib, "cgroup", 512 * mib / 100 * 90}},
		"version 2, in a container": {root: inside, parsed: math.MaxInt64, want: MemoryLimit{256 * mib, "cgroup", 256 * mib / 100 * 90}},
		"version 1":                 {root: v1, parsed: math.MaxInt64, want: MemoryLimit{128 * mib, "cgroup", 128 * mib / 100 * 90}},
		"none":                      {root: free, parsed: math.MaxInt64, want: MemoryLimit{8192 * mib, "machine", 0}},
		"nothing to read":           {root: fstest.MapFS{}, parsed: math.MaxInt64, want: MemoryLimit{unknown, "machine", 0}},
		"the setting":               {root: v2, configured: 100 * mib, parsed: math.MaxInt64, want: MemoryLimit{100 * mib, "limits.memory", 90 * mib}},
		"GOMEMLIMIT":                {root: v2, env: "200MiB", parsed: 200 * mib, want: MemoryLimit{200 * mib, "GOMEMLIMIT", 200 * mib}},
		"GOMEMLIMIT above a limit":  {root: v2, env: "2GiB", parsed: 2048 * mib, want: MemoryLimit{512 * mib, "cgroup", 2048 * mib}},
		"GOMEMLIMIT off":            {root: v2, env: "off", parsed: math.MaxInt64, want: MemoryLimit{512 * mib, "cgroup", 0}},
	} {
		require.Equal(t, c.want, find(c.root, c.configured, c.env, c.parsed, 90), name)
	}
}

func inBubble(t *testing.T, name string, do func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, do)
	})
}

// of returns the holder that is an agent.
func of(agent string) Holder { return Holder{Agent: agent} }

func TestBudget(t *testing.T) {
	t.Parallel()
	inBubble(t, "waits in order and for a bounded time", func(t *testing.T) {
		b := NewBudget(100)
		require.NoError(t, b.Take(t.Context(), of("a"), 50))
		require.NoError(t, b.Take(t.Context(), of("b"), 30))
		large := make(chan error, 1)
		go func() { large <- b.Take(t.Context(), of("c"), 60) }()
		synctest.Wait()
		require.False(t, b.TryTake(of("d"), 1), "it would overtake the one that waits")
		b.Give(of("a"), 50)
		require.NoError(t, <-large)
		require.ErrorIs(t, b.Take(t.Context(), of("d"), 20), task.Unavailable)
		b.Give(of("c"), 60)
		b.Give(of("b"), 30)
		require.Equal(t, BudgetStat{Size: 100, Refused: 1}, b.Stat())
		require.Empty(t, b.held)
	})
	inBubble(t, "a holder at its share holds up nobody", func(t *testing.T) {
		b := NewBudget(100)
		require.NoError(t, b.Take(t.Context(), of("a"), 50))
		refused := make(chan error, 1)
		go func() { refused <- b.Take(t.Context(), of("a"), 1) }()
		synctest.Wait()
		require.NoError(t, b.Take(t.Context(), of("b"), 50))
		require.ErrorIs(t, <-refused, task.RateLimited)
	})
	inBubble(t, "what is larger than everything goes on alone", func(t *testing.T) {
		b := NewBudget(100)
		require.NoError(t, b.Take(t.Context(), of("a"), 1000))
		require.False(t, b.TryTake(of("b"), 1))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, b.Take(ctx, of("b"), 1), context.Canceled)
		b.Give(of("a"), 1000)
		require.True(t, b.TryTake(of("b"), 1))
	})
}

func TestMessagesThatDoNotFitAreBesideTheBudget(t *testing.T) {
	t.Parallel()
	r := NewRuns(8 * mib)
	require.True(t, r.events.TryTake(Holder{}, 4*mib), "events do not compete with messages")
	r.events.Give(Holder{}, 4*mib)
	has := func(fit int64, crowded bool) {
		t.Helper()
		gotFit, gotCrowded := r.Messages()
		require.Equal(t, fit, gotFit)
		require.Equal(t, crowded, gotCrowded)
	}
	fits := r.Hold(mib)
	has(mib/messageFactor, false)
	require.False(t, r.Full())
	beside := r.Hold(mib)
	has(mib/messageFactor, true)
	require.True(t, r.Full())
	small := r.Hold(SmallBytes)
	require.Equal(t, int64(2*mib+SmallBytes)*messageFactor, r.Stat().Used)
	beside()
	fit, _ := r.Messages()
	rest := r.Hold(fit)
	full := r.Hold(SmallBytes)
	has(SmallBytes, false) // small ones are never beside it
	require.True(t, r.Full())
	for _, release := range []func(){fits, small, rest, full} {
		release()
	}
	require.Zero(t, r.Stat().Used)
	var none *Runs
	none.Hold(mib)()
	require.False(t, none.Full())
}

// TestAccount shows that small requests do not compete with large ones, and that nothing stays behind.
func TestAccount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := NewBudgets(256 * mib)
		large := b.Open(of("a"))
		require.NoError(t, large.Body(t.Context(), 16*mib))
		require.NoError(t, large.Reserve(t.Context(), 8*mib))
		require.True(t, large.Use(4*mib))
		require.True(t, large.Use(20*mib), "it is alone")
		require.False(t, large.Use(24*mib), "it would never fit")
		require.ErrorIs(t, large.Reserve(t.Context(), 24*mib), task.TooLarge)
		large.Unuse(20 * mib)
		large.Trim()
		require.Equal(t, int64(16*mib)*bodyFactor+int64(4*mib)*logFactor, b.Requests.Large.Stat().Used)
		other := b.Open(of("b"))
		require.ErrorIs(t, other.Body(t.Context(), 16*mib), task.Unavailable)
		require.NoError(t, b.Open(of("c")).Body(t.Context(), SmallBytes))
		require.NoError(t, b.Open(of("c")).Reserve(t.Context(), SmallBytes))
		large.Stored()
		require.NoError(t, other.Body(t.Context(), 16*mib))
		other.Close()
		large.Close()
		require.Zero(t, b.Requests.Large.Stat().Used)
		require.Equal(t, int64(SmallBytes*(bodyFactor+logFactor)), b.Requests.Stat().Used)
	})
	synctest.Test(t, func(t *testing.T) {
		a := NewBudgets(16 * mib).Open(of("a"))
		defer a.Close()
		began := time.Now()
		require.NoError(t, a.Body(t.Context(), SmallBytes))
		require.NoError(t, a.Reserve(t.Context(), SmallBytes))
		require.True(t, a.Use(SmallBytes))
		require.Zero(t, waittest.Elapsed(began), "a request does not wait for itself")
	})
	var none *Account
	require.NoError(t, none.Body(t.Context(), math.MaxInt64))
	none.Close()
	require.Nil(t, AccountOf(t.Context()))
}

// TestWaitForLargeBytes shows that requests which wait for the bytes of large ones hold none of the small ones', and that only
// some may wait, of which one holder has half.
func TestWaitForLargeBytes(t *testing.T) {
	t.Parallel()
	body := func(n int64) func(context.Context, *Account) error {
		return func(ctx context.Context, a *Account) error { return a.Body(ctx, n) }
	}
	answer := func(n int64) func(context.Context, *Account) error {
		return func(ctx context.Context, a *Account) error { return a.Reserve(ctx, n) }
	}
	for name, c := range map[string]struct {
		begin, grow func(context.Context, *Account) error
		callers     int
		waits       int
	}{
		"bodies":                       {body(SmallBytes), body(mib), 40, 8},
		"answers":                      {answer(SmallBytes), answer(mib), 40, 8},
		"answers to bodies":            {body(SmallBytes), answer(mib), 40, 8},
		"many requests of two callers": {body(1), body(mib), 2, 8},
		"many requests of one caller":  {body(1), body(mib), 1, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := NewBudgets(16 * mib)
				size := b.Requests.Large.Stat().Size
				require.True(t, b.Requests.Large.TryTake(of("another"), size))
				const many = 40
				ended := make(chan error, many)
				for i := range many {
					go func() {
						a := b.Open(of("caller " + strconv.Itoa(i%c.callers)))
						defer a.Close()
						if err := c.begin(t.Context(), a); err != nil {
							ended <- err
							return
						}
						ended <- c.grow(t.Context(), a)
					}()
				}
				synctest.Wait()
				require.Len(t, ended, many-c.waits)
				for range many - c.waits {
					require.ErrorIs(t, <-ended, task.Unavailable)
				}
				require.Zero(t, b.Requests.Small.Stat().Used)
				b.Requests.Large.Give(of("another"), size)
				for range c.waits {
					require.NoError(t, <-ended)
				}
				synctest.Wait()
				require.Zero(t, b.Requests.Stat().Used)
				require.Empty(t, b.Requests.Large.held)
			})
		})
	}
}

// TestEvents grows events beyond their budget: some event can always go on, whatever the others wait for.
func TestEvents(t *testing.T) {
	t.Parallel()
	inBubble(t, "events that all wait for more end one after the other", func(t *testing.T) {
		r := NewRuns(32 * mib)
		ended := make(chan *Event, 4)
		for _, agent := range []string{"a", "a", "b", "b"} {
			e := r.Event(agent)
			require.NoError(t, e.Grow(t.Context(), 4*mib))
			go func() {
				if e.Grow(t.Context(), 196*mib) == nil {
					ended <- e
				}
			}()
		}
		for range 4 {
			synctest.Wait()
			require.Len(t, ended, 1, "one at a time has the turn")
			e := <-ended
			require.GreaterOrEqual(t, r.Stat().Used, int64(200*mib))
			require.NoError(t, e.Grow(t.Context(), mib), "as far as it likes")
			e.Give(200 * mib) // of the line; the commit follows
			synctest.Wait()
			require.Empty(t, ended, "it has the turn until its commit")
			e.Give(mib)
		}
		require.Equal(t, BudgetStat{Size: 32 * mib}, r.Stat())
		require.Empty(t, r.events.held)
		require.Len(t, r.events.reading, 1)
	})
	inBubble(t, "a slow agent holds up no other", func(t *testing.T) {
		r := NewRuns(32 * mib)
		// They hold half of the bytes, and the turn, and never end.
		slow := []*Event{r.Event("slow"), r.Event("slow"), r.Event("slow")}
		require.NoError(t, slow[0].Grow(t.Context(), 8*mib))
		require.NoError(t, slow[1].Grow(t.Context(), 32*mib))
		ctx, cancel := context.WithCancel(t.Context())
		stuck := make(chan error, 1)
		go func() { stuck <- slow[2].Grow(ctx, mib) }()
		synctest.Wait()
		for range 3 {
			quick := r.Event("quick")
			for range 8 {
				require.NoError(t, quick.Grow(t.Context(), mib))
			}
			quick.Give(8 * mib)
		}
		cancel()
		require.ErrorIs(t, <-stuck, context.Canceled)
		slow[0].Give(8 * mib)
		slow[1].Give(32 * mib)
		require.Equal(t, BudgetStat{Size: 32 * mib}, r.Stat())
	})
	inBubble(t, "what is read and what is emitted grow at once", func(t *testing.T) {
		r := NewRuns(4 * mib)
		e := r.Event("a")
		require.True(t, r.events.TryTake(of("b"), mib))
		grown := make(chan error, 2)
		for range 2 {
			go func() { grown <- e.Grow(t.Context(), mib) }()
		}
		require.NoError(t, errors.Join(<-grown, <-grown))
		e.Give(mib)
		e.Give(mib)
		require.Equal(t, int64(mib), r.Stat().Used)
	})
	var none *Event
	require.NoError(t, none.Grow(t.Context(), 1<<40))
	none.Give(1 << 40)
}

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
		MemoryLimit{Bytes: 1 << 30}.Room(ctx)
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

	MemoryLimit{Bytes: 1 << 30}.Room(ctx)
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
