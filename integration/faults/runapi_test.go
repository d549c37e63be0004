package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/runapi/runapitest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// accepted is a run that an agent has accepted with 202: its events come through the run API.
type accepted struct {
	RunAPI     runapitest.Client `json:"runApi"`
	Attempt    int               `json:"attempt"`
	Checkpoint json.RawMessage   `json:"checkpoint"`
}

// at is the run API at another replica.
func (r *accepted) at(other *clustertest.Replica) *runapitest.Client {
	_, path, _ := strings.Cut(strings.TrimPrefix(r.RunAPI.URL, "http://"), "/")
	return &runapitest.Client{URL: other.URL + "/" + path, Token: r.RunAPI.Token}
}

// acceptor is an agent that accepts every run.
func acceptor(t *testing.T) (url string, runs <-chan *accepted) {
	t.Helper()
	begun := make(chan *accepted, 10)
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		run := &accepted{}
		if err := json.NewDecoder(r.Body).Decode(run); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusAccepted)
		begun <- run
	}))
	t.Cleanup(agent.Close)
	return agent.URL, begun
}

const acceptorSettings = clustertest.Settings + `
  - name: later
    executor: {kind: http, http: {url: %q}}
    limits: {backoff: 100ms, concurrency: 1}
`

// upload is an upload that stays open.
type upload struct {
	in   *io.PipeWriter
	next int
	done chan *runapitest.Answer // nil: the connection broke
}

func begin(c *runapitest.Client) *upload {
	out, in := io.Pipe()
	u := &upload{in: in, done: make(chan *runapitest.Answer, 1)}
	go func() {
		a, err := c.Try(context.Background(), http.MethodPost, "/events?from=0", out, "Content-Type", "application/x-ndjson")
		if err != nil {
			a = nil
		}
		_ = out.Close()
		u.done <- a
	}()
	return u
}

func event(n int) string { return fmt.Sprintf(`{"type":"text","text":"%d "}`, n) }

// write sends an event. The error says that the upload is over.
func (u *upload) write() error {
	_, err := io.WriteString(u.in, event(u.next)+"\n")
	u.next++
	return err
}

// The worker of a run dies while the agent posts to another replica. The next attempt begins, and the token is dead.
func TestRunAPIWhenTheWorkerIsKilled(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	agent, runs := acceptor(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: fmt.Sprintf(acceptorSettings, agent)})
	s := a.Stream(a2atest.V03, a2atest.Say("go").At("later"))
	id := s.UntilState("working").Task()
	first := waittest.Within(t, "a run begins", runs)
	owner, others := clustertest.Running(db, id, []*clustertest.Replica{a, b})
	other := others[0]
	require.JSONEq(t, `{"next":2,"ended":false}`, string(first.at(other).Post(t, 0, `{"type":"checkpoint","data":7}`, `{"type":"state","data":{"job":1}}`).Body))
	u := begin(first.at(other))
	u.next = 2
	_, err := io.WriteString(u.in, `{"type":"checkpoint","data":7}`+"\n"+`{"type":"state","data":{"job":1}}`+"\n")
	require.NoError(t, err)
	require.NoError(t, u.write())
	waittest.Eventually(t, "the text is stored", func() error {
		return waittest.Unless(len(db.Chunks(id)) == 1, "not yet")
	})
	owner.Kill()
	for u.write() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	if answer := <-u.done; answer != nil {
		require.Equal(t, 410, answer.Status, "%s", answer.Body)
	}
	second := waittest.Within(t, "a run begins", runs)
	require.Greater(t, second.Attempt, first.Attempt)
	require.Equal(t, "7", string(second.Checkpoint))
	for _, bad := range []*runapitest.Answer{
		first.at(other).Post(t, 0, event(0)), first.at(other).Do(t, "GET", "", ""), first.at(other).Do(t, "POST", "/heartbeat", ""),
		first.at(other).Do(t, "PUT", "/state/task", "1"),
	} {
		require.Equal(t, 410, bad.Status, "%s", bad.Body)
	}
	require.Positive(t, other.Counted(`holdfast_run_api_seconds_count{operation="events",outcome="ok"}`))
	require.Equal(t, 1, other.Counted(`holdfast_run_api_seconds_count{operation="heartbeat",outcome="over"}`))
	require.JSONEq(t, `{"job":1}`, string(second.at(other).Do(t, "GET", "/state/task", "").Data))
	require.JSONEq(t, `{"next":2,"ended":true}`, string(second.at(other).Post(t, 0, `{"type":"text","text":"anew"}`, `{"type":"complete"}`).Body))
	res := other.GetOver(a2atest.Unversioned, a2atest.Say().To(id).At("later"))
	require.Equal(t, "completed", res.State())
	require.Equal(t, "anew", a2atest.Text(res.Artifacts[0].Parts), "it replaced the text of the attempt before")
	require.Equal(t, []string{"checkpoint", "lost"}, db.Runs(id))
	for _, r := range []*clustertest.Replica{owner, other} {
		require.NotContains(t, r.Log(), "hfrun_", "no token is in a log")
	}
	db.Sound()
}

