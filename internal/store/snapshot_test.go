package store

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// oldSnapshot keeps a snapshot until the end of the test, as a dump does: vacuum removes no row that it sees.
func (f *fixture) oldSnapshot() {
	f.t.Helper()
	old := storetest.Must(f.conn().BeginTx(f.t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead}))(f.t)
	f.t.Cleanup(func() { _ = old.Rollback(context.Background()) })
	storetest.Must(old.Exec(f.t.Context(), "SELECT FROM holdfast.push_cursors"))(f.t)
}

// endedBesideASnapshot leaves dead rows of n tasks that a worker has run, or several if none is registered, and the
// statistics that vacuum makes of the live rows.
func (f *fixture) endedBesideASnapshot(n int) {
	f.t.Helper()
	f.oldSnapshot()
	f.exec(`INSERT INTO holdfast.tasks (id, agent, tenant, owner, context_id, state, last_seq, status_seq, dialect)
		SELECT `+presentID+`, 'a', 'tenant', 'owner', 'c' || i, 1, 1, 1, '0.3' FROM generate_series(1, $1::integer) i`, n)
	f.exec("INSERT INTO holdfast.task_queue (id, agent, message_seq) SELECT id, agent, 1 FROM holdfast.tasks_open")
	f.exec("INSERT INTO holdfast.push_cursors (task, config_id, host, artifacts, due_at) SELECT id, 'c', 'h', false, now() FROM holdfast.tasks_open")
	f.exec("UPDATE holdfast.task_queue SET worker_id = coalesce((SELECT w.id FROM holdfast.workers w), id)")
	for _, table := range []string{"task_queue", "push_cursors", "tasks_open"} {
		f.exec("DELETE FROM holdfast." + table)
	}
	f.exec("DO $$ BEGIN FOR i IN 1..2000 LOOP PERFORM holdfast.audit('[]'); COMMIT; END LOOP; END $$")
	f.exec("VACUUM (ANALYZE) holdfast.tasks_open, holdfast.task_queue, holdfast.push_cursors, holdfast.audit_chains")
}

