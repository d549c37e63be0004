package faults

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/store/pgproxytest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// waiting waits until so many tasks have a timer.
func waiting(t *testing.T, db *clustertest.DB, n int) {
	t.Helper()
	waittest.Eventually(t, "the agents wait", func() error {
		have := clustertest.One[int](db, "SELECT count(*)::int FROM holdfast.v_queue WHERE phase = 'timer'")
		return waittest.Unless(have == n, "%d wait", have)
	})
}

// Timers outlive every process, and each begins one turn, however many processes look.
func TestWaitsSurviveKills(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	all := clustertest.Cluster(t, db.URL, "a", "b", "c")
	const tasks = 12
	var ids []string
	var streams []*a2atest.Reply
	for i := range tasks {
		s := all[i%3].Stream(a2atest.V03, a2atest.Say("wait=1h"))
		ids = append(ids, s.UntilState("working").Task())
		streams = append(streams, s)
	}
	waiting(t, db, tasks)
	for _, r := range all {
		r.Kill()
	}
	// The time passes while no process is there.
	db.Exec("UPDATE holdfast.tasks SET wakes_at = now() - interval '1 min' WHERE wakes_at IS NOT NULL")
	db.Exec("UPDATE holdfast.task_queue SET wakes_at = now() - interval '1 min', available_at = now() - interval '1 min' WHERE wakes_at IS NOT NULL")
	for _, r := range all {
		r.Run()
	}
	for _, r := range all {
		r.WaitServing()
	}
	for i, id := range ids {
		res := all[0].Settled(id)
		require.Equal(t, "completed", res.State(), res.Said())
		require.Equal(t, []string{"waits"}, db.Runs(id))
		require.Equal(t, []string{"waits", "completed"}, clustertest.Column[string](db, "SELECT outcome FROM holdfast.v_runs WHERE task = $1 ORDER BY run", db.ID(id)))
		seen := all[1].Resume(id, streams[i].Last).Rest()
		require.Equal(t, "completed", a2atest.Last(seen).State(), "a client that was there resumes")
	}
	db.Sound()
}

// Looks for timers rest for longer, the longer they take. One that met a silent database does not delay those after it.
func TestTimersFireSoonAfterASilentDatabase(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	proxy := pgproxytest.New(t, db.URL)
	r := clustertest.Start(t, clustertest.Options{DB: proxy.URL})
	proxy.Stall(true)
	time.Sleep(4500 * time.Millisecond) // less than the server waits for an answer
	proxy.Stall(false)
	r.WaitServing()
	r.Stream(a2atest.V03, a2atest.Say("wait=60s")).UntilState("working")
	s := r.Stream(a2atest.V03, a2atest.Say("wait=100ms"))
	require.Equal(t, "completed", a2atest.Last(s.Rest()).State())
	waiting(t, db, 1)
}

func TestWaitsEndByThemselves(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a := clustertest.Cluster(t, db.URL, "a")[0]
	s := a.Stream(a2atest.V03, a2atest.Say("wait=300ms"))
	events := s.Rest()
	require.Equal(t, "completed", a2atest.Last(events).State(), "the stream goes on over the wait")
	waittest.Eventually(t, "metrics show no timer", func() error {
		samples, err := a.Samples()
		if err != nil {
			return err
		}
		n, ok := samples[`holdfast_queue_timers{agent="demo"}`]
		return waittest.Unless(ok && n == 0 && samples[`holdfast_runs_total{agent="demo",outcome="waits"}`] == 1, "%v", n)
	})
}

func TestWaitsEndByTheirClient(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL})
	s := a.Stream(a2atest.V03, a2atest.Say("wait=24h interruptible"))
	id := s.UntilState("working").Task()
	waiting(t, db, 1)
	require.Contains(t, db.Operate("tasks", "get", id), "waits until")
	require.Contains(t, db.Operate("tasks", "events", id), "until 20")
	answer := b.Send(a2atest.V03, a2atest.Say("now").To(id))
	require.Equal(t, "completed", answer.State())
	require.Equal(t, []string{"You ended the wait: now"}, db.Chunks(id))
	require.Equal(t, "completed", a2atest.Last(s.Rest()).State())

	id = a.Stream(a2atest.V03, a2atest.Say("wait=24h")).UntilState("working").Task()
	waiting(t, db, 1)
	require.Equal(t, "canceled", b.Cancel(id).State())
	waiting(t, db, 0)
	db.Sound()
}

// While agents wait, they hold no slot: more tasks wait than the agent may have runs.
func TestWaitsHoldNoSlot(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	config := clustertest.Replace(clustertest.Settings, "limits: {", "limits: {concurrency: 2, queue: 3, ")
	a := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: config})
	for range 10 {
		a.Stream(a2atest.V03, a2atest.Say("wait=24h")).UntilState("working")
	}
	waiting(t, db, 10)
	require.Equal(t, "completed", a.Send(a2atest.V03, a2atest.Say("echo:x")).State())
}
