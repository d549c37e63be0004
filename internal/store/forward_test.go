package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

func headersOf(secret string) task.Forwarded { return task.Forwarded{"X-Key": secret} }

// forwarding creates a task whose first message has a header for its agent.
func (f *fixture) forwarding(agent, secret string) *task.Task {
	f.t.Helper()
	n := fresh(agent)
	n.Forwarded = headersOf(secret)
	return f.create(n)
}

// begun is a run of such a task.
func (f *fixture) begun(agent, secret string) *pen {
	f.t.Helper()
	h := f.forwarding(agent, secret)
	p := f.next(agent)
	require.Equal(f.t, h.ID, p.c.Task.ID)
	require.Equal(f.t, headersOf(secret), p.c.Forwarded)
	return p
}

// adds sends a message with a header, or without one, under the policies of its caller.
func (f *fixture) adds(h *task.Task, secret string) {
	f.t.Helper()
	m := &NewMessage{Task: h, Message: user("more"), Enqueue: true, RequestID: NewID()}
	if secret != "" {
		m.Forwarded = headersOf(secret)
	}
	_, err := asker{Tenant: "tenant", Subject: "owner", Agent: h.Agent}.of(f.Store).AddMessage(f.t.Context(), m)
	require.NoError(f.t, err)
}

// kept counts the messages whose headers the database has.
func (f *fixture) kept(id task.ID) int {
	f.t.Helper()
	return scan[int](f, "SELECT count(*) FROM holdfast.task_queue q, jsonb_object_keys(q.forwarded) WHERE q.id = $1", id)
}

func TestForwardedHeadersGoWithTheirMessage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.begun("a", "secret-1")
	h := p.c.Task
	f.adds(h, "secret-2")
	f.adds(h, "")
	f.adds(h, "secret-4")
	require.Equal(t, 3, f.kept(h.ID))
	require.NotContains(t, f.everything(), "secret-", "they are sealed")
	require.NoError(t, f.GiveBack(t.Context(), Requeue{Task: h.ID, Agent: "a", Fence: p.c.Fence, Note: task.RunNote{Outcome: task.RunRetry}}))
	for turn, want := range []task.Forwarded{headersOf("secret-1"), headersOf("secret-2"), nil, headersOf("secret-4")} {
		p = f.next("a")
		require.Equal(t, want, p.c.Forwarded, "turn %d", turn+1)
		require.Equal(t, turn < 3, p.must(t, status(task.StateWorking), status(task.StateInputRequired)).requeued)
		require.Equal(t, []int{2, 1, 1, 0}[turn], f.kept(h.ID), "turn %d", turn+1)
	}
	f.adds(h, "secret-5")
	p = f.next("a")
	require.Equal(t, headersOf("secret-5"), p.c.Forwarded)
	p.must(t, status(task.StateCompleted))
}

