package store

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// replica is another process on the database of a fixture. Without a budget it keeps no task in memory.
func (f *fixture) replica(kept *limit.Budget) *Store {
	f.t.Helper()
	s, err := Open(f.t.Context(), Options{URL: f.url, APIConns: 2, RowSecurity: true, Ended: kept, Observer: Observer{Ended: f.ear.logRead}})
	require.NoError(f.t, err)
	f.t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

// hits runs do and returns how many logs it has had from memory, and how many not.
func (f *fixture) hits(do func()) (hits, misses int) {
	f.ear.mu.Lock()
	f.ear.kept = [2]int{}
	f.ear.mu.Unlock()
	do()
	f.ear.mu.Lock()
	defer f.ear.mu.Unlock()
	return f.ear.kept[1], f.ear.kept[0]
}

// finished is a task with two artifacts, of several chunks, that has ended.
func (f *fixture) finished(n *NewTask) *NewTask {
	f.t.Helper()
	f.create(n)
	p := &pen{s: f.Store, c: f.claim(f.worker(time.Hour), n.Task.Agent, 1)[0]}
	said := status(task.StateWorking)
	said.Message = &task.Message{ID: "progress", Role: task.RoleAgent, Parts: []task.Part{task.Text("half")}}
	p.must(f.t, said)
	for _, text := range []string{"x", "y", "z"} {
		c := chunk(text)
		c.Append = text != "x"
		p.must(f.t, c)
	}
	p.must(f.t, chunkOf("second"), status(task.StateCompleted))
	return n
}

// shown is everything that a caller reads of a task, in every way.
func shown(t *testing.T, s *Store, who asker, id string) map[string]any {
	t.Helper()
	out := map[string]any{}
	v := who.of(s)
	note := func(name string, tasks []*task.Task, err error) {
		// A list returns no error, but an empty page.
		out[name] = fmt.Sprint(err)
		for i, got := range tasks {
			if got != nil {
				out[fmt.Sprint(name, i)] = *got
			}
		}
	}
	for _, artifacts := range []bool{true, false} {
		got, err := v.ReadTask(t.Context(), id, artifacts)
		note(fmt.Sprint("read", artifacts), []*task.Task{got}, err)
		if h, err := v.FindTask(t.Context(), id); err == nil {
			got, err := v.Snapshot(t.Context(), h, artifacts)
			note(fmt.Sprint("snapshot", artifacts), []*task.Task{got}, err)
		}
		page, _, err := v.List(t.Context(), &Listing{After: Newest, Limit: 50, Artifacts: artifacts, History: true})
		note(fmt.Sprint("list", artifacts), page, err)
	}
	page, _, err := v.List(t.Context(), &Listing{After: Newest, Limit: 50, Artifacts: true})
	for _, got := range page { // versions show no history that was not asked for
		got.History = nil
	}
	note("artifacts", page, err)
	return out
}

// same compares what two processes show, of which the second has kept the task in memory.
func same(t *testing.T, want, got map[string]any) {
	t.Helper()
	require.Empty(t, cmp.Diff(want, got, cmpopts.IgnoreUnexported(task.Task{}), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(task.Part{}, "Quoted")))
}

func TestEndedTasksAreReadFromMemory(t *testing.T) {
	f := parallel(t)
	cold := f.replica(nil)
	n := f.finished(fresh("a"))
	f.create(fresh("a")) // a task that has not ended is beside it in lists
	id := n.Task.PublicID
	first := shown(t, f.Store, owner, id)
	require.Len(t, first["readtrue0"].(task.Task).Artifacts, 2)
	require.Equal(t, "xyz", first["readtrue0"].(task.Task).Artifacts[0].Parts[0].Text)
	var second map[string]any
	hits, _ := f.hits(func() { second = shown(t, f.Store, owner, id) })
	require.Equal(t, 7, hits)
	same(t, shown(t, cold, owner, id), first)
	same(t, first, second)

	// All see the tasks of their tenant, if the agent says so.
	wide := asker{Tenant: "tenant", Subject: "another", Agent: "a", TenantWide: true}
	same(t, shown(t, cold, wide, id), shown(t, f.Store, wide, id))
}

func TestKeptTasksStayHiddenFromOthers(t *testing.T) {
	f := parallel(t)
	cold := f.replica(nil)
	n := f.finished(fresh("a"))
	id := n.Task.PublicID
	shown(t, f.Store, owner, id)
	for _, other := range []asker{
		{Tenant: "tenant", Subject: "another", Agent: "a"},
		{Tenant: "elsewhere", Subject: "owner", Agent: "a"},
		{Tenant: "elsewhere", Subject: "owner", Agent: "a", TenantWide: true},
		{Tenant: "tenant", Subject: "owner", Agent: "b"},
	} {
		hits, _ := f.hits(func() {
			_, err := other.of(f.Store).ReadTask(t.Context(), id, true)
			require.Equal(t, task.NotFound, err)
			_, err = other.bare(f.Store).ReadTask(t.Context(), id, true)
			require.Equal(t, task.NotFound, err)
			same(t, shown(t, cold, other, id), shown(t, f.Store, other, id))
		})
		require.Zero(t, hits, "%+v", other)
	}
	// With a header that it cannot have, row-level security still hides the log.
	h := storetest.Must(f.Header(t.Context(), n.Task.ID))(t)
	got := storetest.Must(asker{Tenant: "tenant", Subject: "another", Agent: "a"}.of(f.Store).Snapshot(t.Context(), h, true))(t)
	require.Empty(t, got.Artifacts)
	require.Empty(t, got.History)
}

// Whatever deletes a task, or a part of it, in whatever process: what this one has kept is not shown again.
func TestKeptTasksEndWithTheirDeletion(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(f *fixture, other *Store, id task.ID){
		"erased here": func(f *fixture, _ *Store, id task.ID) {
			f.ok(f.Erase(f.t.Context(), []task.ID{id}, true, ""))
		},
		"erased by another replica": func(f *fixture, other *Store, id task.ID) {
			storetest.Must(other.Erase(f.t.Context(), []task.ID{id}, true, ""))(f.t)
		},
		"artifacts erased by another replica": func(f *fixture, other *Store, id task.ID) {
			require.NoError(f.t, other.EraseArtifacts(f.t.Context(), id))
		},
		"the newest chunk erased": func(f *fixture, _ *Store, id task.ID) {
			f.exec("DELETE FROM holdfast.task_events e WHERE e.task = $1 AND e.seq = (SELECT max(seq) FROM holdfast.task_events WHERE task = $1 AND kind = 3)", id)
		},
		"its log dropped with a partition": func(f *fixture, _ *Store, id task.ID) {
			f.exec("DELETE FROM holdfast.task_events WHERE task = $1", id)
		},
		"another log after a failover": func(f *fixture, _ *Store, id task.ID) {
			f.exec(`UPDATE holdfast.task_events SET created_at = created_at + interval '1 microsecond',
				payload = CASE WHEN kind = 3 THEN '{"index":0,"parts":[{"text":"another"}]}'::json ELSE payload END WHERE task = $1`, id)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			cold, other := f.replica(nil), f.replica(limit.NewBudget(keptBytes))
			n := f.finished(fresh("a"))
			kept := f.finished(fresh("a"))
			before := shown(t, f.Store, owner, n.Task.PublicID)
			h := storetest.Must(f.Header(t.Context(), n.Task.ID))(t)
			remove(f, other, n.Task.ID)
			after := shown(t, f.Store, owner, n.Task.PublicID)
			require.NotEmpty(t, cmp.Diff(before, after, cmpopts.IgnoreUnexported(task.Task{})))
			same(t, shown(t, cold, owner, n.Task.PublicID), after)
			// A reader that found the task before its deletion reads what is there, or learns that there is no task.
			want, err := cold.Snapshot(t.Context(), h, true)
			got, again := f.Snapshot(t.Context(), h, true)
			require.Equal(t, err, again)
			if strings.HasPrefix(name, "erased") {
				require.ErrorIs(t, err, task.NotFound)
			} else {
				require.NoError(t, err)
			}
			require.Empty(t, cmp.Diff(want, got, cmpopts.IgnoreUnexported(task.Task{}), cmpopts.EquateEmpty()))
			// The other task is kept.
			hits, _ := f.hits(func() {
				f.ok(owner.of(f.Store).ReadTask(t.Context(), kept.Task.PublicID, true))
			})
			require.Equal(t, 1, hits)
			if !strings.HasPrefix(name, "erased") && !strings.HasPrefix(name, "another") {
				f.exec("DELETE FROM holdfast.tasks WHERE id = $1", n.Task.ID) // the invariants want whole logs
				f.exec("DELETE FROM holdfast.task_events WHERE task = $1", n.Task.ID)
			}
		})
	}
}

