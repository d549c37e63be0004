package store

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

func chosen(agent, id string) *NewTask {
	n := fresh(agent)
	n.Task.PublicID, n.ClientID = id, true
	return n
}

func keyed(n *NewTask, key, hash string) *NewTask {
	n.Idempotency = Idempotency{Key: key, Hash: []byte(hash)}
	return n
}

// asOneBatch writes creates in a single statement, whatever the writers do.
func (f *fixture) asOneBatch(ns ...*NewTask) []createResult {
	f.t.Helper()
	items := make([]*create, len(ns))
	for i, n := range ns {
		items[i] = newCreate(n)
	}
	require.Empty(f.t, f.writeCreates(f.t.Context(), items), "creates that another session's lock blocks")
	out := make([]createResult, len(ns))
	for i, c := range items {
		out[i] = waittest.Within(f.t, "the answer", c.done)
	}
	return out
}

func TestBatchWithTakenIDs(t *testing.T) {
	f := parallel(t)
	f.create(keyed(chosen("a", "taken"), "key", "1"))
	owner := chosen("a", "taken")
	owner.Task.Owner = "somebody else"
	claimed := fresh("a")
	claimed.Slot.Worker = f.worker(time.Hour)
	got := f.asOneBatch(
		fresh("a"),
		chosen("a", "taken"),
		chosen("b", "taken"), // of another agent
		owner,
		keyed(fresh("a"), "key", "1"),
		keyed(fresh("a"), "twice", "1"),
		keyed(fresh("a"), "twice", "2"),
		chosen("a", "same"),
		chosen("a", "same"),
		claimed,
		keyed(chosen("a", "one"), "k1", "1"),
		keyed(chosen("a", "one"), "k2", "1"),
	)
	var made []bool
	for _, r := range got {
		require.NoError(t, r.err)
		made = append(made, r.made)
	}
	require.Equal(t, []bool{true, false, true, true, false, true, false, true, false, true, true, false}, made)

	h := storetest.Must(f.Header(t.Context(), claimed.Task.ID))(t)
	require.Equal(t, task.StateSubmitted, h.Status.State)
	require.Equal(t, []Owned{{Task: claimed.Task.ID, Fence: FirstFence(h)}}, storetest.Must(f.Owned(t.Context(), claimed.Slot.Worker))(t))
	p := &pen{s: f.Store, c: &Claimed{Task: h, Fence: FirstFence(h)}}
	p.must(t, status(task.StateWorking))
}

func TestInvalidCreateFailsAlone(t *testing.T) {
	f := parallel(t)
	poison := fresh("a")
	poison.Message = &task.Message{Parts: []task.Part{{Kind: task.PartData, Data: []byte(`{`)}}}
	got := f.asOneBatch(fresh("a"), poison, fresh("a"))
	require.True(t, got[0].made)
	require.Equal(t, task.Internal, task.KindOf(got[1].err))
	require.True(t, got[2].made)
}

func TestIdempotencyKeys(t *testing.T) {
	f := parallel(t)
	first := keyed(fresh("a"), "key", "hash")
	f.create(first)

	again := keyed(fresh("a"), "key", "hash")
	require.ErrorIs(t, errOf(f.Create(t.Context(), again)), ErrTaken)
	h, byKey := must2(ownerOf(again).bare(f.Store).Existing(t.Context(), again))(t)
	require.True(t, byKey)
	require.Equal(t, first.Task.ID, h.ID)

	other := keyed(fresh("a"), "key", "other")
	require.ErrorIs(t, errOf(f.Create(t.Context(), other)), ErrTaken)
	_, byKey, err := ownerOf(other).bare(f.Store).Existing(t.Context(), other)
	require.True(t, byKey)
	require.ErrorIs(t, err, task.Invalid)

	elsewhere := keyed(fresh("a"), "key", "other")
	elsewhere.Task.Owner = "somebody else"
	f.create(elsewhere)
}