func TestForwardedHeadersEndWithTheirTurn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, end := range map[string]func(p *pen, id task.ID){
		"completed": func(p *pen, _ task.ID) { p.must(t, status(task.StateCompleted)) },
		"failed":    func(p *pen, _ task.ID) { p.must(t, status(task.StateFailed)) },
		"parked":    func(p *pen, _ task.ID) { p.must(t, status(task.StateAuthRequired)) },
		"canceled": func(p *pen, id task.ID) {
			require.False(t, f.cancel(p.c.Task, ""))
			require.Equal(t, 1, f.kept(id), "the run may still need it")
			p.must(t, status(task.StateCanceled))
		},
		"canceled between two tries": func(p *pen, id task.ID) {
			require.NoError(t, f.GiveBack(t.Context(), Requeue{Task: id, Agent: p.c.Task.Agent, Fence: p.c.Fence, Delay: time.Hour}))
			require.Equal(t, 1, f.kept(id))
			require.True(t, f.cancel(p.c.Task, ""))
		},
		"deleted": func(_ *pen, id task.ID) { f.purge(id) },
		"timer": func(p *pen, id task.ID) {
			p.must(t, status(task.StateWorking), waitNote(time.Hour, false))
			require.Zero(t, f.kept(id))
			f.pass(id)
			p = f.next(p.c.Task.Agent)
			require.Nil(t, p.c.Forwarded, "no message began the turn")
			p.must(t, status(task.StateCompleted))
		},
		"interrupted wait": func(p *pen, id task.ID) {
			p.must(t, status(task.StateWorking), waitNote(time.Hour, true))
			require.Zero(t, f.kept(id))
			f.adds(p.c.Task, "secret of the message")
			p = f.next(p.c.Task.Agent)
			require.Equal(t, headersOf("secret of the message"), p.c.Forwarded)
			p.must(t, status(task.StateCompleted))
		},
		"wait with a waiting message": func(p *pen, id task.ID) {
			f.adds(p.c.Task, "secret of the message")
			p.must(t, status(task.StateWorking), waitNote(time.Hour, true))
			require.Equal(t, 1, f.kept(id))
			p = f.next(p.c.Task.Agent)
			require.Equal(t, headersOf("secret of the message"), p.c.Forwarded)
			p.must(t, status(task.StateCompleted))
		},
		"resume": func(p *pen, id task.ID) {
			p.must(t, status(task.StateWorking))
			require.NoError(t, f.Resume(t.Context(), resumeOf(id, 1, "early")))
			require.True(t, p.must(t, asking(time.Hour)).requeued)
			require.Zero(t, f.kept(id))
			p = f.next(p.c.Task.Agent)
			require.Nil(t, p.c.Forwarded, "no message began the turn")
			p.must(t, status(task.StateCompleted))
		},
	} {
		p := f.begun(name, "secret")
		require.Equal(t, 1, f.kept(p.c.Task.ID), name)
		end(p, p.c.Task.ID)
		require.Zero(t, f.kept(p.c.Task.ID), name)
	}
}

func TestForwardedHeadersOfAReopenedTask(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	old := fresh("a")
	old.ClientID, old.Task.PublicID = true, "mine"
	f.create(old)
	p := f.next("a")
	p.must(t, status(task.StateCompleted))
	again := fresh("a")
	again.ClientID, again.Task.PublicID, again.Reopens, again.Forwarded = true, "mine", p.c.Task, headersOf("secret")
	f.ok(ownerOf(again).bare(f.Store).Create(t.Context(), again))
	p = f.next("a")
	require.Equal(t, headersOf("secret"), p.c.Forwarded)
	p.must(t, status(task.StateCompleted))
}

// Headers are of no use in another place: with them an agent would act for the client of another task.
func TestForwardedHeadersCannotBeMoved(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	from, to := f.forwarding("from", "secret"), f.forwarding("to", "other")
	f.exec("UPDATE holdfast.task_queue SET forwarded = (SELECT q.forwarded FROM holdfast.task_queue q WHERE q.id = $1) WHERE id = $2", from.ID, to.ID)
	p := f.next("to")
	require.ErrorContains(t, p.c.Unreadable, "the forwarded headers: not a value that was sealed for this place")
	require.Nil(t, p.c.Forwarded)
}

// Two messages wait for the lock of a task whose run parks. The first one begins a turn, so the second one finds a queue row
// that is newer than its statement.
func TestForwardedHeadersOfMessagesThatWaitForALock(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := openFixture(t, f.url, "")
	p := f.begun("a", "secret")
	p.must(t, status(task.StateWorking))
	commit := f.written(p, status(task.StateInputRequired))
	var g errgroup.Group
	for name, s := range map[string]*Store{"one": f.Store, "two": other.Store} {
		g.Go(func() error {
			_, err := s.AddMessage(t.Context(), &NewMessage{
				Task: p.c.Task, Message: user(name), Forwarded: headersOf("m-" + name), Enqueue: true, RequestID: NewID(),
			})
			return err
		})
	}
	f.blocked(2)
	commit()
	require.NoError(t, g.Wait())
	for range 2 {
		p = f.next("a")
		require.Equal(t, headersOf(p.c.Message.ID), p.c.Forwarded)
		p.must(t, status(task.StateWorking), status(task.StateInputRequired))
	}
}
