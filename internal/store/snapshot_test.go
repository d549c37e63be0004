package store

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
)

// oldSnapshot keeps a snapshot until the end of the test, as a dump does: vacuum removes no row that it sees.
func (f *fixture) oldSnapshot() {
	f.t.Helper()
	old, err := f.conn().BeginTx(f.t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = old.Rollback(context.Background()) })
	_, err = old.Exec(f.t.Context(), "SELECT FROM holdfast.push_cursors")
	require.NoError(f.t, err)
}

// deliveredBesideASnapshot leaves index entries of n webhooks that were due and have been delivered.
func (f *fixture) deliveredBesideASnapshot(n int) {
	f.t.Helper()
	f.oldSnapshot()
	f.backlog(n, "'h' || i || ':80'", "i", "now() - interval '1 minute'")
	f.exec("UPDATE holdfast.push_cursors SET due_at = NULL, due_since = NULL, next_seq = 3 WHERE config_id = 'backlog'")
}

// A claim finds what is due without reading the entries of all delivered webhooks, from the second one on.
func TestPushClaimsBesideAnOldSnapshot(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.deliveredBesideASnapshot(20_000)
	f.ended(fresh("a"), "good")
	require.Len(t, f.duePushes(5), 1)
	require.Greater(t, time.Until(f.front.whole.until), time.Duration(0))
	f.ended(fresh("a"), "good")
	pages := func(since time.Time, claimed int) (n int) {
		x := &explained{f: f}
		rows, err := f.q.PushClaim(t.Context(), x, dbsqlc.PushClaimParams{
			Since: since, WindowRows: 320, PerHost: 8, PerCaller: 32, MaxRows: 32, LaneCallers: []int64{}, LaneHosts: []string{},
			BusyHosts: []string{}, BusyCallers: []int64{}, Worker: uuid.New(), Lock: time.Hour,
		})
		require.NoError(t, err)
		require.Len(t, rows, claimed)
		_, err = f.q.PushNext(t.Context(), x, dbsqlc.PushNextParams{Since: since, Most: 320, BusyHosts: []string{}, BusyCallers: []int64{}, Ahead: time.Second})
		require.NoError(t, err)
		_, err = f.q.PushPark(t.Context(), x, dbsqlc.PushParkParams{Since: since, WindowRows: parkRows, BusyHosts: []string{"h1:80"}, BusyCallers: []int64{}})
		require.NoError(t, err)
		return x.pages
	}
	pages(f.front.since, 1) // the first one also reads catalogs
	require.Less(t, pages(f.front.since, 0), 300)
	require.Greater(t, pages(time.Time{}, 0), 1000, "the test has made dead entries")
	f.clear()
}

// A claim that reads from the first entry comes rarely, and more rarely the longer it takes.
func TestClaimsLookFromTheFirstEntryRarely(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var f front
		oldest := time.Now()
		look := func(took time.Duration) (whole bool) {
			since, looked := f.begin()
			time.Sleep(took)
			looked(oldest)
			return since.IsZero()
		}
		require.True(t, look(time.Second))
		require.False(t, look(0))
		since, looked := f.begin()
		require.Equal(t, oldest.Add(-frontSlack), since)
		looked(time.Time{}) // a statement that failed
		time.Sleep(restFactor*time.Second - time.Millisecond)
		require.False(t, look(0))
		time.Sleep(time.Millisecond)
		require.True(t, look(0))
		oldest = oldest.Add(-time.Hour) // a clock that was set back, or a late mark
		time.Sleep(wholeEvery)
		require.True(t, look(0))
		since, _ = f.begin()
		require.Equal(t, oldest.Add(-frontSlack), since)
	})
}

// BenchmarkPushClaimBesideAnOldSnapshot claims one webhook that has become due, after 200,000 others were delivered.
func BenchmarkPushClaimBesideAnOldSnapshot(b *testing.B) {
	f := newFixture(b)
	f.deliveredBesideASnapshot(200_000)
	f.ended(fresh("a"), "good")
	worker := f.worker(time.Hour)
	for b.Loop() {
		b.StopTimer()
		f.exec("UPDATE holdfast.push_cursors SET due_at = now(), claim = NULL, worker_id = NULL, locked_until = NULL WHERE config_id = 'hook'")
		b.StartTimer()
		due, _, err := f.ClaimPush(b.Context(), &PushClaim{Worker: worker, Limit: 32, PerHost: 8, PerCaller: 32, Lock: time.Hour})
		require.NoError(b, err)
		require.Len(b, due, 1)
	}
	f.clear()
}
