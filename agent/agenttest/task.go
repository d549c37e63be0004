package agenttest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-a2a/holdfast/agent"
	"github.com/holdfast-a2a/holdfast/internal/agenthook"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/inmemory"
)

// Options are the task and the limits of its agent. The zero value of a limit is the server's default, except that runs may
// take any time. docs/configuration.md explains the limits.
type Options struct {
	Agent     string          // default "agent"
	Tenant    string          // default none
	Owner     string          // default none
	TaskID    string          // default a UUID
	ContextID string          // default "context"
	Metadata  json.RawMessage // of the request that creates the task

	MaxAttempts       int           // default 3
	RunTimeout        time.Duration // default none
	InactivityTimeout time.Duration // default none
	CancelGrace       time.Duration // default 10 s
	StopGrace         time.Duration // of Restart; default none: runs are interrupted at once
	MaxArtifacts      int64         // bytes; default no limit
	MaxState          int64         // bytes; default no limit
	DirectReplies     bool

	// Patience is how long the test waits for anything before it fails; default 1 minute.
	Patience time.Duration
}

// Request has the facts about the request with a message.
type Request struct {
	Metadata            json.RawMessage // from the second message on; Options.Metadata is that of the first
	AcceptedOutputModes []string
	Extensions          []string
	Scopes              []string
	Traceparent         string
	Tracestate          string
}

// Task is a task of an agent under test. Its methods may be called by one goroutine at a time.
type Task struct {
	*server
	header   task.Task
	messages int
}

// server has the tasks of one context.
type server struct {
	t       testing.TB
	options Options
	agent   worker.Agent
	store   *inmemory.Store

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when the log has grown
	delays  []time.Duration
	pool    *worker.Pool
	stop    func() // stops the pool and waits for its end
}

// New returns a task for an agent. The first message creates it. The test ends the agent's runs when it ends.
func New(t testing.TB, e agent.Executor, options ...Options) *Task {
	t.Helper()
	var o Options
	if len(options) > 0 {
		o = options[0]
	}
	o.Agent, o.ContextID, o.Patience = cmp.Or(o.Agent, "agent"), cmp.Or(o.ContextID, "context"), cmp.Or(o.Patience, time.Minute)
	k := &server{
		t: t, options: o, changed: make(chan struct{}),
		agent: worker.Agent{
			Name: o.Agent, Executor: agenthook.Adapt.(func(agent.Executor) executor.Executor)(e),
			// The run that loses its lease may go on while the next one starts.
			Concurrency: 100,
			MaxAttempts: cmp.Or(o.MaxAttempts, 3), RunTimeout: o.RunTimeout, InactivityTimeout: o.InactivityTimeout,
			CancelGrace: cmp.Or(o.CancelGrace, 10*time.Second), MaxArtifacts: o.MaxArtifacts, MaxState: o.MaxState,
			DirectReplies: o.DirectReplies,
		},
	}
	k.store = inmemory.New(inmemory.Listener{
		Committed: k.grown,
		Ready:     func(name string) { k.worker().Wake(name) },
		Canceled:  func(id task.ID) { k.worker().CancelHint(id) },
		Delayed:   k.delayed,
	})
	k.start()
	t.Cleanup(func() { k.stop() })
	return k.task(o.TaskID)
}

// Another returns another task of the same owner in the same context.
func (k *Task) Another() *Task { return k.task("") }

func (k *server) task(publicID string) *Task {
	id, o := store.NewID(), k.options
	return &Task{server: k, header: task.Task{
		ID: id, PublicID: cmp.Or(publicID, id.String()), Agent: o.Agent, Tenant: o.Tenant, Owner: o.Owner,
		ContextID: o.ContextID, Metadata: o.Metadata, Dialect: "1.0",
	}}
}

