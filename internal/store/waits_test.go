package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

func waitNote(d time.Duration, interruptible bool) *task.Event {
	return &task.Event{Kind: task.EventRun, Run: &task.RunNote{Outcome: task.RunWaits, For: d, Interruptible: interruptible}}
}

// pass lets the time of a wait pass, and fires its timer.
func (f *fixture) pass(id task.ID) {
	f.t.Helper()
	f.exec("UPDATE holdfast.tasks SET wakes_at = now() WHERE id = $1", id)
	f.exec("UPDATE holdfast.task_queue SET wakes_at = now(), available_at = now() WHERE id = $1", id)
	f.ok(f.FireTimers(f.t.Context()))
}

// TestTurnsAgainstModel does not show times and dialogues.
func TestWaitUntilItsTimerFires(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	before, note := storetest.Must(f.Now(t.Context()))(t), waitNote(time.Hour, false)
	p.must(t, status(task.StateWorking), note)
	require.WithinRange(t, note.Run.Until, before.Add(time.Hour), storetest.Must(f.Now(t.Context()))(t).Add(time.Hour), "by the database's clock")
	require.False(t, storetest.Must(f.FireTimers(t.Context()))(t))
	require.EqualValues(t, 1, storetest.Must(f.QueueDepths(t.Context()))(t)[0].Timers)
	f.pass(p.c.Task.ID)
	c := f.next("a").c
	require.Equal(t, &Wait{Seq: 3, Until: note.Run.Until}, c.Wait)
	require.Len(t, storetest.Must(f.Conversation(t.Context(), c.Task, c.Said(), c.Begins()))(t), 1, "the message of the first turn is part of the conversation")
	require.Len(t, f.before(c), 1)
}

// before is the dialogue before a turn.
func (f *fixture) before(c *Claimed) []task.Said {
	f.t.Helper()
	said := storetest.Must(f.Dialogue(f.t.Context(), DialogueOf{
		Task: c.Task, Said: c.Said(), Begins: c.Begins(), Bounds: task.Bounds{Count: 10, Bytes: 10_000},
	}))(f.t)
	return said
}

// A message and the timer may come at the same moment. Whichever is first, both get their turn, and the message is not lost.
func TestMessagesRaceWithTimers(t *testing.T) {
	f := parallel(t)
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
	f := parallel(t)
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
