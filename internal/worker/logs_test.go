package worker_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/resume"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
	"github.com/holdfast-a2a/holdfast/internal/worker"
)

var update = flag.Bool("update", false, "rewrite testdata/logs")

// A client and an operator do the same on PostgreSQL and in memory.
type client struct {
	server
	t *testing.T
}

type server interface {
	open(h *task.Task, m *task.Message, q *task.Request) // the task that the next calls are about
	tell(m *task.Message, q *task.Request)
	end(metadata json.RawMessage) // cancels the task
	notices()                     // the time of notices has come
	lose()                        // the process of the run dies
	fire()                        // the time of a wait has come
	refuse()                      // the calls of the agent are refused
	resume(turn int, text string) (accepted bool)
	events() []*task.Event
}

func (c client) create(text string) { c.open(&task.Task{}, asks(text), nil) }
func (c client) say(text string)    { c.tell(asks(text), nil) }
func (c client) cancel()            { c.end(nil) }

// resumes uses the resume URL of a turn.
func (c client) resumes(turn int, text string, accepted bool) {
	c.t.Helper()
	require.Equal(c.t, accepted, c.resume(turn, text), text)
}

// until waits for n events.
func (c client) until(n int, what string, is func(*task.Event) bool) {
	c.t.Helper()
	waittest.Eventually(c.t, what, func() error {
		log := c.events()
		found := 0
		for _, e := range log {
			if is(e) {
				found++
			}
		}
		return waittest.Unless(found >= n, "%d of %d; the log has %d events", found, n, len(log))
	})
}

func (c client) reaches(s task.State) {
	c.t.Helper()
	c.until(1, "the task is "+s.String(), func(e *task.Event) bool { return e.Kind == task.EventStatus && e.State == s })
}

func (c client) hears(text string) { c.t.Helper(); c.hearsAgain(1, text) }

func (c client) hearsAgain(times int, text string) {
	c.t.Helper()
	c.until(times, "the agent says "+text, func(e *task.Event) bool {
		return e.Kind == task.EventStatus && e.Message.FirstText() == text
	})
}

// waits waits until the agent has waited, or called, so often.
func (c client) waits(times int) {
	c.t.Helper()
	c.until(times, "the agent waits", (*task.Event).Waits)
}

// opened completes the header of a task.
func opened(h *task.Task, agent string) *task.Task {
	h.ID, h.ContextID, h.Dialect = store.NewID(), "with "+agent, "0.3"
	h.Agent, h.PublicID = cmp.Or(h.Agent, agent), cmp.Or(h.PublicID, h.ID.String())
	return h
}

// inPostgres has the tasks of one agent of a process.
type inPostgres struct {
	*process
	t     *testing.T
	agent string
	h     *task.Task
}

func (c *inPostgres) open(h *task.Task, m *task.Message, q *task.Request) {
	c.h = opened(h, c.agent)
	n := &store.NewTask{Task: *h, ClientID: h.PublicID != h.ID.String(), Message: m, Request: q}
	_, err := c.store.Create(c.t.Context(), n)
	require.NoError(c.t, err)
}

func (c *inPostgres) tell(m *task.Message, q *task.Request) {
	_, err := c.store.AddMessage(c.t.Context(), &store.NewMessage{Task: c.h, Enqueue: true, RequestID: store.NewID(), Message: m, Request: q})
	require.NoError(c.t, err)
}

func (c *inPostgres) events() []*task.Event { return c.log(c.h) }

// fire moves the timer of a task, which waits, and fires it. The turn may have begun already if its time was past.
func (c *inPostgres) fire() {
	c.exec("UPDATE holdfast.tasks SET wakes_at = now() WHERE id = $1 AND wakes_at IS NOT NULL", c.h.ID)
	c.exec("UPDATE holdfast.task_queue SET wakes_at = now(), available_at = now() WHERE id = $1 AND wakes_at IS NOT NULL", c.h.ID)
	_, err := c.store.FireTimers(c.t.Context())
	require.NoError(c.t, err)
}

