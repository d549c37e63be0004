package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkClaim claims ten runs of a queue at a time.
func BenchmarkClaim(b *testing.B) {
	f := newFixture(b)
	for range b.N * 10 {
		f.create(fresh("a"))
	}
	w := f.worker(time.Hour)
	b.ResetTimer()
	for range b.N {
		won, err := f.Claim(b.Context(), w, []Demand{{Agent: "a", Slots: 10}})
		require.NoError(b, err)
		require.Len(b, won, 10)
	}
}
