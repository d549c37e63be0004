package hub_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// A failover to a standby that lags, or a restore: the log is shorter than what the streams have shown.
// Streams of a deleted task end, at once with a hint and else with the next poll.
func TestDeletedTaskEndsSubscriptions(t *testing.T) {
	t.Parallel()
	for name, hinted := range map[string]bool{"hint": true, "poll": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := storetest.New(t).URL
			removed := make(chan []task.ID, 10)
			var bus signal.Bus
			bus.Removed.Subscribe(func(ids []task.ID) { removed <- ids })
			a, b := mute(t, url), start(t, url, hub.Options{PollInterval: map[bool]time.Duration{true: never, false: 50 * time.Millisecond}[hinted], Signals: &bus}).listening()
			if hinted {
				a = start(t, url, hub.Options{PollInterval: never}).listening()
			}
			u := a.run()
			s := b.follow(u, task.Position{Seq: 1})
			storetest.Must(storetest.Connect(t, url).Exec(t.Context(), "DELETE FROM holdfast.tasks"))(t)
			if hinted {
				a.bus.Gone([]task.ID{u.h.ID})
				require.Equal(t, []task.ID{u.h.ID}, heard(t, removed))
			}
			require.ErrorIs(t, read(waittest.Context(t), s, 2), task.NotFound)
		})
	}
}

func TestShorterLogEndsSubscriptions(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	r := start(t, url, hub.Options{PollInterval: 50 * time.Millisecond}).listening()
	u := r.run()
	s, other := r.hub.Subscribe(u.h), r.hub.Subscribe(u.h)
	defer s.Close()
	defer other.Close()
	s.Start(task.Position{Seq: 1})
	other.Start(task.Position{Seq: 1})
	r.must(u, 9)
	require.NoError(t, read(waittest.Context(t), s, 10))
	require.NoError(t, read(waittest.Context(t), other, 10))

	conn := storetest.Connect(t, url)
	for _, sql := range []string{
		"DELETE FROM holdfast.task_events WHERE seq > 5",
		"UPDATE holdfast.tasks SET last_seq = 5, run_ordinal = 4",
	} {
		storetest.Must(conn.Exec(t.Context(), sql))(t)
	}
	for _, s := range []*hub.Subscription{s, other} {
		err := read(waittest.Context(t), s, 11)
		require.ErrorIs(t, err, hub.ErrRewound)
		require.ErrorIs(t, err, hub.ErrClosed, "the client resumes")
	}
	again := r.follow(u, task.Position{Seq: 5})
	u.ordinal.Store(4)
	r.must(u, 2)
	require.NoError(t, read(waittest.Context(t), again, 7))
}

// A new attempt writes events in the place of lost ones before a poll sees the shorter log.
func TestReplacedEventEndsSubscriptions(t *testing.T) {
	t.Parallel()
	r := start(t, storetest.New(t).URL, hub.Options{PollInterval: never}).listening()
	u := r.run()
	s := r.follow(u, task.Position{Seq: 1})
	r.must(u, 3)
	require.NoError(t, read(waittest.Context(t), s, 4))
	stored := storetest.Must(r.store.EventsAfter(t.Context(), u.h, task.Position{Seq: 1}, 10))(t)
	r.bus.Committed(stored) // the same events from the table
	r.must(u, 1)
	require.NoError(t, read(waittest.Context(t), s, 5))
	r.bus.Committed([]*task.Event{{Task: u.h.ID, Seq: 4, Kind: task.EventArtifact, Attempt: 2, At: time.Now()}})
	require.ErrorIs(t, read(waittest.Context(t), s, 6), hub.ErrRewound)
}

// Other events have the seqs of lost ones before this replica looks, so nothing is missing where a subscriber continues.
func TestReplacedPositionEndsSubscriptions(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	a := start(t, url, hub.Options{PollInterval: never}).listening()
	b := start(t, url, hub.Options{PollInterval: never}).listening()
	u := b.run()
	b.must(u, 9)
	log := storetest.Must(b.store.EventsAfter(t.Context(), u.h, task.Position{}, 10))(t)
	lost := log[9].Position()
	follows := a.hub.Subscribe(u.h)
	defer follows.Close()
	follows.Resume(log[0].Position(), lost)
	require.NoError(t, read(waittest.Context(t), follows, 10))

	conn := storetest.Connect(t, url)
	storetest.Must(conn.Exec(t.Context(), "UPDATE holdfast.task_events SET created_at = created_at + interval '1 s' WHERE seq > 5"))(t)
	b.must(u, 1)
	require.ErrorIs(t, read(waittest.Context(t), follows, 11), hub.ErrRewound, "events of another replica")

	log = storetest.Must(b.store.EventsAfter(t.Context(), u.h, task.Position{}, 11))(t)
	for name, at := range map[string]task.Position{"table": lost, "ring": lost, "end": {Seq: 11, Mark: lost.Mark}} {
		if name == "ring" {
			other := a.hub.Subscribe(u.h)
			defer other.Close()
			other.Resume(log[5].Position(), log[10].Position())
			require.NoError(t, read(waittest.Context(t), other, 11))
		}
		s := a.hub.Subscribe(u.h)
		s.Resume(at, log[10].Position())
		require.ErrorIs(t, read(waittest.Context(t), s, 12), hub.ErrRewound, name)
		s.Close()
	}
	for _, at := range []task.Position{log[4].Position(), log[5].Position(), {Seq: 8}} {
		s := a.hub.Subscribe(u.h)
		s.Resume(at, log[10].Position())
		require.NoError(t, read(waittest.Context(t), s, 11), "the events after %v are not lost, or nobody knows", at)
		s.Close()
	}
}
