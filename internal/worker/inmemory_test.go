package worker_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/resume"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker"
	"github.com/holdfast-a2a/holdfast/internal/worker/inmemory"
)

// A client and an operator do the same on PostgreSQL and in memory.
type client struct{ server }

type server interface {
	open(h *task.Task, m *task.Message, q *task.Request) // the task that the next calls are about
	tell(m *task.Message, q *task.Request)
	end(metadata json.RawMessage) // cancels the task
	notices()                     // the time of notices has come
	lose()                        // the process of the run dies
	fire()                        // the time of a wait has come
	refuse()                      // the calls of the agent are refused
	resume(turn int, text string) (accepted bool)
	log() []*task.Event
}

func (c client) create(text string) { c.open(&task.Task{}, asks(text), nil) }
func (c client) say(text string)    { c.tell(asks(text), nil) }
func (c client) cancel()            { c.end(nil) }

// opened completes the header of a task.
func opened(h *task.Task) *task.Task {
	h.ID, h.ContextID, h.Dialect = store.NewID(), "ctx", "0.3"
	h.Agent, h.PublicID = cmp.Or(h.Agent, "a"), cmp.Or(h.PublicID, h.ID.String())
	return h
}

type inPostgres struct {
	*process
	h *task.Task
}

func (c *inPostgres) open(h *task.Task, m *task.Message, q *task.Request) {
	c.h = opened(h)
	n := &store.NewTask{Task: *h, ClientID: h.PublicID != h.ID.String(), Message: m, Request: q}
	_, err := c.store.Create(c.t.Context(), n)
	require.NoError(c.t, err)
}

func (c *inPostgres) tell(m *task.Message, q *task.Request) {
	_, err := c.store.AddMessage(c.t.Context(), &store.NewMessage{Task: c.h, Enqueue: true, RequestID: store.NewID(), Message: m, Request: q})
	require.NoError(c.t, err)
}

func (c *inPostgres) log() []*task.Event { return c.process.log(c.h) }

// fire waits for the agent's timer, which is short.
func (c *inPostgres) fire() {
	eventually(c.t, "the timer fires", func() bool {
		_, err := c.store.FireTimers(c.t.Context())
		require.NoError(c.t, err)
		// The turn may be over already, and the agent wait again, for an hour.
		return !c.exists("SELECT FROM holdfast.task_queue WHERE id = $1 AND wakes_at < now() + interval '1 minute'", c.h.ID.String())
	})
}

func (c *inPostgres) refuse() {
	calls, err := c.store.NewCalls(c.t.Context(), 0, store.NewCall{}, 10)
	require.NoError(c.t, err)
	require.NotEmpty(c.t, calls)
	for _, call := range calls {
		require.NoError(c.t, c.store.RefuseCall(c.t.Context(), call, "no "+call.Agent))
	}
}

func (c *inPostgres) exists(sql string, args ...any) (exists bool) {
	c.scan(&exists, "SELECT EXISTS ("+sql+")", args...)
	return exists
}

func (c *inPostgres) resume(turn int, text string) bool {
	err := c.store.Resume(c.t.Context(), &resume.Request{
		ID: store.NewID(), Task: c.h.ID, Turn: turn, Agent: "a", Content: resumedWith(text),
	})
	if err != nil {
		require.ErrorIs(c.t, err, task.Terminal)
	}
	return err == nil
}

func resumedWith(text string) *task.Resumed {
	return &task.Resumed{Method: "POST", Query: "code=1", ContentType: "text/plain", Body: []byte(text)}
}

func (c *inPostgres) end(metadata json.RawMessage) {
	_, err := c.store.Cancel(c.t.Context(), c.h, metadata)
	require.NoError(c.t, err)
}

func (c *inPostgres) notices() { require.NoError(c.t, c.pool.Notices(c.t.Context())) }

func (c *inPostgres) lose() {
	old := *c.id.Load()
	c.register()
	c.pool.LoseAll()
	require.NoError(c.t, c.store.Unregister(c.t.Context(), old))
	_, runs, err := c.store.Rescue(c.t.Context(), 0, true)
	require.NoError(c.t, err)
	require.Len(c.t, runs, 1)
	c.pool.Wake("")
}

type inMemory struct {
	t     *testing.T
	store *inmemory.Store
	pool  *worker.Pool
	h     *task.Task
}

