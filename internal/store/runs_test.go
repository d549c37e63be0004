package store

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// posted is an append of what an agent has posted: one event for each ordinal from the first one on.
func posted(p *pen, done chan answer, first int64, evs ...*task.Event) []*Append {
	var all []*Append
	for i, e := range evs {
		a := (&pen{s: p.s, c: p.c}).item(done, e)
		a.Posted, a.Ordinal, a.After = true, first+int64(i), first+int64(i)+1
		all = append(all, a)
	}
	return all
}

func post(t *testing.T, f *fixture, p *pen, first int64, evs ...*task.Event) (errs []error) {
	t.Helper()
	done := make(chan answer, len(evs))
	for _, a := range posted(p, done, first, evs...) {
		f.Append(a)
	}
	for range evs {
		errs = append(errs, waittest.Within(t, "the answer", done).err)
	}
	return errs
}

func texts(log []*task.Event) (out []string) {
	for _, e := range log {
		if e.Kind == task.EventArtifact {
			out = append(out, e.Artifact.Parts[0].Text)
		}
	}
	return out
}

// A run has one writer: its worker, and after the hand-over the run API, whose ordinals begin again.
func TestARunHasOneWriter(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	id := p.c.Task.ID
	p.must(t, status(task.StateWorking), chunk("own"))
	require.Equal(t, []error{task.LeaseLost}, post(t, f, p, 2, chunk("too early")))
	for range 2 { // a repetition changes nothing
		require.NoError(t, f.HandOver(t.Context(), id, p.c.Fence))
		require.Equal(t, []error{nil, nil}, post(t, f, p, 0, chunk("posted 1"), chunk("posted 2")))
	}
	require.Equal(t, []error{ErrPosted}, post(t, f, p, 3, chunk("after a gap")))
	require.Equal(t, answer{err: task.LeaseLost}, waittest.Within(t, "the answer", p.write(chunk("late"))))
	require.Equal(t, []string{"own", "posted 1", "posted 2"}, texts(f.log(id)))

	r := storetest.Must(f.FindRun(t.Context(), id, true))(t)
	require.True(t, r.Owned)
	require.True(t, r.Posted)
	require.Equal(t, int64(2), r.Ordinal)
	require.Equal(t, p.c.Attempt, r.Attempt)
	require.NotEmpty(t, r.Message.Parts)

	require.Equal(t, []error{nil}, post(t, f, p, 2, status(task.StateCompleted)))
	require.Equal(t, []error{nil}, post(t, f, p, 2, status(task.StateCompleted)), "a repetition of the end")
	waittest.Eventually(t, "the worker is told", func() error {
		f.ear.mu.Lock()
		defer f.ear.mu.Unlock()
		return waittest.Unless(slices.Contains(f.ear.cancels, id), "not yet")
	})
	require.Equal(t, []error{task.LeaseLost}, post(t, f, p, 3, chunk("late")))
	require.ErrorIs(t, f.HandOver(t.Context(), id, p.c.Fence), task.LeaseLost)
	ended := storetest.Must(f.Ended(t.Context(), map[task.ID]task.Fence{id: p.c.Fence}))(t)
	require.Equal(t, map[task.ID]Ending{id: {Fence: p.c.Fence, State: task.StateCompleted}}, ended)
	r = storetest.Must(f.FindRun(t.Context(), id, true))(t)
	require.False(t, r.Owned)
	require.Equal(t, int64(3), r.Ordinal)
}

// The server ends a run that the run API writes without knowing its ordinal.
func TestTheServerEndsAPostedRun(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	require.NoError(t, f.HandOver(t.Context(), p.c.Task.ID, p.c.Fence))
	require.Equal(t, []error{nil}, post(t, f, p, 0, chunk("posted")))
	p.ordinal = AnyOrdinal
	end := p.write(status(task.StateFailed))
	require.NoError(t, waittest.Within(t, "the answer", end).err)
	p.ordinal = AnyOrdinal
	require.NoError(t, waittest.Within(t, "the answer", p.write(status(task.StateFailed))).err, "a repetition")
	p.ordinal = AnyOrdinal
	require.Equal(t, task.LeaseLost, waittest.Within(t, "the answer", p.write(status(task.StateCanceled))).err, "another end")
	require.Equal(t, []error{task.LeaseLost}, post(t, f, p, 1, chunk("late")))
	require.Equal(t, int64(1), storetest.Must(f.FindRun(t.Context(), p.c.Task.ID, false))(t).Ordinal)
}

