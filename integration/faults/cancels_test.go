package faults

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/resume"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// office is an agent behind HTTP that gets notices of cancels. It asks, with its resume URL if the message is "approve", or
// hangs if that is "hang", and after a resume.
type office struct {
	url string

	mu     sync.Mutex
	closed bool
	tries  int
	told   map[string][]object // what it has accepted, by task
}

func newOffice(t *testing.T) *office {
	t.Helper()
	o := &office{told: map[string][]object{}}
	server := httptest.NewServer(o)
	t.Cleanup(server.Close)
	o.url = server.URL
	return o
}

func (o *office) config() string {
	return clustertest.Replace(clustertest.Settings, "executor: {kind: demo}",
		fmt.Sprintf(`executor: {kind: http, http: {url: "%[1]s/run", cancel_url: "%[1]s/cancel"}}`, o.url))
}

func (o *office) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var doc object
	if err := json.NewDecoder(r.Body).Decode(&doc); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	if r.URL.Path == "/run" {
		w.Header().Set("Content-Type", "application/x-ndjson")
		_, _ = io.WriteString(w, `{"type":"state","data":{"job":7}}`+"\n")
		text := "hang" // the turn of a resume
		if message, ok := doc["message"].(map[string]any); ok {
			text, _ = message["parts"].([]any)[0].(map[string]any)["text"].(string)
		}
		switch text {
		case "approve":
			_, _ = io.WriteString(w, `{"type":"ask","message":"Approve:","resume":{"show":true}}`+"\n")
			return
		case "hang":
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, `{"type":"ask","message":"Which?"}`+"\n")
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tries++
	if o.closed {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	id := doc["task"].(map[string]any)["id"].(string)
	o.told[id] = append(o.told[id], doc)
}

func (o *office) close(closed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = closed
}

// await returns what the agent has accepted about a task for this reason.
func (o *office) await(t *testing.T, id, reason string) (doc object) {
	t.Helper()
	waittest.Eventually(t, "the agent is told that "+id+" is "+reason, func() error {
		o.mu.Lock()
		defer o.mu.Unlock()
		for _, doc = range o.told[id] {
			if doc["reason"] == reason {
				return nil
			}
		}
		return fmt.Errorf("it has %v", o.told[id])
	})
	return doc
}

// A cancel's metadata reaches the agent in every version that has it, also if no run is left.
func TestCancelMetadataReachesAgent(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	db := clustertest.NewDB(t)
	a := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: o.config()})
	for _, w := range a2atest.Wires {
		asked := a.Send(w, a2atest.Say("hi"))
		id := asked.Task()
		params, want := object{"id": id, "metadata": object{"why": w.String()}}, any(map[string]any{"why": w.String()})
		if w == a2atest.GRPC03 { // its request has no metadata
			params, want = object{"name": "tasks/" + id}, nil
		}
		args := a2atest.Say().To(id)
		args.Params = params
		require.Contains(t, a2atest.Plain(a.CancelOver(w, args).State()), "cancel", w)
		doc := o.await(t, id, "canceled")
		require.Equal(t, want, doc["metadata"], w)
		require.Equal(t, map[string]any{"task": map[string]any{"data": map[string]any{"job": 7.0}, "version": 1.0}}, doc["state"], w)
	}
	db.Sound()
}

// A cancel is told although every process dies after it, and although the agent does not take it at first: of a task that
// asked something, and of one that ran.
func TestNoticesOfCancelsSurviveKills(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.close(true)
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: o.config()})
	var ids []string
	for i := range 6 {
		r := []*clustertest.Replica{a, b}[i%2]
		ids = append(ids, r.Send(a2atest.V03, a2atest.Say("hi")).Task())
	}
	running := a.Stream(a2atest.V03, a2atest.Say("hang")).UntilState("working").Task()
	waittest.Eventually(t, "the agent runs", func() error {
		n := clustertest.One[int](db, "SELECT count(*)::int FROM holdfast.v_states WHERE task_id = $1", running)
		return waittest.Unless(n == 1, "not yet")
	})
	ids = append(ids, running)
	for _, id := range ids {
		require.Equal(t, "canceled", a.Cancel(id).State())
	}
	waittest.Eventually(t, "a try has failed", func() error {
		n := clustertest.One[int](db, "SELECT count(*)::int FROM holdfast.v_cancels WHERE phase = 'pending' AND error LIKE '%503%'")
		return waittest.Unless(n > 0, "not yet")
	})
	a.Kill()
	b.Kill()
	o.close(false)
	// The claims of the dead processes end, and the pauses between the tries.
	db.Exec("UPDATE holdfast.cancel_notices SET due_at = now()")
	b.Run()
	b.WaitServing()
	for _, id := range ids {
		o.await(t, id, "canceled")
	}
	waittest.Eventually(t, "all are recorded", func() error {
		n := clustertest.One[int](db, "SELECT count(*)::int FROM holdfast.v_cancels WHERE phase = 'delivered'")
		return waittest.Unless(n == len(ids), "%d", n)
	})
	require.Equal(t, len(ids), clustertest.One[int](db, "SELECT count(*)::int FROM holdfast.cancel_notices"), "one record for each cancel")
	db.Sound()
}

// A cancel after a resume names the turn of the resume once its run has begun, and until then the turn that asked.
func TestCancelsAfterResumesNameTheirTurn(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	db := clustertest.NewDB(t)
	a := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.Named("a"), Config: o.config()})
	front := clustertest.Start(t, clustertest.Options{Name: "front", DB: db.URL, Config: o.config(), Env: []string{"HOLDFAST_ROLES=api"}})
	resumes := func(asked *a2atest.Result) {
		t.Helper()
		_, token, _ := strings.Cut(asked.Said(), resume.Path)
		status, err := callback(t.Context(), http.DefaultClient, front.URL+resume.Path+token, "yes")
		require.NoError(t, err)
		require.Equal(t, http.StatusAccepted, status)
	}
	asked := a.Send(a2atest.V03, a2atest.Say("approve"))
	runs := asked.Task()
	resumes(asked)
	waittest.Eventually(t, "the agent runs again", func() error {
		n := clustertest.One[int](db, "SELECT count(*)::int FROM holdfast.v_states WHERE task_id = $1 AND version = 2", runs)
		return waittest.Unless(n == 1, "not yet")
	})
	a.Cancel(runs)
	doc := o.await(t, runs, "canceled")
	require.Equal(t, []any{2.0, 2.0}, []any{doc["turn"], doc["attempt"]})

	parked := a.Send(a2atest.V03, a2atest.Say("approve"))
	db.KillOff(a)
	resumes(parked)
	require.Equal(t, "canceled", front.Cancel(parked.Task()).State())
	a.Run()
	a.WaitServing()
	doc = o.await(t, parked.Task(), "canceled")
	require.Equal(t, []any{1.0, 1.0}, []any{doc["turn"], doc["attempt"]})
	db.Sound()
}

// A worker that stops says so before it returns the run.
func TestStopTellsAgents(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	db := clustertest.NewDB(t)
	a := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: o.config()})
	id := a.Stream(a2atest.V03, a2atest.Say("hang")).UntilState("working").Task()
	waittest.Eventually(t, "the agent runs", func() error {
		return waittest.Unless(clustertest.One[int](db, "SELECT count(*)::int FROM holdfast.v_states") == 1, "not yet")
	})
	a.Stop()
	doc := o.await(t, id, "stopping")
	require.InDelta(t, 1, doc["attempt"], 0)
	require.Equal(t, []string{"returned"}, db.Runs(id))
}