// A repetition is not refused because its first try, stored after it looked for the key, has ended the task or made it busy.
func TestRepeatedMessageFindsLateFirstTry(t *testing.T) {
	f := parallel(t)
	r := f.running("a")
	r.must(t, status(task.StateInputRequired))
	v := owner.bare(f.Store)
	message := func() *NewMessage {
		return &NewMessage{Task: r.c.Task, Message: user("x"), RequestID: NewID(), Idempotency: Idempotency{"key", []byte("1")}}
	}
	f.ok(v.AddMessage(t.Context(), message()))
	require.ErrorIs(t, errOf(v.AddMessage(t.Context(), message())), ErrTaken, "the task is busy")
	f.ok(f.Cancel(t.Context(), r.c.Task, nil))
	require.ErrorIs(t, errOf(v.AddMessage(t.Context(), message())), ErrTaken, "the task has ended")
	require.Len(t, f.log(r.c.Task.ID), 5)
}

// A create that wins its key and loses its id leaves a key without a task. The next request with the key gets it.
func TestKeyWithoutTaskIsFree(t *testing.T) {
	f := parallel(t)
	dangle := func(key, id string) {
		got := f.asOneBatch(chosen("a", id), keyed(chosen("a", id), key, "1"))
		require.True(t, got[0].made)
		require.False(t, got[1].made)
		require.Equal(t, 1, scan[int](f, "SELECT count(*) FROM holdfast.idempotency_keys WHERE key = $1", key))
	}
	dangle("k1", "x")
	f.create(keyed(fresh("a"), "k1", "2"))

	dangle("k2", "y")
	parked := f.running("parked")
	parked.must(t, status(task.StateInputRequired))
	h := storetest.Must(f.Header(t.Context(), parked.c.Task.ID))(t)
	f.ok(owner.bare(f.Store).AddMessage(t.Context(), &NewMessage{Task: h, Message: user("x"), RequestID: NewID(), Idempotency: Idempotency{"k2", []byte("3")}}))

	// The create that lost reports that the id is taken, and its key stays free.
	lost := keyed(chosen("a", "y"), "k3", "1")
	require.ErrorIs(t, errOf(ownerOf(lost).bare(f.Store).Create(t.Context(), lost)), ErrTaken)
	f.create(keyed(fresh("a"), "k3", "4"))
}

func (f *fixture) say(id task.ID, enqueue bool) (task.Seq, error) {
	f.t.Helper()
	h := storetest.Must(f.Header(f.t.Context(), id))(f.t)
	return f.AddMessage(f.t.Context(), &NewMessage{Task: h, Message: user("more"), Enqueue: enqueue, RequestID: NewID()})
}

// The append that parks the run meets the open transaction of a message.
func TestMessageWhileRunParks(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	p.must(t, status(task.StateWorking))
	tx := storetest.Must(f.hot.Begin(t.Context()))(t)
	storetest.Must(f.q.MessageAppend(t.Context(), tx, dbsqlc.MessageAppendParams{
		ID: uuid.UUID(p.c.Task.ID), Enqueue: true, Tenant: "tenant", Owner: "owner", RequestHash: []byte{}, RequestID: uuid.UUID(NewID()),
		Payload: EncodePayload(&task.Event{Kind: task.EventMessage, Message: user("late")}),
	}))(t)
	parked := p.write(chunk("x"), status(task.StateInputRequired))
	f.retries("append")
	require.NoError(t, tx.Commit(t.Context()))
	a := waittest.Within(t, "the answer", parked)
	require.NoError(t, a.err)
	require.True(t, a.requeued)
	c := f.claim(f.worker(time.Hour), "a", 1)[0]
	require.Equal(t, "late", c.Message.FirstText())
	require.Equal(t, 2, c.Turn)
}

