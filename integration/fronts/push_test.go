package fronts

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/a2aproject/a2a-go/v2/a2asrv/push"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// stepping is an agent of the official Go SDK that works in steps of the test. Another message than "work" makes it wait for the
// last one.
type stepping struct{ step, end chan struct{} }

func newStepping() *stepping { return &stepping{step: make(chan struct{}), end: make(chan struct{})} }

func (s *stepping) Execute(ctx context.Context, in *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		if !yield(a2a.NewSubmittedTask(in, in.Message), nil) {
			return
		}
		step := s.step
		if in.Message.Parts[0].Text() != "work" {
			step = nil
		}
		for n := 1; ; n++ {
			select {
			case <-s.end:
				yield(a2a.NewStatusUpdateEvent(in, a2a.TaskStateCompleted, nil), nil)
				return
			case <-step:
				said := a2a.NewMessageForTask(a2a.MessageRoleAgent, in, a2a.NewTextPart(fmt.Sprintf("step %d", n)))
				if !yield(a2a.NewStatusUpdateEvent(in, a2a.TaskStateWorking, said), nil) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

func (s *stepping) Cancel(_ context.Context, in *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewStatusUpdateEvent(in, a2a.TaskStateCanceled, nil), nil)
	}
}

// pushing is a server of the official Go SDK that sends notifications. It counts the reads of each of its tasks.
type pushing struct {
	*httptest.Server
	mu    sync.Mutex
	reads map[string]int
	asked map[string]string // the token of each task
}

func startPushing(t testing.TB, agent a2asrv.AgentExecutor) *pushing {
	t.Helper()
	p := &pushing{reads: map[string]int{}, asked: map[string]string{}}
	rpc := a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(agent, a2asrv.WithPushNotifications(
		push.NewInMemoryStore(), push.NewHTTPPushSender(&push.HTTPSenderConfig{AllowPrivateNetworks: true}))))
	mux := http.NewServeMux()
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	mux.Handle("/rpc", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		var call struct {
			Method string
			Params struct{ ID, TaskID, Token string }
		}
		_ = json.Unmarshal(body, &call)
		p.mu.Lock()
		switch call.Method {
		case "GetTask":
			p.reads[call.Params.ID]++
		case "CreateTaskPushNotificationConfig":
			p.asked[call.Params.TaskID] = call.Params.Token
		}
		p.mu.Unlock()
		rpc.ServeHTTP(w, r)
	}))
	mux.Handle("/.well-known/agent-card.json", a2asrv.NewStaticAgentCardHandler(&a2a.AgentCard{
		Name: "Steps", Description: "Works in steps.", Version: "1",
		Capabilities:      a2a.AgentCapabilities{PushNotifications: true},
		DefaultInputModes: []string{"text/plain"}, DefaultOutputModes: []string{"text/plain"},
		Skills:              []a2a.AgentSkill{{ID: "work", Name: "Work", Description: "Works.", Tags: []string{"work"}}},
		SupportedInterfaces: []*a2a.AgentInterface{a2a.NewAgentInterface(p.URL+"/rpc", a2a.TransportProtocolJSONRPC)},
	}))
	return p
}

func (p *pushing) readsOf(task string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reads[task]
}

// awaitAsked waits until the server was asked for notifications.
func (p *pushing) awaitAsked(t testing.TB) {
	t.Helper()
	waittest.Eventually(t, "the agent was asked for notifications", func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		return waittest.Unless(len(p.asked) > 0, "not yet")
	})
}

// balancer is in front of the replicas, and passes everything to the one that the test names.
type balancer struct {
	*httptest.Server
	to     atomic.Pointer[url.URL]
	passed atomic.Int64 // notifications that the replica has accepted
}

func startBalancer(t testing.TB) *balancer {
	t.Helper()
	b := &balancer{}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(b.to.Load()) },
		ModifyResponse: func(r *http.Response) error {
			if r.StatusCode == http.StatusNoContent {
				b.passed.Add(1)
			}
			return nil
		},
	}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b.to.Load() == nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(b.Close)
	return b
}

func (b *balancer) pass(t testing.TB, to string) {
	t.Helper()
	u, err := url.Parse(to)
	require.NoError(t, err)
	b.to.Store(u)
}

// link is the id of the agent's task.
func link(db *clustertest.DB, task string) string {
	return clustertest.One[string](db, "SELECT value->>'task' FROM holdfast.task_states WHERE task = $1", db.ID(task))
}

