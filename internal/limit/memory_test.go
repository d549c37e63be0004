package limit

import (
	"context"
	"fmt"
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

func TestBudget(t *testing.T) {
	t.Parallel()
	inBubble(t, "waits in order and for a bounded time", func(t *testing.T) {
		b := NewBudget(100)
		require.NoError(t, b.Take(t.Context(), "a", 50))
		require.NoError(t, b.Take(t.Context(), "b", 30))
		large := make(chan error, 1)
		go func() { large <- b.Take(t.Context(), "c", 60) }()
		synctest.Wait()
		require.False(t, b.TryTake("d", 1), "it would overtake the one that waits")
		b.Give("a", 50)
		require.NoError(t, <-large)
		require.ErrorIs(t, b.Take(t.Context(), "d", 20), task.Unavailable)
		b.Give("c", 60)
		b.Give("b", 30)
		require.Equal(t, BudgetStat{Size: 100, Refused: 1}, b.Stat())
		require.Empty(t, b.held)
	})
	inBubble(t, "a holder at its share holds up nobody", func(t *testing.T) {
		b := NewBudget(100)
		require.NoError(t, b.Take(t.Context(), "a", 50))
		refused := make(chan error, 1)
		go func() { refused <- b.Take(t.Context(), "a", 1) }()
		synctest.Wait()
		require.NoError(t, b.Take(t.Context(), "b", 50))
		require.ErrorIs(t, <-refused, task.RateLimited)
	})
	inBubble(t, "what is larger than everything goes on alone", func(t *testing.T) {
		b := NewBudget(100)
		require.NoError(t, b.Take(t.Context(), "a", 1000))
		require.False(t, b.TryTake("b", 1))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, b.Take(ctx, "b", 1), context.Canceled)
		b.Give("a", 1000)
		require.True(t, b.TryTake("b", 1))
	})
}

func TestMessagesThatDoNotFitAreBesideTheBudget(t *testing.T) {
	t.Parallel()
	b := NewBudget(4 * mib)
	fits := b.Hold(mib)
	require.False(t, b.Crowded())
	require.Equal(t, int64(mib)/messageFactor, b.Messages())
	beside := b.Hold(mib)
	require.True(t, b.Crowded())
	require.Equal(t, int64(mib)/messageFactor, b.Messages())
	small := b.Hold(SmallBytes)
	require.Equal(t, int64(2*mib+SmallBytes)*messageFactor, b.Stat().Used)
	beside()
	require.False(t, b.Crowded())
	rest := b.Hold(b.Messages())
	require.False(t, b.Crowded())
	full := b.Hold(SmallBytes)
	require.False(t, b.Crowded(), "small ones are never beside it")
	require.Equal(t, int64(SmallBytes), b.Messages())
	for _, release := range []func(){fits, small, rest, full} {
		release()
	}
	require.Zero(t, b.Stat().Used)
	var none *Budget
	none.Hold(mib)()
	require.False(t, none.Crowded())
}

// TestAccount shows that small requests do not compete with large ones, and that nothing stays behind.
func TestAccount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := NewBudgets(256 * mib)
		large := b.Open("a")
		require.NoError(t, large.Body(t.Context(), 16*mib))
		require.NoError(t, large.Reserve(t.Context(), 8*mib))
		require.True(t, large.Use(4*mib))
		require.True(t, large.Use(20*mib), "it is alone")
		require.False(t, large.Use(24*mib), "it would never fit")
		require.ErrorIs(t, large.Reserve(t.Context(), 24*mib), task.TooLarge)
		large.Unuse(20 * mib)
		large.Trim()
		require.Equal(t, int64(4*mib)*logFactor, b.Answers.Stat().Used)
		other := b.Open("b")
		require.ErrorIs(t, other.Body(t.Context(), 16*mib), task.Unavailable)
		require.NoError(t, b.Open("c").Body(t.Context(), SmallBytes))
		require.NoError(t, b.Open("c").Reserve(t.Context(), SmallBytes))
		large.Stored()
		require.NoError(t, other.Body(t.Context(), 16*mib))
		other.Close()
		large.Close()
		require.Zero(t, b.Requests.Stat().Used)
		require.Zero(t, b.Answers.Stat().Used)
		require.Equal(t, int64(SmallBytes*(bodyFactor+logFactor)), b.Small.Stat().Used)
	})
	synctest.Test(t, func(t *testing.T) {
		a := NewBudgets(16 * mib).Open("a")
		defer a.Close()
		began := time.Now()
		require.NoError(t, a.Body(t.Context(), SmallBytes))
		require.NoError(t, a.Reserve(t.Context(), SmallBytes))
		require.True(t, a.Use(SmallBytes))
		require.Zero(t, waittest.Elapsed(began), "a request does not wait for itself")
	})
	synctest.Test(t, func(t *testing.T) {
		b := NewBudgets(16 * mib)
		a := b.Open("a")
		require.NoError(t, a.Body(t.Context(), SmallBytes))
		size := b.Answers.Stat().Size
		b.Answers.Add("another", size)
		for range 3 {
			require.ErrorIs(t, a.Reserve(t.Context(), mib), task.Unavailable)
			require.Equal(t, int64(SmallBytes), b.Small.Stat().Used, "it keeps what it has read, however often it waits")
		}
		b.Answers.Give("another", size)
		a.Close()
		require.Empty(t, b.Small.held)
	})
	var none *Account
	require.NoError(t, none.Body(t.Context(), math.MaxInt64))
	none.Close()
	require.Nil(t, AccountOf(t.Context()))
}