// Two uploads with the same events in one flush: the second goes into a statement of its own, which finds them written.
func TestTwoUploadsInOneFlush(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	require.NoError(t, f.HandOver(t.Context(), p.c.Task.ID, p.c.Fence))
	done := make(chan answer, 8)
	one, two := posted(p, done, 0, chunk("1"), chunk("2")), posted(p, done, 0, chunk("1"), chunk("2"))
	f.asOneFlush(one[0], two[0], one[1], two[1])
	for range 4 {
		require.NoError(t, waittest.Within(t, "the answer", done).err)
	}
	require.Equal(t, []string{"1", "2"}, texts(f.log(p.c.Task.ID)))
}

func TestHeard(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	id, run := p.c.Task.ID, p.c.Fence
	_, never := must2(f.Silence(t.Context(), id, run))(t)
	require.True(t, never)

	require.False(t, storetest.Must(f.Beat(t.Context(), id, run, -1, 0))(t))
	f.exec("UPDATE holdfast.tasks SET heard_at = now() - interval '1 hour'")
	silence, never := must2(f.Silence(t.Context(), id, run))(t)
	require.False(t, never)
	require.GreaterOrEqual(t, silence, time.Hour)

	heard := func(run task.Fence, ordinal, after int64) error {
		_, err := f.Beat(t.Context(), id, run, ordinal, after)
		return err
	}
	require.ErrorIs(t, heard(run, 0, 2), task.LeaseLost, "its worker writes it")
	require.NoError(t, f.HandOver(t.Context(), id, run))
	require.NoError(t, heard(run, 0, 2))
	require.NoError(t, heard(run, 0, 2), "a retry after a commit whose answer was lost")
	require.ErrorIs(t, heard(run, 0, 1), task.LeaseLost, "the ordinal does not fit")
	f.ok(f.Cancel(t.Context(), p.c.Task, nil))
	require.True(t, storetest.Must(f.Beat(t.Context(), id, run, -1, 0))(t))
	next := run
	next.Attempt++
	require.ErrorIs(t, heard(next, -1, 0), task.LeaseLost)
	_, never = must2(f.Silence(t.Context(), id, next))(t)
	require.True(t, never, "it was another attempt")
}

// The run API and notices of cancels read a log in parts.
func TestReadsAlongALongLog(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	id := p.c.Task.ID
	piece := func(name, text string, appends, last bool) *task.Event {
		e := chunk(text)
		e.Artifact.ID, e.Artifact.Name, e.Append, e.Last = name, "name of "+name, appends, last
		return e
	}
	p.must(t, &task.Event{Kind: task.EventRun, Run: &task.RunNote{Outcome: task.RunCheckpoint, Checkpoint: json.RawMessage(`{"job":7}`)}},
		status(task.StateInputRequired))
	f.ok(f.AddMessage(t.Context(), &NewMessage{Task: p.c.Task, Message: user("more"), RequestID: NewID()}))
	p = &pen{s: f.Store, c: f.claim(f.worker(time.Hour), "a", 1)[0]}
	p.must(t, status(task.StateWorking), piece("a", "x", false, true), piece("replaced", "1", false, false), piece("b", "2", false, false))
	const chunks = 20_000
	f.lengthen(id, chunks)
	p.ordinal += chunks
	p.must(t, piece("a", "y", true, false), piece("replaced", "new", false, true), piece("c", "z", false, false))

	list := storetest.Must(f.Artifacts(t.Context(), p.c.Task, 0, 10))(t)
	for i := range list {
		require.Positive(t, list[i].Bytes)
		list[i].Bytes = 0
	}
	first := list[0].Seq
	want := []Artifact{
		{ID: "a", Name: "name of a", Chunks: 2, Seq: first},
		{ID: "replaced", Name: "name of replaced", Chunks: 1, Last: true, Seq: first + 1},
		{ID: "b", Name: "name of b", Chunks: 1 + chunks, Seq: first + 2},
		{ID: "c", Name: "name of c", Chunks: 1, Seq: first + 2 + chunks + 3},
	}
	require.Equal(t, want, list)
	for i, a := range want {
		require.Len(t, storetest.Must(f.Artifacts(t.Context(), p.c.Task, a.Seq, 2))(t), min(2, len(want)-i-1))
	}
	for name, text := range map[string]string{"a": "xy", "replaced": "new", "b": strings.Repeat("2", 1+chunks), "c": "z"} {
		got := storetest.Must(f.Artifact(t.Context(), p.c.Task, name))(t)
		require.Len(t, got.Parts, 1, name)
		require.Zero(t, strings.Compare(text, got.Parts[0].Text), name) // too long to print
	}

	require.ErrorIs(t, errOf(f.Artifact(t.Context(), p.c.Task, "d")), task.NotFound)
	require.True(t, storetest.Must(f.Begun(t.Context(), id, p.c.Attempt, "a"))(t))
	require.False(t, storetest.Must(f.Begun(t.Context(), id, p.c.Attempt+1, "a"))(t))

	require.False(t, f.cancel(p.c.Task, `{"why":1.0}`))
	p.must(t, status(task.StateCanceled))
	facts := storetest.Must(f.NoticeFacts(t.Context(), id))(t)
	require.Equal(t, NoticeFacts{Attempt: 2, Turn: 2, Checkpoint: json.RawMessage(`{"job":7}`), Metadata: json.RawMessage(`{"why":1.0}`)}, facts)
}

