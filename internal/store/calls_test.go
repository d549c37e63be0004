package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// callNote is the run note of a run that ends in calls of these agents.
func (f *fixture) callNote(agents ...string) *task.Event {
	note := &task.RunNote{Outcome: task.RunCalls}
	for i, agent := range agents {
		note.Calls = append(note.Calls, task.Call{ID: fmt.Sprint("call-", i+1), Agent: agent, Task: f.NewTaskID(), Message: user("for " + agent)})
	}
	return &task.Event{Kind: task.EventRun, Run: note}
}

// calling is a task whose agent has called these agents. No call has begun.
func (f *fixture) calling(agents ...string) *pen {
	f.t.Helper()
	p := f.running("caller")
	require.False(f.t, p.must(f.t, status(task.StateWorking), f.callNote(agents...)).requeued)
	return p
}

// called is the task that a call creates.
func called(n *CallNote, c NewCall) *NewTask {
	call := n.Calls[c.Nth-1]
	return &NewTask{
		Task: task.Task{
			ID: c.Task, PublicID: c.Task.String(), Agent: c.Agent, Tenant: n.Parent.Tenant, Owner: n.Parent.Owner,
			ContextID: n.Parent.ContextID, Dialect: n.Parent.Dialect,
		},
		Message: call.Message, Called: true,
	}
}

// begin begins all calls, and returns the runs of the tasks that they have created, in the order of the calls.
func (f *fixture) begin() []*pen {
	f.t.Helper()
	calls := storetest.Must(f.NewCalls(f.t.Context(), 0, NewCall{}, 1000))(f.t)
	var pens []*pen
	for _, c := range calls {
		n := storetest.Must(f.CallNote(f.t.Context(), c.Parent, c.Note))(f.t)
		f.ok(f.Create(f.t.Context(), called(n, c)))
		pens = append(pens, &pen{s: f.Store, c: f.claim(f.worker(time.Hour), c.Agent, 1)[0]})
	}
	return pens
}

// join joins results until there is nothing to do, and ends what ended tasks have called.
func (f *fixture) join() {
	f.t.Helper()
	for j := (Joined{More: true}); j.More; {
		j = storetest.Must(f.JoinCalls(f.t.Context(), j))(f.t)
		for _, t := range j.Ended {
			require.NoError(f.t, patiently(func() error {
				open, err := f.OpenCalls(f.t.Context(), t.Task)
				for _, h := range open {
					if _, err := f.Cancel(f.t.Context(), h, nil); err != nil {
						return err
					}
					j = Joined{More: true}
				}
				return err
			}))
			require.NoError(f.t, patiently(func() error { return f.ForgetSettled(f.t.Context(), t) }))
		}
	}
}

func (f *fixture) results(c *Claimed, most int64) []task.Result {
	f.t.Helper()
	return storetest.Must(f.Results(f.t.Context(), c.Task, c.Wait.Seq, most))(f.t)
}

func TestTurnAfterCallsHasTheirResults(t *testing.T) {
	f := parallel(t)
	p := f.calling("b", "c", "d")
	require.Equal(t, task.StateWorking, f.state(p.c.Task.ID))
	require.ErrorIs(t, waittest.Within(t, "the answer", p.write(chunk("late"))).err, task.LeaseLost)
	w := f.worker(time.Hour)
	children := f.begin()
	require.Equal(t, "for b", children[0].c.Message.FirstText())
	require.Equal(t, p.c.Task.ContextID, children[0].c.Task.ContextID)

	failed := status(task.StateFailed)
	failed.Message = &task.Message{ID: "m", Role: task.RoleAgent, Parts: []task.Part{task.Text("no")}}
	children[1].must(t, status(task.StateWorking), failed)
	children[2].must(t, status(task.StateWorking), status(task.StateInputRequired))
	f.join()
	f.claim(w, "caller", 0)
	children[0].must(t, status(task.StateWorking), chunk("text"), status(task.StateCompleted))
	f.claim(w, "caller", 0)
	f.join()

	c := f.claim(w, "caller", 1)[0]
	require.Equal(t, &Wait{Seq: 3, Calls: true}, c.Wait)
	require.Empty(t, c.Message.Parts)
	require.Equal(t, []int{2, 1}, []int{c.Turn, c.Try})
	got := f.results(c, 1000)
	for i, want := range []task.Result{
		{ID: "call-1", Agent: "b", State: task.StateCompleted},
		{ID: "call-2", Agent: "c", State: task.StateFailed},
		{ID: "call-3", Agent: "d", State: task.StateInputRequired},
	} {
		require.Equal(t, []any{want.ID, want.Agent, want.State, children[i].c.Task.PublicID}, []any{got[i].ID, got[i].Agent, got[i].State, got[i].TaskID})
	}
	require.Equal(t, "text", got[0].Artifacts[0].Parts[0].Text)
	require.Equal(t, "no", got[1].Message.FirstText())

	_, lines := query(t, f.conn(), "SELECT agent, state, parent = root, depth, call, called_at IS NOT NULL FROM holdfast.v_lineage ORDER BY call")
	require.Equal(t, [][]string{
		{"b", "completed", "t", "1", "call-1", "t"}, {"c", "failed", "t", "1", "call-2", "t"}, {"d", "input-required", "t", "1", "call-3", "t"},
	}, lines)
	p = &pen{s: f.Store, c: c}
	p.must(t, status(task.StateCompleted))
	f.join()
	require.Equal(t, task.StateCanceled, f.state(children[2].c.Task.ID), "what an ended task has called ends, too")
	_, lines = query(t, f.conn(), "SELECT run, turn, outcome FROM holdfast.v_runs WHERE task = '"+p.c.Task.ID.String()+"' ORDER BY run")
	require.Equal(t, [][]string{{"1", "1", "calls"}, {"2", "2", "completed"}}, lines)
	require.Zero(t, scan[int](f, "SELECT count(*)::int FROM holdfast.task_settled"))
}

