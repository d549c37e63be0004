package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

// After Reseal nothing needs the old key: webhooks, forwarded headers, and what came by resume URLs.
func TestNothingNeedsTheOldKeyAfterReseal(t *testing.T) {
	t.Parallel()
	const old, next, another = 1, 2, 3
	with := keyRing(t)
	before := with(old)
	webhook := hook("c", "h")
	webhook.Token = "secret"
	before.setPush(before.create(fresh("plain")).ID, webhook)

	// The first message runs, the second one waits for it.
	runs := before.begun("forwards", "secret-1")
	before.adds(runs.c.Task, "secret-2")
	// A resume began a turn, and its run will be repeated.
	h := before.create(fresh("a"))
	asks := before.next("a")
	require.Equal(t, h.ID, asks.c.Task.ID)
	asks.must(t, status(task.StateWorking), asking(time.Hour))
	require.NoError(t, before.Resume(t.Context(), resumeOf(h.ID, 1, "answer")))
	// A resume came before its run has asked.
	early := before.create(fresh("b"))
	asksLater := before.next("b")
	n := resumeOf(early.ID, 1, "early")
	n.Agent = "b"
	require.NoError(t, before.Resume(t.Context(), n))

	both := with(next, old)
	sealed := storetest.Must(both.Reseal(t.Context()))(t)
	require.Equal(t, 5, sealed)
	require.Equal(t, "1 4", scan[string](both, "SELECT string_agg(object, ' ' ORDER BY object) FROM holdfast.v_audit WHERE action = 'push.rekeyed'"))
	sealed = storetest.Must(both.Reseal(t.Context()))(t)
	require.Zero(t, sealed)

	after := with(next)
	due := func() *PushDue {
		after.exec("UPDATE holdfast.push_cursors SET due_seq = 1, due_at = now(), claim = NULL, worker_id = NULL, locked_until = NULL")
		return after.duePushes(1)[0]
	}()
	require.NoError(t, due.Unreadable)
	require.Equal(t, "secret", due.Config.Token)
	require.NoError(t, after.GiveBack(t.Context(), Requeue{Task: runs.c.Task.ID, Agent: "forwards", Fence: runs.c.Fence, Note: task.RunNote{Outcome: task.RunRetry}}))
	for _, want := range []string{"secret-1", "secret-2"} {
		p := after.next("forwards")
		require.Equal(t, headersOf(want), p.c.Forwarded)
		p.must(t, status(task.StateWorking), status(task.StateInputRequired))
	}
	require.Equal(t, "answer", string(after.claim(after.worker(time.Hour), "a", 1)[0].Wait.Resumed.Body))
	(&pen{s: after.Store, c: asksLater.c}).must(t, status(task.StateWorking), asking(time.Hour))
	require.Equal(t, "early", string(after.claim(after.worker(time.Hour), "b", 1)[0].Wait.Resumed.Body))

	// Reseal leaves a value that no key opens as it is, names its task, and seals the others of the same turn.
	lost := with(another).begun("lost", "secret-3")
	before.adds(lost.c.Task, "secret-4")
	sealed, err := both.Reseal(t.Context())
	require.ErrorContains(t, err, "the forwarded headers")
	require.Equal(t, 1, sealed)
}
