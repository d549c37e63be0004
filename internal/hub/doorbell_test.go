package hub_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

func TestReplicasReceiveHintsOfDoorbell(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	ready, cancels := make(chan string, 10), make(chan task.ID, 10)
	pushes, revoked := make(chan struct{}, 10), make(chan struct{}, 10)
	var bus signal.Bus
	bus.Queues.Subscribe(func(agent string) { ready <- agent })
	bus.Cancels.Subscribe(func(id task.ID) { cancels <- id })
	bus.Webhooks.Subscribe(func(struct{}) { pushes <- struct{}{} })
	bus.Keys.Subscribe(func(string) { revoked <- struct{}{} })
	r := start(t, url, hub.Options{PollInterval: never, Signals: &bus}).listening()
	require.Empty(t, heard(t, ready), "a new listener announces the queues of all agents")
	heard(t, pushes)
	heard(t, revoked)
	bell := hub.NewDoorbell(url)
	require.NoError(t, bell.Ring(t.Context()), "no hints to send")

	visitor := storetest.Must(store.Open(t.Context(), store.Options{URL: url, APIConns: 2, Listener: bell}))(t)
	defer visitor.Close(t.Context())
	u := r.run()
	sub := r.follow(u, task.Position{Seq: u.h.LastSeq})
	require.False(t, storetest.Must(visitor.Cancel(t.Context(), u.h, nil))(t))
	storetest.Must(visitor.AddMessage(t.Context(), &store.NewMessage{
		Task: u.h, Message: &task.Message{Role: task.RoleUser}, Enqueue: true, RequestID: store.NewID(),
	}))(t)
	bell.Ready("a")
	bell.PushesDue()
	bell.KeyRevoked("mzxw6ytboi5dkmrq")
	require.NoError(t, bell.Ring(t.Context()))
	require.Equal(t, u.h.ID, heard(t, cancels))
	require.Equal(t, "a", heard(t, ready))
	heard(t, pushes)
	heard(t, revoked)
	require.NoError(t, read(waittest.Context(t), sub, 2))
}

func heard[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	return waittest.Within(t, "a hint", c)
}
