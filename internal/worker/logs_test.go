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

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/internal/worker"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

var update = flag.Bool("update", false, "rewrite testdata/logs")

// client is a client and an operator of the tasks of one agent.
type client struct {
	*session
	t *testing.T
}

func (c client) create(text string) client { return c.opens("", text) }

// opens creates a task with a name.
func (c client) opens(name, text string) client {
	c.open(&task.Task{PublicID: name}, asks(text), nil)
	return c
}

func (c client) say(text string) client {
	c.tell(asks(text), nil)
	return c
}

func (c client) do(what func()) client {
	what()
	return c
}

func (c client) cancel() client { return c.do(func() { c.end(nil) }) }
func (c client) lose() client   { return c.do(c.session.lose) }
func (c client) fire() client   { return c.do(c.session.fire) }
func (c client) refuse() client { return c.do(c.session.refuse) }

// let lets the agent go on.
func (c client) let(goOn chan<- struct{}) client { return c.do(func() { goOn <- struct{}{} }) }

// resumes uses the resume URL of a turn.
func (c client) resumes(turn int, text string, accepted bool) client {
	c.t.Helper()
	require.Equal(c.t, accepted, c.resume(turn, text), text)
	return c
}

// until waits for n events.
func (c client) until(n int, what string, is func(*task.Event) bool) client {
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
	return c
}

func (c client) reaches(s task.State) client {
	c.t.Helper()
	return c.until(1, "the task is "+s.String(), func(e *task.Event) bool { return e.Kind == task.EventStatus && e.State == s })
}

func (c client) hears(text string) client { return c.hearsAgain(1, text) }

func (c client) hearsAgain(times int, text string) client {
	c.t.Helper()
	return c.until(times, "the agent says "+text, func(e *task.Event) bool {
		return e.Kind == task.EventStatus && e.Message.FirstText() == text
	})
}

// waits waits until the agent has waited, or called, so often.
func (c client) waits(times int) client {
	return c.until(times, "the agent waits", (*task.Event).Waits)
}

// opened completes the header of a task.
func opened(h *task.Task, agent string) *task.Task {
	h.ID, h.ContextID, h.Dialect = store.NewID(), "with "+agent, "0.3"
	h.Agent, h.PublicID = cmp.Or(h.Agent, agent), cmp.Or(h.PublicID, h.ID.String())
	return h
}

// session has the tasks of one agent of a process.
type session struct {
	*process
	t     *testing.T
	agent string
	h     *task.Task // that the next calls are about
}

func (c *session) open(h *task.Task, m *task.Message, q *task.Request) {
	c.h = opened(h, c.agent)
	n := &store.NewTask{Task: *h, ClientID: h.PublicID != h.ID.String(), Message: m, Request: q}
	storetest.Must(c.store.Create(c.t.Context(), n))(c.t)
}

func (c *session) tell(m *task.Message, q *task.Request) {
	_, err := c.store.AddMessage(c.t.Context(), &store.NewMessage{Task: c.h, Enqueue: true, RequestID: store.NewID(), Message: m, Request: q})
	require.NoError(c.t, err)
}

func (c *session) events() []*task.Event { return c.log(c.h) }

// fire moves the timer of a task, which waits, and fires it. The turn may have begun already if its time was past.
func (c *session) fire() {
	c.exec("UPDATE holdfast.tasks SET wakes_at = now() WHERE id = $1 AND wakes_at IS NOT NULL", c.h.ID)
	c.exec("UPDATE holdfast.task_queue SET wakes_at = now(), available_at = now() WHERE id = $1 AND wakes_at IS NOT NULL", c.h.ID)
	storetest.Must(c.store.FireTimers(c.t.Context()))(c.t)
}

func (c *session) refuse() {
	calls := storetest.Must(c.store.NewCalls(c.t.Context(), 0, store.NewCall{}, 100))(c.t)
	calls = slices.DeleteFunc(calls, func(call store.NewCall) bool { return call.Parent != c.h.ID })
	require.NotEmpty(c.t, calls)
	for _, call := range calls {
		require.NoError(c.t, c.store.RefuseCall(c.t.Context(), call, "no "+call.Agent))
	}
}

