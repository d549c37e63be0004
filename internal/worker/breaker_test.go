package worker

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// The breaker's clock is its argument: half an hour of an outage takes no time.
func TestBreakerProbesAndRampsUp(t *testing.T) {
	t.Parallel()
	now := time.Now()
	b := breaker{most: 64}
	slots := func() int { return b.demand(now, store.Demand{Slots: 64}, time.Hour).Slots }
	require.Equal(t, 64, slots())
	refused := &executor.Unavailable{Err: errors.New("refused")}
	probes := 0
	for end := now.Add(30 * time.Minute); now.Before(end); now = now.Add(10 * time.Millisecond) {
		n := slots()
		require.LessOrEqual(t, n, max(1, 64*(1-probes)), "one probe at a time")
		if n > 0 {
			probes++
			require.True(t, b.failed(now.Add(time.Millisecond), now, task.ID{}, refused))
		}
		require.LessOrEqual(t, b.wait(now), maxPause+time.Millisecond)
	}
	require.Greater(t, probes, 1000)
	require.Less(t, probes, 4000)

	// It is back: each round starts twice as many.
	now = now.Add(maxPause)
	for _, want := range []int{1, 2, 4, 8, 16, 32, 64} {
		n := slots()
		require.Equal(t, want, n)
		for range n {
			b.ran(now)
		}
	}
	require.False(t, b.open)
}

func TestBreakerHeedsRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for after, want := range map[time.Duration]time.Duration{10 * time.Second: 10 * time.Second, time.Hour: maxRetryAfter} {
		b := breaker{most: 1}
		require.True(t, b.failed(now, now.Add(-1), task.ID{}, &executor.Unavailable{Err: errors.New("503"), RetryAfter: after, Answered: true}))
		require.Equal(t, want, b.wait(now))
	}
}

// An agent that begins other runs is busy and not away.
func TestBusyAgentIsNotAway(t *testing.T) {
	t.Parallel()
	now := time.Now()
	b := breaker{most: 8}
	b.ran(now)
	require.False(t, b.failed(now, now.Add(-1), task.ID{}, &executor.Unavailable{Err: errors.New("429"), Answered: true}))
	require.Equal(t, 4, b.demand(now, store.Demand{Slots: 8}, time.Hour).Slots)
	require.True(t, b.failed(now, now.Add(-1), task.ID{}, &executor.Unavailable{Err: errors.New("refused")}))
}
