package signal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

var _ store.Listener = (*signal.Bus)(nil)

func TestRelaysGetLocalSignalsFirst(t *testing.T) {
	t.Parallel()
	var s signal.Signal[string]
	s.Announce("to nobody")
	require.False(t, s.Subscribed())
	var heard []string
	s.Subscribe(func(news string) { heard = append(heard, "part: "+news) })
	s.Relay(func(news string) { heard = append(heard, "relay: "+news) })
	require.True(t, s.Subscribed())
	s.Announce("ours")
	s.Hear("theirs")
	require.Equal(t, []string{"relay: ours", "part: ours", "part: theirs"}, heard)
}

func TestBusAnnouncesStoreSignals(t *testing.T) {
	t.Parallel()
	var b signal.Bus
	var heard []any
	b.Events.Subscribe(func(evs []*task.Event) { heard = append(heard, evs) })
	b.Growth.Subscribe(func(g signal.Growth) { heard = append(heard, g) })
	b.Queues.Subscribe(func(agent string) { heard = append(heard, agent) })
	b.Cancels.Subscribe(func(id task.ID) { heard = append(heard, id) })
	b.Webhooks.Subscribe(func(struct{}) { heard = append(heard, "webhooks") })
	b.Keys.Subscribe(func(id string) { heard = append(heard, id) })
	b.Lost.Subscribe(func(struct{}) { heard = append(heard, "lost") })
	id, evs := task.ID{1}, []*task.Event{{Seq: 2}}
	b.Committed(evs)
	b.Advanced(id, 3)
	b.Ready("agent")
	b.CancelWanted(id)
	b.PushesDue()
	b.KeyRevoked("key")
	b.LeaseLost()
	require.Equal(t, []any{evs, signal.Growth{Task: id, Seq: 3}, "agent", id, "webhooks", "key", "lost"}, heard)
}
