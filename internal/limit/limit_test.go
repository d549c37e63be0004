package limit

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

type caller struct{ tenant, subject string }

var alice, bob = caller{"t", "alice"}, caller{"t", "bob"}

// allows reports whether a request of a caller is allowed.
func allows(c *Quotas[caller], who caller) bool {
	_, ok := c.Allow(who)
	return ok
}

func TestRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New[caller](Options{Rate: 10, Burst: 3})
		for range 3 {
			for range 5 { // it takes nothing from the bucket
				_, ok := c.Ready(alice)
				require.True(t, ok)
			}
			require.True(t, allows(c, alice))
		}
		wait, ok := c.Ready(alice)
		require.False(t, ok)
		require.Equal(t, 100*time.Millisecond, wait)
		_, ok = c.Ready(bob)
		require.True(t, ok)
		for range 5 {
			wait, ok := c.Allow(alice)
			require.False(t, ok)
			require.Equal(t, 100*time.Millisecond, wait, "a refusal takes nothing from the bucket")
		}
		require.True(t, allows(c, bob), "callers have buckets of their own")
		require.True(t, allows(c, caller{"other", "alice"}), "a namesake in another tenant has a bucket of its own")
		waittest.Advance(100 * time.Millisecond)
		require.True(t, allows(c, alice), "a caller that waits as told is served")
		require.False(t, allows(c, alice))
		waittest.Advance(time.Hour)
		served := 0
		for range 10 {
			if _, ok := c.Allow(alice); ok {
				served++
			}
		}
		require.Equal(t, 3, served, "after an hour the bucket holds no more than a burst")
	})
}

func TestStreams(t *testing.T) {
	t.Parallel()
	c := New[caller](Options{Streams: 2})
	first, ok := c.Open(alice)
	require.True(t, ok)
	second, ok := c.Open(alice)
	require.True(t, ok)
	_, ok = c.Open(alice)
	require.False(t, ok)
	_, ok = c.Open(bob)
	require.True(t, ok)
	first()
	first() // a second call is harmless
	third, ok := c.Open(alice)
	require.True(t, ok)
	_, ok = c.Open(alice)
	require.False(t, ok)
	second()
	third()
	for range 100 {
		require.True(t, allows(c, alice), "without a rate there is no limit")
	}
}

func TestNoLimitsByDefault(t *testing.T) {
	t.Parallel()
	c := New[caller](Options{Burst: 5})
	require.Nil(t, c)
	_, ok := c.Ready(alice)
	require.True(t, ok)
	require.True(t, allows(c, alice))
	closed, ok := c.Open(alice)
	require.True(t, ok)
	closed()
}

func TestAccountsAreLimited(t *testing.T) {
	t.Parallel()
	c := New[caller](Options{Rate: 1, Burst: 1, Streams: 1, Accounts: 10})
	closed, ok := c.Open(alice)
	require.True(t, ok)
	require.True(t, allows(c, bob))
	for i := range 1000 {
		require.True(t, allows(c, caller{"t", fmt.Sprint(i)}))
		if i%5 == 0 {
			require.False(t, allows(c, bob), "an active caller is kept")
		}
	}
	require.Len(t, c.busy, 1)
	require.Equal(t, 10, c.idle.Len())
	_, ok = c.Open(alice)
	require.False(t, ok, "a caller with an open stream is kept")
	closed()
	require.Empty(t, c.busy)
	require.Equal(t, 10, c.idle.Len())
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	c := New[caller](Options{Rate: 1, Burst: 50, Streams: 5, Accounts: 3})
	var open, most, served atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for n := range 500 {
				c.Allow(caller{"t", fmt.Sprint(n % 7)})
				if _, ok := c.Allow(bob); ok {
					served.Add(1)
				}
				if closed, ok := c.Open(alice); ok {
					most.Store(max(most.Load(), open.Add(1)))
					open.Add(-1)
					closed()
				}
			}
		})
	}
	all.Wait()
	require.LessOrEqual(t, most.Load(), int64(5))
	require.GreaterOrEqual(t, served.Load(), int64(50))
}
