package store

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// The synchronous standby is away, so every COMMIT waits. When a statement is given up, PostgreSQL ends the wait and
// shows the commit, which only the primary has. No retry may acknowledge it before the standby is back.
func TestNothingIsAcknowledgedWithoutSynchronousStandby(t *testing.T) {
	t.Parallel()
	server := storetest.Server(t, map[string]string{"fsync": "off"})
	f := openPatient(t, server.URL, "", patience{turn: time.Hour, blocked: 2 * time.Second, create: 2 * time.Second})
	run, parked, hooked := f.running("a"), f.running("b"), f.create(fresh("c"))
	parked.must(t, status(task.StateInputRequired))
	waiting := f.create(fresh("d"))
	ended := chosen("e", "name")
	f.create(ended)
	storetest.Must(f.Cancel(t.Context(), &ended.Task, nil))(t)
	f.setPush(hooked.ID, hook("old", "receiver"))
	owner := asker{Tenant: "tenant", Subject: "owner", Agent: "f"}.of(f.Store)

	say := &NewMessage{Task: parked.c.Task, Message: user("x"), RequestID: NewID()}
	made := keyed(fresh("f"), "key", "1")
	again := keyed(chosen("e", "name"), "reopens", "1")
	again.Reopens = &ended.Task
	writes := map[string]func(context.Context) error{
		"message": func(ctx context.Context) error { _, err := f.AddMessage(ctx, say); return err },
		"create":  func(ctx context.Context) error { _, err := owner.Create(ctx, made); return err },
		"reopen":  func(ctx context.Context) error { _, err := f.Create(ctx, again); return err },
		"cancel":  func(ctx context.Context) error { _, err := f.Cancel(ctx, waiting, nil); return err },
		"set webhook": func(ctx context.Context) error {
			return f.SetPush(ctx, hooked.ID, hook("new", "receiver"), 20)
		},
		"delete webhook": func(ctx context.Context) error { _, err := f.DeletePush(ctx, hooked.ID, "old"); return err },
	}

	reads := openFixture(t, server.URL, "")
	statements := f.bounded()
	server.HoldCommits()
	t.Cleanup(server.ReleaseCommits) // else a store whose test has failed would not close
	type result struct {
		name string
		err  error
	}
	results := make(chan result, len(writes))
	begin := func(name string) { go func() { results <- result{name, writes[name](context.Background())} }() }
	waits := func(n int) error {
		have := server.Count("SELECT count(*)::int FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
		return waittest.Unless(have >= n, "%d commits wait", have)
	}
	queued := run.write(status(task.StateWorking), chunk("1"))
	waittest.Eventually(t, "the append waits for its commit", func() error { return waits(1) })
	// One after the other, so that these are committed: a write may be given up before it begins.
	for i, name := range []string{"cancel", "create", "message"} {
		begin(name)
		waittest.Eventually(t, name+" waits for its commit, too", func() error { return waits(i + 2) })
	}
	for name := range writes {
		if name != "cancel" && name != "create" && name != "message" {
			begin(name)
		}
	}
	// Of the two that change the webhooks of a task, one waits for the other; creates have one writer.
	waittest.Eventually(t, "all writes wait for their commits", func() error { return waits(len(writes) - 1) })
	waittest.Eventually(t, "the writes are given up, each time that they try", func() error {
		statements.expire()
		return waittest.Unless(len(results) == len(writes), "%d have ended", len(results))
	})
	for range writes {
		r := <-results
		require.ErrorIs(t, r.err, task.Unavailable, r.name)
	}
	require.Equal(t, task.StateCanceled, reads.state(waiting.ID), "the commit shows, although only the primary has it")
	byKey, retried := false, make(chan error, 1)
	for !byKey { // a try may be given up before it has found the key
		go func() {
			var err error
			_, byKey, err = owner.Existing(context.Background(), made)
			retried <- err
		}()
		waittest.Eventually(t, "a client's own retry is given up", func() error {
			if waits(1) == nil {
				statements.expire()
			}
			return waittest.Unless(len(retried) > 0, "it waits")
		})
		require.ErrorIs(t, <-retried, task.Unavailable, "nor is a client's own retry acknowledged")
	}
	select {
	case a := <-queued:
		require.Fail(t, "an append was acknowledged", "%v", a)
	default:
	}

	server.ReleaseCommits()
	require.Equal(t, answer{}, waittest.Within(t, "the answer", queued))
	require.Len(t, reads.log(run.c.Task.ID), 3)
	old, byKey := must2(owner.Existing(t.Context(), made))(t)
	require.True(t, byKey)
	require.Equal(t, made.Task.ID, old.ID)
	require.Len(t, reads.log(parked.c.Task.ID), 4, "the message and its status are there")
}
