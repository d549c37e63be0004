package faults

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// One replica serves clients and runs nothing; the other runs agents and has no public address.
func TestRolesApart(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	// Only hints can find the events in time: the polls are rare.
	rarely := clustertest.Replace(clustertest.Replace(clustertest.Settings, "poll_interval: 200ms", "poll_interval: 1m"), "hub: {poll_interval: 500ms}", "hub: {poll_interval: 1m}")
	api := clustertest.Start(t, clustertest.Options{Name: "api", DB: db.URL, Config: rarely, Env: []string{"HOLDFAST_ROLES=api"}})
	// No worker runs it yet.
	waiting := api.Stream(a2atest.V03, a2atest.Say("chunks=20 size=16 delay=5ms"))
	first := waiting.Take(1)
	require.Equal(t, "submitted", first[0].State())

	worker := clustertest.Start(t, clustertest.Options{Name: "worker", DB: db.URL, Config: rarely, Env: []string{"HOLDFAST_ROLES=worker"}, Async: true})
	clustertest.Indexed(t, a2atest.Chunks(waiting.Rest()), 20)
	worker.WaitServing()
	require.Empty(t, worker.URL, "a worker serves no clients")
	worker.WaitReady()
	for _, d := range a2atest.Old {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			for range 5 {
				res := api.Send(d, a2atest.Say("ask:well?")) // blocking
				require.Equal(t, "input-required", res.State())
				require.Equal(t, "completed", api.Send(d, a2atest.Say("well").To(res.Task())).State())
			}
			s := api.Stream(d, a2atest.Say("hold"))
			taskID := s.UntilState("working").Task()
			require.Equal(t, "canceled", api.Cancel(taskID).State())
			require.Equal(t, "canceled", a2atest.Last(s.Rest()).State())
			require.Zero(t, api.Metric("holdfast_hub_poll_found_total"), "hints find events from other replicas before the poll does")
		})
	}
}

// A caller that waits for an answer gets it, although the process that ran its task died. A caller that repeats a
// request with its key, because the answer was lost, gets the existing task.
func TestCallerOutlivesWorker(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	api := clustertest.Start(t, clustertest.Options{Name: "api", DB: db.URL, Config: clustertest.Settings, Env: []string{"HOLDFAST_ROLES=api"}})
	worker := func(name string) *clustertest.Replica {
		return clustertest.Start(t, clustertest.Options{Name: name, DB: db.URL, Config: clustertest.Settings, Env: []string{"HOLDFAST_ROLES=worker"}})
	}
	doomed := worker("doomed")
	body := a2atest.Request("message/send", a2atest.V03.Params(a2atest.Send, a2atest.Say("chunks=60 size=32 delay=50ms")))
	answers := make(chan *a2atest.Answer, 2)
	send := func() {
		got, err := a2atest.Ask(waittest.Context(t), api.URL, body, "Idempotency-Key", "the-same")
		if err != nil {
			t.Error(err)
		}
		answers <- got
	}
	go send()
	waittest.Eventually(t, "chunks are stored", func() error {
		n := clustertest.One[int](db, "SELECT count(*) FROM holdfast.task_events WHERE kind = 3")
		return waittest.Unless(n > 5, "%d", n)
	})
	go send()
	doomed.Kill()
	worker("heir")
	var tasks []string
	for range 2 {
		got := waittest.Within(t, "an answer", answers)
		require.NotNil(t, got)
		res, err := got.Result()
		require.NoError(t, err)
		require.Equal(t, "completed", res.State())
		clustertest.Indexed(t, a2atest.Pieces(res.Artifacts[0].Parts, 32), 60)
		tasks = append(tasks, res.Task())
	}
	require.Equal(t, tasks[0], tasks[1])
	require.Equal(t, 1, clustertest.One[int](db, "SELECT count(*) FROM holdfast.tasks"))
}