func (c *session) resume(turn int, text string) bool {
	err := c.store.Resume(c.t.Context(), &task.ResumeRequest{
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

func (c *session) end(metadata json.RawMessage) {
	storetest.Must(c.store.Cancel(c.t.Context(), c.h, metadata))(c.t)
}

func (c *session) notices() { require.NoError(c.t, c.pool.Notices(c.t.Context())) }

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
		b.WriteString(" & " + short(described(&earlier[i])))
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

// described describes an event without what differs between two runs of a scenario.
func described(e *task.Event) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s attempt=%d", e.Seq, e.Kind, e.Attempt)
	if e.Kind == task.EventStatus {
		cause, _, _ := strings.Cut(e.Cause, "\n") // the stack of a panic has addresses
		fmt.Fprintf(&b, " %s direct=%v cause=%q", e.State, e.Direct, cause)
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
func blocks(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
	if err := out.Status(ctx, task.StateWorking, says("busy")); err != nil {
		return err
	}
	return waits(ctx)
}

// canceler is an agent that records its notices.
type canceler struct {
	fn
	notified chan string
}

func (a canceler) Cancel(ctx context.Context, c *executor.Cancellation) error {
	stored, err := c.Stored(ctx, executor.OfTask)
	if err != nil {
		return err
	}
	a.notified <- fmt.Sprintf("%s turn=%d attempt=%d try=%d %s %s %s", c.Reason, c.Turn, c.Attempt, c.Try, c.Metadata, c.Checkpoint, stored.Value)
	return nil
}

// scenario is what an agent does and what happens to it meanwhile.
type scenario struct {
	agent  executor.Executor
	client func(c client)
}

// turns does something else in each turn, and tries in each try of a turn; the last one also in all that follow.
func turns(each ...fn) fn {
	return func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		return each[min(run.Turn, len(each))-1](ctx, run, out)
	}
}

func tries(each ...fn) fn {
	return func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		return each[min(run.Try, len(each))-1](ctx, run, out)
	}
}

// steps does one thing after the other, up to the first error.
func steps(all ...fn) fn {
	return func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		for _, do := range all {
			if err := do(ctx, run, out); err != nil {
				return err
			}
		}
		return nil
	}
}

func returns(err error) fn {
	return func(context.Context, *executor.Run, executor.Emitter) error { return err }
}

// status sets a state with a message, or without one.
func status(s task.State, text string) fn {
	return func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
		if text == "" {
			return out.Status(ctx, s, nil)
		}
		return out.Status(ctx, s, says(text))
	}
}

// recalled sets a state with all that the run knows.
func recalled(s task.State) fn {
	return func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		return out.Status(ctx, s, says(recalls(ctx, run)))
	}
}

func emitted(s string) fn { return chunk(text(s)) }

func chunk(c executor.Chunk) fn {
	return func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
		return out.Artifact(ctx, c)
	}
}

func grows(name, s string) fn {
	return chunk(executor.Chunk{Grows: true, Artifact: task.Artifact{ID: name, Parts: []task.Part{task.Text(s)}}})
}

func unnamed(s string) fn {
	return chunk(executor.Chunk{Artifact: task.Artifact{Parts: []task.Part{task.Text(s)}}})
}

func checkpoint(data string) fn {
	return func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
		return out.Checkpoint(ctx, json.RawMessage(data))
	}
}

func records(record string) fn {
	return func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
		return out.Record(ctx, json.RawMessage(record))
	}
}

// recorded ends the run with what was recorded.
func recorded(s task.State) fn {
	return func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		all, next, err := run.Memory.Records(ctx, 0, 1<<20)
		text := fmt.Sprint(len(all), " records, more ", next > 0)
		for _, r := range all {
			text += " " + string(r)
		}
		return errors.Join(err, out.Status(ctx, s, says(text)))
	}
}

func reply(text string) fn {
	return func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
		return out.Reply(ctx, says(text))
	}
}

func waitsFor(w executor.Wait) fn {
	return func(ctx context.Context, _ *executor.Run, out executor.Emitter) error { return out.Wait(ctx, w) }
}

