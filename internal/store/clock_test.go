package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// A machine with a wrong clock puts no task into the partition of another time.
func TestTaskIDHasTimeOfDatabase(t *testing.T) {
	f := parallel(t)
	require.Zero(t, f.clock.skew(), "nothing is known yet")
	const month = 30 * 24 * time.Hour
	// ahead is by how many months a new id is ahead of this machine's clock.
	ahead := func() time.Duration {
		return partition.TimeOf(f.NewTaskID()).Sub(partition.TimeOf(NewID())).Round(month) / month
	}
	wrong := func(months time.Duration) {
		// The database's clock cannot be wrong here, so this process's knowledge of it is.
		f.clock.seen.Store(&moment{time.Now().Add(months * month), time.Now()})
		require.Equal(t, months, ahead(), "the machine's clock is wrong")
	}
	for _, months := range []time.Duration{3, -3} {
		for what, ask := range map[string]func(){
			"a question": func() {
				f.ok(f.Now(t.Context()))
			},
			"a create": func() { f.create(fresh("a")) },
		} {
			wrong(months)
			waittest.Eventually(t, what+" teaches the clock", func() error { // slow answers teach nothing
				ask()
				return waittest.Unless(ahead() == 0, "%d months ahead", ahead())
			})
		}
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
