package agenttest

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-a2a/holdfast/agent"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
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
	read     []*task.Event // of the log
}

// New returns a task for an agent. The first message creates it. The test ends the agent's runs when it ends.
func New(t testing.TB, e agent.Executor, options ...Options) *Task {
	t.Helper()
	var o Options
	if len(options) > 0 {
		o = options[0]
	}
	o.Agent, o.ContextID, o.Patience = cmp.Or(o.Agent, "agent"), cmp.Or(o.ContextID, "context"), cmp.Or(o.Patience, time.Minute)
	return serve(t, e, o).task(o.TaskID)
}

// Another returns another task of the same owner in the same context.
func (k *Task) Another() *Task { return k.task("") }

func (k *server) task(publicID string) *Task {
	id, o := k.store.NewTaskID(), k.options
	return &Task{server: k, header: task.Task{
		ID: id, PublicID: cmp.Or(publicID, id.String()), Agent: o.Agent, Tenant: o.Tenant, Owner: o.Owner,
		ContextID: o.ContextID, Metadata: o.Metadata, Dialect: "1.0",
	}}
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
	msg, err := convert.ToMessage(m)
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
		_, err = k.store.Create(background, &store.NewTask{
			Task: k.header, ClientID: k.header.PublicID != k.header.ID.String(), Message: msg, Request: request,
		})
	} else {
		// Before the write, because the agent may have ended the turn after it.
		if now := k.row(); now.yields {
			turn.number = now.turns
		} else {
			turn.number = now.turns + 1
		}
		_, err = k.store.AddMessage(background, &store.NewMessage{
			Task: &k.header, Enqueue: true, RequestID: store.NewID(), Message: msg, Request: request,
		})
	}
	if err != nil {
		k.t.Fatalf("message %d: %v", k.messages, err)
	}
	return turn
}

// Wake says that the time of the agent's wait has come: its timer fires now. It waits for the end of the turn that the timer
// begins.
func (k *Task) Wake() *Turn {
	k.t.Helper()
	k.begun()
	turn := k.row().turn()
	waits := false
	k.query([]any{&waits}, `WITH t AS (
		UPDATE holdfast.tasks SET wakes_at = now() WHERE id = $1 AND worker_id IS NULL AND wakes_at < 'infinity' RETURNING id
	), q AS (
		UPDATE holdfast.task_queue SET wakes_at = now() WHERE id IN (SELECT id FROM t)
	) SELECT EXISTS (SELECT FROM t)`)
	if !waits {
		k.t.Fatalf("Wake: the agent does not wait; the log of the task:\n%s", k.log())
	}
	_, err := k.store.FireTimers(background)
	k.must(err)
	return (&Turn{task: k, number: turn}).Wait()
}

// Return gives the agent the results of its calls, in their order, and waits for the end of the turn that they begin. ID, Agent
// and TaskID of a result are those of the call. A result without a State is completed, and one with an Error rejected. As on a
// server, contents of more than 1 MiB are left out (Omitted).
func (k *Task) Return(results ...agent.Result) *Turn {
	k.t.Helper()
	k.begun()
	calls, err := k.store.NewCalls(background, 0, store.NewCall{}, math.MaxInt32)
	k.must(err)
	calls = slices.DeleteFunc(calls, func(c store.NewCall) bool { return c.Parent != k.header.ID })
	if len(calls) == 0 || len(calls) != len(results) {
		k.t.Fatalf("Return: %d results for %d calls; the log of the task:\n%s", len(results), len(calls), k.log())
	}
	turn := &Turn{task: k, number: k.row().turn()}
	for i, c := range calls {
		k.answer(c, results[i])
	}
	for joined := (store.Joined{Blocked: true}); joined.Blocked; {
		joined, err = k.store.JoinCalls(background, store.Joined{})
		k.must(err)
	}
	return turn.Wait()
}

// answer gives a call its result: the called task gets it from a worker that is not the agent's.
func (k *Task) answer(c store.NewCall, r agent.Result) {
	k.t.Helper()
	if r.Error != "" {
		k.must(k.store.RefuseCall(background, c, r.Error))
		return
	}
	state, ok := task.ParseState(cmp.Or(string(r.State), string(agent.Completed)))
	if !ok || !state.Settled() {
		k.t.Fatalf("Return: result %d has the state %s", c.Nth, r.State)
	}
	end := &task.Event{Kind: task.EventStatus, State: state}
	var events []*task.Event
	for _, a := range r.Artifacts {
		stored, err := convert.ToArtifact(a)
		if err != nil {
			k.t.Fatalf("Return: an artifact of result %d: %v", c.Nth, err)
		}
		stored.ID = cmp.Or(stored.ID, store.NewID().String())
		events = append(events, &task.Event{Kind: task.EventArtifact, Artifact: &stored, Last: true})
	}
	if r.Message != nil {
		var err error
		if end.Message, err = convert.ToMessage(*r.Message); err != nil {
			k.t.Fatalf("Return: the message of result %d: %v", c.Nth, err)
		}
	}
	call := &k.events()[c.Note-1].Run.Calls[c.Nth-1]
	h, fence := k.called(c, call)
	written := make(chan error, 1)
	k.store.Append(&store.Append{
		Task: h.ID, Agent: h.Agent, Fence: fence, Events: append(events, end), Done: func(_ bool, err error) { written <- err },
	})
	k.must(<-written)
}

