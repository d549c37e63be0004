package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

func TestDaysOfKey(t *testing.T) {
	f := parallel(t)
	for at, want := range map[string][]string{
		"2026-03-01 12:00:00Z":      {"2026-03-01"},
		"2026-03-01 00:05:00Z":      {"2026-03-01"},
		"2026-03-01 00:04:59.9Z":    {"2026-02-28", "2026-03-01"},
		"2026-03-01 00:00:00Z":      {"2026-02-28", "2026-03-01"},
		"2026-03-01 23:54:59.9Z":    {"2026-03-01"},
		"2026-03-01 23:55:00Z":      {"2026-03-01", "2026-03-02"},
		"2026-12-31 23:59:59Z":      {"2026-12-31", "2027-01-01"},
		"2026-03-01 05:45:00+05:45": {"2026-02-28", "2026-03-01"}, // days are in UTC
	} {
		require.Equal(t, want, scan[[]string](f, "SELECT array_agg(d::text ORDER BY d) FROM holdfast.key_days($1::text::timestamptz) d", at), at)
	}
}

// yesterdays moves the rows of a key to the day before.
func (f *fixture) yesterdays(key string) {
	f.t.Helper()
	require.NoError(f.t, storetest.Partitions(f.t.Context(), f.url, time.Now().AddDate(0, 0, -3), time.Now()))
	f.exec(`DELETE FROM holdfast.idempotency_keys WHERE key = $1 AND day <> ((created_at - interval '5 minutes') AT TIME ZONE 'UTC')::date`, key)
	f.exec("UPDATE holdfast.idempotency_keys SET day = day - 2, created_at = created_at - interval '2 days' WHERE key = $1", key)
}

func TestKeyIsUniqueAcrossDays(t *testing.T) {
	f := parallel(t)
	first := keyed(fresh("a"), "old", "1")
	f.create(first)
	f.yesterdays("old")
	again := keyed(fresh("a"), "old", "1")
	require.ErrorIs(t, errOf(ownerOf(again).bare(f.Store).Create(t.Context(), again)), ErrTaken)
	h, byKey := must2(ownerOf(again).bare(f.Store).Existing(t.Context(), again))(t)
	require.True(t, byKey)
	require.Equal(t, first.Task.ID, h.ID)

	// The same for messages, and for a reopened task.
	parked := f.running("parked")
	parked.must(t, status(task.StateInputRequired))
	_, err := ownerOf(first).bare(f.Store).AddMessage(t.Context(), &NewMessage{Task: parked.c.Task, Message: user("x"), RequestID: NewID(), Idempotency: Idempotency{"old", []byte("1")}})
	require.ErrorIs(t, err, ErrTaken)
	ended := chosen("a", "x")
	f.create(ended)
	f.ok(f.Cancel(t.Context(), &ended.Task, nil))
	reopened := keyed(chosen("a", "x"), "old", "1")
	reopened.Reopens = &ended.Task
	require.ErrorIs(t, errOf(ownerOf(reopened).bare(f.Store).Create(t.Context(), reopened)), ErrTaken)
	require.Equal(t, 1, scan[int](f, "SELECT count(*) FROM holdfast.idempotency_keys WHERE key = 'old'"))
}

// Near midnight a key is written on both days, and the day that two requests share decides.
func TestKeyNearMidnight(t *testing.T) {
	f := parallel(t)
	require.NoError(t, storetest.Partitions(t.Context(), f.url, time.Now().AddDate(0, 0, -2), time.Now().AddDate(0, 0, 2)))
	h := f.create(fresh("a"))
	for name, days := range map[string]string{
		"yesterday and today": "ARRAY[today - 1, today]", "today and tomorrow": "ARRAY[today, today + 1]", "today": "ARRAY[today]",
	} {
		key := "key of " + name
		f.exec(`INSERT INTO holdfast.idempotency_keys (day, tenant, owner, key, request_hash, task)
			SELECT d, 'tenant', 'owner', $1, '1', $2 FROM (SELECT ((now() - interval '5 minutes') AT TIME ZONE 'UTC')::date AS today) x, unnest(`+days+`) AS d`, key, h.ID)
		n := keyed(fresh("a"), key, "1")
		require.ErrorIs(t, errOf(ownerOf(n).bare(f.Store).Create(t.Context(), n)), ErrTaken, name)
		found, byKey := must2(ownerOf(n).bare(f.Store).Existing(t.Context(), n))(t, name)
		require.True(t, byKey)
		require.Equal(t, h.ID, found.ID, name)
		require.Equal(t, 1, scan[int](f, "SELECT count(*) FROM holdfast.v_keys WHERE key = $1", key), "the view shows it once")

		// A key with another task on one of the days is taken on both, until that task is gone.
		require.ErrorIs(t, errOf(ownerOf(n).bare(f.Store).Create(t.Context(), keyed(fresh("a"), key, "2"))), ErrTaken, name)
	}
}

