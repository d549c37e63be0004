package workers

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/internal/test/workerapitest"
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

// claim claims in the background until there is a run, or the worker is sent away. It claims again when its connection is cut: on a
// busy machine even a header takes long.
func claim(t *testing.T, w *workerapitest.Worker, slots int) <-chan *workerapitest.Answer {
	t.Helper()
	claimed := make(chan *workerapitest.Answer, 1)
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	go func() {
		for {
			got, err := w.Try(ctx, "/claims", workerapitest.Doc{"agents": []workerapitest.Doc{workerapitest.Slots("gpu", slots)}, "wait": 60})
			switch {
			case ctx.Err() != nil:
				return
			case err == nil && (len(got.Runs) > 0 || got.Drain != ""):
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
	require.Equal(t, "unauthenticated", got.Reason)
	require.NotEmpty(t, got.Header.Get("WWW-Authenticate"))
	worker.Key = "hfk_wrong"
	require.Equal(t, 401, worker.Claim(t, 0, workerapitest.Slots("gpu", 1)).Status)
	worker.Key = db.Keys(store.APIKey{Scopes: []string{"gpu"}}, "client")[0]
	got = worker.Claim(t, 0, workerapitest.Slots("gpu", 1))
	require.Equal(t, 403, got.Status)
	require.Equal(t, "forbidden", got.Reason)
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
	a := clustertest.Start(t, clustertest.Options{DB: db.URL, Config: settings + "limits: {connections_per_address: 0, request_timeout: 6s}\n"})
	var dialed atomic.Int64
	transport := &http.Transport{MaxIdleConnsPerHost: all, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialed.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	var claims []<-chan *workerapitest.Answer
	for range all {
		w := workerapitest.New(a.URL)
		w.HTTP = &http.Client{Transport: transport}
		claims = append(claims, claim(t, w, 1))
	}
	waits(t, a, all)
	waiting := dialed.Load()
	late, err := net.Dial("tcp", a2atest.Host(a.URL))
	require.NoError(t, err)
	defer func() { _ = late.Close() }()
	_, err = io.WriteString(late, "POST /worker/v1/claims HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n")
	require.NoError(t, err)
	_, _ = io.ReadAll(late) // until the server closes the connection
	waits(t, a, all)
	require.Equal(t, waiting, dialed.Load(), "a claim that waited was cut")
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
