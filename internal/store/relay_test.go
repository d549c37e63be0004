package store

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// relaying is a task whose agent has called these agents and shows their progress, with the runs that they have begun.
func (f *fixture) relaying(agents ...string) (caller *pen, called []*pen) {
	f.t.Helper()
	caller = f.running("caller")
	note := f.callNote(agents...)
	for i := range note.Run.Calls {
		note.Run.Calls[i].Relay = true
	}
	caller.must(f.t, status(task.StateWorking), note)
	return caller, f.begin()
}

// progress is a status working with a message.
func progress(text string) *task.Event {
	m := &task.Message{ID: "p-" + text, Role: task.RoleAgent, Parts: []task.Part{task.Text(text)}, Metadata: []byte(`{"n":1.0}`)}
	return &task.Event{Kind: task.EventStatus, State: task.StateWorking, Message: m}
}

// due reads what callers have to show. All agents but shared ones show their tasks to the owner alone.
func (f *fixture) due(shared ...string) []Relays {
	f.t.Helper()
	all, full := must2(f.Relays(f.t.Context(), []string{"caller", "b", "c"}, shared, 100))(f.t)
	require.False(f.t, full)
	return all
}

// relay writes what callers have to show, and returns how many statuses that were.
func (f *fixture) relay(all []Relays) (n int) {
	f.t.Helper()
	for _, r := range all {
		shown := storetest.Must(f.Relay(f.t.Context(), r))(f.t)
		n += shown
	}
	return n
}

// relays waits until a status is relayed: a second after the one before it.
func (f *fixture) relays() {
	f.t.Helper()
	waittest.Eventually(f.t, "a status is relayed", func() error { return waittest.Unless(f.relay(f.due()) == 1, "not yet") })
}

// shown are the texts of the relayed statuses of a task.
func (f *fixture) shown(p *pen) (texts []string) {
	f.t.Helper()
	for _, e := range f.log(p.c.Task.ID) {
		if e.Kind == task.EventStatus && e.Attempt == 0 {
			require.Equal(f.t, task.StateWorking, e.State)
			texts = append(texts, e.Message.FirstText())
		}
	}
	return texts
}

func TestRelayedStatus(t *testing.T) {
	f := parallel(t)
	p, called := f.relaying("b", "c")
	f.setPush(p.c.Task.ID, hook("hook", "h"))
	b, c := called[0], called[1]
	b.must(t, status(task.StateWorking))
	require.Zero(t, f.relay(f.due()))
	require.Empty(t, f.due(), "a status without a message is looked at once")

	told := progress("one")
	told.Metadata = []byte(`{"percent":10.0}`)
	b.must(t, told)
	c.must(t, status(task.StateWorking), progress("other"))
	pushes := f.ear.pushes.Load()
	require.Equal(t, 2, f.relay(f.due()))
	require.Greater(t, f.ear.pushes.Load(), pushes)
	log := f.log(p.c.Task.ID)
	got := log[len(log)-2]
	require.Equal(t, []any{task.StateWorking, "one", "p-one", `{"n":1.0}`, task.RoleAgent}, []any{
		got.State, got.Message.FirstText(), got.Message.ID, string(got.Message.Metadata), got.Message.Role,
	})
	require.Equal(t, `{"call":{"id":"call-1","agent":"b","task":"`+b.c.Task.PublicID+`","metadata":{"percent":10.0}}}`, string(got.Metadata))
	require.Equal(t, `{"call":{"id":"call-2","agent":"c","task":"`+c.c.Task.PublicID+`"}}`, string(log[len(log)-1].Metadata))

	h := storetest.Must(f.Header(t.Context(), p.c.Task.ID))(t)
	now := storetest.Must(f.Snapshot(t.Context(), h, true))(t)
	require.Equal(t, []any{task.StateWorking, "other", h.PublicID, h.ContextID},
		[]any{now.Status.State, now.Status.Message.FirstText(), now.Status.Message.TaskID, now.Status.Message.ContextID})
	f.ear.mu.Lock()
	heard := f.ear.committed[p.c.Task.ID]
	f.ear.mu.Unlock()
	for i, e := range heard[len(heard)-2:] { // as a reader of the log sees them
		stored := log[len(log)-2+i]
		require.Equal(t, []any{stored.Seq, stored.At, string(stored.Metadata), h.PublicID}, []any{e.Seq, e.At, string(e.Metadata), e.Message.TaskID})
	}

	// The newest wins, and no status comes twice.
	b.must(t, progress("two"), progress("three"))
	f.exec("UPDATE holdfast.task_calls SET relayed_at = relayed_at + interval '1 hour'")
	require.Zero(t, f.relay(f.due()), "a second has not passed")
	f.exec("UPDATE holdfast.task_calls SET relayed_at = relayed_at - interval '1 hour'")
	f.relays()
	require.Equal(t, []string{"one", "other", "three"}, f.shown(p))
	require.Empty(t, f.due())
	b.must(t, progress("four"), status(task.StateCompleted))
	c.must(t, status(task.StateCompleted))
	f.join()
	require.Zero(t, f.relay(f.due()))
	next := &pen{s: f.Store, c: f.claim(f.worker(time.Hour), "caller", 1)[0]}
	next.must(t, status(task.StateCompleted))
	f.join()
}