func callsFor(calls ...executor.Call) fn {
	return func(ctx context.Context, _ *executor.Run, out executor.Emitter) error { return out.Call(ctx, calls) }
}

// resumable asks with a resume URL.
func resumable(s task.State, m *task.Message, r *executor.Resume) fn {
	return func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
		return out.Ask(context.WithoutCancel(ctx), executor.Ask{State: s, Message: m, Resume: r})
	}
}

// knowing asks with a resume URL and all that the run knows.
func knowing(s task.State) fn {
	return func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		return resumable(s, says(recalls(ctx, run)), &executor.Resume{})(ctx, run, out)
	}
}

// until waits for the client.
func until(c <-chan struct{}) fn {
	return func(context.Context, *executor.Run, executor.Emitter) error {
		<-c
		return nil
	}
}

// canceled waits until the run is canceled, and ignores it.
func canceled(ctx context.Context, run *executor.Run, out executor.Emitter) error {
	_ = blocks(ctx, run, out)
	return nil
}

// jobbed stores a job, and asks.
func jobbed(n string) fn {
	return steps(func(ctx context.Context, run *executor.Run, _ executor.Emitter) error {
		_, err := run.Memory.SetState(ctx, executor.OfTask, json.RawMessage(`{"job":`+n+`}`), executor.AnyVersion)
		return err
	}, checkpoint(n), status(task.StateInputRequired, n))
}

// stores stores a state, and accepts that it is not JSON.
func stores(value string) fn {
	return func(ctx context.Context, run *executor.Run, _ executor.Emitter) error {
		_, err := run.Memory.SetState(ctx, executor.OfContext, json.RawMessage(value), executor.AnyVersion)
		if failure, failed := errors.AsType[*executor.Failure](err); failed && failure.Msg == "The agent's state is not valid JSON." {
			return nil
		}
		return err
	}
}

