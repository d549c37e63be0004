package engine_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/identity"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// purging is a store in which an operator purges a task at a chosen moment of a request.
type purging struct {
	engine.Store
	beforeExisting, beforeAdd func()
}

func (p *purging) Existing(ctx context.Context, n *store.NewTask) (*task.Task, bool, error) {
	p.beforeExisting()
	return p.Store.Existing(ctx, n)
}

func (p *purging) AddMessage(ctx context.Context, n *store.NewMessage) (task.Seq, error) {
	p.beforeAdd()
	return p.Store.AddMessage(ctx, n)
}

// A task that is purged in the middle of a request frees its id and its key, so the request gets
// what it would have got a moment later.
func TestTaskPurgedDuringRequest(t *testing.T) {
	t.Parallel()
	r := start(t, setup{noWorkers: true})
	p := &purging{}
	e := engine.New(engine.Options{
		Store: func(c identity.Caller, sees store.Visibility) engine.Store {
			p.Store = r.store.As(c, sees)
			return p
		},
		Hub: r.hub, Agents: []engine.Agent{{Name: "a"}},
	})
	deliver := func(q *sending) (*task.Task, error) {
		q.Wait = false
		return e.As(q.by.Caller, q.by.Agent).Send(t.Context(), &q.SendRequest)
	}
	quiet := func() {}
	purge := func(old *task.Task) func() {
		return func() {
			_, err := r.store.Erase(t.Context(), []task.ID{old.ID}, true, "")
			require.NoError(t, err)
			p.beforeExisting, p.beforeAdd = quiet, quiet
		}
	}
	keyed := func(text, key string) *sending {
		q := send(text)
		q.IdempotencyKey = key
		return q
	}
	chosen := func(text, id string) *sending {
		q := send(text)
		q.Dialect, q.TaskID, q.MayCreate = "0.1", id, true
		return q
	}
	made := func(q *sending) *task.Task {
		p.beforeExisting, p.beforeAdd = quiet, quiet
		got, err := deliver(q)
		require.NoError(t, err)
		return got
	}

	for name, again := range map[string]*sending{"same request": keyed("hi", "k1"), "other request": keyed("hello", "k2")} {
		old := made(keyed("hi", again.IdempotencyKey))
		p.beforeExisting = purge(old)
		got, err := deliver(again)
		require.NoError(t, err, name)
		require.NotEqual(t, old.ID, got.ID, name)
	}

	for name, at := range map[string]*func(){"before the look-up": &p.beforeExisting, "before the message": &p.beforeAdd} {
		id := "chosen " + name
		old := made(chosen("hi", id))
		*at = purge(old)
		got, err := deliver(chosen("hello", id))
		require.NoError(t, err, name)
		require.NotEqual(t, old.ID, got.ID, name)
		require.Equal(t, id, got.PublicID)
		require.Equal(t, got.ContextID, got.History[0].ContextID, "no trace of the old task")
	}

	old := made(send("hi"))
	p.beforeAdd = purge(old)
	_, err := deliver(to(send("hello"), old))
	require.ErrorIs(t, err, task.NotFound, "a server's id is not used again")
}
