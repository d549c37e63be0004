package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/pgproxytest"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

var losses = map[string]pgproxytest.Loss{"request": pgproxytest.Request, "answer": pgproxytest.Answer, "end of the answer": pgproxytest.End}

func newProxied(t *testing.T) (*fixture, *pgproxytest.Proxy) {
	t.Helper()
	url := storetest.New(t).URL
	p := pgproxytest.New(t, url)
	return openFixture(t, url, p.URL), p
}

// proxied is newProxied for a test that runs beside others.
func proxied(t *testing.T) (*fixture, *pgproxytest.Proxy) {
	t.Helper()
	t.Parallel()
	return newProxied(t)
}

// The connection dies around a commit. Nothing is lost or doubled, and the caller gets its confirmation.
func TestConnectionsDieAroundACommit(t *testing.T) {
	t.Parallel()
	for name, loss := range losses {
		for _, times := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s lost %d times", name, times), func(t *testing.T) {
				t.Parallel()
				f, proxy := newProxied(t)

				run := f.running("a")
				run.must(t, status(task.StateWorking))
				lost := proxy.Lose("EventsAppend", loss, times)
				run.must(t, chunk("1"), chunk("2"))
				waittest.Within(t, "the lost message", lost)
				run.must(t, chunk("3"))
				lost = proxy.Lose("EventsAppend", loss, times)
				run.must(t, status(task.StateCompleted))
				waittest.Within(t, "the lost message", lost)
				log := f.log(run.c.Task.ID)
				require.Len(t, log, 6)
				for i, e := range log[2:5] {
					require.Equal(t, fmt.Sprint(i+1), e.Artifact.Parts[0].Text)
				}
				f.ear.mu.Lock()
				told := max(f.ear.advanced[run.c.Task.ID], f.ear.committed[run.c.Task.ID][len(f.ear.committed[run.c.Task.ID])-1].Seq)
				f.ear.mu.Unlock()
				require.Equal(t, task.Seq(6), told, "the hub gets the events either way")

				lost = proxy.Lose("TaskCreate", loss, times)
				n := limited(keyed(chosen("b", "id"), "key", "1"), 1, 1) // the retry finds its own task at the limit
				ev := storetest.Must(f.Create(t.Context(), n))(t)
				require.Equal(t, task.Seq(1), ev.Seq)
				require.False(t, ev.At.IsZero())
				waittest.Within(t, "the lost message", lost)
				require.Equal(t, 1, scan[int](f, "SELECT count(*) FROM holdfast.tasks WHERE agent = 'b'"))
				lost = proxy.Lose("TaskCreate", loss, times)
				f.create(fresh("ordinary"))
				waittest.Within(t, "the lost message", lost)
				require.Equal(t, 1, scan[int](f, "SELECT count(*) FROM holdfast.tasks WHERE agent = 'ordinary'"))

				require.True(t, storetest.Must(f.Cancel(t.Context(), &n.Task, nil))(t))
				lost = proxy.Lose("TaskRename", loss, times)
				again := limited(keyed(chosen("b", "id"), "another key", "1"), 1, 1)
				again.Reopens = &n.Task
				f.ok(f.Create(t.Context(), again))
				waittest.Within(t, "the lost message", lost)
				require.Equal(t, task.Seq(2), again.Task.StreamBase)
				require.Equal(t, 2, scan[int](f, "SELECT count(*) FROM holdfast.tasks WHERE agent = 'b'"))

				// A message to a parked task, of an agent that refuses messages to busy tasks: the retry finds the
				// task busy because of the first copy.
				for i, key := range []string{"", "message"} {
					parked := f.running("c")
					parked.must(t, status(task.StateInputRequired))
					lost = proxy.Lose("MessageAppend", loss, times)
					seq := storetest.Must(f.AddMessage(t.Context(), &NewMessage{
						Task: parked.c.Task, Message: user("x"), RequestID: NewID(), Idempotency: Idempotency{key, []byte("1")},
					}))(t)
					require.Equal(t, task.Seq(4), seq, "of the status: at the message itself the task was still parked")
					waittest.Within(t, "the lost message", lost)
					require.Len(t, f.log(parked.c.Task.ID), 4, "message %d", i)
					require.Equal(t, 2, f.claim(f.worker(time.Hour), "c", 1)[0].Turn)
				}
				// A message to a busy task, where the retry violates a constraint.
				busy := f.running("d")
				proxy.Lose("MessageAppend", loss, times)
				f.ok(f.AddMessage(t.Context(), &NewMessage{Task: busy.c.Task, Message: user("x"), Enqueue: true, RequestID: NewID()}))
				require.Len(t, f.log(busy.c.Task.ID), 2)

				waiting := f.create(fresh("e"))
				lost = proxy.Lose("TaskCancel", loss, times)
				require.True(t, storetest.Must(f.Cancel(t.Context(), waiting, nil))(t))
				waittest.Within(t, "the lost message", lost)
				require.Len(t, f.log(waiting.ID), 2)
			})
		}
	}
}

func TestReconcileFindsClaimWithLostAnswer(t *testing.T) {
	t.Parallel()
	for _, loss := range []pgproxytest.Loss{pgproxytest.Answer, pgproxytest.End} {
		f, proxy := newProxied(t)
		h := f.create(fresh("a"))
		w := f.worker(time.Hour)
		proxy.Lose("QueueClaim", loss, 1)
		require.ErrorIs(t, errOf(f.Claim(t.Context(), w, []Demand{{Agent: "a", Slots: 1}})), task.Unavailable)
		owned := storetest.Must(f.Owned(t.Context(), w))(t)
		require.Len(t, owned, 1)
		require.Equal(t, h.ID, owned[0].Task)
		r := storetest.Must(f.FindRun(t.Context(), h.ID, false))(t)
		require.Equal(t, r.Fence, owned[0].Fence)
	}
}

