package store

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
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
	storetest.Must(asker{Tenant: "tenant", Subject: "owner", Agent: h.Agent}.of(f.Store).AddMessage(f.t.Context(), m))(f.t)
}

func TestForwardedHeadersOfAReopenedTask(t *testing.T) {
	f := parallel(t)
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
	f := parallel(t)
	from, to := f.forwarding("from", "secret"), f.forwarding("to", "other")
	f.exec("UPDATE holdfast.task_queue SET forwarded = (SELECT q.forwarded FROM holdfast.task_queue q WHERE q.id = $1) WHERE id = $2", from.ID, to.ID)
	p := f.next("to")
	require.ErrorContains(t, p.c.Unreadable, "the forwarded headers: not a value that was sealed for this place")
	require.Nil(t, p.c.Forwarded)
}

// The first of two messages that wait for a run that parks begins a turn. The second one finds a newer queue row.
func TestForwardedHeadersOfMessagesThatWaitForALock(t *testing.T) {
	f := parallel(t)
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