// A task that another one has replaced under the client's id is read again: its messages have its public id.
func TestKeptTaskThatLosesItsName(t *testing.T) {
	f := parallel(t)
	cold := f.replica(nil)
	old := f.finished(chosen("a", "mine"))
	shown(t, f.Store, owner, "mine")
	again := chosen("a", "mine")
	again.Reopens = &old.Task
	f.create(again)
	got := shown(t, f.Store, owner, "mine")
	same(t, shown(t, cold, owner, "mine"), got)
	require.Empty(t, got["readtrue0"].(task.Task).Artifacts)
	got = shown(t, f.Store, owner, old.Task.ID.String())
	same(t, shown(t, cold, owner, old.Task.ID.String()), got)
	require.Equal(t, old.Task.ID.String(), got["readtrue0"].(task.Task).History[0].TaskID)
}

func TestOnlyEndedTasksAreKept(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	id := p.c.Task.PublicID
	p.must(t, status(task.StateWorking), chunk("x"))
	read := func() {
		shown(t, f.Store, owner, id)
		shown(t, f.Store, owner, id)
	}
	hits, _ := f.hits(read)
	require.Zero(t, hits)
	p.must(t, parked())
	hits, _ = f.hits(read)
	require.Zero(t, hits)
	require.Zero(t, f.Store.ended.tasks.Stat().Used)
	f.answer(p.c.Task, "more").must(t, status(task.StateCompleted))
	// A snapshot of its middle does not become that of the ended task.
	h := storetest.Must(f.Header(t.Context(), p.c.Task.ID))(t)
	middle := *h
	middle.LastSeq = 3
	f.ok(f.Snapshot(t.Context(), &middle, true))
	require.Zero(t, f.Store.ended.tasks.Stat().Used)
	hits, _ = f.hits(read)
	require.Positive(t, hits)
	got := storetest.Must(f.Snapshot(t.Context(), &middle, true))(t)
	require.Equal(t, task.StateWorking, got.Status.State)
}

