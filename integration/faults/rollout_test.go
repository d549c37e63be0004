package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// front is a TCP load balancer of two replicas, which sends new connections to one that is ready, and retries nothing. Half of its
// clients keep their connections, the others have one for each request.
type front struct {
	*clustertest.Proxy
	t       *testing.T
	sent    [8]atomic.Int64 // by each client
	mu      sync.Mutex
	failed  []error
	stop    context.CancelFunc
	running sync.WaitGroup
}

// sendTo starts clients that send until end, to a balancer that leads to a replica.
func sendTo(t *testing.T, r *clustertest.Replica) *front {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	f := &front{Proxy: clustertest.NewProxy(t, a2atest.Host(r.URL)), t: t, stop: stop}
	for i := range f.sent {
		f.running.Go(func() {
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: i%2 == 0}}
			defer client.CloseIdleConnections()
			for ctx.Err() == nil {
				if _, err := sendTask(client, "http://"+f.Addr); err != nil {
					f.mu.Lock()
					f.failed = append(f.failed, fmt.Errorf("request %d of client %d: %w", f.sent[i].Load(), i, err))
					f.mu.Unlock()
				}
				f.sent[i].Add(1)
			}
		})
	}
	return f
}

// progress waits until each client has begun and ended some more requests.
func (f *front) progress() {
	f.t.Helper()
	for i := range f.sent {
		before := f.sent[i].Load()
		waittest.Eventually(f.t, "clients send", func() error {
			n := f.sent[i].Load() - before
			return waittest.Unless(n > 2, "client %d has sent %d requests", i, n)
		})
	}
}

// end stops the clients, and fails the test if a request failed.
func (f *front) end() {
	f.t.Helper()
	f.stop()
	f.running.Wait()
	require.Empty(f.t, f.failed)
}

// replace stops a replica as a deploy does: it drains until the balancer and its clients have gone to the other one. Then it starts
// again, with another program.
func (f *front) replace(r, other *clustertest.Replica, binary string) {
	t := r.T
	t.Helper()
	f.Lead(a2atest.Host(r.URL))
	f.progress()
	r.Signal(syscall.SIGTERM)
	waittest.Eventually(t, "it is not ready", func() error {
		status, body := r.Ready()
		return waittest.Unless(status == http.StatusServiceUnavailable, "%d %s", status, body)
	})
	resp, err := http.Get(r.URL + "/.well-known/agent-card.json")
	require.NoError(t, err)
	_ = resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode, "a server that drains still answers")
	require.True(t, resp.Close, "the answer announces the end of its connection")
	_, err = sendTask(http.DefaultClient, r.URL)
	require.NoError(t, err, "runs still start")
	f.Lead(a2atest.Host(other.URL))
	f.progress()
	drained := r.Logs("second signal: not waiting for balancers")
	r.Signal(syscall.SIGTERM)
	require.Zero(t, r.Wait())
	drained()
	r.Options.Binary = binary
	r.Run()
}

// draining configures replicas whose drain a second signal ends. One that loses its lease would not be ready.
var draining = "drain_delay: 10m\n" + clustertest.Steady

// TestARolloutFailsNoRequest restarts two replicas, one after the other, while clients send through a balancer that learns of a
// stop only from /readyz.
func TestARolloutFailsNoRequest(t *testing.T) {
	t.Parallel()
	a, b := clustertest.Pair(t, clustertest.Options{DB: clustertest.NewDB(t).URL, Config: draining})
	f := sendTo(t, a)
	f.replace(a, b, "")
	f.replace(b, a, "")
	f.end()
}

// sendTask sends a message, which no HTTP client repeats by itself, and returns the id of its task.
func sendTask(client *http.Client, url string) (id string, err error) {
	resp, err := client.Post(url, "application/json", strings.NewReader(
		`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"messageId":"m","role":"user","parts":[{"kind":"text","text":"echo:x"}]}}}`))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	var answer struct {
		Result struct {
			ID     string
			Status struct{ State string }
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil || resp.StatusCode != http.StatusOK || answer.Result.Status.State != "completed" {
		return "", errors.New(fmt.Sprint(resp.StatusCode, " ", string(body)))
	}
	return answer.Result.ID, nil
}
