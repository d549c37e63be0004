package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

type sized int

func (s sized) size() int     { return int(s) }
func (s sized) task() task.ID { return task.ID{} }

// Large items are written in several flushes, in order: PostgreSQL accepts no message of more than a gigabyte.
func TestFlushIsLimitedInItemsAndBytes(t *testing.T) {
	t.Parallel()
	var got [][]sized
	b := newBatcher(3, func(_ context.Context, items []sized) []sized {
		got = append(got, slices.Clone(items))
		return nil
	}, func(task.ID) {})
	for _, n := range []sized{1, 2, 3, 4, batchBytes, 5, 9 * batchBytes, 6, 7} {
		require.True(t, b.add(n))
	}
	stop := make(chan struct{})
	close(stop)
	b.run(t.Context(), stop)
	require.Equal(t, [][]sized{{1, 2, 3}, {4, batchBytes}, {5, 9 * batchBytes}, {6, 7}}, got)
}

// numbered is an item of one of several tasks.
type numbered struct {
	of byte
	n  int
}

func (n numbered) size() int     { return 1 }
func (n numbered) task() task.ID { return task.ID{n.of} }

// Items of a blocked task are written in order once the lock is gone, also by a batcher that stops. Other items do not wait.
func TestBlockedItemsHoldBackOnlyTheirTask(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		locked := true
		wrote := map[byte][]int{}
		stuck := make(chan task.ID, 1)
		b := newBatcher(500, func(_ context.Context, items []numbered) (blocked []numbered) {
			mu.Lock()
			defer mu.Unlock()
			for _, one := range items {
				if one.of == 1 && locked {
					blocked = append(blocked, one)
				} else {
					wrote[one.of] = append(wrote[one.of], one.n)
				}
			}
			return blocked
		}, func(id task.ID) { stuck <- id })
		stop, done := make(chan struct{}), make(chan struct{})
		go func() { b.run(t.Context(), stop); close(done) }()

		var want []int
		for n := range 300 {
			require.True(t, b.add(numbered{1, n}))
			require.True(t, b.add(numbered{2, n}))
			want = append(want, n)
		}
		synctest.Wait()
		mu.Lock()
		require.Len(t, wrote[2], len(want), "while the writes of another task are blocked")
		mu.Unlock()
		require.Equal(t, task.ID{1}, <-stuck)
		close(stop)
		mu.Lock()
		require.Empty(t, wrote[1])
		locked = false
		mu.Unlock()
		<-done
		require.Equal(t, want, wrote[1])
		require.Equal(t, want, wrote[2])
		require.False(t, b.add(numbered{1, 300}))
	})
}

// unsent is the driver's error for a message that it could not send.
type unsent struct{ error }

func (unsent) SafeToRetry() bool { return true }

func TestTooLargeStatementIsNotRetried(t *testing.T) {
	t.Parallel()
	// The error of pgproto3 for a message of a gigabyte.
	err := unsent{errors.New("message body too large")}
	require.True(t, pgconn.SafeToRetry(err))
	require.Equal(t, failFinal, classify(fmt.Errorf("append: %w", err)))
	require.Equal(t, failUnsent, classify(unsent{errors.New("broken pipe")}))
}
