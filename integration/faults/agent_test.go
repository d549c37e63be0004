package faults

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/judgetest"
	"github.com/holdfast-a2a/holdfast/internal/resume"
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
	raw, err := io.ReadAll(r.Body) // net/http then notices when the replica gives up
	switch {
	case err != nil:
		return
	case back == nil:
	case status > 0:
		http.Error(w, "away", status)
		return
	default:
		select {
		case <-back:
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	_ = http.NewResponseController(w).Flush()
	_ = json.NewEncoder(w).Encode(run(r.Context(), w, raw))
}

// run answers a run with its last event. It asks for approval, which comes by the resume URL; "early" uses that URL itself
// before it asks.
func run(ctx context.Context, w io.Writer, raw []byte) (last object) {
	var doc struct {
		Message struct{ Parts []struct{ Text string } }
		Input   struct{ Query, Text string }
		Resume  struct{ URL string }
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return object{"type": "fail", "message": err.Error()}
	}
	ask := object{"type": "auth", "message": "Please approve.", "resume": object{"for": 3600, "show": true}}
	if mark := doc.Input.Text; mark != "" {
		if doc.Input.Query == "" {
			return object{"type": "complete", "message": judgetest.Resumed + mark}
		}
		ask["message"] = judgetest.Resumed + mark
		return ask
	}
	script, mark, _ := strings.Cut(doc.Message.Parts[0].Text, " ")
	switch script {
	case "approve":
		return ask
	case "early":
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		if status, err := callback(ctx, http.DefaultClient, doc.Resume.URL, mark); err != nil || status != http.StatusAccepted && status != http.StatusGone {
			return object{"type": "retry", "reason": fmt.Sprint("the resume URL: ", status, err)}
		}
		return ask
	}
	_, _ = io.WriteString(w, strings.Repeat(`{"type": "text", "text": "."}`+"\n", 3))
	return object{"type": "complete"}
}

// callback sends a request by a resume URL.
func callback(ctx context.Context, by *http.Client, url, mark string) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(mark))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "text/plain")
	resp, err := by.Do(req)
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Body.Close()
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

// resuming lets a third party answer the agent behind HTTP: the agent itself before it asks, two of them at once, or one
// that races with the client's message.
func (c *client) resuming(ctx context.Context) error {
	c = c.remote()
	how := c.rng.IntN(3)
	script, early := "approve", rand.Text()
	if how == 0 {
		script = "early " + early
		c.ledger.Resuming(early)
	}
	taskID, r, err := c.send(ctx, c.message("", script).without("blocking"))
	if err != nil {
		return err
	}
	c.ledger.Expect(taskID, judgetest.Outcome{State: "completed"})
	if how == 0 {
		if err = c.poll(ctx, taskID, r, "completed"); err == nil {
			c.ledger.Accepted(early, taskID)
		}
		return err
	}
	token, err := c.asked(ctx, taskID, "")
	if err != nil {
		return err
	}
	other := *c
	other.rng = mathrand.New(mathrand.NewPCG(c.rng.Uint64(), 0))
	if how == 1 {
		if err := c.calledBack(ctx, taskID, token+"?again"); err != nil {
			return err
		}
		if token, err = c.asked(ctx, taskID, token); err != nil {
			return err
		}
	}
	second := make(chan error, 1)
	go func() {
		if how == 1 {
			second <- other.calledBack(ctx, taskID, token)
			return
		}
		_, _, err := other.send(ctx, other.message(taskID, "hello").without("blocking"))
		if errors.As(err, new(*refusal)) {
			err = nil // the resume won, and the task had ended
		}
		second <- err
	}()
	if err := errors.Join(c.calledBack(ctx, taskID, token), <-second); err != nil {
		return err
	}
	if r, err = c.get(ctx, taskID, c.ledger.Follow(taskID)); err != nil {
		return err
	}
	return c.poll(ctx, taskID, r, "completed")
}

// asked waits until the agent asks with another token than the last one.
func (c *client) asked(ctx context.Context, taskID, last string) (token string, err error) {
	for reading := c.ledger.Follow(taskID); token == "" || token == last; {
		r, err := c.get(ctx, taskID, reading)
		if err != nil {
			return "", err
		}
		_, token, _ = strings.Cut(r.Said(), resume.Path)
	}
	return token, nil
}

// calledBack repeats a request by a resume URL until it counts, or the URL is dead. Any replica takes it.
func (c *client) calledBack(ctx context.Context, taskID, token string) error {
	mark := rand.Text()
	c.ledger.Resuming(mark)
	for first := true; ; first = false {
		try, cancel := context.WithTimeout(ctx, c.try)
		status, err := callback(try, c.http, c.urls[c.rng.IntN(len(c.urls))]+resume.Path+token, mark)
		cancel()
		switch {
		case err != nil, status == http.StatusServiceUnavailable:
		case status == http.StatusAccepted:
			c.ledger.Accepted(mark, taskID)
			return nil
		case status == http.StatusGone:
			if first {
				c.ledger.Dead(mark)
			}
			return nil
		default:
			return fmt.Errorf("task %s: the resume URL answers %d", taskID, status)
		}
		c.tries.Add(1)
		if late := c.breathe(ctx); late != nil {
			return fmt.Errorf("task %s: the resume URL: %w; at last: %d, %w", taskID, late, status, err)
		}
	}
}