func TestTaskThatWaitsForCallsIsShown(t *testing.T) {
	f := parallel(t)
	p := f.calling("b")
	depths := storetest.Must(f.QueueDepths(t.Context()))(t)
	require.Equal(t, []int64{0, 0, 0, 1}, []int64{depths[0].Waiting, depths[0].Running, depths[0].Timers, depths[0].Calls})
	_, lines := query(t, f.conn(), "SELECT phase, waiting IS NULL FROM holdfast.v_queue")
	require.Equal(t, [][]string{{"calls", "t"}}, lines)
	require.ErrorContains(t, errOf2(f.Hurry(t.Context(), p.c.Task)), "waits for the tasks that it has called")
	f.ok(f.FireTimers(t.Context()))
	f.claim(f.worker(time.Hour), "caller", 0)
	seq := storetest.Must(f.say(p.c.Task.ID, true))(t)
	f.begin()[0].must(t, status(task.StateCompleted))
	f.join()
	p = &pen{s: f.Store, c: f.claim(f.worker(time.Hour), "caller", 1)[0]}
	require.True(t, p.c.Wait.Calls, "a message waits behind the results")
	require.True(t, p.must(t, status(task.StateInputRequired)).requeued)
	require.Equal(t, seq, f.claim(f.worker(time.Hour), "caller", 1)[0].MessageSeq)
}

// A cancel of the caller and the creation of what it has called may come at the same moment: no task stays behind.
func TestCancelOfACallerRacesWithItsCalls(t *testing.T) {
	f := parallel(t)
	for range 20 {
		p := f.calling("b", "c")
		calls := storetest.Must(f.NewCalls(t.Context(), 0, NewCall{}, 10))(t)
		n := storetest.Must(f.CallNote(t.Context(), p.c.Task.ID, calls[0].Note))(t)
		var g errgroup.Group
		for _, c := range calls {
			g.Go(func() error {
				if _, err := f.Create(t.Context(), called(n, c)); !errors.Is(err, ErrTaken) {
					return err
				}
				return nil
			})
		}
		g.Go(func() error {
			err := patiently(func() error { _, err := f.Cancel(t.Context(), p.c.Task, nil); return err })
			f.join()
			return err
		})
		require.NoError(t, g.Wait())
		require.Zero(t, scan[int](f, "SELECT count(*)::int FROM holdfast.tasks WHERE state < 5"))
		require.Zero(t, scan[int](f, "SELECT count(*)::int FROM holdfast.task_settled"))
	}
}

// A client cancels a task while its run ends in calls: nothing is called.
func TestCanceledRunCallsNobody(t *testing.T) {
	f := parallel(t)
	p := f.running("caller")
	p.must(t, status(task.StateWorking))
	f.ok(f.Cancel(t.Context(), p.c.Task, nil))
	require.True(t, p.must(t, f.callNote("b")).requeued)
	require.True(t, f.claim(f.worker(time.Hour), "caller", 1)[0].CancelRequested)
	require.Zero(t, scan[int](f, "SELECT count(*)::int FROM holdfast.task_calls"))
}