func inMemoryOf(t *testing.T, a worker.Agent) *inMemory {
	t.Helper()
	c, self := &inMemory{t: t}, store.NewID()
	c.store = inmemory.New(inmemory.Listener{
		Committed: func() {}, Ready: func(agent string) { c.pool.Wake(agent) }, Canceled: func(id task.ID) { c.pool.CancelHint(id) },
	})
	a.Name, a.CancelGrace = "a", patience
	c.pool = worker.New(worker.Options{
		Store: c.store, Agents: []worker.Agent{a}, StopGrace: patience, Worker: func() task.ID { return self }, ResumeURL: resumeURL,
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = c.pool.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return c
}

func (c *inMemory) open(h *task.Task, m *task.Message, q *task.Request) {
	c.h = opened(h)
	c.store.Create(c.h, m, q)
}

func (c *inMemory) tell(m *task.Message, q *task.Request) {
	_, err := c.store.AddMessage(c.h.ID, m, q)
	require.NoError(c.t, err)
}

func (c *inMemory) refuse() {
	calls := c.store.Calls(c.h.ID)
	require.NotEmpty(c.t, calls)
	var results []task.Result
	for _, call := range calls {
		results = append(results, task.Result{ID: call.ID, Agent: call.Agent, State: task.StateRejected, Error: "no " + call.Agent})
	}
	c.store.Return(c.h.ID, results)
}

func (c *inMemory) resume(turn int, text string) bool {
	_, err := c.store.Resume(c.h.ID, turn, resumedWith(text))
	if err != nil {
		require.ErrorIs(c.t, err, task.Terminal)
	}
	return err == nil
}

func (c *inMemory) end(metadata json.RawMessage) {
	require.NoError(c.t, c.store.Cancel(c.h.ID, metadata))
}

func (c *inMemory) notices()           { require.NoError(c.t, c.pool.Notices(c.t.Context())) }
func (c *inMemory) fire()              { require.Positive(c.t, c.store.Fire(c.h.ID)) }
func (c *inMemory) lose()              { require.Equal(c.t, 1, c.store.Rescue(c.pool.LoseAll)) }
func (c *inMemory) log() []*task.Event { return c.store.Events(c.h.ID, 0) }

// scenario is what an agent does and what happens to it meanwhile.
type scenario struct {
	agent  worker.Agent
	client func(t *testing.T, c client)
}

// until waits for an event.
func until(t *testing.T, c client, what string, is func(*task.Event) bool) {
	t.Helper()
	eventually(t, what, func() bool {
		for _, e := range c.log() {
			if is(e) {
				return true
			}
		}
		return false
	})
}

func reaches(t *testing.T, c client, s task.State) {
	t.Helper()
	until(t, c, "the task is "+s.String(), func(e *task.Event) bool { return e.Kind == task.EventStatus && e.State == s })
}

func hears(t *testing.T, c client, text string) {
	t.Helper()
	until(t, c, "the agent says "+text, func(e *task.Event) bool {
		return e.Kind == task.EventStatus && e.Message.FirstText() == text
	})
}

func asks(text string) *task.Message {
	return &task.Message{ID: "m-" + text, Role: task.RoleUser, Parts: []task.Part{task.Text(text)}}
}

func says(text string) *task.Message { return &task.Message{Parts: []task.Part{task.Text(text)}} }

// recalls describes what the log tells an executor.
func recalls(ctx context.Context, run *executor.Run) string {
	history, err := run.Memory.History(ctx)
	earlier, err2 := run.Memory.Earlier(ctx)
	checkpoint, err3 := run.Memory.Checkpoint(ctx)
	snapshot, before, err4 := run.Memory.Snapshot(ctx)
	within := executor.Bounds{Count: 100, Bytes: 1 << 20}
	said, err5 := run.Memory.Dialogue(ctx, executor.OfTask, within)
	within.Progress, within.Count = true, 5
	newest, err6 := run.Memory.Dialogue(ctx, executor.OfContext, within)
	if err := errors.Join(err, err2, err3, err4, err5, err6); err != nil {
		return err.Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "turn %d try %d attempt %d checkpoint %s %q %s", run.Turn, run.Try, run.Attempt, checkpoint, run.Message.FirstText(), run.ResumeURL)
	if in := run.Input; in != nil {
		fmt.Fprintf(&b, " after %s %v %v", in.Source, in.Interrupted, in.Until.IsZero())
		if r := in.Resumed; r != nil {
			fmt.Fprintf(&b, " %s %s %s %q", r.Method, r.Query, r.ContentType, r.Body)
		}
	}
	for i := range history {
		fmt.Fprintf(&b, " | %d %s", history[i].Role, history[i].FirstText())
	}
	for i := range earlier {
		b.WriteString(" & " + told(&earlier[i]))
	}
	fmt.Fprintf(&b, " = %d %s %s", before, snapshot.Status.State, snapshot.Status.Message.FirstText())
	for i := range snapshot.History {
		fmt.Fprintf(&b, " | %d %s", snapshot.History[i].Role, snapshot.History[i].FirstText())
	}
	for i := range snapshot.Artifacts {
		fmt.Fprintf(&b, " | %d %s %s", snapshot.Artifacts[i].Index, snapshot.Artifacts[i].ID, snapshot.Artifacts[i].Parts[0].Text)
	}
	for _, entries := range [][]executor.Said{said, newest} {
		b.WriteString(" dialogue" + quoted(entries))
	}
	return b.String()
}

func quoted(entries []executor.Said) string {
	var b strings.Builder
	for i := range entries {
		e := &entries[i]
		fmt.Fprintf(&b, " | %d %d %s %d", e.Seq, e.Role(), e.State, e.Left)
		for _, p := range e.Parts() {
			fmt.Fprintf(&b, " %q", p.Text)
		}
	}
	return b.String()
}

// looks describes what a run is told about the request, about tasks that its message refers to, and within bounds.
func looks(ctx context.Context, run *executor.Run) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %q %q %q %q", run.Metadata, run.TurnMetadata, run.AcceptedOutputModes, run.Extensions, run.Scopes, run.Traceparent)
	for _, within := range []executor.Bounds{
		{Count: 100, Bytes: 1 << 20, Progress: true},
		{Count: 2, Bytes: 1 << 20},
		{Count: 100, Bytes: 10_000},
		{Count: 100, Bytes: 4_000},
	} {
		refs, err := run.Memory.References(ctx, within)
		for i := range refs {
			fmt.Fprintf(&b, " task %s %s %s%s", refs[i].TaskID, refs[i].ContextID, refs[i].State, quoted(refs[i].Said))
		}
		task, err2 := run.Memory.Dialogue(ctx, executor.OfTask, within)
		all, err3 := run.Memory.Dialogue(ctx, executor.OfContext, within)
		fmt.Fprint(&b, " here", quoted(task), " context", quoted(all), errors.Join(err, err2, err3))
	}
	return b.String()
}

// told describes an event without what differs between two runs of a scenario.
func told(e *task.Event) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s attempt=%d", e.Seq, e.Kind, e.Attempt)
	if e.Kind == task.EventStatus {
		fmt.Fprintf(&b, " %s direct=%v cause=%q", e.State, e.Direct, e.Cause)
	}
	if m := e.Message; m != nil {
		fmt.Fprintf(&b, " %d %q %s %v", m.Role, m.FirstText(), m.ContextID, m.TaskID != "")
	}
	if a := e.Artifact; a != nil {
		fmt.Fprintf(&b, " %s %d %s %q append=%v last=%v %s", a.ID, a.Index, a.Name, a.Parts[0].Text, e.Append, e.Last, e.Metadata)
	}
	if e.Run != nil {
		fmt.Fprintf(&b, " %s %q %s %v %v", e.Run.Outcome, e.Run.Error, e.Run.Checkpoint, e.Run.Until.IsZero(), e.Run.Interruptible)
		for i := range e.Run.Calls {
			c := &e.Run.Calls[i]
			fmt.Fprintf(&b, " %s %s %q %d", c.ID, c.Agent, c.Message.FirstText(), c.Message.Role)
		}
	}
	return b.String()
}

