package store

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

func waitNote(d time.Duration, interruptible bool) *task.Event {
	return &task.Event{Kind: task.EventRun, Run: &task.RunNote{Outcome: task.RunWaits, For: d, Interruptible: interruptible}}
}

// waiting is a task whose agent waits for an hour.
func (f *fixture) waiting(agent string, interruptible bool) *pen {
	f.t.Helper()
	p := f.running(agent)
	require.False(f.t, p.must(f.t, status(task.StateWorking), waitNote(time.Hour, interruptible)).requeued)
	return p
}

// pass lets the time of a wait pass, and fires its timer.
func (f *fixture) pass(id task.ID) {
	f.t.Helper()
	f.exec("UPDATE holdfast.tasks SET wakes_at = now() WHERE id = $1", id)
	f.exec("UPDATE holdfast.task_queue SET wakes_at = now(), available_at = now() WHERE id = $1", id)
	_, err := f.FireTimers(f.t.Context())
	require.NoError(f.t, err)
}

func TestWaitHoldsNoWorkerUntilItsTimerFires(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.running("a")
	before, err := f.Now(t.Context())
	require.NoError(t, err)
	note := waitNote(time.Hour, false)
	p.must(t, status(task.StateWorking), note)
	id := p.c.Task.ID
	require.Equal(t, task.StateWorking, f.state(id))
	after, err := f.Now(t.Context())
	require.NoError(t, err)
	require.WithinRange(t, note.Run.Until, before.Add(time.Hour), after.Add(time.Hour), "by the database's clock")
	log := f.log(id)
	require.Equal(t, note.Run, log[len(log)-1].Run, "the log has what the stream was told")

	w := f.worker(time.Hour)
	f.claim(w, "a", 0)
	more, err := f.FireTimers(t.Context())
	require.NoError(t, err)
	require.False(t, more)
	f.claim(w, "a", 0)
	require.ErrorIs(t, waittest.Within(t, "the answer", p.write(chunk("late"))).err, task.LeaseLost)

	f.pass(id)
	c := f.claim(w, "a", 1)[0]
	require.Equal(t, &Wait{Seq: 3, Until: log[2].Run.Until}, c.Wait)
	require.Equal(t, task.Seq(3), c.Begins())
	require.Empty(t, c.Message.Parts)
	require.Equal(t, []int{2, 1}, []int{c.Turn, c.Try})
	said, err := f.Conversation(t.Context(), c.Task, c.Said(), c.Begins())
	require.NoError(t, err)
	require.Len(t, said, 1, "the message of the first turn is part of the conversation")
	require.Len(t, f.before(c), 1)

	p = &pen{s: f.Store, c: c}
	p.must(t, status(task.StateCompleted))
}

// before is the dialogue before a turn.
func (f *fixture) before(c *Claimed) []task.Said {
	f.t.Helper()
	said, err := f.Dialogue(f.t.Context(), DialogueOf{
		Task: c.Task, Said: c.Said(), Begins: c.Begins(), Bounds: task.Bounds{Count: 10, Bytes: 10_000},
	})
	require.NoError(f.t, err)
	return said
}

func TestWaitUntilATimeThatIsOver(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.running("a")
	p.must(t, status(task.StateWorking), &task.Event{Kind: task.EventRun, Run: &task.RunNote{
		Outcome: task.RunWaits, Until: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC),
	}})
	f.ok(f.FireTimers(t.Context()))
	f.claim(f.worker(time.Hour), "a", 1)
}

func TestMessageEndsAnInterruptibleWait(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.waiting("a", true).c.Task.ID
	for _, enqueue := range []bool{false, true} { // also if the agent accepts one message at a time
		seq, err := f.say(id, enqueue)
		require.NoError(t, err)
		c := f.claim(f.worker(time.Hour), "a", 1)[0]
		require.True(t, c.Wait.Interrupted)
		require.Equal(t, seq, c.MessageSeq)
		require.Equal(t, "more", c.Message.FirstText())
		require.Equal(t, seq, c.Begins())
		p := &pen{s: f.Store, c: c}
		p.must(t, waitNote(time.Hour, true))
	}
	require.Equal(t, task.StateWorking, f.state(id))
}