func TestResultsOfManyCallsAreJoinedOnce(t *testing.T) {
	f := parallel(t)
	const parents, each = 5, 20
	var ids []task.ID
	for range parents {
		ids = append(ids, f.calling(slices.Repeat([]string{"b"}, each)...).c.Task.ID)
	}
	children := f.begin()
	require.Len(t, children, parents*each)
	var left, won atomic.Int32
	left.Store(parents * each)
	var g errgroup.Group
	g.Go(func() error {
		for _, p := range children {
			p.must(t, status(task.StateWorking), status(task.StateCompleted))
			left.Add(-1)
		}
		return nil
	})
	for range 3 {
		w := f.worker(time.Hour)
		g.Go(func() error {
			for won.Load() < parents {
				if _, err := f.JoinCalls(t.Context(), Joined{}); err != nil {
					return err
				}
				claimed, err := f.Claim(t.Context(), w, []Demand{{Agent: "caller", Slots: 2}})
				if err != nil {
					return err
				}
				won.Add(int32(len(claimed)))
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	require.EqualValues(t, parents, won.Load())
	for _, id := range ids {
		require.Equal(t, 2, scan[int](f, "SELECT runs FROM holdfast.tasks WHERE id = $1", id))
	}
}

func TestRefusedCallIsAResult(t *testing.T) {
	f := parallel(t)
	f.calling("b", "c")
	calls := storetest.Must(f.NewCalls(t.Context(), 0, NewCall{}, 10))(t)
	for range 2 {
		require.NoError(t, f.RefuseCall(t.Context(), calls[0], "there is no agent b"))
	}
	f.claim(f.worker(time.Hour), "caller", 0)
	require.NoError(t, f.RefuseCall(t.Context(), calls[1], "there is no agent c"))
	c := f.claim(f.worker(time.Hour), "caller", 1)[0]
	require.Equal(t, []task.Result{
		{ID: "call-1", Agent: "b", State: task.StateRejected, Error: "there is no agent b"},
		{ID: "call-2", Agent: "c", State: task.StateRejected, Error: "there is no agent c"},
	}, f.results(c, 1000))
}

func TestResultsAreBounded(t *testing.T) {
	f := parallel(t)
	f.calling("b", "c", "d")
	for i, p := range f.begin() {
		done := status(task.StateCompleted)
		if i == 2 {
			done.Message = &task.Message{ID: "m", Parts: []task.Part{task.Text(strings.Repeat("x", 2000))}}
		}
		p.must(t, status(task.StateWorking), chunk(strings.Repeat("x", 600)), done)
	}
	f.join()
	got := f.results(f.claim(f.worker(time.Hour), "caller", 1)[0], 1000)
	require.Len(t, got[0].Artifacts, 1)
	require.Empty(t, got[1].Artifacts)
	require.EqualValues(t, 600, got[1].Omitted)
	require.Nil(t, got[2].Message)
	require.Greater(t, got[2].Omitted, int64(2600))
}

func (f *fixture) purge(id task.ID) {
	f.t.Helper()
	require.Len(f.t, storetest.Must(f.Erase(f.t.Context(), []task.ID{id}, true, ""))(f.t), 1)
}

// If an operator deletes a called task, its caller does not wait for ever.
func TestDeletedTaskIsAResult(t *testing.T) {
	f := parallel(t)
	f.calling("b")
	f.purge(f.begin()[0].c.Task.ID)
	f.join()
	got := f.results(f.claim(f.worker(time.Hour), "caller", 1)[0], 1000)
	require.Equal(t, []any{task.StateCanceled, "the task was deleted"}, []any{got[0].State, got[0].Error})
}

func TestDeletedCallerEndsItsCalls(t *testing.T) {
	f := parallel(t)
	p := f.calling("b", "c")
	child := f.begin()[0]
	child.must(t, status(task.StateWorking), status(task.StateInputRequired))
	f.purge(p.c.Task.ID)
	f.join()
	require.Equal(t, task.StateCanceled, f.state(child.c.Task.ID))
	require.Zero(t, scan[int](f, "SELECT count(*)::int FROM holdfast.task_calls"))
}

func TestExpiredTaskIsAResult(t *testing.T) {
	f := parallel(t)
	f.calling("b")
	child := f.begin()[0]
	child.must(t, status(task.StateWorking))
	// It parks, and the parking is not joined before it expires: the newer state is the result.
	child.must(t, status(task.StateInputRequired))
	f.exec("UPDATE holdfast.tasks SET status_at = now() - interval '1 day' WHERE id = $1", child.c.Task.ID)
	n, _ := must2(f.ExpireParked(t.Context(), "b", time.Hour, "too long"))(t)
	require.Equal(t, 1, n)
	f.join()
	got := f.results(f.claim(f.worker(time.Hour), "caller", 1)[0], 1000)
	require.Equal(t, []any{task.StateCanceled, "too long"}, []any{got[0].State, got[0].Message.FirstText()})
}

// answering is a caller that answers the question of a task that it has called.
func (f *fixture) answering() (child *task.Task, answer NewCall) {
	f.t.Helper()
	f.calling("b")
	p := f.begin()[0]
	p.must(f.t, status(task.StateWorking), status(task.StateInputRequired))
	f.join()
	caller := &pen{s: f.Store, c: f.claim(f.worker(time.Hour), "caller", 1)[0]}
	caller.must(f.t, &task.Event{Kind: task.EventRun, Run: &task.RunNote{Outcome: task.RunCalls, Calls: []task.Call{
		{ID: "again", Task: p.c.Task.ID, Answers: true, RequestID: NewID(), Message: user("answer")},
	}}})
	calls := storetest.Must(f.NewCalls(f.t.Context(), 0, NewCall{}, 10))(f.t)
	require.Equal(f.t, []any{p.c.Task.ID, true}, []any{calls[0].Task, calls[0].Answers})
	require.True(f.t, storetest.Must(f.HasCalled(f.t.Context(), calls[0].Parent, p.c.Task.ID))(f.t))
	return p.c.Task, calls[0]
}

// The called task may end before it is recorded that it has got the answer: its end is the result.
func TestAnswerToACalledTask(t *testing.T) {
	f := parallel(t)
	child, answer := f.answering()
	seq := storetest.Must(f.say(child.ID, true))(t)
	p := &pen{s: f.Store, c: f.claim(f.worker(time.Hour), "b", 1)[0]}
	p.must(t, status(task.StateWorking), chunk("done"), status(task.StateCompleted))
	f.join()
	f.claim(f.worker(time.Hour), "caller", 0)
	require.NoError(t, f.BeginAnswer(t.Context(), answer, seq, false))
	f.join()
	got := f.results(f.claim(f.worker(time.Hour), "caller", 1)[0], 1000)
	require.Equal(t, []any{"again", "b", task.StateCompleted, "done"}, []any{got[0].ID, got[0].Agent, got[0].State, got[0].Artifacts[0].Parts[0].Text})
	require.Zero(t, scan[int](f, "SELECT count(*)::int FROM holdfast.task_settled"))
}

func TestAnswerToACalledTaskThatHasEnded(t *testing.T) {
	f := parallel(t)
	child, answer := f.answering()
	f.ok(f.Cancel(t.Context(), child, nil))
	h := storetest.Must(f.Header(t.Context(), child.ID))(t)
	require.NoError(t, f.BeginAnswer(t.Context(), answer, h.Status.Seq-1, true))
	f.join()
	require.Equal(t, task.StateCanceled, f.results(f.claim(f.worker(time.Hour), "caller", 1)[0], 1000)[0].State)
}

func TestLineageOfCallsOfCalls(t *testing.T) {
	f := parallel(t)
	root := f.calling("b").c.Task.ID
	b := f.begin()[0]
	b.must(t, status(task.StateWorking), f.callNote("c"))
	c := f.begin()[0]
	require.Equal(t, []string{root.String(), b.c.Task.ID.String(), "2"}, scan[[]string](f,
		"SELECT ARRAY[root::text, parent::text, depth::text] FROM holdfast.v_lineage WHERE task = $1", c.c.Task.ID))
	require.Equal(t, []string{"caller", "b"}, scan[[]string](f, "SELECT callers FROM holdfast.task_calls WHERE child = $1", c.c.Task.ID))
	require.Len(t, storetest.Must(f.Calls(t.Context(), b.c.Task.ID))(t), 2, "the one that created it, and its own")

	h := storetest.Must(f.Header(t.Context(), root))(t)
	f.ok(f.Cancel(t.Context(), h, nil))
	f.join()
	require.Equal(t, task.StateCanceled, f.state(b.c.Task.ID))
	c.must(t, status(task.StateWorking))
	require.True(t, scan[bool](f, "SELECT cancel_requested FROM holdfast.tasks WHERE id = $1", c.c.Task.ID))
}

// A role that may only read can record an end that never was. It changes nothing.
func TestForgedEndOfACalledTask(t *testing.T) {
	f := parallel(t)
	f.calling("b")
	child := f.begin()[0]
	child.must(t, status(task.StateWorking))
	for _, seq := range []int{1, 2, 99} {
		f.exec("SELECT holdfast.call_settled($1, $2)", child.c.Task.ID, seq)
	}
	f.exec("SELECT holdfast.call_settled($1, 1)", uuid.New())
	f.join()
	f.claim(f.worker(time.Hour), "caller", 0)
	require.Zero(t, scan[int](f, "SELECT count(*)::int FROM holdfast.task_settled"))
	child.must(t, status(task.StateCompleted))
	f.join()
	f.claim(f.worker(time.Hour), "caller", 1)
}

// A cancel of a caller ends its tree, and each agent that has begun is told. The turn of a run that ended in calls is over.
func TestNoticesOfCanceledCalls(t *testing.T) {
	f := parallel(t)
	f.calling("b", "c")
	children := f.begin()
	children[0].must(t, status(task.StateWorking), status(task.StateCompleted))
	children[1].must(t, status(task.StateWorking), status(task.StateInputRequired))
	f.join()
	p := &pen{s: f.Store, c: f.claim(f.worker(time.Hour), "caller", 1)[0]}
	p.must(t, f.callNote("d"))
	require.True(t, f.cancel(p.c.Task, `{"why":1}`))
	f.join()
	for agent, told := range map[string]int{"caller": 1, "b": 0, "c": 1, "d": 0} {
		require.Len(t, f.notices(agent, 5), told, agent)
	}
	facts := storetest.Must(f.NoticeFacts(t.Context(), p.c.Task.ID))(t)
	require.Equal(t, []any{task.Attempt(2), 2, `{"why":1}`}, []any{facts.Attempt, facts.Turn, string(facts.Metadata)})
	facts = storetest.Must(f.NoticeFacts(t.Context(), children[1].c.Task.ID))(t)
	require.Nil(t, facts.Metadata, "it is that of the request for the caller alone")
}

// A called task parks with its resume URL valid: that is its result, unless the request came before.
func TestResumeOfACalledTask(t *testing.T) {
	f := parallel(t)
	f.calling("b", "c")
	children := f.begin()
	early, late := children[0], children[1]
	require.NoError(t, f.Resume(t.Context(), resumeOf(early.c.Task.ID, 1, "early")))
	early.must(t, status(task.StateWorking), asking(time.Hour))
	late.must(t, status(task.StateWorking), asking(time.Hour))
	f.join()
	f.claim(f.worker(time.Hour), "caller", 0)
	require.NoError(t, f.Resume(t.Context(), resumeOf(late.c.Task.ID, 1, "late")))
	for _, agent := range []string{"b", "c"} {
		p := &pen{s: f.Store, c: f.claim(f.worker(time.Hour), agent, 1)[0]}
		p.must(t, status(task.StateWorking), status(task.StateCompleted))
	}
	f.join()
	got := f.results(f.claim(f.worker(time.Hour), "caller", 1)[0], 1000)
	require.Equal(t, []task.State{task.StateCompleted, task.StateAuthRequired}, []task.State{got[0].State, got[1].State})
}

// The invariants find each damage to calls.
func TestInvariantsFindDamageToCalls(t *testing.T) {
	f := parallel(t)
	p := f.calling("b", "c")
	children := f.begin()
	children[0].must(t, status(task.StateWorking), status(task.StateCompleted))
	f.join()
	q := f.calling("d")
	f.begin()[0].must(t, status(task.StateWorking))
	of := func(format string) string { return strings.ReplaceAll(format, "PARENT", "'"+p.c.Task.ID.String()+"'") }
	ended := strings.ReplaceAll("UPDATE holdfast.tasks SET state = 7, wakes_at = NULL WHERE id = 'Q'", "Q", q.c.Task.ID.String())
	for says, damage := range map[string]string{
		"a task waits for calls only as long":     of("UPDATE holdfast.task_calls SET settled_at = now(), state = 7 WHERE parent = PARENT AND nth = 2"),
		"a turn after calls has the results":      of("UPDATE holdfast.task_queue SET wakes_at = NULL WHERE id = PARENT"),
		"calls are those of a run note":           of("UPDATE holdfast.task_calls SET child = gen_random_uuid() WHERE parent = PARENT AND nth = 2"),
		"if and only if its call has begun":       of("UPDATE holdfast.task_calls SET started_at = NULL WHERE parent = PARENT AND nth = 2"),
		"the end of a called task is joined":      of("UPDATE holdfast.task_calls SET settled_at = NULL, state = NULL, child_seq = NULL WHERE parent = PARENT AND nth = 1"),
		"a result is a status of the called task": of("UPDATE holdfast.task_calls SET state = 6 WHERE parent = PARENT AND nth = 1"),
		"what an ended task has called has ended": ended,
	} {
		f.damages(damage, damage, says)
	}
}
