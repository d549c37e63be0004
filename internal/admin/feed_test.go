package admin

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// A list whose client is slow keeps a bounded number of rounds, and learns that it has missed some. Lists of other tenants get nothing.
func TestSlowListsAreBounded(t *testing.T) {
	t.Parallel()
	f := newFeed(Options{})
	a, b := "a", "b"
	changed := func() *told {
		return &told{AdminTask: &store.AdminTask{Task: &task.Task{ID: store.NewID(), Tenant: "a"}}}
	}
	slow, other := f.follow(&store.AdminFilter{Tenant: store.Among{}.Only(a)}), f.follow(&store.AdminFilter{Tenant: store.Among{}.Only(b)})
	for i := range feedBuffer + 5 {
		f.publish(&round{at: int64(i), tasks: []*told{changed()}})
	}
	require.Len(t, slow.rounds, feedBuffer)
	require.True(t, slow.dropped.Load())
	// Nothing comes after the gap before its resync, or a client that is cut off there would resume behind the gap.
	for len(slow.rounds) > 1 {
		require.Less(t, (<-slow.rounds).at, int64(feedBuffer))
	}
	f.publish(&round{at: feedBuffer + 5, tasks: []*told{changed()}})
	require.Len(t, slow.rounds, 1)
	require.Empty(t, other.rounds)
	require.False(t, other.dropped.Load())
	f.leave(slow)
	f.leave(other)
	require.Zero(t, f.following.Load())
}

// While nobody watches, the feed notes nothing. With too many changes at a time it keeps some, and says that it has missed others.
func TestFeedNotesABoundedNumberOfTasks(t *testing.T) {
	t.Parallel()
	bus := &signal.Bus{}
	f := newFeed(Options{Signals: bus})
	bus.Advanced(store.NewID(), 1)
	bus.Committed([]*task.Event{{Task: store.NewID()}})
	require.Empty(t, f.changed)
	w := f.follow(&store.AdminFilter{})
	one := store.NewID()
	bus.Committed([]*task.Event{{Task: one, Seq: 1}, {Task: one, Seq: 2}, {Task: store.NewID(), Seq: 1}})
	require.Len(t, f.changed, 2)
	require.False(t, f.missed)
	for range feedChanged {
		bus.Growth.Hear(signal.Growth{Task: store.NewID()})
	}
	require.Len(t, f.changed, feedChanged)
	require.True(t, f.missed)
	f.leave(w)
	f.forget()
	require.False(t, f.missed)
	require.Empty(t, f.changed)
}
