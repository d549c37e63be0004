package memory

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

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
			require.Greater(t, b.Stat().Used, int64(200*mib-2*Small-1))
			require.NoError(t, l.Grow(t.Context(), 101*mib), "as far as it likes")
			l.Release()
			synctest.Wait()
		}
		require.Equal(t, Stat{Size: 16 * mib}, b.Stat())
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
			for n := int64(0); n <= 4*mib; n += Small {
				require.NoError(t, quick.Grow(t.Context(), n))
			}
			quick.Release()
		}
		cancel()
		require.ErrorIs(t, <-stuck, context.Canceled)
		for _, l := range slow {
			l.Release()
		}
		require.Equal(t, Stat{Size: 16 * mib}, b.Stat())
	})
	t.Run("a line that shrinks to nothing holds nothing", func(t *testing.T) {
		t.Parallel()
		b := NewLines(16 * mib)
		l := b.Line("a")
		require.NoError(t, l.Grow(t.Context(), Small))
		require.Zero(t, b.Stat().Used)
		l.Release()
		l.Release()
		require.Len(t, b.turn, 1)
	})
	var none *Line
	require.NoError(t, none.Grow(t.Context(), 1<<40))
	none.Release()
}