// A process that finds the notification queue full asks PostgreSQL to make room. TestChaos fills a real one.
func TestFullNotifyQueueIsTrimmed(t *testing.T) {
	t.Parallel()
	proxy := pgproxytest.New(t, storetest.New(t).URL)
	n := NewNotifier(proxy.URL)
	t.Cleanup(n.Close)
	require.NoError(t, n.Send(t.Context(), []string{"hello"}))
	drained := proxy.Fail("NotifySend", "54000", "too many notifications in the NOTIFY queue")
	trimmed := proxy.Lose("NotifyQueueTrim", pgproxytest.Answer, 1) // its answer does not matter
	require.ErrorContains(t, n.Send(t.Context(), []string{"hello"}), "too many notifications")
	waittest.Within(t, "the lost message", trimmed)
	drained()
	require.NoError(t, n.Send(t.Context(), []string{"hello"}))
}

// The answer of a flush is lost in which some runs were fenced. The retry tells them from those that were written.
func TestLostAnswerDoesNotHideFence(t *testing.T) {
	t.Parallel()
	f, proxy := newProxied(t)
	good, fenced := f.running("a"), f.running("b")
	fenced.c.Attempt++
	proxy.Lose("EventsAppend", pgproxytest.Answer, 1)
	g, z := make(chan answer, 1), make(chan answer, 1)
	f.asOneFlush(good.item(g, chunk("1")), fenced.item(z, chunk("no")))
	require.Equal(t, answer{}, waittest.Within(t, "the answer", g))
	require.Equal(t, answer{err: task.LeaseLost}, waittest.Within(t, "the answer", z))
}

func TestStoreSurvivesDatabaseRestart(t *testing.T) {
	t.Parallel()
	server := storetest.Server(t, map[string]string{"fsync": "off"})
	f := openFixture(t, server.URL, "")
	for name, takeAway := range map[string]func(){"stop": server.Stop, "crash": server.Crash} {
		run := f.running(name)
		run.must(t, status(task.StateWorking))
		waiting := f.create(fresh("w" + name))
		takeAway()
		unavailable := func(err error) {
			t.Helper()
			var e *task.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, task.Unavailable, e.Kind)
			require.Positive(t, e.RetryAfter)
		}
		_, err := f.Create(t.Context(), fresh("x"))
		unavailable(err)
		_, err = f.Header(t.Context(), waiting.ID)
		unavailable(err)
		_, err = f.AddMessage(t.Context(), &NewMessage{Task: waiting, Message: user("x"), Enqueue: true, RequestID: NewID()})
		unavailable(err)
		_, err = f.Cancel(t.Context(), waiting, nil)
		unavailable(err)
		unavailable(f.Health(t.Context()))
		queued := []<-chan answer{run.write(chunk("1")), run.write(chunk("2"), chunk("3")), run.write(status(task.StateCompleted))}
		server.Start()
		for _, ch := range queued {
			require.Equal(t, answer{}, waittest.Within(t, "the answer", ch))
		}
		require.Len(t, f.log(run.c.Task.ID), 6)
		require.Equal(t, task.StateCompleted, f.state(run.c.Task.ID))
		waittest.Eventually(t, "creates work again", func() error {
			_, err := f.Create(t.Context(), fresh("x"))
			return err
		})
	}
}

// A stop does not wait for a database that stays down.
func TestCloseDuringOutage(t *testing.T) {
	t.Parallel()
	server := storetest.Server(t, map[string]string{"fsync": "off"})
	s := storetest.Must(Open(t.Context(), Options{URL: server.URL, APIConns: 1}))(t)
	f := &fixture{Store: s, t: t, url: server.URL}
	run := f.running("a")
	server.Stop()
	queued := run.write(chunk("1"))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	s.Close(over)
	require.ErrorIs(t, waittest.Within(t, "the answer", queued).err, task.Unavailable)
}

// A machine or network that fails sends nothing, and the connection stays open.
func TestSilentDatabase(t *testing.T) {
	f, proxy := proxied(t)
	run, n := f.running("a"), fresh("b")
	statements := f.bounded()
	// silent gives up a statement when the database has fallen silent in it.
	silent := func(statement string, do func() error) error {
		t.Helper()
		lost, done := proxy.Lose(statement, pgproxytest.Silence, 1), make(chan error, 1)
		go func() { done <- do() }()
		waittest.Within(t, "the silence", lost)
		require.Positive(t, statements.expire())
		return waittest.Within(t, "the end of "+statement, done)
	}
	require.NoError(t, silent("EventsAppend", func() error { return (<-run.write(chunk("1"))).err }))
	run.must(t, chunk("2"), status(task.StateCompleted))
	require.Len(t, f.log(run.c.Task.ID), 4)

	require.NoError(t, silent("TaskCreate", func() error { _, err := f.Create(context.Background(), n); return err }))
	require.ErrorIs(t, silent("TaskByID", func() error { _, err := f.Header(context.Background(), n.Task.ID); return err }), task.Unavailable)
	require.ErrorIs(t, silent("EventsAfter", func() error {
		_, err := f.EventsAfter(context.Background(), &n.Task, task.Position{}, 10)
		return err
	}), task.Unavailable)
	require.NoError(t, silent("TaskCancel", func() error {
		ended, err := f.Cancel(context.Background(), &n.Task, nil)
		require.True(t, ended || err != nil)
		return err
	}))
	require.Equal(t, task.StateCanceled, f.state(n.Task.ID))
}