// The statements of a task's life do not read the dead rows of other tasks.
func TestWritesBesideAnOldSnapshot(t *testing.T) {
	f := parallel(t)
	worker := f.worker(time.Hour)
	life := func() map[string]int {
		pages := map[string]int{}
		step := func(name string, do func(db dbsqlc.DBTX)) {
			x := &explained{f: f}
			do(x)
			pages[name] = x.pages
		}
		n := fresh("a")
		id := uuid.UUID(n.Task.ID)
		since := storetest.Must(f.Now(t.Context()))(t)
		made := newCreate(n)
		made.audit = ownerOf(n).of(f.Store).audited(auditCreated, n.Task.ID, "a", "")
		ordinal, run := int64(0), task.Fence{}
		write := func(s task.State) func(dbsqlc.DBTX) {
			return func(db dbsqlc.DBTX) {
				e := status(s)
				groups, _ := groupAppends([]*Append{{Task: n.Task.ID, Fence: run, Ordinal: ordinal, Events: []*task.Event{e}, payloads: []string{EncodePayload(e)}}})
				require.Len(t, storetest.Must(f.q.EventsAppend(t.Context(), db, appendParams(groups)))(t), 1)
				ordinal++
			}
		}
		message := dbsqlc.MessageAppendParams{ID: id, Enqueue: true, Payload: made.payload, RequestHash: []byte{}}
		step("TaskCreate", func(db dbsqlc.DBTX) {
			require.Len(t, storetest.Must(f.q.TaskCreate(t.Context(), db, createParams([]*create{made})))(t), 1)
		})
		step("QueueClaim", func(db dbsqlc.DBTX) {
			rows := storetest.Must(f.q.QueueClaim(t.Context(), db, dbsqlc.QueueClaimParams{
				Agents: []string{"a"}, Slots: []int32{5}, Since: []time.Time{since}, Older: []time.Duration{0},
				Skip: []uuid.UUID{}, Bytes: claimBytes, Worker: uuid.UUID(worker), Suspects: 1,
			}))(t)
			require.Len(t, rows, 1)
			run = task.Fence{Attempt: 1, ClaimedAt: rows[0].ClaimedAt.UnixMicro()}
		})
		step("EventsAppend", write(task.StateWorking))
		step("RunStates", func(db dbsqlc.DBTX) {
			require.Len(t, storetest.Must(f.q.RunStates(t.Context(), db, []uuid.UUID{id}, id, id))(t), 1)
		})
		step("TaskSeqs", func(db dbsqlc.DBTX) {
			require.Len(t, storetest.Must(f.q.TaskSeqs(t.Context(), db, []uuid.UUID{id}, id, id))(t), 1)
		})
		step("RunsHeld", func(db dbsqlc.DBTX) {
			require.Len(t, storetest.Must(f.q.RunsHeld(t.Context(), db, []uuid.UUID{id}, uuid.UUID(worker)))(t), 1)
		})
		step("RunsRescue", func(db dbsqlc.DBTX) {
			require.Empty(t, storetest.Must(f.q.RunsRescue(t.Context(), db))(t))
		})
		step("QueueClearSuspect", func(db dbsqlc.DBTX) {
			require.NoError(t, f.q.QueueClearSuspect(t.Context(), db, id, uuid.UUID(worker)))
		})
		step("EventsAppend, parks", write(task.StateInputRequired))
		step("MessageAppend", func(db dbsqlc.DBTX) {
			storetest.Must(f.q.MessageAppend(t.Context(), db, message))(t)
		})
		step("QueueHurry", func(db dbsqlc.DBTX) {
			storetest.Must(f.q.QueueHurry(t.Context(), db, id))(t)
		})
		step("IdempotencyGet", func(db dbsqlc.DBTX) {
			storetest.Must(f.q.IdempotencyGet(t.Context(), db, "tenant", "owner", "k"))(t)
		})
		step("TaskCancel", func(db dbsqlc.DBTX) {
			storetest.Must(f.q.TaskCancel(t.Context(), db, dbsqlc.TaskCancelParams{ID: id}))(t)
		})
		return pages
	}
	first := life()
	f.endedBesideASnapshot(8000)
	for name, n := range life() {
		assert.Less(t, n, 2*first[name]+60, name)
	}
	x := &explained{f: f}
	f.ok(f.q.RunsOwned(t.Context(), x, uuid.UUID(worker)))
	require.Greater(t, x.pages, 50, "the worker has left dead entries")
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
	f := parallel(t)
	f.deliveredBesideASnapshot(8000)
	f.ended(fresh("a"), "good")
	require.Len(t, f.duePushes(5), 1)
	require.Greater(t, time.Until(f.front.paces[0].until), time.Duration(0))
	f.ended(fresh("a"), "good")
	pages := func(since time.Time, claimed int) (n int) {
		x := &explained{f: f}
		rows := storetest.Must(f.q.PushClaim(t.Context(), x, dbsqlc.PushClaimParams{
			Since: since, WindowRows: 320, PerHost: 8, PerCaller: 32, MaxRows: 32, LaneCallers: []int64{}, LaneHosts: []string{},
			BusyHosts: []string{}, BusyCallers: []int64{}, Worker: uuid.New(), Lock: time.Hour,
		}))(t)
		require.Len(t, rows, claimed)
		f.ok(f.q.PushNext(t.Context(), x, dbsqlc.PushNextParams{Since: since, Most: 320, BusyHosts: []string{}, BusyCallers: []int64{}, Ahead: time.Second}))
		f.ok(f.q.PushPark(t.Context(), x, dbsqlc.PushParkParams{Since: since, WindowRows: parkRows, BusyHosts: []string{"h1:80"}, BusyCallers: []int64{}}))
		return x.pages
	}
	pages(f.front.since, 1)
	require.Less(t, pages(f.front.since, 0), 300)
	require.Greater(t, pages(time.Time{}, 0), 400, "the test has made dead entries")
	f.clear()
}

// The farther back a claim looks, the rarer that is, and the longer it took, the longer it rests.
func TestClaimsRarelyLookFarBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var f front
		oldest := time.Now()
		// back is how far behind the oldest a claim looks.
		look := func(took time.Duration) (back time.Duration) {
			since, looked := f.begin()
			waittest.Advance(took)
			looked(oldest)
			if since.IsZero() {
				return -1
			}
			return oldest.Sub(since)
		}
		require.Negative(t, look(time.Second), "from the first entry")
		require.Equal(t, frontSlack, look(0))
		_, looked := f.begin()
		looked(time.Time{}) // a statement that failed
		waittest.Advance(5*time.Second - time.Millisecond)
		require.Equal(t, frontSlack, look(0))
		waittest.Advance(time.Millisecond)
		require.Equal(t, frontSlack+time.Minute, look(0))
		require.Equal(t, frontSlack, look(0))
		waittest.Advance(5 * time.Second)
		require.Equal(t, frontSlack+time.Minute, look(0))
		waittest.Advance(time.Minute)
		require.Equal(t, frontSlack+15*time.Minute, look(0))
		require.Equal(t, frontSlack, look(0), "a look includes the nearer ones")
		oldest = oldest.Add(-time.Hour) // the clock was set back
		waittest.Advance(15 * time.Minute)
		require.Negative(t, look(0))
		require.Equal(t, frontSlack, look(0))
	})
}
