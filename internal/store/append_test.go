package store

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// asOneFlush writes appends in a single statement.
func (f *fixture) asOneFlush(items ...*Append) {
	for _, a := range items {
		encoded(a)
	}
	f.writeAppends(f.t.Context(), items)
}

func encoded(a *Append) *Append {
	a.payloads = make([]string, len(a.Events))
	for i, e := range a.Events {
		a.payloads[i] = EncodePayload(e)
	}
	return a
}

func TestFlushOfManyRuns(t *testing.T) {
	f := parallel(t)
	whole, fenced, ended, again := f.running("a"), f.running("b"), f.running("c"), f.running("d")
	fenced.c.Attempt += 7
	ended.must(t, status(task.StateCompleted))
	storetest.Must(f.say(again.c.Task.ID, true))(t)
	var done []chan answer
	item := func(p *pen, evs ...*task.Event) *Append {
		ch := make(chan answer, 1)
		done = append(done, ch)
		return p.item(ch, evs...)
	}
	again.must(t, status(task.StateWorking))
	s := status(task.StateInputRequired)
	f.asOneFlush(
		item(whole, status(task.StateWorking), chunk("1")),
		item(fenced, chunk("no")),
		item(whole, chunk("2")),
		item(ended, chunk("no")),
		item(again, s),
		item(whole, chunk("3"), status(task.StateCompleted)),
	)
	want := []answer{{}, {err: task.LeaseLost}, {}, {err: task.LeaseLost}, {requeued: true}, {}}
	for i, ch := range done {
		require.Equal(t, want[i], waittest.Within(t, "the answer", ch), "item %d", i)
	}
	require.Equal(t, task.StateSubmitted, s.State)
	var seqs []task.Seq
	for _, e := range f.ear.committed[whole.c.Task.ID][1:] { // after the message
		seqs = append(seqs, e.Seq)
	}
	require.Equal(t, []task.Seq{2, 3, 4, 5, 6}, seqs)
	require.Len(t, f.log(whole.c.Task.ID), 6)
	require.Len(t, f.log(fenced.c.Task.ID), 1)
	require.Len(t, f.log(ended.c.Task.ID), 2)
}

func TestInvalidAppendFailsAlone(t *testing.T) {
	f := parallel(t)
	good, bad, other := f.running("a"), f.running("b"), f.running("c")
	poison := chunk("x")
	poison.Artifact.Metadata = []byte(`{"broken`)
	chs := []chan answer{make(chan answer, 1), make(chan answer, 1), make(chan answer, 1)}
	f.asOneFlush(good.item(chs[0], chunk("1")), bad.item(chs[1], poison), other.item(chs[2], chunk("1")))
	require.NoError(t, waittest.Within(t, "the answer", chs[0]).err)
	require.Equal(t, task.Internal, task.KindOf(waittest.Within(t, "the answer", chs[1]).err))
	require.NoError(t, waittest.Within(t, "the answer", chs[2]).err)
	require.Len(t, f.log(bad.c.Task.ID), 1)
}

func TestAppendAfterClose(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	s := storetest.Must(Open(t.Context(), Options{URL: f.url, APIConns: 1}))(t)
	s.Close(t.Context())
	p.s = s
	var mu sync.Mutex // like a caller that answers under its own lock
	mu.Lock()
	done := make(chan error, 1)
	s.Append(&Append{Task: p.c.Task.ID, Events: []*task.Event{chunk("x")}, Done: func(_ bool, err error) {
		mu.Lock()
		defer mu.Unlock()
		done <- err
	}})
	mu.Unlock()
	require.ErrorIs(t, waittest.Within(t, "the answer", done), task.Unavailable)
	require.ErrorIs(t, errOf(s.Create(t.Context(), fresh("a"))), task.Unavailable)
}

