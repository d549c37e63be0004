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
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/judge"
	"github.com/holdfast-a2a/holdfast/internal/test/modeltest"
	"github.com/holdfast-a2a/holdfast/internal/test/nettest"
	"github.com/holdfast-a2a/holdfast/internal/test/runapitest"
)

// agent is the cluster's agent behind HTTP, or the model of another one, and can be away in several ways. Each request has a
// connection of its own: the end of an idle one would look like an agent that died with a run.
type agent struct {
	t      testing.TB
	addr   string
	runs   func(http.ResponseWriter, *http.Request, []byte)
	server *http.Server // nil while connections are refused
	urls   []string     // of the replicas, for the run API
	flows  atomic.Bool  // trickling runs go on, and retries of them

	mu     sync.Mutex
	status int               // its answer while it is away; 0 for none
	back   chan struct{}     // closed when it answers again; nil while it does
	notice chan struct{}     // closed at the next notice of a cancel
	told   map[string][]byte // the notices that tasks were canceled
}

func newAgent(t testing.TB) *agent {
	t.Helper()
	a := &agent{t: t, notice: make(chan struct{}), told: map[string][]byte{}}
	a.runs = a.run
	a.open()
	return a
}

// newModel starts a model that always gives the same answer.
func newModel(t testing.TB) *agent {
	t.Helper()
	a := &agent{t: t, runs: func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		modeltest.Write(w, modeltest.Role, modeltest.Text("done"), modeltest.Stop, modeltest.Done)
	}}
	a.open()
	return a
}

func (a *agent) open() {
	t := a.t
	t.Helper()
	a.addr = nettest.Reserve(t)
	a.listen()
	t.Cleanup(func() {
		a.answer()
		a.refuse()
	})
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
	if r.URL.Path == "/cancel" {
		a.noticed(raw)
		return
	}
	a.runs(w, r, raw)
}