func scenarios() map[string]scenario {
	ends := func(s task.State) func(client) {
		return func(c client) { c.create("hi").reaches(s) }
	}
	cancels := func(c client) { c.create("hi").hears("busy").cancel().reaches(task.StateCanceled) }
	waitsAndIsCanceled := func(c client) { c.create("hi").waits(1).cancel().reaches(task.StateCanceled) }
	const (
		working, completed = task.StateWorking, task.StateCompleted
		input, auth        = task.StateInputRequired, task.StateAuthRequired
	)
	heard, heardToo, resumed, resumedToo := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	again := returns(executor.Retryable(&executor.Failure{Msg: "Not now.", Cause: errors.New("the model is loading")}, time.Millisecond))
	hour, open := executor.Wait{For: time.Hour}, executor.Wait{For: time.Hour, Interruptible: true}
	notified := make(chan string, 1)
	return map[string]scenario{
		"emits": {steps(
			chunk(executor.Chunk{Artifact: task.Artifact{ID: "x", Name: "n\x00", Parts: []task.Part{task.Text("1")}}, Metadata: json.RawMessage(`{"k": 1.0}`)}),
			chunk(executor.Chunk{Artifact: task.Artifact{ID: "y", Parts: []task.Part{task.Text("2")}}, Last: true}),
			chunk(executor.Chunk{Artifact: task.Artifact{ID: "x", Parts: []task.Part{task.Text("3")}}, Append: true, Last: true}),
			status(working, ""), status(working, ""), // is shown already
			status(working, "half"), status(working, "half"), status(working, ""), status(working, ""),
			checkpoint(`{"a":1}`), status(completed, "done"),
		), ends(completed)},
		"completes": {returns(nil), ends(completed)},
		"fails":     {returns(errors.New("secret")), ends(task.StateFailed)},
		"gives up":  {again, ends(task.StateFailed)},
		"crashes":   {fn(func(context.Context, *executor.Run, executor.Emitter) error { panic("oh") }), ends(task.StateFailed)},
		"ends its goroutine": {fn(func(context.Context, *executor.Run, executor.Emitter) error {
			runtime.Goexit()
			return nil
		}), ends(task.StateFailed)},
		"is away and comes back": {fn(func(_ context.Context, run *executor.Run, _ executor.Emitter) error {
			if run.Attempt == 1 {
				return &executor.Unavailable{Err: errors.New("connection refused")}
			}
			return nil
		}), ends(completed)},
		"is gone after it has begun": {steps(emitted("x"), returns(&executor.Unavailable{Err: errors.New("gone")})), ends(task.StateFailed)},
		"goes on at its checkpoint": {tries(
			steps(grows("kept", "1 "), unnamed("first"), checkpoint("1"), grows("kept", "lost "), grows("late", "lost "), unnamed("lost"), again),
			steps(grows("late", "2 "), checkpoint("2"), grows("late", "lost "), again),
			steps(grows("kept", "3 "), grows("kept", "4 "), grows("late", "3 "), unnamed("second"), again),
			steps(grows("kept", "5 "), grows("late", "5 "), unnamed("second"), returns(nil)),
		), ends(completed)},
		"goes on at its records": {turns(tries(
			steps(grows("kept", "1 "), grows("beside", "lost "), records(`{"name":"a","open":["beside"]}`), grows("kept", "lost "), again),
			steps(grows("beside", "1 "), grows("kept", "2 "), records(`{"name":"b"}`), status(input, "what?")),
		), tries(
			steps(grows("later", "1 "), records(`{"name":"c"}`), grows("later", "lost "), again),
			steps(grows("later", "2 "), recorded(completed)),
		)), func(c client) {
			c.create("hi").hears("what?").say("that").reaches(completed)
		}},
		"records too much": {steps(records(`{"name":"`+strings.Repeat("x", 89)+`"}`), records(`{"name":"`+strings.Repeat("x", 90)+`"}`)), ends(task.StateFailed)},
		"retries": {steps(recalled(working), tries(
			steps(emitted("1"), checkpoint("1"), again), steps(emitted("2"), checkpoint("2"), again), returns(nil),
		)), ends(completed)},
		"asks": {turns(
			steps(emitted("1"), status(input, "question 1")), steps(emitted("2"), status(auth, "question 2")), recalled(task.StateRejected),
		), func(c client) {
			c.create("hi").hears("question 1").say("one").hears("question 2").say("two").reaches(task.StateRejected)
		}},
		"is told more while it is busy": {turns(
			steps(status(working, "busy"), until(heard), emitted("1"), checkpoint("1"), status(input, "what?")), recalled(input), recalled(completed),
		), func(c client) { c.create("hi").hears("busy").say("one").say("two").let(heard).reaches(completed) }},
		"is canceled": {fn(blocks), cancels},
		"asks although it is canceled": {steps(canceled, func(ctx context.Context, _ *executor.Run, out executor.Emitter) error {
			return out.Status(context.WithoutCancel(ctx), input, says("what?"))
		}), cancels},
		"is canceled while it waits": {status(auth, ""), func(c client) {
			c.create("hi").reaches(auth).cancel().reaches(task.StateCanceled)
		}},
		"is canceled while a timer runs": {waitsFor(hour), waitsAndIsCanceled},
		"is canceled while it calls":     {callsFor(executor.Call{Agent: "b", Message: says("hi")}), waitsAndIsCanceled},
		"loses its lease": {tries(steps(emitted("1"), blocks), recalled(completed)), func(c client) {
			c.create("hi").hears("busy").lose().reaches(completed)
		}},
		"loses every lease": {fn(blocks), func(c client) {
			c.create("hi")
			for n := 1; n <= 3; n++ {
				c.hearsAgain(n, "busy")
				c.lose()
			}
			c.reaches(task.StateFailed)
		}},
		"emits too much": {emitted("12345"), ends(task.StateFailed)},
		"waits and is waited for": {turns(
			func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
				if err := steps(emitted("1"), checkpoint(`"of turn 1"`), waitsFor(hour))(ctx, run, out); err != nil {
					return err
				}
				return errors.Join(errors.New("nobody reads this"), out.Status(ctx, working, says("nor this")))
			},
			tries(steps(checkpoint(`"of turn 2"`), again), steps(recalled(working), waitsFor(open))),
			tries(again, recalled(input)),
			recalled(completed),
		), func(c client) {
			c.create("hi").waits(1).fire().waits(2).say("one").reaches(input).say("two").reaches(completed)
		}},
		"may reply and waits": {turns(waitsFor(hour), reply("too late")), func(c client) { c.create("hi").waits(1).fire().reaches(task.StateFailed) }},
		"is told more before it waits": {turns(
			steps(status(working, "busy"), until(heardToo), waitsFor(open)),
			steps(recalled(working), waitsFor(executor.Wait{Until: time.Unix(1, 0)})),
			recalled(completed),
		), func(c client) {
			c.create("hi").hears("busy").say("one").say("two").let(heardToo).waits(2).fire().reaches(completed)
		}},
		"calls": {turns(
			callsFor(executor.Call{Agent: "b", Message: says("hi")}, executor.Call{ID: "x", Agent: "c", Message: says("ho")}),
			tries(again, func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
				var got strings.Builder
				for _, r := range run.Input.Results {
					fmt.Fprintf(&got, "%s %s %s %s %s, ", r.ID, r.Agent, r.TaskID, r.State, r.Error)
				}
				return out.Status(ctx, input, says(got.String()+recalls(ctx, run)))
			}),
			recalled(completed),
		), func(c client) { c.create("hi").waits(1).say("one").refuse().reaches(completed) }},
		"asks with a resume URL": {turns(
			steps(emitted("1"), resumable(auth, nil, &executor.Resume{Show: true})),
			tries(
				steps(emitted("2"), checkpoint("2"), again),
				steps(recalled(working), resumable(input, says("question 2"), &executor.Resume{For: time.Hour})),
			),
			steps(recalled(working), resumable(input, says("question 3"), nil)),
			recalled(completed),
		), func(c client) {
			c.create("hi").hears(resumeURL(task.ID{}, 1)).resumes(2, "of a later turn", false).resumes(1, "one", true).
				resumes(1, "one again", false).hears("question 2").resumes(1, "of an earlier turn", false).say("two").
				resumes(2, "too late", false).hears("question 3").resumes(3, "not asked for", false).say("three").
				reaches(completed).resumes(4, "after the end", false)
		}},
		"is resumed before it asks": {turns(tries(blocks, knowing(auth)), knowing(input), recalled(completed)), func(c client) {
			c.create("hi").hears("busy").resumes(1, "early", true).resumes(1, "early again", false).say("more").lose().
				reaches(completed)
		}},
		"is resumed and asks only the client": {turns(
			steps(status(working, "busy"), until(resumed), status(input, "question 1")),
			resumable(input, says("question 2"), &executor.Resume{}),
			recalled(completed),
		), func(c client) {
			c.create("hi").hears("busy").resumes(1, "early", true).let(resumed).hears("question 1").
				resumes(1, "again", false).say("one").hears("question 2").resumes(2, "two", true).reaches(completed)
		}},
		"is resumed and waits": {turns(
			steps(status(working, "busy"), until(resumedToo), waitsFor(hour)),
			steps(recalled(working), resumable(input, says("question"), &executor.Resume{})),
			recalled(completed),
		), func(c client) {
			c.create("hi").hears("busy").resumes(1, "early", true).let(resumedToo).waits(1).resumes(1, "again", false).
				fire().hears("question").resumes(2, "two", true).reaches(completed)
		}},
		"is canceled after an early resume": {steps(canceled, resumable(input, says("what?"), &executor.Resume{})), func(c client) {
			c.create("hi").hears("busy").resumes(1, "early", true).cancel().reaches(task.StateCanceled).
				resumes(1, "late", false)
		}},
		"gets notices of cancels": {canceler{notified: notified, fn: turns(jobbed("1"), jobbed("2"), blocks)}, func(c client) {
			c.opens("parked", "hi").hears("1").end(json.RawMessage(`{"why":1.0}`))
			waittest.Eventually(c.t, "the agent is told", func() error {
				c.notices()
				return waittest.Unless(len(notified) > 0, "not yet")
			})
			require.Equal(c.t, `canceled turn=1 attempt=1 try=1 {"why":1.0} 1 {"job":1}`, <-notified)

			c.opens("running", "hi").hears("1").say("again").hears("2").say("again").hears("busy").cancel()
			require.Equal(c.t, `canceled turn=3 attempt=3 try=1  2 {"job":2}`, waittest.Within(c.t, "the agent is told", notified))
			c.reaches(task.StateCanceled)
		}},
		"looks at other tasks": {fn(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
			switch run.Message.FirstText() {
			case "large":
				return steps(status(working, "progress"), emitted(strings.Repeat("x", 3_000)), status(input, "more?"))(ctx, run, out)
			case "look":
				return out.Status(ctx, input, says(looks(ctx, run)))
			case "look again":
				return out.Status(ctx, completed, says(looks(ctx, run)))
			}
			return emitted("small")(ctx, run, out)
		}), func(c client) {
			c.opens("small", "small").reaches(completed).opens("large", "large").reaches(input)
			c.open(&task.Task{PublicID: "of another owner", Owner: "eve"}, asks("small"), nil)
			c.reaches(completed)
			c.open(&task.Task{PublicID: "of another tenant", Tenant: "evil"}, asks("small"), nil)
			c.reaches(completed)
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
		"stores a state": {fn(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
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
		"keeps a state": {fn(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
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
				return again(ctx, run, out)
			}
			return out.Status(ctx, task.StateInputRequired, says(strings.Join(seen, " and of the context ")+recalls(ctx, run)))
		}), func(c client) {
			c.opens("first", "1").reaches(task.StateInputRequired).say("2").
				until(2, "the question of turn 2", func(e *task.Event) bool { return e.State == task.StateInputRequired }).
				opens("second", "3").reaches(task.StateInputRequired)
		}},
		"stores too much": {steps(stores(`{"a":`), stores(`"`+strings.Repeat("x", 98)+`"`), stores(`"`+strings.Repeat("x", 99)+`"`)), ends(task.StateFailed)},
		"replies":         {reply("hi"), ends(completed)},
	}
}