// start starts a worker, as a process does.
func (k *server) start() {
	self := store.NewID()
	pool := worker.New(worker.Options{
		Store: k.store, Agents: []worker.Agent{k.agent}, PollInterval: time.Second, StopGrace: k.options.StopGrace,
		Worker: func() task.ID { return self },
		ResumeURL: func(id task.ID, turn int) string {
			return fmt.Sprintf("https://holdfast.example/resume/%s/%d", id, turn)
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	k.mu.Lock()
	k.pool = pool
	k.stop = func() {
		cancel()
		<-ended
	}
	k.mu.Unlock()
	go func() {
		defer close(ended)
		_ = pool.Run(ctx)
	}()
}

func (k *server) worker() *worker.Pool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pool
}

func (k *server) grown() {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.changed)
	k.changed = make(chan struct{})
}

func (k *server) delayed(d time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.delays = append(k.delays, d)
}

// Say is Send with a text.
func (k *Task) Say(text string) *Turn {
	k.t.Helper()
	return k.Send(agent.Say(text))
}

// Send sends a message, in a request without further facts if none is given, and waits until the agent has answered it: until the task ends or asks something, or the agent
// waits for a time.
func (k *Task) Send(m agent.Message, with ...Request) *Turn {
	k.t.Helper()
	return k.Start(m, with...).Wait()
}

// Start is Send without waiting. If the agent is busy with an earlier message, the message waits for that run.
func (k *Task) Start(m agent.Message, with ...Request) *Turn {
	k.t.Helper()
	k.messages++
	if m.ID == "" {
		m.ID = store.NewID().String()
	}
	msg, err := agenthook.ToMessage.(func(agent.Message) (*task.Message, error))(m)
	if err != nil {
		k.t.Fatalf("the message: %v", err)
	}
	msg.Role = task.RoleUser
	var request *task.Request
	for _, r := range with {
		request = &task.Request{
			Metadata: r.Metadata, OutputModes: r.AcceptedOutputModes, Extensions: r.Extensions, Scopes: r.Scopes, Traceparent: r.Traceparent, Tracestate: r.Tracestate,
		}
	}
	turn := &Turn{task: k, number: 1}
	if k.messages == 1 {
		k.store.Create(&k.header, msg, request)
	} else if turn.number, err = k.store.AddMessage(k.header.ID, msg, request); err != nil {
		k.t.Fatalf("message %d: %v", k.messages, err)
	}
	return turn
}

// Wake says that the time of the agent's wait has come: its timer fires now. It waits for the end of the turn that the timer
// begins.
func (k *Task) Wake() *Turn {
	k.t.Helper()
	k.begun()
	turn := k.store.Fire(k.header.ID)
	if turn == 0 {
		k.t.Fatalf("Wake: the agent does not wait; the log of the task:\n%s", k.log())
	}
	return (&Turn{task: k, number: turn}).Wait()
}

// Return gives the agent the results of its calls, in their order, and waits for the end of the turn that they begin. ID, Agent
// and TaskID of a result may be left out: they are those of the call. A result without a State is completed.
func (k *Task) Return(results ...agent.Result) *Turn {
	k.t.Helper()
	k.begun()
	calls := k.store.Calls(k.header.ID)
	if len(calls) == 0 || len(calls) != len(results) {
		k.t.Fatalf("Return: %d results for %d calls; the log of the task:\n%s", len(results), len(calls), k.log())
	}
	out := make([]task.Result, len(results))
	for i := range results {
		r, c := &results[i], &calls[i]
		state, ok := task.ParseState(cmp.Or(string(r.State), string(agent.Completed)))
		if !ok || !state.Settled() {
			k.t.Fatalf("Return: result %d has the state %s", i+1, r.State)
		}
		out[i] = task.Result{
			ID: cmp.Or(r.ID, c.ID), Agent: cmp.Or(r.Agent, c.Agent), TaskID: cmp.Or(r.TaskID, c.Task.String()),
			State: state, Omitted: r.Omitted, Error: r.Error,
		}
		var err error
		if r.Message != nil {
			if out[i].Message, err = agenthook.ToMessage.(func(agent.Message) (*task.Message, error))(*r.Message); err != nil {
				k.t.Fatalf("Return: the message of result %d: %v", i+1, err)
			}
		}
		for _, a := range r.Artifacts {
			stored, err := agenthook.ToArtifact.(func(agent.Artifact) (task.Artifact, error))(a)
			if err != nil {
				k.t.Fatalf("Return: an artifact of result %d: %v", i+1, err)
			}
			out[i].Artifacts = append(out[i].Artifacts, stored)
		}
	}
	return (&Turn{task: k, number: k.store.Return(k.header.ID, out)}).Wait()
}

// Resume is a request by the resume URL of the newest turn (Run.ResumeURL), which has asked with a Resume. It waits for the
// end of the turn that it begins. If the run is not over, the request is kept until it asks.
func (k *Task) Resume(r agent.Resumed) *Turn {
	k.t.Helper()
	k.begun()
	content := task.Resumed(r)
	turn, err := k.store.Resume(k.header.ID, k.store.Turn(k.header.ID), &content)
	if err != nil {
		k.t.Fatalf("Resume: the agent does not ask for it; the log of the task:\n%s", k.log())
	}
	return (&Turn{task: k, number: turn}).Wait()
}

// Cancel cancels the task as a client does, and waits until it has ended: until the agent returns, or CancelGrace is over.
// If the agent is an agent.Canceler, Cancel then waits until that has returned nil or a Failure.
func (k *Task) Cancel() {
	k.t.Helper()
	k.CancelWith(nil)
}

// CancelWith is Cancel with metadata of the request, a JSON object.
func (k *Task) CancelWith(metadata json.RawMessage) {
	k.t.Helper()
	k.begun()
	if err := k.store.Cancel(k.header.ID, metadata); err != nil {
		k.t.Fatalf("cancel: %v", err)
	}
	k.await("the end of the canceled task", func() bool {
		state, _ := k.store.State(k.header.ID)
		return state.Terminal()
	})
	k.await("the agent's answer to Cancel", func() bool {
		if k.store.Told(k.header.ID) {
			return true
		}
		if err := k.worker().Notices(context.Background()); err != nil {
			k.t.Errorf("tell the agent of the cancel: %v", err)
		}
		return k.store.Told(k.header.ID) // the agent has completed the task in spite of the cancel
	})
}

// LoseLease takes the task from the agent's run, as if its process were dead: the run's context ends with
// agent.ErrLeaseLost, nothing that it emits from now on reaches the task, and the next try starts. The same happens to
// the runs of the other tasks.
func (k *Task) LoseLease() {
	k.t.Helper()
	k.begun()
	if _, running := k.store.State(k.header.ID); !running || k.store.Rescue(k.worker().LoseAll) == 0 {
		k.t.Fatalf("LoseLease: the agent has no run; the log of the task:\n%s", k.log())
	}
}

// Restart stops the server and starts another one. The run's context ends with agent.ErrShutdown (after StopGrace). Unless
// the run then completes, the other server starts it again, and it does not count as a try.
func (k *Task) Restart() {
	k.t.Helper()
	k.stop()
	k.start()
}

// State is the state of the task now.
func (k *Task) State() agent.TaskState {
	k.t.Helper()
	return agent.TaskState(k.fold().Status.State.String())
}

// Messages is the conversation so far: what both sides have said, oldest first.
func (k *Task) Messages() []agent.Message {
	k.t.Helper()
	now := k.fold()
	var out []agent.Message
	for i := range now.History {
		out = append(out, fromMessage(&now.History[i]))
	}
	if now.Status.Message != nil {
		out = append(out, fromMessage(now.Status.Message))
	}
	return out
}

// Artifacts are the artifacts as clients read them: chunks are joined.
func (k *Task) Artifacts() []agent.Artifact {
	k.t.Helper()
	now := k.fold()
	var out []agent.Artifact
	for i := range now.Artifacts {
		out = append(out, fromArtifact(&now.Artifacts[i]))
	}
	return out
}

// Text is the text of all artifacts, joined.
func (k *Task) Text() string {
	k.t.Helper()
	var text string
	for _, a := range k.Artifacts() {
		for i := range a.Parts {
			text += a.Parts[i].Text
		}
	}
	return text
}

// Delays are the delays that the retries so far would have had on a server, in their order. In the test they have none.
func (k *Task) Delays() []time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]time.Duration(nil), k.delays...)
}