// Replicas find the same status. One of them writes it.
func TestStatusIsRelayedOnce(t *testing.T) {
	f := parallel(t)
	p, called := f.relaying("b", "b", "c")
	for _, c := range called {
		c.must(t, status(task.StateWorking), progress("from "+c.c.Task.ID.String()))
	}
	var shown atomic.Int32
	var g errgroup.Group
	for range 8 {
		g.Go(func() error {
			all, _, err := f.Relays(t.Context(), []string{"caller"}, nil, 100)
			if err != nil {
				return err
			}
			for _, r := range all {
				n, err := f.Relay(context.WithoutCancel(t.Context()), r)
				if err != nil {
					return err
				}
				shown.Add(int32(n))
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	require.Equal(t, 3, int(shown.Load())+f.relay(f.due()), "those that another process had locked come next")
	require.Len(t, f.shown(p), 3)
}

// A process reads what is due, and writes it after the caller has gone on or has ended.
func TestLateRelayWritesNothing(t *testing.T) {
	t.Parallel()
	for name, happens := range map[string]func(f *fixture, p, called *pen){
		"the call has its result": func(f *fixture, _, called *pen) {
			called.must(f.t, status(task.StateCompleted))
			f.join()
		},
		"the next run of the caller": func(f *fixture, _, called *pen) {
			called.must(f.t, status(task.StateCompleted))
			f.join()
			f.claim(f.worker(time.Hour), "caller", 1)
		},
		"the caller calls again": func(f *fixture, _, called *pen) {
			called.must(f.t, status(task.StateInputRequired))
			f.join()
			next := &pen{s: f.Store, c: f.claim(f.worker(time.Hour), "caller", 1)[0]}
			next.must(f.t, f.callNote("c"))
		},
		"a cancel of the caller": func(f *fixture, p, _ *pen) {
			f.ok(f.Cancel(f.t.Context(), p.c.Task, nil))
		},
		"the end of the caller": func(f *fixture, p, _ *pen) { f.purge(p.c.Task.ID) },
		"another relay":         func(f *fixture, _, _ *pen) { require.Equal(f.t, 1, f.relay(f.due())) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			p, called := f.relaying("b")
			called[0].must(t, status(task.StateWorking), progress("one"))
			late := f.due()
			require.Len(t, late, 1)
			happens(f, p, called[0])
			before := len(f.log(p.c.Task.ID))
			require.Zero(t, f.relay(late))
			require.Len(t, f.log(p.c.Task.ID), before)
		})
	}
}

// A relay reads the called task and locks the caller alone. It does not wait for a caller that another session has locked.
func TestRelayWaitsForNoLock(t *testing.T) {
	f := parallel(t)
	p, called := f.relaying("b")
	called[0].must(t, status(task.StateWorking), progress("one"))
	all := f.due()
	release := f.lock(p.c.Task.ID)
	require.Zero(t, f.relay(all))
	release()
	release = f.lock(called[0].c.Task.ID)
	require.Equal(t, 1, f.relay(f.due()))
	release()
	called[0].must(t, progress("two"))
	f.relays()
}

// A caller that its whole tenant sees shows no task that only the owner sees.
func TestRelayAndVisibility(t *testing.T) {
	f := parallel(t)
	p, called := f.relaying("b", "c")
	for _, c := range called {
		c.must(t, status(task.StateWorking), progress(c.c.Task.Agent))
	}
	relays := func(owned, shared []string) (n int) {
		all, _ := must2(f.Relays(t.Context(), owned, shared, 100))(t)
		for _, r := range all {
			n += len(r.calls)
		}
		return n
	}
	require.Equal(t, 2, relays([]string{"caller", "b", "c"}, nil))
	require.Equal(t, 2, relays([]string{"caller"}, []string{"b", "c"}))
	require.Equal(t, 1, relays([]string{"b"}, []string{"caller", "c"}))
	require.Zero(t, relays([]string{"b", "c"}, []string{"caller"}))
	require.Zero(t, relays([]string{"b", "c"}, nil), "this process does not know the calling agent")
	require.Empty(t, f.shown(p))
}

func TestLargeStatusIsNotRelayed(t *testing.T) {
	f := parallel(t)
	p, called := f.relaying("b")
	called[0].must(t, status(task.StateWorking), progress(strings.Repeat("x", mostRelayed)))
	require.Zero(t, f.relay(f.due()))
	require.Empty(t, f.due())
	called[0].must(t, progress("small"))
	f.relays()
	require.Equal(t, []string{"small"}, f.shown(p))
}

// The caller answers a question. It does not show again the progress before the answer.
func TestRelayOfAnAnswer(t *testing.T) {
	f := parallel(t)
	_, called := f.relaying("b")
	child := called[0]
	child.must(t, status(task.StateWorking), progress("before"), status(task.StateInputRequired))
	f.join()
	caller := &pen{s: f.Store, c: f.claim(f.worker(time.Hour), "caller", 1)[0]}
	caller.must(t, &task.Event{Kind: task.EventRun, Run: &task.RunNote{Outcome: task.RunCalls, Calls: []task.Call{
		{ID: "again", Task: child.c.Task.ID, Answers: true, RequestID: NewID(), Message: user("answer"), Relay: true},
	}}})
	require.Empty(t, f.due(), "the call has not begun")
	seq := storetest.Must(f.say(child.c.Task.ID, true))(t)
	calls := storetest.Must(f.NewCalls(t.Context(), 0, NewCall{}, 10))(t)
	require.NoError(t, f.BeginAnswer(t.Context(), calls[0], seq, false))
	require.Zero(t, f.relay(f.due()))
	child = &pen{s: f.Store, c: f.claim(f.worker(time.Hour), "b", 1)[0]}
	child.must(t, status(task.StateWorking), progress("after"))
	f.relays()
	require.Equal(t, []string{"after"}, f.shown(caller))
	require.Equal(t, "again", scan[string](f, "SELECT payload #>> '{metadata,call,id}' FROM holdfast.task_events WHERE task = $1 AND attempt = 0 AND state = 2", caller.c.Task.ID))
}

// The invariants find each damage to relayed statuses.
func TestInvariantsFindDamageToRelays(t *testing.T) {
	f := parallel(t)
	p, called := f.relaying("b")
	called[0].must(t, status(task.StateWorking), progress("one"))
	f.relays()
	called[0].must(t, progress("two"))
	f.relays()
	of := func(format string) string { return strings.ReplaceAll(format, "CALLER", "'"+p.c.Task.ID.String()+"'") }
	const one = "a relayed status is one of a called task"
	const order = "statuses of a call are relayed in their order"
	for damage, says := range map[string]string{
		"UPDATE holdfast.task_calls SET relay = false WHERE parent = CALLER":                                                                                                                            one,
		"UPDATE holdfast.task_calls SET relayed_seq = 0 WHERE parent = CALLER":                                                                                                                          one,
		"UPDATE holdfast.task_events SET payload = json_build_object('message', json_build_object('id', 'x'), 'metadata', payload -> 'metadata') WHERE task = CALLER AND seq = 5":                       one,
		"UPDATE holdfast.task_events SET attempt = 1 WHERE task = CALLER AND seq = 4":                                                                                                                   one,
		"UPDATE holdfast.task_events e SET payload = (SELECT x.payload FROM holdfast.task_events x WHERE x.task = CALLER AND x.seq = 4) WHERE task = CALLER AND seq = 5":                                order,
		"UPDATE holdfast.task_events e SET created_at = (SELECT x.created_at + interval '0.5 seconds' FROM holdfast.task_events x WHERE x.task = CALLER AND x.seq = 4) WHERE task = CALLER AND seq = 5": order,
	} {
		f.damages(damage, of(damage), says)
	}
}
