package store

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

func (f *fixture) notices(agent string, slots int) []Notice {
	f.t.Helper()
	return storetest.Must(f.ClaimNotices(f.t.Context(), f.worker(time.Hour), []NoticeDemand{{Agent: agent, Slots: slots}}))(f.t)
}

func (f *fixture) cancel(h *task.Task, metadata string) (ended bool) {
	f.t.Helper()
	ended = storetest.Must(f.Cancel(f.t.Context(), h, json.RawMessage(metadata)))(f.t)
	return ended
}

// A task without a run is canceled in one commit, and its agent is told what the request said.
func TestNoticeOfParkedTask(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	p.must(t, &task.Event{Kind: task.EventRun, Run: &task.RunNote{Outcome: task.RunCheckpoint, Checkpoint: json.RawMessage(`{"job":7}`)}}, status(task.StateInputRequired))
	require.True(t, f.cancel(p.c.Task, `{"why":1.0}`))
	got := f.notices("a", 5)
	require.Len(t, got, 1)
	require.Equal(t, Notice{Task: p.c.Task.ID, Agent: "a", Reason: NoticeCanceled, Try: 1, Age: got[0].Age}, got[0])
	facts := storetest.Must(f.NoticeFacts(t.Context(), p.c.Task.ID))(t)
	require.Equal(t, NoticeFacts{Attempt: 1, Turn: 1, Checkpoint: json.RawMessage(`{"job":7}`), Metadata: json.RawMessage(`{"why":1.0}`)}, facts)
	require.Empty(t, f.notices("a", 5), "it is claimed")
	last := f.log(p.c.Task.ID)
	require.Nil(t, last[len(last)-1].Metadata, "clients do not see the metadata of a cancel")

	// A later try fences the record of an earlier one.
	f.exec("UPDATE holdfast.cancel_notices SET due_at = now()")
	require.Equal(t, 2, f.notices("a", 5)[0].Try)
	phase := func() string {
		return scan[string](f, "SELECT format('%s %s %s', phase, tries, error) FROM holdfast.v_cancels")
	}
	require.NoError(t, f.RecordNotice(t.Context(), NoticeResult{Task: p.c.Task.ID, Try: 1, Delivered: true}))
	require.Equal(t, "pending 2 ", phase())
	require.NoError(t, f.RecordNotice(t.Context(), NoticeResult{Task: p.c.Task.ID, Try: 2, Delay: time.Hour, Error: "away\x00"}))
	require.Equal(t, "pending 2 away\uFFFD", phase())
	require.Empty(t, f.notices("a", 5), "it is due in an hour")
	f.exec("UPDATE holdfast.cancel_notices SET due_at = now()")
	require.Len(t, f.notices("a", 5), 1)
	require.NoError(t, f.RecordNotice(t.Context(), NoticeResult{Task: p.c.Task.ID, Try: 3, Delivered: true}))
	require.Equal(t, "delivered 3 ", phase())
	require.Equal(t, 1, scan[int](f, "SELECT count(*) FROM holdfast.cancel_notices"))
}

// The notice of a task with a run waits until the run has ended, and goes if the task was not canceled after all.
func TestNoticeOfRunningTask(t *testing.T) {
	f := parallel(t)
	for name, c := range map[string]struct {
		ends task.State
		told bool
	}{"canceled": {task.StateCanceled, true}, "completed": {task.StateCompleted, false}, "parks": {task.StateInputRequired, true}} {
		p := f.running(name)
		require.False(t, f.cancel(p.c.Task, `{"n":1}`))
		require.False(t, f.cancel(p.c.Task, `{"n":2}`))
		require.Empty(t, f.notices(name, 5), name)
		p.must(t, status(c.ends))
		f.exec("UPDATE holdfast.cancel_notices SET due_at = now() WHERE agent = $1", name)
		require.Equal(t, c.told, len(f.notices(name, 5)) == 1, name)
		require.Equal(t, c.told, scan[bool](f, "SELECT EXISTS (SELECT FROM holdfast.cancel_notices WHERE agent = $1)", name), name)
		facts := storetest.Must(f.NoticeFacts(t.Context(), p.c.Task.ID))(t)
		require.JSONEq(t, `{"n":1}`, string(facts.Metadata), "the first request counts")
	}
}

// Only an agent that has been started for the task, and that wants to know, is told.
func TestNoNoticeWithoutRun(t *testing.T) {
	f := parallel(t)
	require.True(t, f.cancel(f.create(fresh("a")), ""))
	deaf := storetest.Must(Open(t.Context(), Options{URL: f.url, APIConns: 1}))(t)
	defer deaf.Close(t.Context())
	p := f.running("a")
	p.must(t, status(task.StateInputRequired))
	f.ok(deaf.Cancel(t.Context(), p.c.Task, nil))
	require.Zero(t, scan[int](f, "SELECT count(*) FROM holdfast.cancel_notices"))

	p = f.running("a")
	p.must(t, status(task.StateInputRequired))
	f.cancel(p.c.Task, "")
	require.NoError(t, f.DropNotice(t.Context(), p.c.Task.ID))
	require.Zero(t, scan[int](f, "SELECT count(*) FROM holdfast.cancel_notices"))
}

// A task that was parked for too long is canceled, and its agent is told why.
func TestNoticeOfExpiredTask(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	p.must(t, status(task.StateAuthRequired))
	f.exec("UPDATE holdfast.tasks SET status_at = now() - interval '1 day' WHERE id = $1", uuid.UUID(p.c.Task.ID))
	n, _ := must2(f.ExpireParked(t.Context(), "a", time.Hour, "too late"))(t)
	require.Equal(t, 1, n)
	require.Equal(t, NoticeExpired, f.notices("a", 1)[0].Reason)
}

func TestNoticesEndWithTheirTasks(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	p.must(t, status(task.StateInputRequired))
	f.cancel(p.c.Task, "")
	old := time.Now().Add(-60 * 24 * time.Hour)
	f.exec("INSERT INTO holdfast.cancel_notices (task, agent, reason) VALUES ($1, 'a', 'canceled')", partition.FirstID(old))
	require.NoError(t, f.ForgetBeside(t.Context(), Span{From: old.Add(-time.Hour), To: old.Add(24 * time.Hour)}))
	require.Equal(t, 1, scan[int](f, "SELECT count(*) FROM holdfast.cancel_notices"))
	f.ok(f.Erase(t.Context(), []task.ID{p.c.Task.ID}, false, ""))
	require.Zero(t, scan[int](f, "SELECT count(*) FROM holdfast.cancel_notices"))
}