// blocks says busy and waits until its context ends.
func blocks(ctx context.Context, out executor.Emitter) error {
	if err := out.Status(ctx, task.StateWorking, says("busy")); err != nil {
		return err
	}
	return waits(ctx)
}

// canceler is an agent that records its notices.
type canceler struct {
	executor.Func
	told chan string
}

func (a canceler) Cancel(ctx context.Context, c *executor.Cancellation) error {
	stored, err := c.Stored(ctx, executor.OfTask)
	if err != nil {
		return err
	}
	a.told <- fmt.Sprintf("%s turn=%d attempt=%d try=%d %s %s %s", c.Reason, c.Turn, c.Attempt, c.Try, c.Metadata, c.Checkpoint, stored.Value)
	return nil
}

func scenarios() map[string]scenario {
	ends := func(s task.State) func(*testing.T, client) {
		return func(t *testing.T, c client) { t.Helper(); c.create("hi"); reaches(t, c, s) }
	}
	heard, heardToo, resumed, resumedToo := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	again := executor.Retryable(errors.New("again"), time.Millisecond)
	elsewhere := canceler{told: make(chan string, 1)}
	elsewhere.Func = func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		if run.Turn == 3 {
			return blocks(ctx, out)
		}
		_, err := run.Memory.SetState(ctx, executor.OfTask, json.RawMessage(fmt.Sprintf(`{"job":%d}`, run.Turn)), executor.AnyVersion)
		return errors.Join(err, out.Checkpoint(ctx, json.RawMessage(fmt.Sprint(run.Turn))), out.Status(ctx, task.StateInputRequired, says(fmt.Sprint(run.Turn))))
	}
	all := map[string]scenario{
		"emits": {does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
			_, err := out.Artifact(ctx, executor.Chunk{Artifact: task.Artifact{ID: "x", Name: "n\x00", Parts: []task.Part{task.Text("1")}}, Metadata: json.RawMessage(`{"k": 1.0}`)})
			_, err2 := out.Artifact(ctx, executor.Chunk{Artifact: task.Artifact{ID: "y", Parts: []task.Part{task.Text("2")}}, Last: true})
			_, err3 := out.Artifact(ctx, executor.Chunk{Artifact: task.Artifact{ID: "x", Parts: []task.Part{task.Text("3")}}, Append: true, Last: true})
			return errors.Join(err, err2, err3, out.Status(ctx, task.StateWorking, nil), out.Status(ctx, task.StateWorking, nil),
				out.Status(ctx, task.StateWorking, says("half")), out.Checkpoint(ctx, json.RawMessage(`{"a":1}`)),
				out.Status(ctx, task.StateCompleted, says("done")))
		}), ends(task.StateCompleted)},
		"completes": {does(func(context.Context, *executor.Run, executor.Emitter) error { return nil }), ends(task.StateCompleted)},
		"fails":     {does(func(context.Context, *executor.Run, executor.Emitter) error { return errors.New("secret") }), ends(task.StateFailed)},
		"crashes":   {does(func(context.Context, *executor.Run, executor.Emitter) error { panic("oh") }), ends(task.StateFailed)},
		"retries": {does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
			if err := out.Status(ctx, task.StateWorking, says(recalls(ctx, run))); err != nil || run.Try == 3 {
				return err
			}
			_, err := out.Artifact(ctx, text(fmt.Sprint(run.Try)))
			return cmpErr(errors.Join(err, out.Checkpoint(ctx, json.RawMessage(fmt.Sprint(run.Try)))), again)
		}), ends(task.StateCompleted)},
		"gives up": {does(func(context.Context, *executor.Run, executor.Emitter) error { return again }), ends(task.StateFailed)},
		"asks": {does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
			if run.Turn == 3 {
				return out.Status(ctx, task.StateRejected, says(recalls(ctx, run)))
			}
			_, err := out.Artifact(ctx, text(fmt.Sprint(run.Turn)))
			return cmpErr(err, out.Status(ctx, task.StateInputRequired+task.State(run.Turn-1), says(fmt.Sprintf("question %d", run.Turn))))
		}), func(t *testing.T, c client) {
			t.Helper()
			c.create("hi")
			hears(t, c, "question 1")
			c.say("one")
			hears(t, c, "question 2")
			c.say("two")
			reaches(t, c, task.StateRejected)
		}},
		"is told more while it is busy": {does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
			if run.Turn == 1 {
				if err := out.Status(ctx, task.StateWorking, says("busy")); err != nil {
					return err
				}
				<-heard
				return out.Status(ctx, task.StateInputRequired, says("what?"))
			}
			s := task.StateInputRequired
			if run.Turn == 3 {
				s = task.StateCompleted
			}
			return out.Status(ctx, s, says(recalls(ctx, run)))
		}), func(t *testing.T, c client) {
			t.Helper()
			c.create("hi")
			hears(t, c, "busy")
			c.say("one")
			c.say("two")
			heard <- struct{}{}
			reaches(t, c, task.StateCompleted)
		}},
		"is canceled": {
			does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error { return blocks(ctx, out) }),
			func(t *testing.T, c client) {
				t.Helper()
				c.create("hi")
				hears(t, c, "busy")
				c.cancel()
				reaches(t, c, task.StateCanceled)
			},
		},
		"asks although it is canceled": {does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
			_ = blocks(ctx, out)
			return out.Status(context.WithoutCancel(ctx), task.StateInputRequired, says("what?"))
		}), func(t *testing.T, c client) {
			t.Helper()
			c.create("hi")
			hears(t, c, "busy")
			c.cancel()
			reaches(t, c, task.StateCanceled)
		}},
		"is canceled while it waits": {does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
			return out.Status(ctx, task.StateAuthRequired, nil)
		}), func(t *testing.T, c client) {
			t.Helper()
			c.create("hi")
			reaches(t, c, task.StateAuthRequired)
			c.cancel()
			reaches(t, c, task.StateCanceled)
		}},
		"gets notices of cancels": {worker.Agent{Executor: elsewhere}, func(t *testing.T, c client) {
			t.Helper()
			c.open(&task.Task{PublicID: "parked"}, asks("hi"), nil)
			hears(t, c, "1")
			c.end(json.RawMessage(`{"why":1.0}`))
			eventually(t, "the agent is told", func() bool { c.notices(); return len(elsewhere.told) > 0 })
			require.Equal(t, `canceled turn=1 attempt=1 try=1 {"why":1.0} 1 {"job":1}`, <-elsewhere.told)

			c.open(&task.Task{PublicID: "running"}, asks("hi"), nil)
			hears(t, c, "1")
			c.say("again")
			hears(t, c, "2")
			c.say("again")
			hears(t, c, "busy")
			c.cancel()
			eventually(t, "the agent is told", func() bool { return len(elsewhere.told) > 0 })
			require.Equal(t, `canceled turn=3 attempt=3 try=1  2 {"job":2}`, <-elsewhere.told)
			reaches(t, c, task.StateCanceled)
		}},
		"loses its lease": {does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
			if run.Try == 1 {
				_, err := out.Artifact(ctx, text("1"))
				return cmpErr(err, blocks(ctx, out))
			}
			return out.Status(ctx, task.StateCompleted, says(recalls(ctx, run)))
		}), func(t *testing.T, c client) {
			t.Helper()
			c.create("hi")
			hears(t, c, "busy")
			c.lose()
			reaches(t, c, task.StateCompleted)
		}},
		"loses every lease": {
			does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error { return blocks(ctx, out) }),
			func(t *testing.T, c client) {
				t.Helper()
				c.create("hi")
				for n := 1; n <= 3; n++ {
					eventually(t, "the next try runs", func() bool {
						busy := 0
						for _, e := range c.log() {
							if e.Kind == task.EventStatus && e.Message.FirstText() == "busy" {
								busy++
							}
						}
						return busy == n
					})
					c.lose()
				}
				reaches(t, c, task.StateFailed)
			},
		},
		"emits too much": {does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
			_, err := out.Artifact(ctx, text("12345"))
			return err
		}), ends(task.StateFailed)},
		"waits and is waited for": {does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
			switch run.Turn {
			case 1:
				_, err := out.Artifact(ctx, text("1"))
				return cmpErr(err, out.Wait(ctx, executor.Wait{For: time.Millisecond}))
			case 2:
				err := out.Status(ctx, task.StateWorking, says(recalls(ctx, run)))
				return cmpErr(err, out.Wait(ctx, executor.Wait{For: time.Hour, Interruptible: true}))
			case 3:
				if run.Try == 1 {
					return again
				}
				return out.Status(ctx, task.StateInputRequired, says(recalls(ctx, run)))
			}
			return out.Status(ctx, task.StateCompleted, says(recalls(ctx, run)))
		}), func(t *testing.T, c client) {
			t.Helper()
			waits := func(n int) {
				eventually(t, "the agent waits", func() bool {
					found := 0
					for _, e := range c.log() {
						if e.Waits() {
							found++
						}
					}
					return found == n
				})
			}
			c.create("hi")
			waits(1)
			c.fire()
			waits(2)
			c.say("one")
			reaches(t, c, task.StateInputRequired)
			c.say("two")
			reaches(t, c, task.StateCompleted)
		}},
		"is told more before it waits": {does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
			switch run.Turn {
			case 1:
				if err := out.Status(ctx, task.StateWorking, says("busy")); err != nil {
					return err
				}
				<-heardToo
				return out.Wait(ctx, executor.Wait{For: time.Hour, Interruptible: true})
			case 2:
				err := out.Status(ctx, task.StateWorking, says(recalls(ctx, run)))
				return cmpErr(err, out.Wait(ctx, executor.Wait{Until: time.Unix(1, 0)}))
			}
			return out.Status(ctx, task.StateCompleted, says(recalls(ctx, run)))
		}), func(t *testing.T, c client) {
			t.Helper()
			c.create("hi")
			hears(t, c, "busy")
			c.say("one")
			c.say("two")
			heardToo <- struct{}{}
			until(t, c, "the agent waits for good", func(e *task.Event) bool { return e.Waits() && !e.Run.Interruptible })
			c.fire()
			reaches(t, c, task.StateCompleted)
		}},
		"is canceled while a timer runs": {does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
			return out.Wait(ctx, executor.Wait{For: time.Hour})
		}), func(t *testing.T, c client) {
			t.Helper()
			c.create("hi")
			until(t, c, "the agent waits", (*task.Event).Waits)
			c.cancel()
			reaches(t, c, task.StateCanceled)
		}},
		"calls": {does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
			switch {
			case run.Turn == 1:
				return out.Call(ctx, []executor.Call{{Agent: "b", Message: says("hi")}, {ID: "x", Agent: "c", Message: says("ho")}})
			case run.Input == nil:
				return out.Status(ctx, task.StateCompleted, says(recalls(ctx, run)))
			case run.Try == 1:
				return again
			}
			var got strings.Builder
			for _, r := range run.Input.Results {
				fmt.Fprintf(&got, "%s %s %s %s %s, ", r.ID, r.Agent, r.TaskID, r.State, r.Error)
			}
			return out.Status(ctx, task.StateInputRequired, says(got.String()+recalls(ctx, run)))
		}), func(t *testing.T, c client) {
			t.Helper()
			c.create("hi")
			until(t, c, "the agent calls", (*task.Event).Waits)
			c.say("one")
			c.refuse()
			reaches(t, c, task.StateCompleted)
		}},
		"is canceled while it calls": {does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
			return out.Call(ctx, []executor.Call{{Agent: "b", Message: says("hi")}})
		}), func(t *testing.T, c client) {
			t.Helper()
			c.create("hi")
			until(t, c, "the agent calls", (*task.Event).Waits)
			c.cancel()
			reaches(t, c, task.StateCanceled)
		}},
		"looks at other tasks": {does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
			switch run.Message.FirstText() {
			case "large":
				err := out.Status(ctx, task.StateWorking, says("progress"))
				_, err2 := out.Artifact(ctx, text(strings.Repeat("x", 3_000)))
				return errors.Join(err, err2, out.Status(ctx, task.StateInputRequired, says("more?")))
			case "look":
				return out.Status(ctx, task.StateInputRequired, says(looks(ctx, run)))
			case "look again":
				return out.Status(ctx, task.StateCompleted, says(looks(ctx, run)))
			}
			_, err := out.Artifact(ctx, text("small"))
			return err
		}), func(t *testing.T, c client) {
			t.Helper()
			c.open(&task.Task{PublicID: "small"}, asks("small"), nil)
			reaches(t, c, task.StateCompleted)
			c.open(&task.Task{PublicID: "large"}, asks("large"), nil)
			reaches(t, c, task.StateInputRequired)
			c.open(&task.Task{PublicID: "of another owner", Owner: "eve"}, asks("small"), nil)
			reaches(t, c, task.StateCompleted)
			c.open(&task.Task{PublicID: "of another tenant", Tenant: "evil"}, asks("small"), nil)
			reaches(t, c, task.StateCompleted)
			c.open(&task.Task{PublicID: "of another agent", Agent: "b"}, asks("small"), nil)

			look := asks("look")
			look.References = []string{"large", "unknown", "of another owner", "of another tenant", "of another agent", "small"}
			c.open(&task.Task{Metadata: json.RawMessage(`{"task":1.0}`)}, look, &task.Request{
				OutputModes: []string{"text/plain"}, Extensions: []string{"urn:e"}, Scopes: []string{"s"}, Traceparent: "00-t",
			})
			reaches(t, c, task.StateInputRequired)
			look = asks("look again")
			look.References = []string{"small", "large"}
			for range store.MostReferences {
				look.References = append(look.References, "small")
			}
			c.tell(look, &task.Request{Metadata: json.RawMessage(`{"turn":2.0}`)})
			reaches(t, c, task.StateCompleted)
		}},
		"asks with a resume URL": {does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
			if run.Turn == 2 && run.Try == 1 {
				_, err := out.Artifact(ctx, text("2"))
				return cmpErr(errors.Join(err, out.Checkpoint(ctx, json.RawMessage("2"))), again)
			}
			switch run.Turn {
			case 1:
				_, err := out.Artifact(ctx, text("1"))
				return cmpErr(err, out.Ask(ctx, executor.Ask{State: task.StateAuthRequired, Resume: &executor.Resume{Show: true}}))
			case 2:
				err := out.Status(ctx, task.StateWorking, says(recalls(ctx, run)))
				return cmpErr(err, out.Ask(ctx, executor.Ask{State: task.StateInputRequired, Message: says("question 2"), Resume: &executor.Resume{For: time.Hour}}))
			case 3:
				err := out.Status(ctx, task.StateWorking, says(recalls(ctx, run)))
				return cmpErr(err, out.Ask(ctx, executor.Ask{State: task.StateInputRequired, Message: says("question 3")}))
			}
			return out.Status(ctx, task.StateCompleted, says(recalls(ctx, run)))
		}), func(t *testing.T, c client) {
			t.Helper()
			c.create("hi")
			hears(t, c, resumeURL(task.ID{}, 1))
			require.False(t, c.resume(2, "of a later turn"))
			require.True(t, c.resume(1, "one"))
			require.False(t, c.resume(1, "one again"))
			hears(t, c, "question 2")
			require.False(t, c.resume(1, "of an earlier turn"))
			c.say("two")
			require.False(t, c.resume(2, "too late"))
			hears(t, c, "question 3")
			require.False(t, c.resume(3, "not asked for"))
			c.say("three")
			reaches(t, c, task.StateCompleted)
			require.False(t, c.resume(4, "after the end"))
		}},
		"is resumed before it asks": {does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
			switch {
			case run.Turn == 1 && run.Try == 1:
				return blocks(ctx, out)
			case run.Turn == 1:
				return out.Ask(ctx, executor.Ask{State: task.StateAuthRequired, Message: says(recalls(ctx, run)), Resume: &executor.Resume{}})
			case run.Turn == 2:
				return out.Ask(ctx, executor.Ask{State: task.StateInputRequired, Message: says(recalls(ctx, run)), Resume: &executor.Resume{}})
			}
			return out.Status(ctx, task.StateCompleted, says(recalls(ctx, run)))
		}), func(t *testing.T, c client) {
			t.Helper()
			c.create("hi")
			hears(t, c, "busy")
			require.True(t, c.resume(1, "early"))
			require.False(t, c.resume(1, "early again"))
			c.say("more")
			c.lose()
			reaches(t, c, task.StateCompleted)
		}},
		"is resumed and asks only the client": {does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
			switch run.Turn {
			case 1:
				if err := out.Status(ctx, task.StateWorking, says("busy")); err != nil {
					return err
				}
				<-resumed
				return out.Status(ctx, task.StateInputRequired, says("question 1"))
			case 2:
				return out.Ask(ctx, executor.Ask{State: task.StateInputRequired, Message: says("question 2"), Resume: &executor.Resume{}})
			}
			return out.Status(ctx, task.StateCompleted, says(recalls(ctx, run)))
		}), func(t *testing.T, c client) {
			t.Helper()
			c.create("hi")
			hears(t, c, "busy")
			require.True(t, c.resume(1, "early"))
			resumed <- struct{}{}
			hears(t, c, "question 1")
			require.False(t, c.resume(1, "again"))
			c.say("one")
			hears(t, c, "question 2")
			require.True(t, c.resume(2, "two"))
			reaches(t, c, task.StateCompleted)
		}},
		"is resumed and waits": {does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
			switch run.Turn {
			case 1:
				if err := out.Status(ctx, task.StateWorking, says("busy")); err != nil {
					return err
				}
				<-resumedToo
				return out.Wait(ctx, executor.Wait{For: time.Millisecond})
			case 2:
				err := out.Status(ctx, task.StateWorking, says(recalls(ctx, run)))
				return cmpErr(err, out.Ask(ctx, executor.Ask{State: task.StateInputRequired, Message: says("question"), Resume: &executor.Resume{}}))
			}
			return out.Status(ctx, task.StateCompleted, says(recalls(ctx, run)))
		}), func(t *testing.T, c client) {
			t.Helper()
			c.create("hi")
			hears(t, c, "busy")
			require.True(t, c.resume(1, "early"))
			resumedToo <- struct{}{}
			until(t, c, "the agent waits", (*task.Event).Waits)
			require.False(t, c.resume(1, "again"))
			c.fire()
			hears(t, c, "question")
			require.True(t, c.resume(2, "two"))
			reaches(t, c, task.StateCompleted)
		}},
		"is canceled after an early resume": {does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
			_ = blocks(ctx, out)
			return out.Ask(context.WithoutCancel(ctx), executor.Ask{State: task.StateInputRequired, Message: says("what?"), Resume: &executor.Resume{}})
		}), func(t *testing.T, c client) {
			t.Helper()
			c.create("hi")
			hears(t, c, "busy")
			require.True(t, c.resume(1, "early"))
			c.cancel()
			reaches(t, c, task.StateCanceled)
			require.False(t, c.resume(1, "late"))
		}},
		"stores a state": {does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
			var log []string
			for _, of := range []executor.Scope{executor.OfTask, executor.OfContext} {
				for _, set := range []struct {
					value   string
					version int64
				}{
					{"", 0},
					{"", 7},
					{"", executor.AnyVersion},
					{"1", 1},
					{"1", 0},
					{"2", 0},
					{"2", 1},
					{"3", executor.AnyVersion},
					{"", 0},
					{"", 3},
					{"", 3},
					{"", 0},
					{"4", 4},
					{"4", 0},
					{"null", executor.AnyVersion},
					{"5", executor.AnyVersion},
				} {
					version, err := run.Memory.SetState(ctx, of, json.RawMessage(set.value), set.version)
					now, err2 := run.Memory.State(ctx, of)
					log = append(log, fmt.Sprint(of, set, version, err, string(now.Value), now.Version, err2))
				}
			}
			err := out.Status(ctx, task.StateCompleted, says(strings.Join(log, "\n")))
			_, late := run.Memory.SetState(ctx, executor.OfTask, json.RawMessage("6"), executor.AnyVersion)
			if late == nil {
				return errors.New("a run that has ended stores a state")
			}
			return err
		}), ends(task.StateCompleted)},
		"replies": {does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
			return out.Reply(ctx, says("hi"))
		}), ends(task.StateCompleted)},
	}
	for name, s := range all {
		s.agent.MaxAttempts, s.agent.Backoff = 3, time.Millisecond
		s.agent.Concurrency = 3 // a lost run may still end
		switch name {
		case "emits too much":
			s.agent.MaxArtifacts = 4
		case "replies":
			s.agent.DirectReplies = true
		}
		all[name] = s
	}
	return all
}

func cmpErr(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

// The store in memory, with which users test their agents, has the rules of the one in PostgreSQL.
func TestInMemoryStoreWritesTheLogOfPostgres(t *testing.T) {
	t.Parallel()
	for name, s := range scenarios() {
		t.Run("an agent that "+name, func(t *testing.T) {
			t.Parallel()
			var logs [2][]string
			for i, c := range []client{{&inPostgres{process: start(t, setup{}, s.agent)}}, {inMemoryOf(t, s.agent)}} {
				s.client(t, c)
				for _, e := range c.log() {
					logs[i] = append(logs[i], told(e))
				}
			}
			require.Equal(t, logs[0], logs[1])
		})
	}
}