// An upload whose events come too late ends no turn: another one has used their ordinals.
func TestLateUploadEndsNoTurn(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]*task.Event{
		"waits": {Kind: task.EventRun, Run: &task.RunNote{Outcome: task.RunWaits, For: time.Hour}}, "asks": status(task.StateInputRequired),
	} {
		t.Run(name, func(t *testing.T) {
			f := parallel(t)
			p := f.running("a")
			f.ok(nil, f.HandOver(t.Context(), p.c.Task.ID, p.c.Fence))
			storetest.Must(f.say(p.c.Task.ID, true))(t)
			require.NoError(t, post(t, f, p, 0, status(task.StateWorking))[0])
			require.NoError(t, post(t, f, p, 1, chunk("first"))[0])
			require.ErrorIs(t, post(t, f, p, 1, end)[0], ErrPosted)
			require.NoError(t, post(t, f, p, 2, chunk("second"))[0])
			require.NoError(t, post(t, f, p, 3, status(task.StateCompleted))[0])
		})
	}
}

// Of two uploads that are written together, the one whose turn ends takes no events of the other.
func TestNothingFollowsTheEndOfATurn(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	f.ok(nil, f.HandOver(t.Context(), p.c.Task.ID, p.c.Fence))
	require.NoError(t, post(t, f, p, 0, status(task.StateWorking))[0])
	storetest.Must(f.say(p.c.Task.ID, true))(t)
	asks, others := make(chan answer, 1), make(chan answer, 2)
	late := posted(p, others, 1, chunk("other"), chunk("more"))
	f.asOneFlush(posted(p, asks, 1, status(task.StateInputRequired))[0], late[0], late[1])
	require.Equal(t, answer{requeued: true}, waittest.Within(t, "the answer", asks))
	for range late {
		require.ErrorIs(t, waittest.Within(t, "a refusal", others).err, task.LeaseLost)
	}
	require.Len(t, storetest.Must(f.Claim(t.Context(), f.worker(time.Hour), []Demand{{Agent: "a", Slots: 1}}))(t), 1)
}

// The server writes once that a run works which it hands to a remote worker, also if the answer of the database is lost.
func TestHandedRunWorksOnce(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	f.ok(nil, f.HandOver(t.Context(), p.c.Task.ID, p.c.Fence))
	for range 2 {
		done := make(chan answer, 1)
		a := (&pen{s: p.s, c: p.c}).item(done, status(task.StateWorking))
		a.Posted, a.Ordinal, a.After = true, 0, 0
		f.asOneFlush(a)
		require.NoError(t, waittest.Within(t, "the answer", done).err)
	}
	require.Len(t, storetest.Must(f.EventsAfter(t.Context(), p.c.Task, task.Position{}, 10))(t), 2, "the message and the status")
}
