package faults

import (
	"context"
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

// TestARolloutFailsNoRequest restarts two replicas, one after the other, while clients send through a balancer that learns
// of a stop only from /readyz.
func TestARolloutFailsNoRequest(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	config := "drain_delay: 6s\n" + clustertest.Settings // twice the default: a busy machine is late to see it
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: config})
	front := balance(t, a, b)
	ctx, end := context.WithCancel(t.Context())
	defer end()

	type count struct {
		sent, failed atomic.Int64
		firstError   atomic.Pointer[string]
	}
	var each, kept count
	var clients sync.WaitGroup
	load := func(n *count, keepAlive bool) {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: !keepAlive}, Timeout: waittest.Patience}
		defer client.CloseIdleConnections()
		for ctx.Err() == nil {
			n.sent.Add(1)
			if err := sendOnce(client, "http://"+front.addr); err != nil {
				n.failed.Add(1)
				said := err.Error()
				n.firstError.CompareAndSwap(nil, &said)
			}
		}
	}
	for range 4 {
		clients.Go(func() { load(&each, false) })
		clients.Go(func() { load(&kept, true) })
	}
	sent := func() int64 { return min(each.sent.Load(), kept.sent.Load()) }
	for _, r := range front.servers {
		before := sent()
		waittest.Eventually(t, "clients send", func() error { return waittest.Unless(sent() > before+20, "%d", sent()) })
		r.Stop()
		r.Run()
		waittest.Eventually(t, "the balancer sees it", func() error { return waittest.Unless(r.ready.Load(), "not ready") })
	}
	end()
	clients.Wait()
	for what, n := range map[string]*count{"a connection per request": &each, "connections that are kept": &kept} {
		t.Logf("%s: %d requests, %d failed", what, n.sent.Load(), n.failed.Load())
		if first := n.firstError.Load(); first != nil {
			t.Errorf("%s: %d of %d requests failed, the first: %s", what, n.failed.Load(), n.sent.Load(), *first)
		}
	}
}

// sendOnce sends a message, which no HTTP client repeats by itself.
func sendOnce(client *http.Client, url string) error {
	resp, err := client.Post(url, "application/json", strings.NewReader(
		`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"messageId":"m","role":"user","parts":[{"kind":"text","text":"echo:x"}]}}}`))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), `"state":"completed"`) {
		return errors.New(fmt.Sprint(resp.StatusCode, " ", string(body)))
	}
	return nil
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
	require.Contains(t, r.Log(), "second signal: not waiting for balancers")
}