// The cancel began while the task had a worker, and gets its lock when it has none.
func TestCancelWhileRunParks(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	commit := f.written(p, status(task.StateInputRequired))
	canceled := make(chan error, 1)
	go func() {
		ended, err := f.Cancel(t.Context(), p.c.Task, nil)
		if err == nil && !ended {
			err = task.Busy
		}
		canceled <- err
	}()
	f.blocked(1)
	commit()
	require.NoError(t, waittest.Within(t, "the cancel", canceled))
}

// Two batches create the same ids in another order.
func TestCreatesOfTheSameIDsDoNotDeadlock(t *testing.T) {
	t.Parallel()
	url := storetest.New(t).URL
	f := openFixture(t, url, url+"&lock_timeout=60000") // longer than PostgreSQL takes to find a deadlock
	for round := range 30 {
		var batches [2][]*NewTask
		for i := range 40 {
			for b := range batches {
				n := i
				if b == 1 {
					n = 39 - i
				}
				batches[b] = append(batches[b], chosen("a", fmt.Sprint(round, "-", n)))
			}
		}
		var g errgroup.Group
		made := make(chan int, 2)
		for _, ns := range batches {
			g.Go(func() error {
				n := 0
				for _, r := range f.asOneBatch(ns...) {
					if r.err != nil {
						return r.err
					}
					if r.made {
						n++
					}
				}
				made <- n
				return nil
			})
		}
		require.NoError(t, g.Wait())
		require.Equal(t, 40, <-made+<-made)
	}
	require.Zero(t, scan[int](f, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"))
}

func TestManyClaimEachTaskOnce(t *testing.T) {
	f := parallel(t)
	const tasks, workers = 300, 8
	var g errgroup.Group
	for i := range tasks {
		g.Go(func() error { return errOf(f.Create(t.Context(), fresh([]string{"a", "b", "c"}[i%3]))) })
	}
	require.NoError(t, g.Wait())
	var mu sync.Mutex
	got := map[task.ID]int{}
	for range workers {
		w := f.worker(time.Hour)
		g.Go(func() error {
			for left := true; left; {
				won, err := f.Claim(t.Context(), w, []Demand{{Agent: "a", Slots: 3}, {Agent: "b", Slots: 1}, {Agent: "c", Slots: 7}})
				if err != nil {
					return err
				}
				n := map[string]int{}
				mu.Lock()
				for _, c := range won {
					got[c.Task.ID]++
					n[c.Task.Agent]++
				}
				left = len(got) < tasks
				mu.Unlock()
				if n["a"] > 3 || n["b"] > 1 || n["c"] > 7 {
					return fmt.Errorf("more than the slots: %v", n)
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	for id, n := range got {
		require.Equal(t, 1, n, "task %s", id)
	}
}

func TestRetryWaitsBehindWatermark(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	require.NoError(t, f.GiveBack(t.Context(), Requeue{
		Task: p.c.Task.ID, Agent: "a", Fence: p.c.Fence, Delay: time.Hour, Note: task.RunNote{Outcome: task.RunRetry, Error: "why\x00"},
	}))
	w := f.worker(time.Hour)
	f.exec("UPDATE holdfast.task_queue SET available_at = now() - interval '1 minute'")
	require.Empty(t, storetest.Must(f.Claim(t.Context(), w, []Demand{{Agent: "a", Slots: 5, Since: time.Now().Add(-30 * time.Second)}}))(t))
	f.claim(w, "a", 1)
	require.Equal(t, "why\uFFFD", scan[string](f, "SELECT payload ->> 'error' FROM holdfast.task_events WHERE kind = 4"))
}

func TestUnreadableMessageDelaysNoOther(t *testing.T) {
	f := parallel(t)
	bad, good := f.create(fresh("a")), f.create(fresh("a"))
	f.exec(`UPDATE holdfast.task_events SET payload = '{"parts":7}' WHERE task = $1`, bad.ID)
	for _, c := range f.claim(f.worker(time.Hour), "a", 2) {
		require.NotNil(t, c.Message)
		require.Equal(t, c.Task.ID == good.ID, c.Unreadable == nil)
	}
}
