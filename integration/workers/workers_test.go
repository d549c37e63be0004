package workers

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/store"
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
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: clustertest.Replace(settings, "lease: 3s", "lease: 60s")})
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
	db.AwaitState(id, "completed")
	require.Equal(t, "over", worker.Beat(t, 30, run.ID).Runs[0].Stop)
	db.Sound()
}

// A claim may wait for longer than requests may take whose credential is not accepted.
func TestAClaimWaitsForLong(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: settings})
	got := workerapitest.New(r.URL).Claim(t, 35, workerapitest.Slots("gpu", 1))
	require.Empty(t, got.Runs)
}

// claim sends a claim that waits, in the background.
func claim(t *testing.T, w *workerapitest.Worker, slots int) <-chan *workerapitest.Answer {
	t.Helper()
	claimed := make(chan *workerapitest.Answer, 1)
	go func() {
		got, err := w.Try(context.WithoutCancel(t.Context()), "/claims", workerapitest.Doc{"agents": []workerapitest.Doc{workerapitest.Slots("gpu", slots)}, "wait": 60})
		if err != nil {
			got = &workerapitest.Answer{Detail: err.Error()}
		}
		claimed <- got
	}()
	return claimed
}

func next[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case got := <-ch:
		return got
	case <-time.After(60 * time.Second):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

func waits(t *testing.T, r *clustertest.Replica, n int) {
	t.Helper()
	waittest.Eventually(t, "claims wait", func() error {
		have := r.Counted("holdfast_worker_claims_waiting")
		return waittest.Unless(have == n, "%d wait", have)
	})
}

// A client cancels at one replica; the heartbeat waits at the other one.
func TestCancel(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: clustertest.Replace(clustertest.Replace(settings, "lease: 3s", "lease: 10m"), "cancel_grace: 30s", "cancel_grace: 2s")})
	worker := workerapitest.New(a.URL)
	id := begin(b, "hello")
	run := worker.Claim(t, 30, workerapitest.Slots("gpu", 1)).Runs[0]
	stopped := make(chan *workerapitest.Answer, 1)
	go func() {
		for {
			got, err := worker.Try(context.WithoutCancel(t.Context()), "/heartbeat", workerapitest.Doc{"runs": []string{run.ID}, "wait": 10})
			if err != nil || len(got.Runs) > 0 {
				stopped <- got
				return
			}
		}
	}()
	db.AwaitState(id, "working")
	b.CancelOver(a2atest.V03, a2atest.Say().To(id).At("gpu")) // may answer before the grace has ended
	db.AwaitState(id, "canceled")                             // the worker does nothing
	require.Equal(t, "canceled", next(t, stopped).Runs[0].Stop)
	require.Equal(t, 410, worker410(t, &run))
}

func worker410(t *testing.T, run *workerapitest.Run) int {
	t.Helper()
	doc := run.Read(t)
	return doc.RunAPI.Post(t, 0, `{"type":"complete"}`).Status
}

// A replica that stops sends its workers away; their runs go on.
func TestStoppingReplica(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: clustertest.Replace(settings, "lease: 3s", "lease: 60s")})
	worker := workerapitest.New(a.URL)
	id := begin(b, "hello")
	run := worker.Claim(t, 30, workerapitest.Slots("gpu", 1)).Runs[0]
	waiting := claim(t, workerapitest.New(a.URL), 1)
	waits(t, a, 1)
	a.Stop()
	require.Equal(t, "replica", next(t, waiting).Drain)
	require.Empty(t, at(worker, b).Beat(t, 0, run.ID).Runs, "it is not returned")
	doc := run.Read(t)
	doc.RunAPI.URL = b.URL + "/run/v1"
	require.True(t, doc.RunAPI.Post(t, 0, `{"type":"complete"}`).Ended)
	db.AwaitState(id, "completed")
}

