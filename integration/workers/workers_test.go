package workers

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
	"github.com/holdfast-a2a/holdfast/internal/workerapi/workerapitest"
)

const settings = clustertest.Settings + `
  - name: gpu
    executor: {kind: worker, worker: {lease: 3s}}
    limits: {cancel_grace: 30s}
`

// begin creates a task for the agent.
func begin(r *clustertest.Replica, text string) (id string) {
	r.T.Helper()
	return beginAt(r, "gpu", text)
}

func beginAt(r *clustertest.Replica, agent, text string) (id string) {
	r.T.Helper()
	return r.Send(a2atest.V03, a2atest.Say(text).At(agent).Detached()).ID
}

// settles waits until a task has a state.
func settles(db *clustertest.DB, id, want string) {
	db.T.Helper()
	waittest.Eventually(db.T, "the task is "+want, func() error {
		have := clustertest.One[string](db, "SELECT state FROM holdfast.v_tasks WHERE task_id = $1", id)
		return waittest.Unless(have == want, "it is %s", have)
	})
}

// at is the same worker with another replica.
func at(w *workerapitest.Worker, r *clustertest.Replica) *workerapitest.Worker {
	of := *w
	of.URL = r.URL
	return &of
}

// A worker claims at one replica, posts to the other one, and renews at both.
func TestAnyReplicaServesAWorker(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: settings})
	worker := workerapitest.New(a.URL)
	claimed := make(chan *workerapitest.Answer, 1)
	go func() {
		got, err := worker.Try(t.Context(), "/claims", workerapitest.Doc{"agents": []workerapitest.Doc{workerapitest.Slots("gpu", 1)}, "wait": 60})
		if err != nil {
			got = &workerapitest.Answer{}
		}
		claimed <- got
	}()
	waittest.Eventually(t, "the claim waits", func() error {
		return waittest.Unless(a.Metric("holdfast_worker_claims_waiting") == 1, "it does not")
	})
	id := begin(b, "hello")
	got := <-claimed
	require.Len(t, got.Runs, 1)
	run := got.Runs[0]
	require.Empty(t, at(worker, b).Beat(t, 0, run.ID).Runs)
	doc := run.Read(t)
	require.Equal(t, id, doc.Task.ID)
	doc.RunAPI.URL = b.URL + "/run/v1"
	require.True(t, doc.RunAPI.Post(t, 0, `{"type":"text","text":"done"}`, `{"type":"complete"}`).Ended)
	settles(db, id, "completed")
	require.Equal(t, "over", worker.Beat(t, 30, run.ID).Runs[0].Stop)
	db.Sound()
}