// A notification that arrives at one replica makes the run of the other one read its task. Without a notification it does not read.
func TestNotificationsReachTheRunAtAnotherReplica(t *testing.T) {
	t.Parallel()
	agent := newStepping()
	up, balancer, db := startPushing(t, agent), startBalancer(t), clustertest.NewDB(t)
	config := fmt.Sprintf("run_api: {url: %q}\n", balancer.URL) + clustertest.Steady +
		inFront("steps", fmt.Sprintf("card_url: %q, push: true", up.URL)) + inFront("poll", fmt.Sprintf("card_url: %q", up.URL))
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: config})
	stream := a.Stream(a2atest.V03, a2atest.Say("work").At("steps"))
	task := stream.UntilState("submitted").Task()
	up.awaitAsked(t)
	_, others := clustertest.Running(db, task, []*clustertest.Replica{a, b})
	balancer.pass(t, others[0].URL)
	theirs := link(db, task)

	said := func(n int) {
		t.Helper()
		agent.step <- struct{}{}
		stream.Until(fmt.Sprintf("step %d", n), func(e *a2atest.Event) bool { return e.Said() == fmt.Sprintf("step %d", n) })
	}
	said(1)
	waittest.Eventually(t, "a notification has arrived", func() error { return waittest.Unless(balancer.passed.Load() > 0, "not yet") })
	// The clock is a task that polls: the other one would have been read about as often.
	clock := b.Send(a2atest.V03, a2atest.Say("wait").At("poll").Detached()).Task()
	waittest.Eventually(t, "the agent has the other task", func() error {
		n := clustertest.One[int](db, "SELECT count(*) FROM holdfast.task_states")
		return waittest.Unless(n == 2, "%d", n)
	})
	quiet := func() (before, after int) {
		before, beat := up.readsOf(theirs), up.readsOf(link(db, clock))
		waittest.Eventually(t, "the other task is read", func() error {
			return waittest.Unless(up.readsOf(link(db, clock)) >= beat+5, "not yet")
		})
		return before, up.readsOf(theirs)
	}
	waittest.Eventually(t, "the task is not polled", func() error {
		before, after := quiet()
		return waittest.Unless(before == after, "%d reads", after-before)
	})
	passed := balancer.passed.Load()
	for n := 2; n < 5; n++ {
		said(n)
	}
	waittest.Eventually(t, "each step was a notification", func() error {
		return waittest.Unless(balancer.passed.Load() >= passed+3, "%d", balancer.passed.Load()-passed)
	})
	leaksNowhere(t, db, up.asked[theirs])
	close(agent.end)
	require.Equal(t, "completed", stream.UntilState("completed").State())
	for _, r := range []*clustertest.Replica{a, b} {
		require.NotContains(t, r.Log(), up.asked[theirs])
	}
	db.Sound()
}

// Another Holdfast, which asks receivers for their consent, notifies in every version and over every binding.
func TestNotificationsOfEveryVersion(t *testing.T) {
	t.Parallel()
	upDB := clustertest.NewDB(t)
	up := clustertest.Start(t, clustertest.Options{
		Name: "up", DB: upDB.URL, Config: "push: {allow_private: true, validation_challenge: true}\n" + clustertest.Replace(clustertest.Steady, "max_block: 1h", "max_block: 1s"),
	})
	wires := []string{"1.0, binding: jsonrpc", "1.0, binding: http+json", "0.3, binding: jsonrpc", "0.3, binding: http+json", `"0.1"`}
	config := clustertest.Steady
	for i, wire := range wires {
		config += inFront(fmt.Sprintf("up%d", i), fmt.Sprintf("url: %q, stream: false, push: true, version: %s", up.URL, wire))
	}
	f := clustertest.Start(t, clustertest.Options{Name: "front", DB: clustertest.NewDB(t).URL, Config: config})
	var tasks []*a2atest.Args
	for i := range wires {
		at := a2atest.Say("hold").At(fmt.Sprintf("up%d", i))
		tasks = append(tasks, a2atest.Say().To(f.Send(a2atest.V03, at.Detached()).Task()).At(fmt.Sprintf("up%d", i)))
	}
	waittest.Eventually(t, "the other server was asked for notifications", func() error {
		asked := clustertest.Column[string](upDB, "SELECT DISTINCT dialect || ' ' || config_id FROM holdfast.v_push WHERE dialect <> '0.1' ORDER BY 1")
		n := clustertest.One[int](upDB, "SELECT count(*) FROM holdfast.v_push")
		return waittest.Unless(n == len(wires) && len(asked) == 2, "%d: %v", n, asked)
	})
	for _, of := range tasks {
		require.Equal(t, "canceled", f.CancelOver(a2atest.Unversioned, of).State())
	}
	waittest.Eventually(t, "the front has accepted a notification of each", func() error {
		n := clustertest.One[int](upDB, "SELECT count(DISTINCT task) FROM holdfast.v_push_attempts WHERE status = 204")
		return waittest.Unless(n == len(wires), "%d; %v", n, clustertest.Column[string](upDB, "SELECT dialect || ' ' || coalesce(last_error, '') FROM holdfast.v_push"))
	})
	require.Zero(t, clustertest.One[int](upDB, "SELECT count(*) FROM holdfast.v_push_attempts WHERE class <> 'delivered'"))
}