func TestKeptTasksAreBoundedInBytes(t *testing.T) {
	f := parallel(t)
	budget := limit.NewBudget(128 << 10) // half of it
	s := f.replica(budget)
	var ids []string
	for i := range 40 {
		n := fresh("a")
		f.create(n)
		p := &pen{s: f.Store, c: f.claim(f.worker(time.Hour), "a", 1)[0]}
		size := 2 << 10
		if i%4 == 0 {
			size = 16 << 10 // more than an eighth
		}
		p.must(t, chunk(strings.Repeat("x", size)), status(task.StateCompleted))
		ids = append(ids, n.Task.PublicID)
	}
	read := func(i int) (hits int) {
		hits, _ = f.hits(func() {
			got := storetest.Must(owner.of(s).ReadTask(t.Context(), ids[i], true))(t)
			require.Len(t, got.Artifacts, 1)
		})
		return hits
	}
	for i := range ids {
		read(i)
		waittest.Eventually(t, "the bound holds", func() error { return waittest.Unless(budget.Stat().Used <= 64<<10, "not yet") })
	}
	require.Greater(t, budget.Stat().Used, int64(32<<10))
	require.Equal(t, 1, read(39))
	require.Equal(t, 0, read(36), "it is too large")
	require.Equal(t, 0, read(1), "newer ones have taken its place")
	require.Equal(t, 1, read(1))
	// Many at once, of all.
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range ids {
				_, _ = owner.of(s).ReadTask(context.Background(), ids[(i*5+j)%len(ids)], true)
			}
		})
	}
	wg.Wait()
	waittest.Eventually(t, "the bound holds", func() error { return waittest.Unless(budget.Stat().Used <= 64<<10, "not yet") })
	for _, id := range ids {
		parsed := storetest.Must(task.ParseID(id))(t)
		s.ended.forget(parsed)
	}
	waittest.Eventually(t, "all bytes are free", func() error { return waittest.Unless(budget.Stat().Used == 0, "not yet") })
}

// A kept task needs as much memory for its answer as another.
func TestKeptTasksCountForTheirAnswers(t *testing.T) {
	f := parallel(t)
	n := fresh("a")
	f.create(n)
	p := &pen{s: f.Store, c: f.claim(f.worker(time.Hour), "a", 1)[0]}
	p.must(t, chunk(strings.Repeat("x", 300<<10)), status(task.StateCompleted))
	read := func(inFlight int64) error {
		account := limit.NewBudgets(inFlight).Open(limit.Holder{Agent: "caller"})
		defer account.Close()
		_, err := owner.of(f.Store).ReadTask(limit.WithAccount(t.Context(), account), n.Task.PublicID, true)
		return err
	}
	require.ErrorIs(t, read(1<<20), task.TooLarge)
	require.NoError(t, read(64<<20))
	hits, _ := f.hits(func() { require.NoError(t, read(64<<20)) })
	require.Equal(t, 1, hits)
	require.ErrorIs(t, read(1<<20), task.TooLarge)
}

// The statements that replace the read of a log must not read it.
func TestWitnessesReadOnlyTheirEvents(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	for range 6 {
		evs := make([]*task.Event, 500)
		for i := range evs {
			evs[i] = chunkOf("a")
		}
		p.must(t, evs...)
	}
	p.must(t, status(task.StateCompleted))
	id := uuid.UUID(p.c.Task.ID)
	x := &explained{f: f}
	rows, err := f.q.EventsWitness(t.Context(), x, dbsqlc.EventsWitnessParams{Tasks: []uuid.UUID{id, id}, Seqs: []int64{3001, 3002}, Lowest: id, Highest: id})
	require.NoError(t, err)
	require.Len(t, rows, 2)
	require.Less(t, x.pages, 45)
	x.pages = 0
	header, err := f.q.TaskWitness(t.Context(), x, dbsqlc.TaskWitnessParams{ID: id, Tenant: "tenant", Owner: "owner", Agent: "a", Seqs: []int64{3001, 3002}})
	require.NoError(t, err)
	require.Len(t, header, 2)
	require.Less(t, x.pages, 45)
}
