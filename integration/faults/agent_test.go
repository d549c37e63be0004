package faults

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
)

// agent is the cluster's agent behind HTTP, and can be away in several ways. Each request has a connection of its own:
// the end of an idle one would look like an agent that died with a run.
type agent struct {
	t      testing.TB
	addr   string
	server *http.Server // nil while connections are refused

	mu     sync.Mutex
	status int           // its answer while it is away; 0 for none
	back   chan struct{} // closed when it answers again; nil while it does
}

func newAgent(t testing.TB) *agent {
	t.Helper()
	a := &agent{t: t, addr: clustertest.Reserve(t)}
	a.listen()
	t.Cleanup(func() {
		a.answer()
		a.refuse()
	})
	return a
}

func (a *agent) listen() {
	a.t.Helper()
	l, err := net.Listen("tcp", a.addr)
	require.NoError(a.t, err)
	a.server = &http.Server{Handler: a}
	a.server.SetKeepAlivesEnabled(false)
	go func(s *http.Server) { _ = s.Serve(l) }(a.server)
}

// refuse ends the runs that have begun, and refuses connections.
func (a *agent) refuse() {
	if a.server != nil {
		_ = a.server.Close()
		a.server = nil
	}
}

// away makes the agent answer with a status, or not at all for 0.
func (a *agent) away(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status, a.back = status, make(chan struct{})
}

// answer makes it answer again, also the requests that it has not answered.
func (a *agent) answer() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.back != nil {
		close(a.back)
		a.back = nil
	}
}

func (a *agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	status, back := a.status, a.back
	a.mu.Unlock()
	switch {
	case back == nil:
	case status > 0:
		http.Error(w, "away", status)
		return
	default:
		_, _ = io.Copy(io.Discard, r.Body) // net/http then notices when the replica gives up
		select {
		case <-back:
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	_, _ = io.WriteString(w, strings.Repeat(`{"type": "text", "text": "."}`+"\n", 3)+`{"type": "complete"}`+"\n")
}

// remote is this client talking to the agent behind HTTP.
func (c *client) remote() *client {
	m := c.modern()
	m.path = "/agents/remote"
	return m
}

// calling sends to the agent behind HTTP, which may be away, and polls until the task has ended.
func (c *client) calling(ctx context.Context) error {
	c = c.remote()
	return c.completes(ctx, c.message("", "hello").without("blocking"), 0)
}

// call is the operation of one client that is not part of the crowd.
func (l *load) call(n uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), giveUp)
	defer cancel()
	return l.client(a2atest.V03, n).calling(ctx)
}