// TestWaitForLargeBytes shows that requests which wait for the bytes of large ones leave half of the budget Small to
// small ones, however many they are.
func TestWaitForLargeBytes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		begin, grow func(context.Context, *Account) error
		of          func(*Budgets) *Budget
	}{
		"bodies": {
			func(ctx context.Context, a *Account) error { return a.Body(ctx, SmallBytes) },
			func(ctx context.Context, a *Account) error { return a.Body(ctx, mib) },
			func(b *Budgets) *Budget { return b.Requests },
		},
		"answers": {
			func(ctx context.Context, a *Account) error {
				err := a.Reserve(ctx, SmallBytes)
				a.Use(SmallBytes)
				return err
			},
			func(ctx context.Context, a *Account) error { return a.Reserve(ctx, mib) },
			func(b *Budgets) *Budget { return b.Answers },
		},
		"answers to bodies": {
			func(ctx context.Context, a *Account) error { return a.Body(ctx, SmallBytes) },
			func(ctx context.Context, a *Account) error { return a.Reserve(ctx, mib) },
			func(b *Budgets) *Budget { return b.Answers },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := NewBudgets(16 * mib)
				of := c.of(b)
				size := of.Stat().Size
				of.Add("another", size)
				const many = 40
				ended := make(chan error, many)
				for i := range many {
					go func() {
						a := b.Open("caller " + strconv.Itoa(i))
						defer a.Close()
						if err := c.begin(t.Context(), a); err != nil {
							ended <- err
							return
						}
						err := c.grow(t.Context(), a)
						if of := b.Small.Stat(); of.Used > of.Size {
							err = fmt.Errorf("%d of %d bytes are used", of.Used, of.Size)
						}
						ended <- err
					}()
				}
				synctest.Wait()
				began := time.Now()
				small := b.Open("another")
				require.NoError(t, small.Body(t.Context(), SmallBytes))
				require.Zero(t, waittest.Elapsed(began))
				small.Close()
				require.NotEmpty(t, ended, "some are refused")
				require.Less(t, len(ended), many, "and some wait")
				for range len(ended) {
					require.ErrorIs(t, <-ended, task.Unavailable)
				}
				of.Give("another", size)
				waited := 0
				for synctest.Wait(); len(ended) > 0; waited++ {
					require.NoError(t, <-ended)
				}
				require.Positive(t, waited)
				b.Each(func(name string, of *Budget) {
					require.Zero(t, of.Stat().Used, name)
					require.Empty(t, of.held, name)
				})
			})
		})
	}
}

// TestLines grows lines beyond their budget: some line can always go on, whatever the others wait for.
func TestLines(t *testing.T) {
	t.Parallel()
	grown := func(t *testing.T, l *Line, n int64) <-chan error {
		t.Helper()
		done := make(chan error, 1)
		go func() { done <- l.Grow(t.Context(), n) }()
		synctest.Wait()
		return done
	}
	inBubble(t, "lines that all wait for more end one after the other", func(t *testing.T) {
		b := NewLines(16 * mib)
		var lines []*Line
		var waiting []<-chan error
		for _, agent := range []string{"a", "a", "b", "b"} {
			l := b.Line(agent)
			require.NoError(t, l.Grow(t.Context(), 2*mib))
			lines = append(lines, l)
		}
		for _, l := range lines {
			waiting = append(waiting, grown(t, l, 100*mib))
		}
		for i, l := range lines {
			require.NoError(t, <-waiting[i], "it has the turn")
			if i+1 < len(lines) {
				require.Empty(t, waiting[i+1], "one at a time")
			}
			require.Greater(t, b.Stat().Used, int64(200*mib-2*SmallBytes-1))
			require.NoError(t, l.Grow(t.Context(), 101*mib), "as far as it likes")
			l.Release()
			synctest.Wait()
		}
		require.Equal(t, BudgetStat{Size: 16 * mib}, b.Stat())
		require.Empty(t, b.held)
		require.Len(t, b.turn, 1)
	})
	inBubble(t, "a slow agent holds up no other", func(t *testing.T) {
		b := NewLines(16 * mib)
		// They hold half of the budget, and the turn, and never end.
		slow := []*Line{b.Line("slow"), b.Line("slow"), b.Line("slow"), b.Line("slow")}
		for _, l := range slow[:3] {
			require.NoError(t, l.Grow(t.Context(), mib))
		}
		require.NoError(t, slow[3].Grow(t.Context(), 16*mib))
		require.NoError(t, slow[2].Grow(t.Context(), 2*mib))
		ctx, cancel := context.WithCancel(t.Context())
		stuck := make(chan error, 1)
		go func() { stuck <- slow[1].Grow(ctx, 8*mib) }()
		synctest.Wait()
		for range 3 {
			quick := b.Line("quick")
			for n := int64(0); n <= 4*mib; n += SmallBytes {
				require.NoError(t, quick.Grow(t.Context(), n))
			}
			quick.Release()
		}
		cancel()
		require.ErrorIs(t, <-stuck, context.Canceled)
		for _, l := range slow {
			l.Release()
		}
		require.Equal(t, BudgetStat{Size: 16 * mib}, b.Stat())
	})
	t.Run("a line that shrinks to nothing holds nothing", func(t *testing.T) {
		t.Parallel()
		b := NewLines(16 * mib)
		l := b.Line("a")
		require.NoError(t, l.Grow(t.Context(), SmallBytes))
		require.Zero(t, b.Stat().Used)
		l.Release()
		l.Release()
		require.Len(t, b.turn, 1)
	})
	var none *Line
	require.NoError(t, none.Grow(t.Context(), 1<<40))
	none.Release()
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
