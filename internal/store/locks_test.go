package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// A create that another session blocks for too long fails, and nothing of it is stored.
func TestCreateGivesUpOnALock(t *testing.T) {
	t.Parallel()
	impatient := unhurried
	impatient.create = time.Nanosecond
	f := openPatient(t, storetest.New(t).URL, "", impatient)
	tx := storetest.Must(f.conn().Begin(t.Context()))(t)
	defer func() { _ = tx.Rollback(context.Background()) }()
	f.ok(tx.Exec(t.Context(), "INSERT INTO holdfast.task_names (tenant, owner, agent, client_id, task) VALUES ('tenant', 'owner', 'a', 'x', $1)", uuid.New()))
	n := chosen("a", "x")
	require.ErrorIs(t, errOf(f.Create(t.Context(), n)), task.Unavailable)
	require.NoError(t, tx.Rollback(t.Context()))
	require.ErrorIs(t, errOf(f.Header(t.Context(), n.Task.ID)), task.NotFound)
}

// Requests to a locked task wait on one connection, so the requests to other tasks have the rest of the pool.
func TestRequestsToALockedTaskShareAConnection(t *testing.T) {
	f := parallel(t)
	p, other, hooked := f.running("a"), f.running("b"), hook("c", "h")
	other.must(t, status(task.StateInputRequired))
	release := f.lock(p.c.Task.ID)
	var all errgroup.Group
	for range 4 * f.api.Config().MaxConns {
		all.Go(func() error { _, err := f.say(p.c.Task.ID, true); return err })
	}
	all.Go(func() error { _, err := f.Cancel(t.Context(), p.c.Task, nil); return err })
	all.Go(func() error { return f.SetPush(t.Context(), p.c.Task.ID, hooked, 20) })
	f.blocked(1)
	f.ok(f.say(other.c.Task.ID, true))
	require.LessOrEqual(t, scan[int](f, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"), 1)
	release()
	require.NoError(t, all.Wait())
	require.Empty(t, f.turns.tasks)
}

// Requests, heartbeats and states of more locked tasks than the pool has connections leave some to other requests.
func TestRequestsToLockedTasksLeaveConnections(t *testing.T) {
	f := parallel(t)
	ctx, stop := context.WithCancel(t.Context())
	other := f.create(fresh("b"))
	var releases []func()
	var all errgroup.Group
	repeat := func(do func() error) {
		all.Go(func() error {
			for ctx.Err() == nil {
				if err := do(); err != nil && task.KindOf(err) != task.Unavailable {
					return err
				}
			}
			return nil
		})
	}
	conns := int(f.api.Config().MaxConns)
	for range 2 * conns {
		p := f.running("a")
		releases = append(releases, f.lock(p.c.Task.ID))
		repeat(func() error {
			_, err := ownerOf(fresh("a")).bare(f.Store).AddMessage(ctx, &NewMessage{Task: p.c.Task, Message: user("more"), Enqueue: true, RequestID: NewID()})
			return err
		})
	}
	beats, states := f.running("a"), f.running("a")
	releases = append(releases, f.lock(beats.c.Task.ID), f.lock(states.c.Task.ID))
	for range 2 * conns {
		repeat(func() error { _, err := f.Beat(ctx, beats.c.Task.ID, beats.c.Fence, -1, 0); return err })
		repeat(func() error {
			_, err := f.SetAgentState(ctx, NewState{StateOf: StateOf{Task: states.c.Task}, Fence: states.c.Fence, Value: []byte("1"), Version: AnyVersion, RequestID: NewID()})
			return err
		})
	}
	f.retries("message")
	f.retries("beat")
	// If each of them waited for a connection that waits for a lock, all would take much longer than the context lasts.
	within := waittest.Context(t)
	for range 100 {
		f.ok(f.Header(within, other.ID))
	}
	for _, release := range releases {
		release()
	}
	stop()
	require.NoError(t, all.Wait())
}

// A cancel that meets an open claim waits for what the claim does, and is in the audit log once.
func TestCancelMeetsAnOpenClaim(t *testing.T) {
	f := parallel(t)
	h, w := f.create(fresh("a")), f.worker(time.Hour)
	tx := storetest.Must(f.hot.Begin(t.Context()))(t)
	f.ok(tx.Exec(t.Context(), "SELECT FROM holdfast.task_queue WHERE id = $1 FOR UPDATE", uuid.UUID(h.ID)))
	canceled := make(chan error, 1)
	go func() {
		canceled <- patiently(func() error {
			ended, err := f.Cancel(t.Context(), h, nil)
			if err == nil && ended {
				err = errors.New("a worker has the task")
			}
			return err
		})
	}()
	f.retries("cancel")
	waittest.Eventually(t, "the claim meets no try of the cancel, which it would pass over", func() error {
		rows := storetest.Must(f.q.QueueClaim(t.Context(), tx, dbsqlc.QueueClaimParams{
			Worker: uuid.UUID(w), Agents: []string{"a"}, Slots: []int32{1}, Since: []time.Time{{}}, Older: []time.Duration{0}, Skip: []uuid.UUID{}, Alone: true,
		}))(t)
		return waittest.Unless(len(rows) == 1, "%d claimed", len(rows))
	})
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, waittest.Within(t, "the cancel", canceled))
	require.Equal(t, 1, scan[int](f, "SELECT count(*) FROM holdfast.v_audit WHERE action = $1", auditCanceled))
}

// Runs of locked tasks that are given back wait without a connection, so that claims and leases have one.
func TestGivingBackLockedTasksHoldsNoConnection(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]string{
		"tasks":      "SELECT FROM holdfast.tasks WHERE id = $1 FOR UPDATE",
		"queue rows": "SELECT FROM holdfast.task_queue WHERE id = $1 FOR UPDATE",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			var all errgroup.Group
			var releases []func()
			var pens []*pen
			for range 2 * hotConns {
				p := f.running("a")
				pens = append(pens, p)
				releases = append(releases, f.lockRows(lock, p.c.Task.ID))
			}
			for _, p := range pens {
				all.Go(func() error {
					return f.GiveBack(t.Context(), Requeue{Task: p.c.Task.ID, Agent: "a", Fence: p.c.Fence, Delay: time.Hour})
				})
			}
			f.retries("give_back")
			f.create(fresh("b"))
			f.claim(f.worker(time.Hour), "b", 1)
			require.Zero(t, scan[int](f, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"))
			for _, release := range releases {
				release()
			}
			require.NoError(t, all.Wait())
		})
	}
}