// erase removes a task as retention does: its row first.
func (f *fixture) erase(h *task.Task) {
	f.t.Helper()
	id := h.ID
	for _, sql := range []string{
		"DELETE FROM holdfast.tasks WHERE id = $1", "DELETE FROM holdfast.task_queue WHERE id = $1", "DELETE FROM holdfast.task_events WHERE task = $1",
	} {
		f.exec(sql, id)
	}
}

func TestKeyOfErasedTaskIsFree(t *testing.T) {
	f := parallel(t)
	for _, old := range []bool{false, true} {
		key := fmt.Sprint("key", old)
		gone := f.create(keyed(fresh("a"), key, "1"))
		if old {
			f.yesterdays(key)
		}
		f.erase(gone)
		n := keyed(fresh("a"), key, "another request")
		require.ErrorIs(t, errOf2(ownerOf(n).bare(f.Store).Existing(t.Context(), n)), task.NotFound)
		h := f.create(n)
		found, byKey := must2(ownerOf(n).bare(f.Store).Existing(t.Context(), n))(t)
		require.True(t, byKey)
		require.Equal(t, h.ID, found.ID)
		require.NotZero(t, scan[int](f, "SELECT count(*) FROM holdfast.idempotency_keys WHERE key = $1 AND task = $2", key, h.ID))
		require.Zero(t, scan[int](f, "SELECT count(*) FROM holdfast.idempotency_keys WHERE key = $1 AND task = $2", key, gone.ID))
	}
}

// Of many concurrent writers, in statements of their own, one gets the name or the key.
func TestOneOfManyCreatesWins(t *testing.T) {
	f := parallel(t)
	gone := f.create(keyed(chosen("a", "name"), "key", "1"))
	f.erase(gone) // all of them find it free at once
	for what, n := range map[string]func() *NewTask{
		"name": func() *NewTask { return chosen("a", "name") },
		"key":  func() *NewTask { return keyed(fresh("b"), "key", "2") },
	} {
		var stores []*Store
		for range 4 {
			s := storetest.Must(Open(t.Context(), Options{URL: f.url, APIConns: 2}))(t)
			defer s.Close(context.Background())
			stores = append(stores, s)
		}
		made := make(chan task.ID, 16)
		var g errgroup.Group
		for i := range 16 {
			g.Go(func() error {
				n := n()
				err := patiently(func() error { _, err := ownerOf(n).bare(stores[i%4]).Create(t.Context(), n); return err })
				if err == nil {
					made <- n.Task.ID
				} else if err != ErrTaken { //nolint:errorlint // exactly that
					return err
				}
				return nil
			})
		}
		require.NoError(t, g.Wait(), what)
		require.Len(t, made, 1, what)
		found, _ := must2(ownerOf(n()).bare(f.Store).Existing(t.Context(), n()))(t)
		require.Equal(t, <-made, found.ID, what)
	}
}

func TestReopeningMovesName(t *testing.T) {
	f := parallel(t)
	last := chosen("a", "x")
	f.create(last)
	for range 3 {
		f.ok(f.Cancel(t.Context(), &last.Task, nil))
		n := chosen("a", "x")
		n.Reopens = &last.Task
		f.ok(ownerOf(n).bare(f.Store).Create(t.Context(), n))
		found := storetest.Must(ownerOf(n).bare(f.Store).FindTask(t.Context(), "x"))(t)
		require.Equal(t, n.Task.ID, found.ID)
		old := storetest.Must(f.Header(t.Context(), last.Task.ID))(t)
		require.Equal(t, last.Task.ID.String(), old.PublicID, "the old task has its UUID as its id again")
		require.Equal(t, 1, scan[int](f, "SELECT count(*) FROM holdfast.task_names"))
		last = n
	}
	f.erase(&last.Task)
	again := chosen("a", "x")
	require.ErrorIs(t, errOf(ownerOf(again).bare(f.Store).FindTask(t.Context(), "x")), task.NotFound)
	require.Equal(t, again.Task.ID, f.create(again).ID, "the name of an erased task is free")
}
