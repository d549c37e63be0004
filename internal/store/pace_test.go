package store

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

func TestRestsGrowWithSlowLooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r Pace
		const took = 10 * time.Second
		after := func(d, least time.Duration) time.Duration {
			r.Looked(time.Now().Add(-d), least)
			return time.Until(r.until)
		}
		require.Zero(t, after(0, 0))
		require.Equal(t, 5*time.Second, after(0, 5*time.Second))
		require.Equal(t, 200*time.Millisecond, after(10*time.Millisecond, 0))
		r = Pace{}
		for _, want := range []time.Duration{1, 3, 7, 15, 31, 63, 127, 200, 200} {
			require.Equal(t, want*time.Second, after(took, 0))
			waittest.Advance(want*time.Second - time.Nanosecond)
			require.False(t, r.Due(time.Now()))
			waittest.Advance(time.Nanosecond)
			require.True(t, r.Due(time.Now()))
		}
		require.Zero(t, after(0, 0), "a fast look")
		require.Equal(t, time.Second, after(took, 0))
		require.Equal(t, 5*time.Second, after(took, 5*time.Second))
	})
}