// noticed records that a task was canceled.
func (a *agent) noticed(raw []byte) {
	var doc struct {
		Reason string
		Task   struct{ ID string }
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		a.t.Errorf("a notice: %v: %s", err, raw)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if doc.Reason == "canceled" { // and not of a worker that stops
		a.told[doc.Task.ID] = raw
		close(a.notice)
		a.notice = make(chan struct{})
	}
}

// awaitNotice waits until the agent is told that a task was canceled.
func (a *agent) awaitNotice(ctx context.Context, taskID string) ([]byte, error) {
	for {
		a.mu.Lock()
		told, notice := a.told[taskID], a.notice
		a.mu.Unlock()
		if told != nil {
			return told, nil
		}
		select {
		case <-notice:
		case <-ctx.Done():
			return nil, fmt.Errorf("the agent was not told that task %s was canceled: %w", taskID, ctx.Err())
		}
	}
}

// job is the document of a run.
type job struct {
	Message struct{ Parts []struct{ Text string } }
	Input   struct{ Source, Query, Text string }
	Resume  struct{ URL string }
	RunAPI  runapitest.Client
}

// run answers with a run's events, or accepts it for the run API.
func (a *agent) run(w http.ResponseWriter, r *http.Request, raw []byte) {
	var j job
	if err := json.Unmarshal(raw, &j); err != nil {
		a.t.Errorf("a run: %v: %s", err, raw)
	}
	var pieces int
	if len(j.Message.Parts) > 0 {
		_, _ = fmt.Sscanf(j.Message.Parts[0].Text, "post=%d", &pieces)
	}
	if pieces > 0 {
		w.WriteHeader(http.StatusAccepted)
		go a.post(j.RunAPI, pieces)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	_ = http.NewResponseController(w).Flush()
	_ = json.NewEncoder(w).Encode(a.answers(r.Context(), w, &j))
}

// Messages for the agent. A run of trickling writes until the test lets it end, one of held until it is canceled; one of nested calls
// an agent. The last two are also sent by other agents.
const (
	trickling = "trickle"
	held      = judge.FromAgent + "hold"
	nested    = judge.FromAgent + "nested"
)

// answers returns the last event of a run. It asks for approval, which comes by the resume URL; "early" uses that URL itself
// before it asks.
func (a *agent) answers(ctx context.Context, w http.ResponseWriter, doc *job) (last object) {
	ask := object{"type": "auth", "message": "Please approve.", "resume": object{"for": 3600, "show": true}}
	if doc.Input.Source == "calls" {
		return object{"type": "complete"}
	}
	if mark := doc.Input.Text; mark != "" {
		if doc.Input.Query == "" {
			return object{"type": "complete", "message": judge.Resumed + mark}
		}
		ask["message"] = judge.Resumed + mark
		return ask
	}
	script, mark, _ := strings.Cut(doc.Message.Parts[0].Text, " ")
	switch script {
	case "approve":
		return ask
	case held:
		<-ctx.Done()
	case trickling:
		for ; a.flows.Load() && ctx.Err() == nil; time.Sleep(60 * time.Millisecond) {
			_, _ = io.WriteString(w, `{"type": "text", "text": "."}`+"\n")
			_ = http.NewResponseController(w).Flush()
		}
	case nested:
		return object{"type": "call", "calls": []object{{"agent": "helper", "message": judge.FromAgent + "hello"}}}
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

// post sends the events of a run, a few at a time, each upload to any replica. It repeats an upload without an answer elsewhere,
// until the run has ended or is over.
func (a *agent) post(api runapitest.Client, pieces int) {
	var events []string
	for i := range pieces {
		events = append(events, fmt.Sprintf(`{"type":"text","text":%q}`, posted(i, i+1)))
	}
	events = append(events, `{"type":"complete"}`)
	_, path, _ := strings.Cut(strings.TrimPrefix(api.URL, "http://"), "/")
	var last string
	for began, from := time.Now(), 0; time.Since(began) < giveUp; {
		upto := min(len(events), from+1+mathrand.IntN(5))
		at := runapitest.Client{URL: a.urls[mathrand.IntN(len(a.urls))] + "/" + path, Token: api.Token}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		got, err := at.Try(ctx, http.MethodPost, fmt.Sprintf("/events?from=%d", from),
			strings.NewReader(strings.Join(events[min(from, upto):upto], "\n")+"\n"), "Content-Type", "application/x-ndjson")
		cancel()
		if err != nil {
			got = &runapitest.Answer{Status: http.StatusServiceUnavailable, Detail: err.Error()}
		}
		last = fmt.Sprintf("%s: %d %s %s", at.URL, got.Status, got.Detail, got.Body)
		switch {
		case got.Status == http.StatusGone || got.Ended:
			return
		case got.Status == http.StatusOK || got.Status == http.StatusConflict && got.Reason == "ordinal":
			from = got.Ordinal()
		case got.Status != http.StatusServiceUnavailable && got.Status != http.StatusTooManyRequests && got.Status != http.StatusBadRequest:
			a.t.Errorf("the run API: %s", last)
			return
		default:
			time.Sleep(50 * time.Millisecond)
		}
	}
	a.t.Errorf("a run was not posted: %s", last)
}

// callback sends a request by a resume URL.
func callback(ctx context.Context, by *http.Client, url, mark string) (status int, err error) {
	resp, err := a2atest.PostWith(ctx, by, url, []byte(mark), "Content-Type", "text/plain")
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Body.Close()
}

// at is this client speaking 0.3, which can send without waiting, to another agent.
func (c *client) at(agent string) *client {
	m := c.modern()
	m.path = "/agents/" + agent
	return m
}

// greets sends to an agent, which may be away, and polls until the task has ended.
func greets(agent string) func(*client, context.Context) error {
	return func(c *client, ctx context.Context) error {
		c = c.at(agent)
		return c.completes(ctx, c.message("", "hello").without("blocking"), 0)
	}
}

// streams reads a stream of numbered pieces. After a cut, a front may join some, and so may a remote worker.
func streams(agent string) func(*client, context.Context) error {
	return func(c *client, ctx context.Context) error {
		const size = 32
		c = c.at(agent)
		n := 5 + c.rng.IntN(40)
		taskID, _, err := c.stream(ctx, c.message("", fmt.Sprintf("chunks=%d size=%d delay=%dms", n, size, 2+c.rng.IntN(30))), nil)
		if err != nil {
			return err
		}
		if agent == "front" {
			c.fronted.Add(1)
		}
		c.ledger.Expect(taskID, judge.Outcome{State: "completed", Chunks: n, Size: size})
		return nil
	}
}

// revoking cancels a task that does not end by itself: of the agent behind HTTP, which is told so, of a remote worker, or of a
// caller of both. Nothing that a canceled task has called goes on.
func (c *client) revoking(ctx context.Context) error {
	agent := []string{"remote", "far", "demo"}[c.rng.IntN(3)]
	script := map[string]string{"remote": held, "far": "hold", "demo": "call=remote,far " + held}[agent]
	c = c.at(agent)
	taskID, r, err := c.send(ctx, c.message("", script).without("blocking"))
	if err != nil {
		return err
	}
	c.ledger.Expect(taskID, judge.Outcome{State: "canceled"})
	if agent == "remote" { // which is told only of what has begun
		if err := c.poll(ctx, taskID, r, "working"); err != nil {
			return err
		}
	}
	if err := c.cancel(ctx, taskID); err != nil || agent != "remote" {
		return err
	}
	_, err = c.agent.awaitNotice(ctx, taskID)
	return err
}

// posting reads a stream of the agent behind HTTP, whose events come through the run API. A later attempt begins again, and its
// text replaces that of the one before.
func (c *client) posting(ctx context.Context) error {
	c = c.at("remote")
	n := 5 + c.rng.IntN(40)
	taskID, _, err := c.stream(ctx, c.message("", fmt.Sprintf("post=%d", n)), nil)
	if err != nil {
		return err
	}
	c.ledger.Expect(taskID, judge.Outcome{State: "completed"})
	return c.shows(ctx, taskID, posted(0, n))
}

// shows gets a task, whose only artifact must have this text.
func (c *client) shows(ctx context.Context, taskID, text string) error {
	r, err := c.get(ctx, taskID, c.ledger.Follow(taskID))
	if err == nil && (len(r.Artifacts) != 1 || a2atest.Text(r.Artifacts[0].Parts) != text) {
		err = fmt.Errorf("task %s has other text than %q: %v", taskID, text, r.Artifacts)
	}
	return err
}

// posted are the pieces of a run, from one to before another.
func posted(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "%08d%s", i, strings.Repeat("p", 24))
	}
	return b.String()
}

// together are operations of n clients that are not part of the crowd. The channel receives what came of each.
func (l *load) together(n int, do func(*client, context.Context) error) (ends chan error) {
	ends = make(chan error, n)
	for i := range n {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), giveUp)
			defer cancel()
			ends <- do(l.client(a2atest.V03, uint64(i)), ctx)
		}()
	}
	return ends
}

// resuming lets a third party answer the agent behind HTTP: the agent itself before it asks, two of them at once, or one
// that races with the client's message.
func (c *client) resuming(ctx context.Context) error {
	c = c.at("remote")
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
	c.ledger.Expect(taskID, judge.Outcome{State: "completed"})
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
		_, token, _ = strings.Cut(r.Said(), task.ResumePath)
	}
	return token, nil
}

// calledBack repeats a request by a resume URL until it counts, or the URL is dead. Any replica takes it.
func (c *client) calledBack(ctx context.Context, taskID, token string) error {
	mark := rand.Text()
	c.ledger.Resuming(mark)
	for first := true; ; first = false {
		try, cancel := context.WithTimeout(ctx, c.try)
		status, err := callback(try, c.http, c.urls[c.rng.IntN(len(c.urls))]+task.ResumePath+token, mark)
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