func TestMessageStaysBehindAWait(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.waiting("a", false).c.Task.ID
	_, err := f.say(id, false)
	require.ErrorIs(t, err, task.Busy)
	seq, err := f.say(id, true)
	require.NoError(t, err)
	w := f.worker(time.Hour)
	f.claim(w, "a", 0)
	f.pass(id)
	c := f.claim(w, "a", 1)[0]
	require.False(t, c.Wait.Interrupted)
	require.Equal(t, 2, c.Turn)
	said, err := f.Conversation(t.Context(), c.Task, c.Said(), c.Begins())
	require.NoError(t, err)
	require.Len(t, said, 1, "the message that waits is not part of it")
	require.Len(t, f.before(c), 1)
	p := &pen{s: f.Store, c: c}
	require.True(t, p.must(t, status(task.StateInputRequired)).requeued)
	c = f.claim(w, "a", 1)[0]
	require.Nil(t, c.Wait)
	require.Equal(t, seq, c.MessageSeq)
	require.Equal(t, 3, c.Turn)
}

func TestWaitWithAMessageWaiting(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.running("a")
	p.must(t, status(task.StateWorking))
	seq, err := f.say(p.c.Task.ID, true)
	require.NoError(t, err)
	require.True(t, p.must(t, waitNote(time.Hour, true)).requeued)
	c := f.claim(f.worker(time.Hour), "a", 1)[0]
	require.Equal(t, seq, c.MessageSeq)
	require.True(t, c.Wait.Interrupted)
	require.Equal(t, []int{2, 1}, []int{c.Turn, c.Try})
	require.Equal(t, c.Wait.Seq, c.Begins(), "the message is older than the wait")
	require.Len(t, f.before(c), 1, "the first message, not the one to answer")
	p = &pen{s: f.Store, c: c}
	p.must(t, status(task.StateCompleted))
}

func TestCancelEndsAWait(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.waiting("a", false)
	ended, err := f.Cancel(t.Context(), p.c.Task, nil)
	require.NoError(t, err)
	require.True(t, ended)
	require.Equal(t, task.StateCanceled, f.state(p.c.Task.ID))

	// The client canceled before the agent began to wait: the next run only says so.
	p = f.running("a")
	p.must(t, status(task.StateWorking))
	ended, err = f.Cancel(t.Context(), p.c.Task, nil)
	require.NoError(t, err)
	require.False(t, ended)
	require.True(t, p.must(t, waitNote(time.Hour, false)).requeued)
	require.True(t, f.claim(f.worker(time.Hour), "a", 1)[0].CancelRequested)
}

func TestTimersFireOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const tasks = 40
	for range tasks {
		f.create(fresh("a"))
	}
	for _, c := range f.claim(f.worker(time.Hour), "a", tasks) {
		p := &pen{s: f.Store, c: c}
		p.must(t, status(task.StateWorking), waitNote(time.Microsecond, false))
	}
	var won atomic.Int64
	var g errgroup.Group
	for range 4 {
		w := f.worker(time.Hour)
		g.Go(func() error {
			for won.Load() < tasks {
				if _, err := f.FireTimers(t.Context()); err != nil {
					return err
				}
				claimed, err := f.Claim(t.Context(), w, []Demand{{Agent: "a", Slots: 7}})
				if err != nil {
					return err
				}
				won.Add(int64(len(claimed)))
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	require.EqualValues(t, tasks, won.Load())
	require.Equal(t, 2*tasks, scan[int](f, "SELECT sum(runs)::int FROM holdfast.tasks"))
}

// A message and the timer may come at the same moment. Whichever is first, both get their turn, and the message is not lost.
func TestMessagesRaceWithTimers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, interruptible := range []bool{true, false} {
		for range 15 {
			p := f.running("a")
			p.must(t, status(task.StateWorking), waitNote(2*time.Millisecond, interruptible))
			w, id := f.worker(time.Hour), p.c.Task.ID
			var said task.Seq
			var g errgroup.Group
			g.Go(func() (err error) { said, err = f.say(id, true); return err })
			var first *Claimed
			g.Go(func() error {
				for ctx := t.Context(); first == nil && ctx.Err() == nil; {
					if _, err := f.FireTimers(ctx); err != nil {
						return err
					}
					claimed, err := f.Claim(ctx, w, []Demand{{Agent: "a", Slots: 1}})
					if err != nil {
						return err
					}
					if len(claimed) > 0 {
						first = claimed[0]
					}
				}
				return nil
			})
			require.NoError(t, g.Wait())
			p = &pen{s: f.Store, c: first}
			if first.Wait.Interrupted {
				require.True(t, interruptible)
				require.Equal(t, said, first.MessageSeq)
			} else {
				require.Empty(t, first.Message.Parts)
				require.True(t, p.must(t, status(task.StateInputRequired)).requeued, "the message waits")
				c := f.claim(w, "a", 1)[0]
				require.Equal(t, said, c.MessageSeq)
				p = &pen{s: f.Store, c: c}
			}
			p.must(t, status(task.StateCompleted))
		}
	}
}

// A message that waited for the lock of the task, while the wait was written, ends the wait: its own snapshot still shows a run.
func TestMessageThatSawARunEndsTheWait(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.running("a")
	p.must(t, status(task.StateWorking))
	commit := f.written(p, waitNote(time.Hour, true))
	said := make(chan error, 1)
	go func() {
		_, err := f.say(p.c.Task.ID, true)
		said <- err
	}()
	f.blocked(1)
	commit()
	require.NoError(t, waittest.Within(t, "the message", said))
	require.True(t, f.claim(f.worker(time.Hour), "a", 1)[0].Wait.Interrupted)
}

func TestWaitsDoNotFillTheQueue(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.waiting("a", false)
	n := fresh("a")
	n.Limits.Queue = 1
	f.create(n)
	depths, err := f.QueueDepths(t.Context())
	require.NoError(t, err)
	require.Len(t, depths, 1)
	require.Equal(t, []int64{1, 0, 1}, []int64{depths[0].Waiting, depths[0].Running, depths[0].Timers})
	_, lines := query(t, f.conn(), "SELECT phase, waiting IS NULL FROM holdfast.v_queue ORDER BY phase")
	require.Equal(t, [][]string{{"timer", "t"}, {"waiting", "f"}}, lines)
}

func TestOperatorsDoNotHurryAWait(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.waiting("a", false)
	_, _, err := f.Hurry(t.Context(), p.c.Task)
	require.ErrorIs(t, err, task.Busy)
	require.ErrorContains(t, err, "the agent waits until")
	require.Zero(t, scan[int](f, "SELECT count(*)::int FROM holdfast.task_queue WHERE wakes_at IS NULL"))
}

// A wait whose commit was not answered is not repeated.
func TestRepeatedWait(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.running("a")
	p.must(t, status(task.StateWorking))
	first := make(chan answer, 1)
	a := p.item(first, waitNote(time.Hour, false))
	f.asOneFlush(a)
	require.NoError(t, waittest.Within(t, "the answer", first).err)
	f.asOneFlush(a)
	require.NoError(t, waittest.Within(t, "the answer", first).err)
	require.Len(t, f.log(p.c.Task.ID), 3)
}

func TestRunsThatEndInAWaitAreShown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.waiting("a", false)
	f.pass(p.c.Task.ID)
	p = &pen{s: f.Store, c: f.claim(f.worker(time.Hour), "a", 1)[0]}
	p.must(t, status(task.StateCompleted))
	_, lines := query(t, f.conn(), "SELECT run, turn, outcome FROM holdfast.v_runs ORDER BY run")
	require.Equal(t, [][]string{{"1", "1", "waits"}, {"2", "2", "completed"}}, lines)
}
