//go:build interop

package interop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
)

// patience bounds every wait for the servers.
const patience = 60 * time.Second

// settings are those of both replicas. Clients of 1.0 are held to the card's media types; their webhooks are on this
// machine.
const settings = `
listen: 127.0.0.1:0
admin_listen: 127.0.0.1:0
push: {allow_private: true}
agents:
  - name: demo
    executor: {kind: demo}
    card:
      extended: true
      default_input_modes: [text/plain, application/json, "*/*"]
      default_output_modes: [text/plain, application/json, "*/*"]
`

// cluster is two replicas on one database.
type cluster struct{ a, b *replica }

// replica is a server process.
type replica struct {
	api, grpc, admin string // host:port
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "holdfast")
	execute(t, ".", nil, "go", "build", "-o", binary, "../cmd/server")
	config := filepath.Join(t.TempDir(), "holdfast.yaml")
	require.NoError(t, os.WriteFile(config, []byte(settings), 0o600))
	db := storetest.New(t)
	return &cluster{a: startReplica(t, "A", binary, config, db.URL), b: startReplica(t, "B", binary, config, db.URL)}
}

// startReplica runs a server until the test ends, and returns when it is ready.
func startReplica(t *testing.T, name, binary, config, db string) *replica {
	t.Helper()
	cmd := exec.Command(binary, "serve", "--config", config)
	cmd.Env = append(os.Environ(), "HOLDFAST_LOG_FORMAT=json", "HOLDFAST_DATABASE_URL="+db)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var log bytes.Buffer
	serving, ended := make(chan *replica, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for in := bufio.NewScanner(stderr); in.Scan(); {
			log.Write(append(in.Bytes(), '\n'))
			var line struct{ Msg, Listen, GRPC, Admin string }
			if json.Unmarshal(in.Bytes(), &line) == nil && line.Msg == "holdfast serves" {
				serving <- &replica{api: line.Listen, grpc: line.GRPC, admin: strings.TrimPrefix(line.Admin, "http://")}
			}
		}
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("log of replica %s:\n%s", name, &log)
		}
	})
	select {
	case r := <-serving:
		r.waitReady(t)
		return r
	case <-ended:
		require.FailNow(t, "the server ended instead of serving")
	case <-time.After(patience):
		require.FailNow(t, "the server does not serve")
	}
	return nil
}

func (r *replica) waitReady(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		resp, err := http.Get("http://" + r.admin + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return err == nil && resp.StatusCode == http.StatusOK && bytes.Contains(body, []byte(`{"status":"ok"`))
	}, patience, 20*time.Millisecond)
}

// job describes the cluster to a client, which gets proxies and a receiver of its own.
func (c *cluster) job(t *testing.T, binding string) job {
	t.Helper()
	api, grpc := newProxy(t, c.a.api), newProxy(t, c.a.grpc)
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/cut" {
			http.Error(w, "POST /cut", http.StatusNotFound)
			return
		}
		api.cut()
		grpc.cut()
	}))
	t.Cleanup(cut.Close)
	hooks := httptest.NewServer(new(receiver))
	t.Cleanup(hooks.Close)
	return job{
		Binding: binding, Receiver: hooks.URL,
		A: "http://" + c.a.api, B: "http://" + c.b.api, Through: "http://" + api.addr(), Cut: cut.URL + "/cut",
		GRPCA: c.a.grpc, GRPCB: c.b.grpc, GRPCThrough: grpc.addr(),
	}
}

// proxy carries bytes to a server, until it is told to cut.
type proxy struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: l, to: to, conns: map[net.Conn]struct{}{}}
	t.Cleanup(func() {
		_ = l.Close()
		p.cut()
	})
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go p.carry(conn)
		}
	}()
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) carry(client net.Conn) {
	defer p.keep(client)()
	server, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer p.keep(server)()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
}

// keep makes a connection one that cut closes, and returns what closes it otherwise.
func (p *proxy) keep(c net.Conn) (closing func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = struct{}{}
	return func() {
		_ = c.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c)
	}
}

// cut closes every connection, as a network would that lost its state: with a reset.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
}