// called begins a call, and returns its task with the fence of a run.
func (k *Task) called(c store.NewCall, call *task.Call) (*task.Task, task.Fence) {
	k.t.Helper()
	if !c.Answers {
		n := &store.NewTask{Message: call.Message, Called: true, Slot: store.Slot{Worker: k.others}, Task: task.Task{
			ID: c.Task, PublicID: c.Task.String(), Agent: c.Agent, Tenant: k.header.Tenant, Owner: k.header.Owner,
			ContextID: cmp.Or(call.ContextID, k.header.ContextID), Dialect: k.header.Dialect, Metadata: call.Metadata,
		}}
		created, err := k.store.Create(background, n)
		k.must(err)
		n.Task.CreatedAt = created.At
		return &n.Task, store.FirstFence(&n.Task)
	}
	h, err := k.store.Header(background, c.Task)
	k.must(err)
	if h.Agent == k.options.Agent {
		k.t.Fatalf("Return: call %d answers a task of the agent itself", c.Nth)
	}
	seq, err := k.store.AddMessage(background, &store.NewMessage{Task: h, Message: call.Message, RequestID: call.RequestID})
	if err != nil {
		k.t.Fatalf("Return: call %d: %v", c.Nth, err)
	}
	k.must(k.store.BeginAnswer(background, c, seq, false))
	won, err := k.store.Claim(background, k.others, []store.Demand{{Agent: h.Agent, Slots: 1}})
	k.must(err)
	return h, won[0].Fence
}

// Resume is a request by the resume URL of the newest turn (Run.ResumeURL), which has asked with a Resume. It waits for the
// end of the turn that it begins. If the run is not over, the request is kept until it asks.
func (k *Task) Resume(r agent.Resumed) *Turn {
	k.t.Helper()
	k.begun()
	content := task.Resumed(r)
	turn := k.row().turn()
	err := k.store.Resume(background, &task.ResumeRequest{ID: store.NewID(), Task: k.header.ID, Turn: turn, Agent: k.header.Agent, Content: &content})
	if err != nil {
		k.t.Fatalf("Resume: the agent does not ask for it (%v); the log of the task:\n%s", err, k.log())
	}
	return (&Turn{task: k, number: turn + 1}).Wait()
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
	if _, err := k.store.Cancel(background, &k.header, metadata); err != nil {
		k.t.Fatalf("cancel: %v", err)
	}
	k.await("the end of the canceled task", 0, func() bool { return k.row().state.Terminal() })
	// Without a row the agent wants no notice, or has completed the task in spite of the cancel.
	k.await("the agent's answer to Cancel", 10*time.Millisecond, func() bool {
		if err := k.worker().Notices(background); err != nil {
			k.t.Errorf("tell the agent of the cancel: %v", err)
		}
		told := false
		k.query([]any{&told}, "SELECT NOT EXISTS (SELECT FROM holdfast.cancel_notices WHERE task = $1 AND ended_at IS NULL)")
		return told
	})
}

// LoseLease takes the task from the agent's run, as if its process were dead: the run's context ends with
// agent.ErrLeaseLost, nothing that it emits from now on reaches the task, and the next try starts. The same happens to
// the runs of the other tasks.
func (k *Task) LoseLease() {
	k.t.Helper()
	k.begun()
	if !k.row().running || k.rescue() == 0 {
		k.t.Fatalf("LoseLease: the agent has no run; the log of the task:\n%s", k.log())
	}
	k.worker().LoseAll()
	k.register()
	k.worker().Wake("")
}

// Restart stops the server and starts another one. The run's context ends with agent.ErrShutdown (after StopGrace). Unless
// the run then completes, the other server starts it again, and it does not count as a try.
func (k *Task) Restart() {
	k.t.Helper()
	k.stop()
	k.rescue()
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
		out = append(out, convert.FromMessage(&now.History[i]))
	}
	if now.Status.Message != nil {
		out = append(out, convert.FromMessage(now.Status.Message))
	}
	return out
}

// Artifacts are the artifacts as clients read them: chunks are joined.
func (k *Task) Artifacts() []agent.Artifact {
	k.t.Helper()
	now := k.fold()
	var out []agent.Artifact
	for i := range now.Artifacts {
		out = append(out, convert.FromArtifact(&now.Artifacts[i]))
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
	k.t.Helper()
	k.session.Lock()
	defer k.session.Unlock()
	return storetest.Delays(k.t, k.conn)
}

func (k *Task) fold() *task.Task {
	k.t.Helper()
	k.begun()
	h, err := k.store.Header(background, k.header.ID)
	k.must(err)
	now, err := k.store.Snapshot(background, h, true)
	k.must(err)
	return now
}

func (k *Task) begun() {
	k.t.Helper()
	if k.messages == 0 {
		k.t.Fatal("agenttest: the task has no message yet; call Say, Send or Start first")
	}
}

// log describes the whole log, for a test that fails.
func (k *Task) log() string {
	var out []string
	for _, e := range k.events() {
		line := fromEvent(e).String()
		if e.Kind == task.EventMessage {
			line = "message" + line
		}
		out = append(out, line)
	}
	return lines(out)
}