// agents are those of scenarios.
func agents(all map[string]scenario) (list []worker.Agent) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		a := worker.Agent{Name: name, Executor: all[name].agent, MaxAttempts: 3, Backoff: time.Millisecond}
		a.Concurrency = 3 // a lost run may still end
		switch name {
		case "emits too much":
			a.MaxArtifacts = 4
		case "goes on at its checkpoint":
			a.MaxAttempts = 4
		case "stores too much", "records too much":
			a.MaxState = 100
		case "replies", "may reply and waits":
			a.DirectReplies = true
		}
		list = append(list, a)
	}
	return list
}

// The logs of these agents are as testdata/logs shows them.
func TestLogs(t *testing.T) { //nolint:tparallel // the group ends when its parallel subtests have ended
	t.Parallel()
	const golden = "testdata/logs"
	want := storetest.Must(os.ReadFile(golden))(t)
	all := scenarios()
	list := agents(all)
	shared := start(t, setup{}, list...)
	lines := strings.NewReplacer(" | ", "\n\t| ", " & ", "\n\t& ", " = ", "\n\t= ", " dialogue", "\n\tdialogue", " here", "\n\there", " context |", "\n\tcontext |", "\\n", "\n\t")
	var written sync.Map
	t.Run("agents", func(t *testing.T) {
		for _, a := range list {
			name := a.Name
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				p := shared
				if slices.Contains([]string{"loses its lease", "loses every lease", "is resumed before it asks"}, name) {
					p = start(t, setup{}, a)
				}
				on := &session{process: p, t: t, agent: name}
				all[name].client(client{on, t})
				section := "== an agent that " + name + "\n"
				for _, e := range on.events() {
					section += lines.Replace(described(e)) + "\n"
				}
				written.Store(name, section)
				if !*update {
					_, rest, _ := strings.Cut(string(want), "== an agent that "+name+"\n")
					log, _, _ := strings.Cut(rest, "== ")
					require.Equal(t, "== an agent that "+name+"\n"+log, section)
				}
			})
		}
	})
	if *update {
		var out strings.Builder
		for _, a := range list {
			section, _ := written.Load(a.Name)
			out.WriteString(section.(string))
		}
		require.NoError(t, os.WriteFile(golden, []byte(out.String()), 0o600))
	}
}
