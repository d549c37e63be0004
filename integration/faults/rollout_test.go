package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// balancer stands for a TCP load balancer: it asks /readyz of each server each second, spreads new connections over the
// ready ones (over all if none is), and retries nothing.
type balancer struct {
	addr    string
	servers []*balanced
	next    atomic.Int64
}

type balanced struct {
	*clustertest.Replica
	host, admin string
	ready       atomic.Bool
}

func balance(t *testing.T, replicas ...*clustertest.Replica) *balancer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	b := &balancer{addr: l.Addr().String()}
	t.Cleanup(func() { _ = l.Close() })
	for _, r := range replicas {
		s := &balanced{Replica: r, host: a2atest.Host(r.URL), admin: r.Admin}
		s.ready.Store(true)
		b.servers = append(b.servers, s)
		go s.watch(t.Context())
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go b.carry(conn)
		}
	}()
	return b
}

func (s *balanced) watch(ctx context.Context) {
	client := http.Client{Timeout: waittest.Patience} // a busy machine may answer late
	for tick := time.NewTicker(time.Second); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		resp, err := client.Get(s.admin + "/readyz")
		s.ready.Store(err == nil && resp.StatusCode == http.StatusOK)
		if err == nil {
			_ = resp.Body.Close()
		}
	}
}

func (b *balancer) carry(client net.Conn) {
	defer func() { _ = client.Close() }()
	s := b.servers[int(b.next.Add(1))%len(b.servers)]
	for range b.servers {
		if s.ready.Load() {
			break
		}
		s = b.servers[int(b.next.Add(1))%len(b.servers)]
	}
	server, err := net.Dial("tcp", s.host)
	if err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(client, server)
	_ = server.Close()
}

// patientRollout configures replicas on a busy machine, which is late to see a stop, and to renew a lease, without which a replica is not
// ready.
var patientRollout = "drain_delay: 10s\n" + clustertest.LongLease

// TestARolloutFailsNoRequest restarts two replicas, one after the other, while clients send through a balancer that learns
// of a stop only from /readyz.
func TestARolloutFailsNoRequest(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: patientRollout})
	front := balance(t, a, b)
	all := sendThrough(t, front)
	for _, r := range front.servers {
		all.progress()
		r.Stop()
		r.Run()
		r.rejoin()
	}
	all.end()
}

// rejoin waits until the balancer sees that a server is ready.
func (s *balanced) rejoin() {
	s.T.Helper()
	waittest.Eventually(s.T, "the balancer sees it", func() error { return waittest.Unless(s.ready.Load(), "not ready") })
}

// senders are clients of a balancer. Half of them keep their connections, the others have one for each request.
type senders struct {
	t          *testing.T
	each, kept sent
	stop       context.CancelFunc
	running    sync.WaitGroup
}

// sent counts requests.
type sent struct {
	all, failed atomic.Int64
	firstError  atomic.Pointer[string]
}

// sendThrough starts clients that send until end.
func sendThrough(t *testing.T, front *balancer) *senders {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	all := &senders{t: t, stop: stop}
	load := func(n *sent, keepAlive bool) {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: !keepAlive}, Timeout: waittest.Patience}
		defer client.CloseIdleConnections()
		for ctx.Err() == nil {
			n.all.Add(1)
			if err := sendOnce(client, "http://"+front.addr); err != nil {
				n.failed.Add(1)
				said := err.Error()
				n.firstError.CompareAndSwap(nil, &said)
			}
		}
	}
	for range 4 {
		all.running.Go(func() { load(&all.each, false) })
		all.running.Go(func() { load(&all.kept, true) })
	}
	return all
}

// progress waits until clients of both kinds have sent some more.
func (s *senders) progress() {
	s.t.Helper()
	least := func() int64 { return min(s.each.all.Load(), s.kept.all.Load()) }
	before := least()
	waittest.Eventually(s.t, "clients send", func() error { return waittest.Unless(least() > before+20, "%d", least()) })
}

// end stops the clients, and fails the test if a request failed.
func (s *senders) end() {
	s.t.Helper()
	s.stop()
	s.running.Wait()
	for what, n := range map[string]*sent{"a connection per request": &s.each, "connections that are kept": &s.kept} {
		s.t.Logf("%s: %d requests, %d failed", what, n.all.Load(), n.failed.Load())
		if first := n.firstError.Load(); first != nil {
			s.t.Errorf("%s: %d of %d requests failed, the first: %s", what, n.failed.Load(), n.all.Load(), *first)
		}
	}
}

// sendOnce sends a message, which no HTTP client repeats by itself.
func sendOnce(client *http.Client, url string) error {
	_, err := sendTask(client, url)
	return err
}

// sendTask is sendOnce, and returns the id of the task.
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

// In the drain delay a server says that it is not ready, closes the connection after each answer, and still answers. A
// second signal ends the delay.
func TestADrainingServerStillAnswers(t *testing.T) {
	t.Parallel()
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: clustertest.NewDB(t).URL, Config: "drain_delay: 10m\n" + clustertest.Settings})
	card := func() (status int, closes bool) {
		resp, err := http.Get(r.URL + "/.well-known/agent-card.json")
		require.NoError(t, err)
		defer resp.Body.Close()
		return resp.StatusCode, resp.Close
	}
	_, closes := card()
	require.False(t, closes)
	r.Signal(syscall.SIGTERM)
	waittest.Eventually(t, "it is not ready", func() error {
		status, body := r.Ready()
		return waittest.Unless(status == http.StatusServiceUnavailable, "%d %s", status, body)
	})
	status, closes := card()
	require.Equal(t, http.StatusOK, status)
	require.True(t, closes, "the answer announces the end of its connection")
	require.NoError(t, sendOnce(http.DefaultClient, r.URL), "runs still start")
	r.Signal(syscall.SIGTERM)
	require.Zero(t, r.Wait(), r.Log())
	waittest.Eventually(t, "the log says so", func() error {
		return waittest.Unless(strings.Contains(r.Log(), "second signal: not waiting for balancers"), "%s", r.Log())
	})
}
