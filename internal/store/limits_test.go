package store

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

func owned(n *NewTask, owner string) *NewTask {
	n.Task.Owner = owner
	return n
}

func limited(n *NewTask, live, queue int) *NewTask {
	n.Limits = Limits{Live: live, Queue: queue}
	return n
}

// outcomes describes the results: made, taken, or the limit that refused the create.
func outcomes(t *testing.T, results []createResult) []string {
	t.Helper()
	var out []string
	for _, r := range results {
		require.NoError(t, r.err)
		switch {
		case r.made:
			out = append(out, "made")
		case r.refused == refusedLive:
			out = append(out, "live")
		case r.refused == refusedQueue:
			out = append(out, "queue")
		default:
			out = append(out, "taken")
		}
	}
	return out
}

func TestBatchWithCreatesOverLimit(t *testing.T) {
	f := parallel(t)
	f.create(limited(keyed(chosen("a", "first"), "key", "1"), 3, 0))
	ended := f.create(limited(fresh("a"), 3, 0))
	f.ok(f.Cancel(t.Context(), ended, nil))
	require.Equal(t, []string{
		"taken", "taken", // repetitions do not count
		"made", "made", "live", "live",
		"made", "made", "made", "live", // another owner
		"made", "made", // another agent
		"made", // without a limit
	}, outcomes(t, f.asOneBatch(
		limited(keyed(fresh("a"), "key", "1"), 3, 0), limited(chosen("a", "first"), 3, 0),
		limited(fresh("a"), 3, 0), limited(keyed(fresh("a"), "key 2", "1"), 3, 0), limited(keyed(fresh("a"), "key 3", "1"), 3, 0), limited(fresh("a"), 3, 0),
		owned(limited(fresh("a"), 3, 0), "o"), owned(limited(fresh("a"), 3, 0), "o"), owned(limited(fresh("a"), 3, 0), "o"), owned(limited(fresh("a"), 3, 0), "o"),
		limited(fresh("b"), 2, 0), limited(fresh("b"), 2, 0),
		fresh("a"),
	)))
	// At the limit, and above it after it was lowered, a repetition still finds its task. A refused create leaves no
	// rows.
	require.ErrorIs(t, errOf(f.Create(t.Context(), limited(keyed(fresh("a"), "key", "1"), 1, 0))), ErrTaken)
	var refused *task.Error
	require.ErrorAs(t, errOf(f.Create(t.Context(), limited(keyed(fresh("a"), "key 3", "1"), 1, 0))), &refused)
	require.Equal(t, task.RateLimited, refused.Kind)
	require.Equal(t, "1 of your tasks with this agent have not ended, which is the limit", refused.Msg)
	require.Positive(t, refused.RetryAfter)
	require.Zero(t, scan[int](f, "SELECT count(*) FROM holdfast.idempotency_keys WHERE key = 'key 3'"))
	require.Equal(t, 4, scan[int](f, "SELECT count(*) FROM holdfast.tasks WHERE agent = 'a' AND owner = 'owner' AND state = 1"))
}

func TestBatchWithFullQueue(t *testing.T) {
	f := parallel(t)
	worker := f.worker(time.Hour)
	claimed := func(n *NewTask) *NewTask {
		n.Slot.Worker = worker
		return n
	}
	f.create(fresh("a"))
	require.Equal(t, []string{
		"live", "made", // a create refused by one limit does not count for the other
		"made", "queue", "queue",
		"made", // has a worker already
		"made", // of another agent
		"made", // without a limit
	}, outcomes(t, f.asOneBatch(
		limited(fresh("a"), 1, 3), owned(limited(fresh("a"), 1, 3), "o"),
		owned(limited(fresh("a"), 0, 3), "p"), owned(limited(fresh("a"), 0, 3), "q"), owned(limited(fresh("a"), 0, 3), "r"),
		claimed(limited(fresh("a"), 0, 3)),
		limited(fresh("b"), 0, 1),
		fresh("a"),
	)))
	require.ErrorIs(t, errOf(f.Create(t.Context(), limited(fresh("a"), 0, 3))), task.RateLimited)
	f.claim(worker, "a", 2)
	f.create(limited(fresh("a"), 0, 3))
}

func TestReopeningObeysLimits(t *testing.T) {
	f := parallel(t)
	old := f.create(chosen("a", "id"))
	f.setPush(old.ID, hook("id", "kept")) // it stays with the old task if the reopening is refused
	storetest.Must(f.Cancel(t.Context(), old, nil))(t)
	again := func(live, queue int) error {
		n := limited(keyed(chosen("a", "id"), "key", "1"), live, queue)
		n.Reopens = old
		_, err := f.Create(t.Context(), n)
		return err
	}
	other := f.create(fresh("a"))
	require.ErrorIs(t, again(1, 0), task.RateLimited)
	require.ErrorIs(t, again(0, 1), task.RateLimited)
	require.Zero(t, scan[int](f, "SELECT count(*) FROM holdfast.idempotency_keys"))
	require.NoError(t, again(2, 2))
	require.ErrorIs(t, again(2, 2), ErrTaken, "the key belongs to the present task")
	f.ok(f.Cancel(t.Context(), other, nil))
}

// With any number of servers a limit holds at every moment, and all of it can be used.
func TestLimitsHoldAcrossReplicas(t *testing.T) {
	t.Parallel()
	const replicas, owners, most, queue, rounds = 3, 6, 4, 15, 40
	f := newFixture(t)
	stores := []*fixture{f}
	for range replicas - 1 {
		stores = append(stores, openFixture(t, f.url, ""))
	}
	watching := make(chan struct{})
	var work, watch errgroup.Group
	var highest, deepest atomic.Int64
	watch.Go(func() error {
		c := f.conn()
		for {
			select {
			case <-watching:
				return nil
			default:
			}
			var live, waiting int64
			if err := c.QueryRow(t.Context(), `SELECT (SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM holdfast.tasks WHERE state < 5 GROUP BY owner) x),
				(SELECT count(*) FROM holdfast.task_queue WHERE worker_id IS NULL)`).Scan(&live, &waiting); err != nil {
				return err
			}
			highest.Store(max(highest.Load(), live))
			deepest.Store(max(deepest.Load(), waiting))
		}
	})
	var made, refused atomic.Int64
	for i := range replicas * owners * 2 {
		s := stores[i%replicas]
		work.Go(func() error {
			var mine []*task.Task
			for round := range rounds {
				n := owned(limited(fresh("a"), most, queue), fmt.Sprintf("o%d", i/replicas%owners))
				switch err := patiently(func() error { _, err := s.Create(t.Context(), n); return err }); {
				case err == nil:
					made.Add(1)
					mine = append(mine, &n.Task)
				case errors.Is(err, task.RateLimited):
					refused.Add(1)
				default:
					return err
				}
				if len(mine) > 0 && (round%3 == 0 || round == rounds-1) {
					for _, h := range mine {
						if err := patiently(func() error { _, err := s.Cancel(t.Context(), h, nil); return err }); err != nil {
							return err
						}
					}
					mine = nil
				}
			}
			return nil
		})
	}
	require.NoError(t, work.Wait())
	close(watching)
	require.NoError(t, watch.Wait())
	t.Logf("%d made, %d refused; at most %d of one owner and %d waiting", made.Load(), refused.Load(), highest.Load(), deepest.Load())
	require.LessOrEqual(t, highest.Load(), int64(most))
	require.LessOrEqual(t, deepest.Load(), int64(queue))
	require.Positive(t, refused.Load())
}
