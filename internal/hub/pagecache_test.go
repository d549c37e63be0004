package hub_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// replayed is a task that has ended, with its header and a way to read its log from the first event as a new subscriber.
func replayed(t *testing.T, url string, kept *limit.Budget) (r *replica, h *task.Task, replay func(h *task.Task) ([]*hub.Entry, error)) {
	t.Helper()
	r = start(t, url, hub.Options{PollInterval: never, Ended: kept}).listening()
	u := r.run()
	r.must(u, 600)
	// Only the end matters here: by the operator, without a run.
	conn := storetest.Connect(t, url)
	for _, sql := range []string{
		"INSERT INTO holdfast.task_events (task, seq, kind, state, attempt) SELECT id, last_seq + 1, 2, 5, 1 FROM holdfast.tasks",
		"DELETE FROM holdfast.task_queue",
		"UPDATE holdfast.tasks SET state = 5, last_seq = last_seq + 1, status_seq = last_seq + 1, worker_id = NULL",
	} {
		storetest.Must(conn.Exec(t.Context(), sql))(t, sql)
	}
	h = storetest.Must(r.store.Header(t.Context(), u.h.ID))(t)
	require.True(t, h.Status.State.Terminal())
	return r, h, func(h *task.Task) (all []*hub.Entry, err error) {
		s := r.hub.Subscribe(h)
		defer s.Close()
		s.Resume(task.Position{}, h.Position())
		for len(all) == 0 || all[len(all)-1].Seq < h.LastSeq {
			some, err := s.Next(t.Context())
			if err != nil {
				return all, err
			}
			for _, e := range some {
				require.Equal(t, task.Seq(len(all)+1), e.Seq)
				all = append(all, e)
			}
		}
		return all, nil
	}
}

// Further readers of an ended task share its events, with their encodings.
func TestReplaysShareEntries(t *testing.T) {
	t.Parallel()
	budget := limit.NewBudget(16 << 20)
	_, h, replay := replayed(t, storetest.New(t).URL, budget)
	first := storetest.Must(replay(h))(t)
	again := storetest.Must(replay(h))(t)
	require.Len(t, again, len(first))
	shared := 0
	for i := range first {
		require.Equal(t, first[i].Event, again[i].Event)
		if first[i] == again[i] {
			shared++
		}
	}
	require.Greater(t, shared, 500)
	require.Positive(t, budget.Stat().Used)

	// Under another public id events and encodings are others.
	renamed := *h
	renamed.PublicID = "mine"
	require.NotSame(t, first[1], storetest.Must(replay(&renamed))(t)[1])

	// A task that goes on may be followed, but is not kept.
	open := *h
	open.Status.State = task.StateWorking
	used := budget.Stat().Used
	open.PublicID = "open"
	storetest.Must(replay(&open))(t)
	require.Equal(t, used, budget.Stat().Used)
}

// No subscriber gets events that any process has deleted, or a failover has replaced.
func TestReplaysEndWithTheirEvents(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"the last event":             "DELETE FROM holdfast.task_events WHERE seq = 602",
		"an artifact's newest chunk": "DELETE FROM holdfast.task_events WHERE kind = 3 AND seq > 200",
		"all artifacts":              "DELETE FROM holdfast.task_events WHERE kind = 3",
		"the log":                    "DELETE FROM holdfast.task_events",
		"another log":                "UPDATE holdfast.task_events SET created_at = created_at + interval '2 seconds'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := storetest.New(t).URL
			r, h, replay := replayed(t, url, limit.NewBudget(8<<20))
			first := storetest.Must(replay(h))(t)
			conn := storetest.Connect(t, url)
			storetest.Must(conn.Exec(t.Context(), sql))(t)
			s := r.hub.Subscribe(h)
			defer s.Close()
			s.Resume(task.Position{}, h.Position())
			for after := (task.Position{}); ; {
				want := storetest.Must(r.store.EventsAfter(t.Context(), h, after, 1))(t)
				if len(want) == 0 {
					break
				}
				got := storetest.Must(s.Next(t.Context()))(t)
				for _, e := range got {
					require.Equal(t, storetest.Must(r.store.EventsAfter(t.Context(), h, after, 1))(t)[0], e.Event)
					after = e.Position()
				}
			}
			require.NotEmpty(t, first)
		})
	}
}

func TestReplaysAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	budget := limit.NewBudget(512 << 10)
	_, h, replay := replayed(t, storetest.New(t).URL, budget)
	for i := range 20 {
		other := *h
		other.PublicID = strings.Repeat("x", i+1)
		storetest.Must(replay(&other))(t)
	}
	waittest.Eventually(t, "the budget is kept", func() error {
		used := budget.Stat().Used
		return waittest.Unless(used <= 256<<10, "%d bytes are used", used)
	})
}
