package faults

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// One replica serves clients and runs nothing; others run agents, serve no clients, and die. A worker has no run API of its own:
// it names the one that is configured, or none.
func TestRolesApart(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	runs := make(chan *job, 10) // accepted by the agent: the test posts their events
	later := &agent{t: t, runs: func(w http.ResponseWriter, _ *http.Request, raw []byte) {
		run := &job{}
		if err := json.Unmarshal(raw, run); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusAccepted)
		runs <- run
	}}
	later.open()
	config := fmt.Sprintf(clustertest.Patient+`
  - {name: later, executor: {kind: http, http: {url: "http://%s/"}}, limits: {backoff: 100ms, concurrency: 1}}
`, later.addr)
	api := clustertest.Start(t, clustertest.Options{Name: "api", DB: db.URL, Config: config, Env: []string{"HOLDFAST_ROLES=api"}})
	waiting := api.Stream(a2atest.V03, a2atest.Say("chunks=20 size=16 delay=5ms"))
	require.Equal(t, "submitted", waiting.Take(1)[0].State(), "no worker runs it yet")
	worker := clustertest.Start(t, clustertest.Options{
		Name: "worker", DB: db.URL, Config: config, Async: true, Env: []string{"HOLDFAST_ROLES=worker", "HOLDFAST_RUN_API_URL=" + api.URL + "/"},
	})
	clustertest.Indexed(t, a2atest.Chunks(waiting.Rest()), 20)
	worker.WaitServing()
	require.Empty(t, worker.URL, "a worker serves no clients")

	for range 2 { // the worker has noticed the end of the first run, whose slot is the only one
		s := api.Stream(a2atest.V03, a2atest.Say("go").At("later"))
		run := waittest.Within(t, "a run begins", runs)
		require.Equal(t, api.URL+"/run/v1", run.RunAPI.URL)
		require.True(t, run.RunAPI.Post(t, 0, `{"type":"complete","message":"done"}`).Ended)
		require.Equal(t, "completed", a2atest.Last(s.Rest()).State())
	}

	// A caller that waits gets its answer, although the worker dies, also one that repeats the request with its key.
	body := a2atest.Request("message/send", a2atest.V03.Params(a2atest.Send, a2atest.Say("go")))
	answers := make(chan *a2atest.Answer, 2)
	for range cap(answers) {
		go func() {
			got, err := a2atest.Ask(t.Context(), api.URL+"/agents/later", body, "Idempotency-Key", "the-same")
			if err != nil {
				t.Error(err)
			}
			answers <- got
		}()
	}
	first := waittest.Within(t, "a run begins", runs)
	require.Equal(t, 1, first.RunAPI.Post(t, 0, `{"type":"text","text":"before"}`).Ordinal())
	worker.Kill()
	db.Expire(worker)
	worker.Run()
	second := waittest.Within(t, "a run begins again", runs)
	require.Equal(t, 410, first.RunAPI.Post(t, 1, `{"type":"complete"}`).Status, "the token of the lost run is dead")
	require.True(t, second.RunAPI.Post(t, 0, `{"type":"text","text":"after"}`, `{"type":"complete"}`).Ended)
	var tasks []string
	for range cap(answers) {
		res, err := waittest.Within(t, "an answer", answers).Result()
		require.NoError(t, err)
		require.Equal(t, "completed", res.State())
		require.Equal(t, "after", a2atest.Text(res.Artifacts[0].Parts), "it replaced the text of the attempt before")
		tasks = append(tasks, res.Task())
	}
	require.Equal(t, tasks[0], tasks[1])

	worker.Kill()
	db.Expire(worker)
	worker.Options.Env = []string{"HOLDFAST_ROLES=worker"}
	worker.Run()
	res := api.Send(a2atest.V03, a2atest.Say("go").At("later"))
	require.Empty(t, waittest.Within(t, "a run begins", runs).RunAPI)
	require.Equal(t, "failed", res.State())
	require.Contains(t, res.Said(), "no run API")
	for _, r := range []*clustertest.Replica{api, worker} {
		require.NotContains(t, r.Log(), "hfrun_", "no token is in a log")
	}
}