func (k *Task) fold() *task.Task {
	k.t.Helper()
	k.begun()
	now, err := k.store.Task(k.header.ID)
	if err != nil {
		k.t.Fatal(err)
	}
	return now
}

func (k *Task) begun() {
	k.t.Helper()
	if k.messages == 0 {
		k.t.Fatal("agenttest: the task has no message yet; call Say, Send or Start first")
	}
}

// await waits until a condition holds that changes of the log may make true.
func (k *Task) await(what string, holds func() bool) {
	k.t.Helper()
	timeout := time.NewTimer(k.options.Patience)
	defer timeout.Stop()
	for {
		k.mu.Lock()
		changed := k.changed
		k.mu.Unlock()
		if holds() {
			return
		}
		select {
		case <-changed:
		case <-timeout.C:
			k.t.Fatalf("waited %v for %s; the log of the task:\n%s", k.options.Patience, what, k.log())
		}
	}
}

// log describes the whole log, for a test that fails.
func (k *Task) log() string {
	var out []string
	for _, e := range k.store.Events(k.header.ID, 0) {
		line := fromEvent(e).String()
		if e.Kind == task.EventMessage {
			line = "message" + line
		}
		out = append(out, line)
	}
	return lines(out)
}

func fromMessage(m *task.Message) agent.Message {
	return agenthook.FromMessage.(func(*task.Message) agent.Message)(m)
}

func fromArtifact(a *task.Artifact) agent.Artifact {
	return agenthook.FromArtifact.(func(*task.Artifact) agent.Artifact)(a)
}
