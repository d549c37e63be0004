package retention

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// A task may wait longer than its period lasts. Its timer fires, and the turn knows of the wait.
func TestWaitOutlivesItsPeriod(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := t.Context()
	r := New(Options{Store: f.Store, Default: Policy{Tasks: 30 * day}})
	old := f.make(past{agent: "a", owner: "o", age: 40 * day, state: task.StateInputRequired, chunks: 1})
	_, err := f.AddMessage(ctx, &store.NewMessage{
		Task: old, Message: &task.Message{ID: "m2", Role: task.RoleUser, Parts: []task.Part{task.Text("wait")}}, RequestID: store.NewID(),
	})
	require.NoError(t, err)
	worker := store.NewID()
	require.NoError(t, f.Register(ctx, store.Process{ID: worker, Name: "test"}, time.Hour))
	claim := func() *store.Claimed {
		t.Helper()
		won, err := f.Claim(ctx, worker, []store.Demand{{Agent: "a", Slots: 1}})
		require.NoError(t, err)
		require.Len(t, won, 1)
		return won[0]
	}
	c := claim()
	done1 := make(chan error, 1)
	f.Append(&store.Append{
		Task: old.ID, Agent: "a", Fence: c.Fence, Done: func(_ bool, err error) { done1 <- err },
		Events: []*task.Event{
			{Kind: task.EventStatus, State: task.StateWorking},
			{Kind: task.EventRun, Run: &task.RunNote{Outcome: task.RunWaits, For: time.Hour}},
		},
	})
	require.NoError(t, <-done1)

	done(t, r.Sweep)
	f.exec("UPDATE holdfast.tasks SET wakes_at = now()")
	f.exec("UPDATE holdfast.task_queue SET wakes_at = now(), available_at = now()")
	_, err = f.FireTimers(ctx)
	require.NoError(t, err)
	c = claim()
	require.Equal(t, old.ID, c.Task.ID)
	require.NotNil(t, c.Wait)
	require.False(t, c.Wait.Until.IsZero())
	h, err := f.Header(ctx, old.ID)
	require.NoError(t, err)
	require.True(t, f.there(h))
}