// The replica that takes an upload dies in its middle. The agent repeats it at another one, and nothing doubles.
func TestRunAPIWhenTheReceiverIsKilled(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	agent, runs := acceptor(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: fmt.Sprintf(acceptorSettings, agent)})
	id := a.Stream(a2atest.V03, a2atest.Say("go").At("later")).UntilState("working").Task()
	run := waittest.Within(t, "a run begins", runs)
	owner, others := clustertest.Running(db, id, []*clustertest.Replica{a, b})
	watched := owner.Subscribe(a2atest.Unversioned, &a2atest.Args{Agent: "later", Task: id, After: "0"})
	u := begin(run.at(others[0]))
	for range 20 {
		require.NoError(t, u.write())
	}
	waittest.Eventually(t, "some of it is stored", func() error {
		return waittest.Unless(len(db.Chunks(id)) >= 10, "not yet")
	})
	others[0].Kill()
	_ = u.in.CloseWithError(io.ErrClosedPipe) // the client waits for its body
	require.Nil(t, <-u.done)
	var all []string
	want := ""
	for n := range 30 {
		all = append(all, event(n))
		want += fmt.Sprint(n, " ")
	}
	require.JSONEq(t, `{"next":31,"ended":true}`, string(run.at(owner).Post(t, 0, append(all, `{"type":"complete"}`)...).Body))
	require.Equal(t, "completed", a2atest.Last(watched.Rest()).State(), "the stream of the owner")
	require.Equal(t, want, strings.Join(db.Chunks(id), ""))

	// The worker has noticed the end: its only slot is free.
	next := owner.Stream(a2atest.V03, a2atest.Say("again").At("later"))
	run = waittest.Within(t, "a run begins", runs)
	require.True(t, run.at(owner).Post(t, 0, `{"type":"complete"}`).Ended)
	require.Equal(t, "completed", a2atest.Last(next.Rest()).State())
	waittest.Eventually(t, "both runs count", func() error {
		n := owner.Counted(`holdfast_runs_total{agent="later",outcome="completed"}`)
		return waittest.Unless(n == 2, "%d", n)
	})
	db.Sound()
}

// A worker without the role api has no run API of its own: it names the one that is configured, or none.
func TestRunAPIOfAWorkerAlone(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	agent, runs := acceptor(t)
	config := fmt.Sprintf(acceptorSettings, agent)
	api := clustertest.Start(t, clustertest.Options{Name: "api", DB: db.URL, Config: config, Env: []string{"HOLDFAST_ROLES=api"}})
	worker := clustertest.Start(t, clustertest.Options{
		Name: "worker", DB: db.URL, Config: config, Async: true,
		Env: []string{"HOLDFAST_ROLES=worker", "HOLDFAST_RUN_API_URL=" + api.URL + "/"},
	})
	s := api.Stream(a2atest.V03, a2atest.Say("go").At("later"))
	run := waittest.Within(t, "a run begins", runs)
	require.Equal(t, api.URL+"/run/v1", run.RunAPI.URL)
	require.True(t, run.RunAPI.Post(t, 0, `{"type":"complete","message":"done"}`).Ended)
	require.Equal(t, "completed", a2atest.Last(s.Rest()).State())

	worker.Kill()
	worker.Options.Env = []string{"HOLDFAST_ROLES=worker"}
	worker.Run()
	res := api.Send(a2atest.V03, a2atest.Say("go").At("later"))
	require.Empty(t, waittest.Within(t, "a run begins", runs).RunAPI)
	require.Equal(t, "failed", res.State())
	require.Contains(t, res.Said(), "no run API")
}
