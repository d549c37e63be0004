package workers

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
	"github.com/holdfast-a2a/holdfast/internal/workerapi/workerapitest"
)

const settings = clustertest.Settings + `
  - name: gpu
    executor: {kind: worker, worker: {lease: 10m}}
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
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: settings})
	worker := workerapitest.New(a.URL)
	claimed := claim(t, worker, 1)
	waits(t, a, 1)
	id := begin(b, "hello")
	got := waittest.Within(t, "the run", claimed)
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

// claim claims in the background until there is a run, or the worker is sent away.
func claim(t *testing.T, w *workerapitest.Worker, slots int) <-chan *workerapitest.Answer {
	t.Helper()
	claimed := make(chan *workerapitest.Answer, 1)
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	go func() {
		for {
			got, err := w.Try(ctx, "/claims", workerapitest.Doc{"agents": []workerapitest.Doc{workerapitest.Slots("gpu", slots)}, "wait": 60})
			switch {
			case err != nil:
				claimed <- &workerapitest.Answer{Detail: err.Error()}
				return
			case len(got.Runs) > 0 || got.Drain != "":
				claimed <- got
				return
			}
		}
	}()
	return claimed
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
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: clustertest.Replace(settings, "cancel_grace: 30s", "cancel_grace: 2s")})
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
	require.Equal(t, "canceled", waittest.Within(t, "the heartbeat", stopped).Runs[0].Stop)
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
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: settings})
	worker := workerapitest.New(a.URL)
	id := begin(b, "hello")
	run := worker.Claim(t, 30, workerapitest.Slots("gpu", 1)).Runs[0]
	waiting := claim(t, workerapitest.New(a.URL), 1)
	waits(t, a, 1)
	a.Stop()
	require.Equal(t, "replica", waittest.Within(t, "the end of the claim", waiting).Drain)
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
	require.Equal(t, "worker", waittest.Within(t, "the end of the claim", retires).Drain)
	id := begin(a, "hello")
	got := waittest.Within(t, "the run", stays)
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

// Claims may wait for longer than requests without a credential may take: one of those that begins later ends before. Each of
// many runs finds another claim.
func TestManyWaitingClaims(t *testing.T) {
	t.Parallel()
	const all = 200
	db := clustertest.NewDB(t)
	a := clustertest.Start(t, clustertest.Options{DB: db.URL, Config: settings + "limits: {connections_per_address: 0, body_timeout: 1s}\n"})
	transport := &http.Transport{MaxIdleConnsPerHost: all}
	t.Cleanup(transport.CloseIdleConnections)
	var claims []<-chan *workerapitest.Answer
	for range all {
		w := workerapitest.New(a.URL)
		w.HTTP = &http.Client{Transport: transport}
		claims = append(claims, claim(t, w, 1))
	}
	waits(t, a, all)
	late, err := net.Dial("tcp", a2atest.Host(a.URL))
	require.NoError(t, err)
	defer func() { _ = late.Close() }()
	_, err = io.WriteString(late, "POST /worker/v1/claims HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n")
	require.NoError(t, err)
	_, _ = io.ReadAll(late) // until the server closes the connection
	waits(t, a, all)
	for range 5 {
		begin(a, "hello")
	}
	got := map[string]bool{}
	waittest.Eventually(t, "the runs are claimed", func() error {
		for _, c := range claims {
			select {
			case answer := <-c:
				require.Len(t, answer.Runs, 1, answer.Detail)
				got[answer.Runs[0].ID] = true
			default:
			}
		}
		return waittest.Unless(len(got) == 5, "%d", len(got))
	})
	waits(t, a, all-5)
}