// An operator retires the workers of a version.
func TestRetire(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, _ := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: settings})
	old, fresh := workerapitest.New(a.URL), workerapitest.New(a.URL)
	old.Info["version"], fresh.Info["version"] = "old", "new"
	retires, stays := claim(t, old, 1), claim(t, fresh, 1)
	waits(t, a, 2)
	waittest.Eventually(t, "the workers are known", func() error {
		listed := db.Operate("workers", "list")
		return waittest.Unless(strings.Contains(listed, old.ID()) && strings.Contains(listed, fresh.ID()), "%s", listed)
	})
	require.Equal(t, old.ID()+"\n", db.Operate("workers", "retire", "--version", "old"))
	require.Equal(t, "worker", next(t, retires).Drain)
	id := begin(a, "hello")
	got := next(t, stays)
	require.Equal(t, id, got.Runs[0].Read(t).Task.ID)
	require.Empty(t, fresh.Release(t, got.Runs[0].ID).Drain)
}

// A worker needs a scope for each of its agents. The keys of clients do not claim.
func TestCredentials(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a := clustertest.Start(t, clustertest.Options{DB: db.URL, Config: clustertest.Replace(clustertest.WithKeys, "agents:\n", `agents:
  - name: gpu
    executor: {kind: worker}
  - name: second
    executor: {kind: worker}
`)})
	worker := workerapitest.New(a.URL)
	got := worker.Claim(t, 0, workerapitest.Slots("gpu", 1))
	require.Equal(t, 401, got.Status)
	require.Equal(t, "credential", got.Reason)
	require.NotEmpty(t, got.Header.Get("WWW-Authenticate"))
	worker.Key = "hfk_wrong"
	require.Equal(t, 401, worker.Claim(t, 0, workerapitest.Slots("gpu", 1)).Status)
	worker.Key = db.Keys(store.APIKey{Scopes: []string{"gpu"}}, "client")[0]
	got = worker.Claim(t, 0, workerapitest.Slots("gpu", 1))
	require.Equal(t, 403, got.Status)
	require.Equal(t, "scope", got.Reason)
	require.Equal(t, 403, worker.Beat(t, 0).Status)
	worker.Key = db.Keys(store.APIKey{Scopes: []string{"worker:gpu"}}, "gpu")[0]
	require.Equal(t, 200, worker.Claim(t, 0, workerapitest.Slots("gpu", 1)).Status)
	got = worker.Claim(t, 0, workerapitest.Slots("gpu", 1), workerapitest.Slots("second", 1))
	require.Equal(t, 403, got.Status)
	require.Equal(t, "agents[1].name", got.Field)
	all := workerapitest.New(a.URL)
	all.Key = db.Keys(store.APIKey{Scopes: []string{"worker:*"}}, "all")[0]
	require.Equal(t, 200, all.Claim(t, 0, workerapitest.Slots("gpu", 1), workerapitest.Slots("second", 1)).Status)
}

// Two thousand claims wait, and each run finds one of them.
func TestManyWaitingClaims(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a := clustertest.Start(t, clustertest.Options{DB: db.URL, Config: settings + "limits: {connections_per_address: 0}\n"})
	const all = 2000
	transport := &http.Transport{MaxIdleConnsPerHost: all}
	defer transport.CloseIdleConnections()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	got := make(chan string, all)
	for range all {
		w := workerapitest.New(a.URL)
		w.HTTP = &http.Client{Transport: transport}
		go func() {
			answer, err := w.Try(ctx, "/claims", workerapitest.Doc{"agents": []workerapitest.Doc{workerapitest.Slots("gpu", 1)}, "wait": 60})
			if err == nil && len(answer.Runs) == 1 {
				got <- w.ID()
			}
		}()
	}
	waits(t, a, all)
	workers := map[string]bool{}
	for range 5 {
		begin(a, "hello")
		workers[next(t, got)] = true
	}
	require.Len(t, workers, 5, "each went to another worker")
	stop()
	waits(t, a, 0)
}
