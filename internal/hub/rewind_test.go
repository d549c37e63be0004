package hub_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// A failover to a standby that lags, or a restore: the log is shorter than what the streams have shown.
func TestShorterLogEndsSubscriptions(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	r := start(t, url, hub.Options{PollInterval: 50 * time.Millisecond}).listening()
	u := r.run()
	s, other := r.hub.Subscribe(u.h), r.hub.Subscribe(u.h)
	defer s.Close()
	defer other.Close()
	s.Start(1)
	other.Start(1)
	r.must(u, 9)
	require.NoError(t, read(t.Context(), s, 10))
	require.NoError(t, read(t.Context(), other, 10))

	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context()) //nolint:errcheck // the database goes next
	for _, sql := range []string{
		"DELETE FROM holdfast.task_events WHERE seq > 5",
		"UPDATE holdfast.tasks SET last_seq = 5, run_ordinal = 4",
	} {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	for _, s := range []*hub.Subscription{s, other} {
		err := read(t.Context(), s, 11)
		require.ErrorIs(t, err, hub.ErrRewound)
		require.ErrorIs(t, err, hub.ErrClosed, "the client resumes")
	}
	again := r.hub.Subscribe(u.h)
	defer again.Close()
	again.Start(5)
	u.ordinal.Store(4)
	r.must(u, 2)
	require.NoError(t, read(t.Context(), again, 7))
}

// A new attempt writes events in the place of lost ones before a poll sees the shorter log.
func TestReplacedEventEndsSubscriptions(t *testing.T) {
	t.Parallel()
	r := start(t, storetest.New(t).URL, hub.Options{PollInterval: never}).listening()
	u := r.run()
	s := r.hub.Subscribe(u.h)
	defer s.Close()
	s.Start(1)
	r.must(u, 3)
	require.NoError(t, read(t.Context(), s, 4))
	stored, err := r.store.EventsAfter(t.Context(), u.h, 1, 10)
	require.NoError(t, err)
	r.bus.Committed(stored) // the same events from the table
	r.must(u, 1)
	require.NoError(t, read(t.Context(), s, 5))
	r.bus.Committed([]*task.Event{{Task: u.h.ID, Seq: 4, Kind: task.EventArtifact, Attempt: 2, At: time.Now()}})
	require.ErrorIs(t, read(t.Context(), s, 6), hub.ErrRewound)
}

func TestCutOffReplicaEndsSubscriptions(t *testing.T) {
	t.Parallel()
	r := start(t, storetest.New(t).URL, hub.Options{PollInterval: never, Outage: time.Second}).listening()
	u := r.run()
	s := r.hub.Subscribe(u.h)
	defer s.Close()
	s.Start(1)
	err := read(t.Context(), s, 2)
	require.ErrorIs(t, err, hub.ErrCutOff)
	require.ErrorIs(t, err, hub.ErrClosed, "the client resumes")
	r.hub.Heard()
	again := r.hub.Subscribe(u.h)
	defer again.Close()
	again.Start(1)
	r.must(u, 1)
	require.NoError(t, read(t.Context(), again, 2))
}
