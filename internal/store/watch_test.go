package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/pgproxytest"
)

// seen are the events that a watch returned, by task.
type seen map[task.ID][]task.Seq

// drain reads everything that a watch has at present, through errors if there are some.
func drain(t *testing.T, w *Watch) (got seen, failures int) {
	t.Helper()
	got = seen{}
	for more := true; more; {
		evs, m, err := w.Next(t.Context())
		if err != nil {
			require.ErrorIs(t, err, task.Unavailable)
			failures++
			continue
		}
		more = m
		for _, e := range evs {
			require.Equal(t, e.Task.ID, e.Event.Task)
			got[e.Event.Task] = append(got[e.Event.Task], e.Event.Seq)
		}
	}
	return got, failures
}

func (f *fixture) shows(w *Watch, want seen) {
	f.t.Helper()
	got, failures := drain(f.t.(*testing.T), w)
	require.Equal(f.t, want, got)
	require.Zero(f.t, failures)
}

// aged is a task that was created an hour ago, too long ago for a watch's recent tasks.
func aged(agent string) *NewTask {
	n := fresh(agent)
	old := partition.FirstID(time.Now().Add(-time.Hour))
	copy(n.Task.ID[:6], old[:6])
	n.Task.PublicID = n.Task.ID.String()
	return n
}

func TestWatchSeesEventsOnce(t *testing.T) {
	f, proxy := proxied(t)
	parked, other := f.create(aged("a")), f.create(aged("b"))
	claim := func(h *task.Task) *pen {
		c := f.claim(f.worker(time.Hour), h.Agent, 1)[0]
		require.Equal(t, h.ID, c.Task.ID)
		return &pen{s: f.Store, c: c}
	}
	run := claim(parked)
	run.must(t, status(task.StateInputRequired))
	waiting := f.create(aged("a"))
	w := f.NewWatch(TaskFilter{}, 100)
	ofB := f.NewWatch(TaskFilter{Agent: "b"}, 100)
	f.shows(w, seen{}) // earlier events are not followed
	f.shows(ofB, seen{})
	f.shows(w, seen{})

	f.ok(f.Cancel(t.Context(), waiting, nil))
	f.ok(f.AddMessage(t.Context(), &NewMessage{Task: parked, Message: user("more"), RequestID: NewID()}))
	quick := f.running("c")
	quick.must(t, status(task.StateCompleted))
	want := seen{waiting.ID: {2}, parked.ID: {3, 4}, quick.c.Task.ID: {1, 2}}
	for _, query := range []string{"OpsTasksSince", "TaskSeqs", "EventsCatchUp"} {
		proxy.Lose(query, pgproxytest.Answer, 1)
	}
	got, failures := drain(t, w)
	require.Equal(t, want, got)
	require.Equal(t, 3, failures)
	f.shows(w, seen{})
	f.shows(ofB, seen{})

	// More events than one read returns.
	long := claim(other)
	for range 2*watchRows + 10 {
		long.write(chunk("x"))
	}
	long.must(t, status(task.StateCompleted))
	var all []task.Seq
	for i := range 2*watchRows + 11 {
		all = append(all, task.Seq(i+2))
	}
	f.shows(ofB, seen{other.ID: all})
	f.shows(w, seen{other.ID: all})
	require.NotContains(t, w.known, waiting.ID, "ended tasks are forgotten")
	f.shows(ofB, seen{})
	require.Empty(t, ofB.known)
}

// A watch continues where its last read ended, so it finds the tasks that were created during a long outage.
func TestWatchAfterLongGap(t *testing.T) {
	f, proxy := proxied(t)
	w := f.NewWatch(TaskFilter{}, 100)
	f.shows(w, seen{})
	gap := w.looked.Add(-2 * time.Hour)
	w.looked = gap
	missed := f.create(aged("a"))
	// A failed read found nothing, so the watch does not continue after it.
	proxy.Lose("OpsTasksSince", pgproxytest.Answer, 1)
	require.ErrorIs(t, errOf2(w.Next(t.Context())), task.Unavailable)
	f.shows(w, seen{missed.ID: {1}})
	require.True(t, w.looked.After(gap.Add(time.Hour)), "from here on the watch is up to date")
	f.shows(w, seen{})
}

func TestWatchIsBounded(t *testing.T) {
	f := parallel(t)
	w := f.NewWatch(TaskFilter{}, 2)
	f.shows(w, seen{})
	var tasks []*task.Task
	for range 4 {
		tasks = append(tasks, f.create(fresh("a")))
	}
	f.shows(w, seen{tasks[0].ID: {1}, tasks[1].ID: {1}, tasks[2].ID: {1}, tasks[3].ID: {1}})
	require.NoError(t, w.lengths(t.Context(), NewID())) // as if they were old by now
	require.Equal(t, 2, w.Dropped)
	require.Len(t, w.known, 2)
	require.Contains(t, w.known, tasks[3].ID, "the newest tasks are kept")
}

func TestWatchTakesTurns(t *testing.T) {
	f := parallel(t)
	var tasks []*task.Task
	for range 5 {
		tasks = append(tasks, f.create(aged("a")))
	}
	w := f.NewWatch(TaskFilter{}, 100)
	w.page = 2
	f.shows(w, seen{})
	for round := range 2 {
		for _, h := range tasks {
			f.ok(f.AddMessage(t.Context(), &NewMessage{Task: h, Message: user("x"), Enqueue: true, RequestID: NewID()}))
		}
		got := seen{}
		for range 3 {
			some, failures := drain(t, w)
			require.Zero(t, failures)
			require.LessOrEqual(t, len(some), 2)
			for id, seqs := range some {
				got[id] = append(got[id], seqs...)
			}
		}
		require.Len(t, got, 5, "after three rounds each task had its turn")
		for id, seqs := range got {
			require.Equal(t, []task.Seq{task.Seq(round + 2)}, seqs, id)
		}
	}
	got, _ := drain(t, w)
	require.Empty(t, got)
}