func TestRescue(t *testing.T) {
	f := parallel(t)
	const tasks = 60
	for range tasks {
		f.create(fresh("a"))
	}
	dead, alive := f.worker(0), f.worker(time.Hour)
	lost := f.claim(dead, "a", tasks-10)
	f.claim(alive, "a", 5)
	orphan := NewID() // claimed by a process whose row is gone
	f.claim(orphan, "a", 5)
	zombie := &pen{s: f.Store, c: lost[0]}
	zombie.must(t, status(task.StateWorking))

	// No rescue before the grace is over.
	names, runs := must2(f.Rescue(t.Context(), time.Hour, false))(t)
	require.Empty(t, names)
	require.Empty(t, runs, "without a scan and without a death")
	names, runs = must2(f.Rescue(t.Context(), time.Hour, true))(t)
	require.Empty(t, names)
	require.Len(t, runs, 5, "the orphans")

	var mu sync.Mutex
	got := map[task.ID]int{}
	reaped := 0
	require.NoError(t, f.Renew(t.Context(), dead, 0), "expired, but not rescued yet")
	var g errgroup.Group
	for range 6 {
		g.Go(func() error {
			for range 4 { // a skipped run is found in the next round
				names, runs, err := f.Rescue(t.Context(), 0, true)
				if err != nil {
					return err
				}
				mu.Lock()
				reaped += len(names)
				for _, r := range runs {
					got[r.Task]++
				}
				mu.Unlock()
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	require.Equal(t, 1, reaped)
	require.Len(t, got, tasks-10)
	for _, n := range got {
		require.Equal(t, 1, n)
	}
	require.ErrorIs(t, f.Renew(t.Context(), dead, time.Hour), task.LeaseLost)
	require.NoError(t, f.Renew(t.Context(), alive, time.Hour))
	require.Equal(t, answer{err: task.LeaseLost}, waittest.Within(t, "the answer", zombie.write(chunk("late"))))
	log := f.log(zombie.c.Task.ID)
	require.Equal(t, task.RunLost, log[len(log)-1].Run.Outcome)
	require.Equal(t, task.Seq(3), f.ear.advanced[zombie.c.Task.ID])
	f.claim(alive, "a", 1) // the others wait until it is known whether this one ends its process
	f.exec("UPDATE holdfast.task_queue SET suspect = false WHERE worker_id IS NULL")
	for _, c := range f.claim(alive, "a", tasks-6) {
		if got[c.Task.ID] > 0 {
			require.Equal(t, 2, c.Try)
			require.Equal(t, 1, c.Spared, "the process had other runs")
			require.Equal(t, task.Attempt(3), c.Attempt, "the claim, the rescue, the second claim")
		}
	}
}

func TestLead(t *testing.T) {
	f := parallel(t)
	a, b := NewID(), NewID()
	lead := func(who task.ID, ttl time.Duration) bool {
		leads := storetest.Must(f.Lead(t.Context(), "duty", who, ttl))(t)
		return leads
	}
	require.True(t, lead(a, time.Hour))
	require.False(t, lead(b, time.Hour))
	require.True(t, lead(a, 0))
	require.True(t, lead(b, time.Hour), "the lease had run out")
	require.NoError(t, f.Resign(t.Context(), "duty", a), "another process holds the lease")
	require.False(t, lead(a, time.Hour))
	require.NoError(t, f.Resign(t.Context(), "duty", b))
	require.True(t, lead(a, time.Hour))
}

// All operations run at once on a few tasks: the invariants hold (newFixture checks them), and no statements deadlock.
func TestAllOperationsConcurrently(t *testing.T) {
	f := parallel(t)
	const actors, few = 12, 6
	var mu sync.Mutex
	var pens []*pen
	headers := make([]*task.Task, few)
	for i := range headers {
		headers[i] = f.create(fresh("a"))
	}
	workers := []task.ID{f.worker(time.Hour), f.worker(time.Hour), f.worker(time.Hour)}
	any := func() *task.Task { mu.Lock(); defer mu.Unlock(); return headers[rand.N(few)] }
	// One goroutine at a time uses a pen. A fenced pen is sometimes used again, as a frozen process would.
	takePen := func() *pen {
		mu.Lock()
		defer mu.Unlock()
		if len(pens) == 0 {
			return nil
		}
		i := rand.N(len(pens))
		p := pens[i]
		pens = append(pens[:i], pens[i+1:]...)
		return p
	}
	putPen := func(p *pen) { mu.Lock(); pens = append(pens, p); mu.Unlock() }
	expected := func(err error) error {
		for _, k := range []task.Kind{task.Terminal, task.Busy, task.NotCancelable, task.LeaseLost} {
			if errors.Is(err, k) {
				return nil
			}
		}
		return err
	}
	act := func() error {
		switch n := rand.N(100); {
		case n < 40:
			p := takePen()
			if p == nil {
				return nil
			}
			evs := []*task.Event{status(task.StateWorking), chunk("x")}
			over := false
			switch rand.N(8) {
			case 0:
				evs, over = append(evs, status(task.StateInputRequired)), true
			case 1:
				evs, over = append(evs, status(task.StateCompleted)), true
			case 2:
				evs, over = []*task.Event{status(task.StateFailed)}, true
			}
			a := <-p.write(evs...)
			if (a.err == nil && !over) || rand.N(3) == 0 {
				putPen(p)
			}
			return expected(a.err)
		case n < 60:
			mu.Lock()
			w := workers[rand.N(len(workers))]
			mu.Unlock()
			won, err := f.Claim(t.Context(), w, []Demand{{Agent: "a", Slots: 1 + rand.N(3)}})
			for _, c := range won {
				putPen(&pen{s: f.Store, c: c})
			}
			return err
		case n < 75:
			_, err := f.AddMessage(t.Context(), &NewMessage{Task: any(), Message: user("x"), Enqueue: rand.N(3) > 0, RequestID: NewID()})
			return expected(err)
		case n < 82:
			_, err := f.Cancel(t.Context(), any(), nil)
			return expected(err)
		case n < 90:
			p := takePen()
			if p == nil {
				return nil
			}
			return expected(f.GiveBack(t.Context(), Requeue{Task: p.c.Task.ID, Agent: "a", Fence: p.c.Fence, Uncount: rand.N(2) == 0}))
		case n < 93:
			i := rand.N(len(workers))
			mu.Lock()
			old := workers[i]
			workers[i] = NewID()
			fresh := workers[i]
			mu.Unlock()
			if err := f.Register(t.Context(), Process{ID: fresh, Name: "n"}, time.Hour); err != nil {
				return err
			}
			return f.Unregister(t.Context(), old)
		case n < 96:
			_, _, err := f.Rescue(t.Context(), 0, true)
			return err
		default:
			made := fresh("a")
			mu.Lock()
			if rand.N(2) == 0 {
				made.Slot.Worker = workers[0]
			}
			mu.Unlock()
			ev, err := f.Create(t.Context(), made)
			if err != nil {
				return err
			}
			h := made.Task
			h.CreatedAt = ev.At
			mu.Lock()
			headers[rand.N(few)] = &h
			if !made.Slot.Worker.IsZero() {
				pens = append(pens, &pen{s: f.Store, c: &Claimed{Task: &h, Fence: FirstFence(&h)}})
			}
			mu.Unlock()
			return nil
		}
	}
	var g errgroup.Group
	for range actors {
		g.Go(func() error {
			for range 100 {
				if err := act(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	require.Zero(t, scan[int](f, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"))
	t.Logf("%d tasks, %d events", scan[int](f, "SELECT count(*) FROM holdfast.tasks"), scan[int](f, "SELECT count(*) FROM holdfast.task_events"))
}
