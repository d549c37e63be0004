package push

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDelaysDoubleUpToTheLongest(t *testing.T) {
	t.Parallel()
	s := Schedule{First: time.Second, Most: time.Hour}
	for failures, most := range map[int]time.Duration{
		1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 12: 2048 * time.Second, 13: time.Hour, 1_000_000: time.Hour,
	} {
		least, longest := most, time.Duration(0)
		for range 1000 {
			d := s.delay(failures, 0)
			require.GreaterOrEqual(t, d, most/2)
			require.LessOrEqual(t, d, most)
			least, longest = min(least, d), max(longest, d)
		}
		require.Less(t, least, most*6/10, "attempts are spread")
		require.Greater(t, longest, most*9/10)
	}
	require.Equal(t, 5*time.Hour, s.delay(1, 5*time.Hour), "the receiver decides")
	require.GreaterOrEqual(t, s.delay(13, time.Second), 30*time.Minute, "a shorter Retry-After has no effect")
	require.Zero(t, Schedule{}.delay(3, 0))
}
