package store

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
)

// BenchmarkCreateUnderLimits measures the creation of a hundred tasks in one commit, of as many callers, with and
// without limits.
func BenchmarkCreateUnderLimits(b *testing.B) {
	for name, limits := range map[string]Limits{"none": {}, "live": {Live: 1_000}, "queue": {Queue: 10_000}, "both": {Live: 1_000, Queue: 10_000}} {
		b.Run(name, func(b *testing.B) {
			url := storetest.New(b).URL
			s, err := Open(b.Context(), Options{URL: url})
			require.NoError(b, err)
			defer s.Close(context.WithoutCancel(b.Context()))
			c, err := pgx.Connect(b.Context(), url)
			require.NoError(b, err)
			defer c.Close(context.WithoutCancel(b.Context())) //nolint:errcheck // nothing to lose
			for b.Loop() {
				items := make([]*create, 100)
				for i := range items {
					n := owned(fresh("a"), fmt.Sprintf("o%d", i))
					n.Limits = limits
					items[i] = newCreate(n)
				}
				s.writeCreates(b.Context(), items)
				for _, item := range items {
					require.True(b, (<-item.done).made)
				}
				// As in operation, the tasks end.
				b.StopTimer()
				_, err := c.Exec(b.Context(), `WITH q AS (DELETE FROM holdfast.task_queue RETURNING id)
					UPDATE holdfast.tasks SET state = 7 WHERE id IN (SELECT id FROM q)`)
				require.NoError(b, err)
				b.StartTimer()
			}
		})
	}
}