func (c *inPostgres) refuse() {
	calls, err := c.store.NewCalls(c.t.Context(), 0, store.NewCall{}, 100)
	require.NoError(c.t, err)
	calls = slices.DeleteFunc(calls, func(call store.NewCall) bool { return call.Parent != c.h.ID })
	require.NotEmpty(c.t, calls)
	for _, call := range calls {
		require.NoError(c.t, c.store.RefuseCall(c.t.Context(), call, "no "+call.Agent))
	}
}

func (c *inPostgres) resume(turn int, text string) bool {
	err := c.store.Resume(c.t.Context(), &resume.Request{
		ID: store.NewID(), Task: c.h.ID, Turn: turn, Agent: c.agent, Content: resumedWith(text),
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

// inMemory has the tasks of the only agent of a pool.
type inMemory struct {
	*local
	t     *testing.T
	agent string
	h     *task.Task
}

func (c *inMemory) open(h *task.Task, m *task.Message, q *task.Request) {
	c.h = opened(h, c.agent)
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

func (c *inMemory) fire() { require.Positive(c.t, c.store.Fire(c.h.ID)) }
func (c *inMemory) lose() { require.Equal(c.t, 1, c.store.Rescue(c.pool.LoseAll)) }
func (c *inMemory) end(metadata json.RawMessage) {
	require.NoError(c.t, c.store.Cancel(c.h.ID, metadata))
}
func (c *inMemory) notices()              { require.NoError(c.t, c.pool.Notices(c.t.Context())) }
func (c *inMemory) events() []*task.Event { return c.store.Events(c.h.ID, 0) }

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
		fmt.Fprintf(&b, " | %d %s", history[i].Role, short(history[i].FirstText()))
	}
	for i := range earlier {
		b.WriteString(" & " + short(told(&earlier[i])))
	}
	fmt.Fprintf(&b, " = %d %s %s", before, snapshot.Status.State, short(snapshot.Status.Message.FirstText()))
	for i := range snapshot.History {
		fmt.Fprintf(&b, " | %d %s", snapshot.History[i].Role, short(snapshot.History[i].FirstText()))
	}
	for i := range snapshot.Artifacts {
		fmt.Fprintf(&b, " | %d %s %s", snapshot.Artifacts[i].Index, snapshot.Artifacts[i].ID, snapshot.Artifacts[i].Parts[0].Text)
	}
	for _, entries := range [][]executor.Said{said, newest} {
		b.WriteString(" dialogue" + quoted(entries))
	}
	return b.String()
}

// short leaves a short text as it is, and of others the beginning and the size.
func short(text string) string {
	if len(text) < 80 {
		return text
	}
	return fmt.Sprintf("%.20s... of %d bytes", text, len(text))
}

func quoted(entries []executor.Said) string {
	var b strings.Builder
	for i := range entries {
		e := &entries[i]
		fmt.Fprintf(&b, " | %d %d %s %d", e.Seq, e.Role(), e.State, e.Left)
		for _, p := range e.Parts() {
			fmt.Fprintf(&b, " %s", short(p.Text))
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
		last, times := "", 0
		for i := range refs {
			ref := fmt.Sprintf(" task %s %s %s%s", refs[i].TaskID, refs[i].ContextID, refs[i].State, quoted(refs[i].Said))
			if ref == last {
				times++
				continue
			}
			last = ref
			b.WriteString(ref)
		}
		fmt.Fprintf(&b, " and the last one again %d times", times)
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
		fmt.Fprintf(&b, " %d %q", m.Role, m.FirstText())
		if m.ContextID == "" || m.TaskID == "" {
			b.WriteString(" in no task")
		}
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

// scenario is what an agent does and what happens to it meanwhile.
type scenario struct {
	agent  worker.Agent
	client func(c client)
}

func scenarios() map[string]scenario {
	ends := func(s task.State) func(client) { return func(c client) { c.create("hi"); c.reaches(s) } }
	heard, heardToo, resumed, resumedToo := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	again := executor.Retryable(&executor.Failure{Msg: "Not now.", Cause: errors.New("the model is loading")}, time.Millisecond)
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
			err4 := errors.Join(out.Status(ctx, task.StateWorking, nil), out.Status(ctx, task.StateWorking, nil)) // is shown already
			for _, progress := range []*task.Message{says("half"), says("half"), nil, nil} {
				err4 = errors.Join(err4, out.Status(ctx, task.StateWorking, progress))
			}
			return errors.Join(err, err2, err3, err4, out.Checkpoint(ctx, json.RawMessage(`{"a":1}`)), out.Status(ctx, task.StateCompleted, says("done")))
		}), ends(task.StateCompleted)},
		"completes":          {does(func(context.Context, *executor.Run, executor.Emitter) error { return nil }), ends(task.StateCompleted)},
		"fails":              {does(func(context.Context, *executor.Run, executor.Emitter) error { return errors.New("secret") }), ends(task.StateFailed)},
		"crashes":            {does(func(context.Context, *executor.Run, executor.Emitter) error { panic("oh") }), ends(task.StateFailed)},
		"ends its goroutine": {does(func(context.Context, *executor.Run, executor.Emitter) error { runtime.Goexit(); return nil }), ends(task.StateFailed)},
		"is away and comes back": {does(func(_ context.Context, run *executor.Run, _ executor.Emitter) error {
			if run.Attempt == 1 {
				return &executor.Unavailable{Err: errors.New("connection refused")}
			}
			return nil
		}), ends(task.StateCompleted)},
		"is gone after it has begun": {does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
			_, err := out.Artifact(ctx, text("x"))
			return cmpErr(err, &executor.Unavailable{Err: errors.New("gone")})
		}), ends(task.StateFailed)},
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
		}), func(c client) {
			c.create("hi")
			c.hears("question 1")
			c.say("one")
			c.hears("question 2")
			c.say("two")
			c.reaches(task.StateRejected)
		}},
		"is told more while it is busy": {does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
			if run.Turn == 1 {
				if err := out.Status(ctx, task.StateWorking, says("busy")); err != nil {
					return err
				}
				<-heard
				_, err := out.Artifact(ctx, text("1"))
				return errors.Join(err, out.Checkpoint(ctx, json.RawMessage("1")), out.Status(ctx, task.StateInputRequired, says("what?")))
			}
			s := task.StateInputRequired
			if run.Turn == 3 {
				s = task.StateCompleted
			}
			return out.Status(ctx, s, says(recalls(ctx, run)))
		}), func(c client) {
			c.create("hi")
			c.hears("busy")
			c.say("one")
			c.say("two")
			heard <- struct{}{}
			c.reaches(task.StateCompleted)
		}},
		"is canceled": {
			does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error { return blocks(ctx, out) }),
			func(c client) {
				c.create("hi")
				c.hears("busy")
				c.cancel()
				c.reaches(task.StateCanceled)
			},
		},
		"asks although it is canceled": {does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
			_ = blocks(ctx, out)
			return out.Status(context.WithoutCancel(ctx), task.StateInputRequired, says("what?"))
		}), func(c client) {
			c.create("hi")
			c.hears("busy")
			c.cancel()
			c.reaches(task.StateCanceled)
		}},
		"is canceled while it waits": {does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
			return out.Status(ctx, task.StateAuthRequired, nil)
		}), func(c client) {
			c.create("hi")
			c.reaches(task.StateAuthRequired)
			c.cancel()
			c.reaches(task.StateCanceled)
		}},
		"gets notices of cancels": {worker.Agent{Executor: elsewhere}, func(c client) {
			c.open(&task.Task{PublicID: "parked"}, asks("hi"), nil)
			c.hears("1")
			c.end(json.RawMessage(`{"why":1.0}`))
			waittest.Eventually(c.t, "the agent is told", func() error {
				c.notices()
				return waittest.Unless(len(elsewhere.told) > 0, "not yet")
			})
			require.Equal(c.t, `canceled turn=1 attempt=1 try=1 {"why":1.0} 1 {"job":1}`, <-elsewhere.told)

			c.open(&task.Task{PublicID: "running"}, asks("hi"), nil)
			c.hears("1")
			c.say("again")
			c.hears("2")
			c.say("again")
			c.hears("busy")
			c.cancel()
			require.Equal(c.t, `canceled turn=3 attempt=3 try=1  2 {"job":2}`, waittest.Within(c.t, "the agent is told", elsewhere.told))
			c.reaches(task.StateCanceled)
		}},
		"loses its lease": {does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
			if run.Try == 1 {
				_, err := out.Artifact(ctx, text("1"))
				return cmpErr(err, blocks(ctx, out))
			}
			return out.Status(ctx, task.StateCompleted, says(recalls(ctx, run)))
		}), func(c client) {
			c.create("hi")
			c.hears("busy")
			c.lose()
			c.reaches(task.StateCompleted)
		}},
		"loses every lease": {
			does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error { return blocks(ctx, out) }),
			func(c client) {
				c.create("hi")
				for n := 1; n <= 3; n++ {
					c.hearsAgain(n, "busy")
					c.lose()
				}
				c.reaches(task.StateFailed)
			},
		},
		"emits too much": {does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
			_, err := out.Artifact(ctx, text("12345"))
			return err
		}), ends(task.StateFailed)},
		"waits and is waited for": {does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
			switch {
			case run.Turn == 1:
				_, err := out.Artifact(ctx, text("1"))
				if err := errors.Join(err, out.Checkpoint(ctx, []byte(`"of turn 1"`)), out.Wait(ctx, executor.Wait{For: time.Hour})); err != nil {
					return err
				}
				return errors.Join(errors.New("nobody reads this"), out.Status(ctx, task.StateWorking, says("nor this")))
			case run.Turn == 2 && run.Try == 1:
				return cmpErr(out.Checkpoint(ctx, []byte(`"of turn 2"`)), again)
			case run.Turn == 2:
				err := out.Status(ctx, task.StateWorking, says(recalls(ctx, run)))
				return cmpErr(err, out.Wait(ctx, executor.Wait{For: time.Hour, Interruptible: true}))
			case run.Turn == 3 && run.Try == 1:
				return again
			case run.Turn == 3:
				return out.Status(ctx, task.StateInputRequired, says(recalls(ctx, run)))
			}
			return out.Status(ctx, task.StateCompleted, says(recalls(ctx, run)))
		}), func(c client) {
			c.create("hi")
			c.waits(1)
			c.fire()
			c.waits(2)
			c.say("one")
			c.reaches(task.StateInputRequired)
			c.say("two")
			c.reaches(task.StateCompleted)
		}},
		"may reply and waits": {does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
			if run.Input == nil {
				return out.Wait(ctx, executor.Wait{For: time.Hour})
			}
			return out.Reply(ctx, says("too late"))
		}), func(c client) {
			c.create("hi")
			c.waits(1)
			c.fire()
			c.reaches(task.StateFailed)
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
		}), func(c client) {
			c.create("hi")
			c.hears("busy")
			c.say("one")
			c.say("two")
			heardToo <- struct{}{}
			c.waits(2)
			c.fire()
			c.reaches(task.StateCompleted)
		}},
		"is canceled while a timer runs": {does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
			return out.Wait(ctx, executor.Wait{For: time.Hour})
		}), func(c client) {
			c.create("hi")
			c.waits(1)
			c.cancel()
			c.reaches(task.StateCanceled)
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
		}), func(c client) {
			c.create("hi")
			c.waits(1)
			c.say("one")
			c.refuse()
			c.reaches(task.StateCompleted)
		}},
		"is canceled while it calls": {does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
			return out.Call(ctx, []executor.Call{{Agent: "b", Message: says("hi")}})
		}), func(c client) {
			c.create("hi")
			c.waits(1)
			c.cancel()
			c.reaches(task.StateCanceled)
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
		}), func(c client) {
			c.open(&task.Task{PublicID: "small"}, asks("small"), nil)
			c.reaches(task.StateCompleted)
			c.open(&task.Task{PublicID: "large"}, asks("large"), nil)
			c.reaches(task.StateInputRequired)
			c.open(&task.Task{PublicID: "of another owner", Owner: "eve"}, asks("small"), nil)
			c.reaches(task.StateCompleted)
			c.open(&task.Task{PublicID: "of another tenant", Tenant: "evil"}, asks("small"), nil)
			c.reaches(task.StateCompleted)
			c.open(&task.Task{PublicID: "of another agent", Agent: "b"}, asks("small"), nil)

			look := asks("look")
			look.References = []string{"large", "unknown", "of another owner", "of another tenant", "of another agent", "small"}
			c.open(&task.Task{Metadata: json.RawMessage(`{"task":1.0}`)}, look, &task.Request{
				OutputModes: []string{"text/plain"}, Extensions: []string{"urn:e"}, Scopes: []string{"s"}, Traceparent: "00-t",
			})
			c.reaches(task.StateInputRequired)
			look = asks("look again")
			look.References = []string{"small", "large"}
			for range store.MostReferences {
				look.References = append(look.References, "small")
			}
			c.tell(look, &task.Request{Metadata: json.RawMessage(`{"turn":2.0}`)})
			c.reaches(task.StateCompleted)
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
		}), func(c client) {
			c.create("hi")
			c.hears(resumeURL(task.ID{}, 1))
			c.resumes(2, "of a later turn", false)
			c.resumes(1, "one", true)
			c.resumes(1, "one again", false)
			c.hears("question 2")
			c.resumes(1, "of an earlier turn", false)
			c.say("two")
			c.resumes(2, "too late", false)
			c.hears("question 3")
			c.resumes(3, "not asked for", false)
			c.say("three")
			c.reaches(task.StateCompleted)
			c.resumes(4, "after the end", false)
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
		}), func(c client) {
			c.create("hi")
			c.hears("busy")
			c.resumes(1, "early", true)
			c.resumes(1, "early again", false)
			c.say("more")
			c.lose()
			c.reaches(task.StateCompleted)
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
		}), func(c client) {
			c.create("hi")
			c.hears("busy")
			c.resumes(1, "early", true)
			resumed <- struct{}{}
			c.hears("question 1")
			c.resumes(1, "again", false)
			c.say("one")
			c.hears("question 2")
			c.resumes(2, "two", true)
			c.reaches(task.StateCompleted)
		}},
		"is resumed and waits": {does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
			switch run.Turn {
			case 1:
				if err := out.Status(ctx, task.StateWorking, says("busy")); err != nil {
					return err
				}
				<-resumedToo
				return out.Wait(ctx, executor.Wait{For: time.Hour})
			case 2:
				err := out.Status(ctx, task.StateWorking, says(recalls(ctx, run)))
				return cmpErr(err, out.Ask(ctx, executor.Ask{State: task.StateInputRequired, Message: says("question"), Resume: &executor.Resume{}}))
			}
			return out.Status(ctx, task.StateCompleted, says(recalls(ctx, run)))
		}), func(c client) {
			c.create("hi")
			c.hears("busy")
			c.resumes(1, "early", true)
			resumedToo <- struct{}{}
			c.waits(1)
			c.resumes(1, "again", false)
			c.fire()
			c.hears("question")
			c.resumes(2, "two", true)
			c.reaches(task.StateCompleted)
		}},
		"is canceled after an early resume": {does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
			_ = blocks(ctx, out)
			return out.Ask(context.WithoutCancel(ctx), executor.Ask{State: task.StateInputRequired, Message: says("what?"), Resume: &executor.Resume{}})
		}), func(c client) {
			c.create("hi")
			c.hears("busy")
			c.resumes(1, "early", true)
			c.cancel()
			c.reaches(task.StateCanceled)
			c.resumes(1, "late", false)
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
		"keeps a state": {does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
			var seen []string
			for _, of := range []executor.Scope{executor.OfTask, executor.OfContext} {
				s, err := run.Memory.State(ctx, of)
				if err != nil {
					return err
				}
				seen = append(seen, string(s.Value))
				next := strings.Trim(string(s.Value), `"`) + run.Message.FirstText() + `\u0000`
				if _, err := run.Memory.SetState(ctx, of, json.RawMessage(`"`+next+`"`), s.Version); err != nil {
					return err
				}
				if _, err := run.Memory.SetState(ctx, of, json.RawMessage(`1`), s.Version); !errors.Is(err, executor.ErrStateChanged) {
					return fmt.Errorf("an old version was replaced: %w", err)
				}
			}
			if run.Try == 1 {
				return again
			}
			return out.Status(ctx, task.StateInputRequired, says(strings.Join(seen, " and of the context ")+recalls(ctx, run)))
		}), func(c client) {
			c.open(&task.Task{PublicID: "first"}, asks("1"), nil)
			c.reaches(task.StateInputRequired)
			c.say("2")
			c.until(2, "the question of turn 2", func(e *task.Event) bool { return e.State == task.StateInputRequired })
			c.open(&task.Task{PublicID: "second"}, asks("3"), nil)
			c.reaches(task.StateInputRequired)
		}},
		"stores too much": {does(func(ctx context.Context, run *executor.Run, _ executor.Emitter) error {
			for _, value := range []string{`{"a":`, `"` + strings.Repeat("x", 98) + `"`, `"` + strings.Repeat("x", 99) + `"`} {
				_, err := run.Memory.SetState(ctx, executor.OfContext, json.RawMessage(value), executor.AnyVersion)
				failure, failed := errors.AsType[*executor.Failure](err)
				if failed && failure.Msg == "The agent's state is not valid JSON." {
					continue
				}
				if err != nil {
					return err
				}
			}
			return nil
		}), ends(task.StateFailed)},
		"replies": {does(func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
			return out.Reply(ctx, says("hi"))
		}), ends(task.StateCompleted)},
	}
	for name, s := range all {
		s.agent.Name, s.agent.MaxAttempts, s.agent.Backoff = name, 3, time.Millisecond
		s.agent.Concurrency = 3 // a lost run may still end
		switch name {
		case "emits too much":
			s.agent.MaxArtifacts = 4
		case "stores too much":
			s.agent.MaxState = 100
		case "replies", "may reply and waits":
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

// The logs of these agents are as testdata/logs shows them, in PostgreSQL and in memory, where users test their agents.
func TestLogs(t *testing.T) {
	t.Parallel()
	const golden = "testdata/logs"
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	all := scenarios()
	var agents []worker.Agent
	for _, name := range slices.Sorted(maps.Keys(all)) {
		agents = append(agents, all[name].agent)
	}
	shared := start(t, setup{}, agents...)
	lines := strings.NewReplacer(" | ", "\n\t| ", " & ", "\n\t& ", " = ", "\n\t= ", " dialogue", "\n\tdialogue", " here", "\n\there", " context |", "\n\tcontext |", "\\n", "\n\t")
	var written sync.Map
	t.Run("agents", func(t *testing.T) {
		for name, s := range all {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				p := shared
				if slices.Contains([]string{"loses its lease", "loses every lease", "is resumed before it asks"}, name) {
					p = start(t, setup{}, s.agent)
				}
				for _, on := range []server{
					&inMemory{local: startLocal(t, setup{}, s.agent), t: t, agent: name},
					&inPostgres{process: p, t: t, agent: name},
				} {
					s.client(client{on, t})
					section := "== an agent that " + name + "\n"
					for _, e := range on.events() {
						section += lines.Replace(told(e)) + "\n"
					}
					written.Store(name, section)
					if !*update {
						_, rest, _ := strings.Cut(string(want), "== an agent that "+name+"\n")
						log, _, _ := strings.Cut(rest, "== ")
						require.Equal(t, "== an agent that "+name+"\n"+log, section, "%T", on)
					}
				}
			})
		}
	})
	if *update {
		var out strings.Builder
		for _, a := range agents {
			section, _ := written.Load(a.Name)
			out.WriteString(section.(string))
		}
		require.NoError(t, os.WriteFile(golden, []byte(out.String()), 0o600))
	}
}
