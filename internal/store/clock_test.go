package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store/partition"
)

// A machine with a wrong clock puts no task into the partition of another time.
func TestTaskIDHasTimeOfDatabase(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	require.Zero(t, f.clock.skew(), "nothing is known yet")
	near := func(want time.Time, why string) {
		t.Helper()
		require.WithinDuration(t, want, partition.TimeOf(f.NewTaskID()), time.Hour, why)
	}
	// Slow answers teach nothing, so several are asked for.
	teaches := func(what string, ask func()) {
		t.Helper()
		eventually(t, what+" teaches the clock", func() bool {
			ask()
			return time.Since(partition.TimeOf(f.NewTaskID())).Abs() < time.Hour
		})
	}
	for _, skew := range []time.Duration{90 * 24 * time.Hour, -90 * 24 * time.Hour} {
		// The database's clock cannot be wrong here, so this process's knowledge of it is.
		f.clock.seen.Store(&moment{time.Now().Add(skew), time.Now()})
		near(time.Now().Add(skew), "the machine's clock is wrong")
		teaches("a question", func() {
			_, err := f.Now(t.Context())
			require.NoError(t, err)
		})
		f.clock.seen.Store(&moment{time.Now().Add(skew), time.Now()})
		teaches("a create", func() { f.create(fresh("a")) })
	}
}

func TestTaskIDsAscend(t *testing.T) {
	t.Parallel()
	v := View{s: &Store{}}
	now := time.Now()
	for _, skew := range []time.Duration{0, -time.Hour, time.Hour} {
		v.s.clock.seen.Store(&moment{now.Add(skew), now})
		ids := make([]string, 1000)
		for i := range ids {
			ids[i] = v.NewTaskID().String()
		}
		require.IsIncreasing(t, ids, skew)
	}
}

// The answer of a slow statement says little about the time.
func TestSlowAnswersTeachNoClock(t *testing.T) {
	t.Parallel()
	var c clock
	c.learn(time.Now().Add(time.Hour), time.Now().Add(-2*precise))
	require.Zero(t, c.skew())
}
