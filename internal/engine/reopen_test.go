package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// reopening is a message of 0.1 with a client-chosen id, where the operator allows clients to reopen tasks.
func reopening(text, id string) *sending {
	q := send(text)
	q.TaskID, q.MayCreate, q.MayReopen, q.Dialect = id, true, true, "0.1"
	return q
}

func (r *replica) get(t testing.TB, id string) *task.Task {
	t.Helper()
	got, err := r.as(alice).Get(t.Context(), &engine.GetRequest{TaskID: id, WithArtifacts: true})
	require.NoError(t, err)
	return got
}

// A message with the id of an ended task creates another task with that id. The ended task stays unchanged.
func TestReopening(t *testing.T) {
	t.Parallel()
	r := start(t, setup{})
	for id, end := range map[string]task.State{"done": task.StateCompleted, "fail": task.StateFailed} {
		q := reopening(id, id)
		q.Metadata = []byte(`{"a":1}`)
		old := r.must(t, q)
		require.Equal(t, end, old.Status.State)
		before := r.log(t, old)

		fresh := r.must(t, reopening("again", id))
		require.Equal(t, id, fresh.PublicID)
		require.NotEqual(t, old.ID, fresh.ID)
		require.Equal(t, old.ContextID, fresh.ContextID)
		require.Equal(t, task.StateCompleted, fresh.Status.State)
		require.JSONEq(t, `{"a":1}`, string(fresh.Metadata))
		require.Len(t, fresh.History, 1)
		require.Equal(t, "again", fresh.History[0].FirstText())
		require.Equal(t, []string{old.ID.String()}, fresh.History[0].References, "the later task refers to the earlier one")
		require.Equal(t, fresh.ID, r.get(t, id).ID)

		kept := r.get(t, old.ID.String())
		require.Equal(t, old.ID.String(), kept.PublicID)
		require.Equal(t, end, kept.Status.State)
		require.Empty(t, cmp.Diff(before, r.log(t, old)), "no event was added")
		r.refuses(t, reopening("more", old.ID.String()), task.Terminal, "its UUID names the ended task")
	}
}

func TestTasksThatAreNotReopened(t *testing.T) {
	t.Parallel()
	r := start(t, setup{})
	r.must(t, reopening("hi", "t"))
	unasked := reopening("more", "t")
	unasked.MayReopen = false
	r.refuses(t, unasked, task.Terminal, "not by default")

	later := reopening("hi", "later")
	later.Dialect = "0.3"
	r.must(t, later)
	r.refuses(t, reopening("more", "later"), task.Terminal, "clients of later versions rely on the terminal state")

	serverMade := r.must(t, send("hi"))
	r.refuses(t, reopening("more", serverMade.PublicID), task.Terminal)

	elsewhere := reopening("more", "t")
	elsewhere.ContextID = "another"
	r.refuses(t, elsewhere, task.Invalid)

	bob := reopening("hi", "t")
	bob.by.Subject = "bob"
	mine := r.get(t, "t")
	require.NotEqual(t, mine.ID, r.must(t, bob).ID, "bob's own")
	require.Equal(t, mine.ID, r.get(t, "t").ID)

	parked := r.must(t, reopening("ask", "parked"))
	require.Equal(t, parked.ID, r.must(t, reopening("done", "parked")).ID, "a task that has not ended continues")
}

// Event ids on the streams of one public id never decrease, so a client that saw an earlier task misses nothing.
func TestStreamsOfReopenedTask(t *testing.T) {
	t.Parallel()
	r := start(t, setup{})
	first := r.must(t, reopening("chunks 3", "t"))
	second := r.must(t, reopening("chunks 2", "t"))
	require.Equal(t, first.LastSeq, second.StreamBase)

	st, err := r.Stream(t.Context(), reopening("chunks 4", "t"))
	require.NoError(t, err)
	defer st.Close()
	base := first.LastSeq + second.LastSeq
	require.Equal(t, base+1, st.ID(st.Task.Position()).Seq)
	var ids []int64
	for end := false; !end; {
		evs, err := st.Next(t.Context())
		require.NoError(t, err)
		for _, ev := range evs {
			ids = append(ids, int64(st.ID(ev.Position()).Seq))
			end = ev.State.Terminal()
		}
	}
	third := r.get(t, "t")
	require.Equal(t, task.Seq(ids[len(ids)-1]), base+third.LastSeq)

	for _, live := range []bool{false, true} {
		subscribe := func(after task.Seq) (*engine.Stream, error) {
			return r.as(alice).Subscribe(t.Context(), &engine.SubscribeRequest{TaskID: "t", Resume: true, After: task.Position{Seq: after}, Live: live})
		}
		for after := base; after < base+third.LastSeq; after++ {
			st, err := subscribe(after)
			require.NoError(t, err)
			require.Nil(t, st.Task)
			require.False(t, st.Over)
			evs, err := st.Next(t.Context())
			require.NoError(t, err)
			require.Equal(t, after+1, st.ID(evs[0].Position()).Seq)
			st.Close()
		}
		st, err := subscribe(base + third.LastSeq)
		require.NoError(t, err)
		require.True(t, st.Over)
		st.Close()
		// An id before the present task: the client missed events that are not in this log. An id after its end: there is no such event.
		for _, after := range []task.Seq{0, first.LastSeq, base - 1, base + third.LastSeq + 1} {
			st, err := subscribe(after)
			if live {
				require.ErrorIs(t, err, task.Terminal)
				continue
			}
			require.NoError(t, err)
			require.NotNil(t, st.Task, "a snapshot")
			require.Equal(t, base+third.LastSeq, st.ID(st.Task.Position()).Seq)
			st.Close()
		}
	}
}

func TestRepeatedReopening(t *testing.T) {
	t.Parallel()
	r := start(t, setup{})
	var made []task.ID
	for _, text := range []string{"one", "two", "two", "one"} {
		q := reopening(text, "t")
		q.IdempotencyKey = text
		made = append(made, r.must(t, q).ID)
	}
	require.NotEqual(t, made[0], made[1])
	require.Equal(t, []task.ID{made[1], made[0]}, made[2:], "each is the task of its message")
	require.Equal(t, made[1], r.get(t, "t").ID)
}

// Of concurrent messages, each creates a task or goes to the one that another message created.
func TestConcurrentReopening(t *testing.T) {
	t.Parallel()
	r := start(t, setup{})
	first := r.must(t, reopening("first", "t"))
	const many = 20
	ctx := waittest.Context(t)
	var g errgroup.Group
	for i := range many {
		g.Go(func() error {
			q := reopening(fmt.Sprintf("m%d", i), "t")
			q.Wait = i%2 == 0
			if i%4 == 0 {
				q.IdempotencyKey = fmt.Sprint(i)
			}
			// On a busy machine the messages of one task may take longer than one of them waits for its turn.
			for {
				if _, err := r.Send(ctx, q); !errors.Is(err, task.Unavailable) || ctx.Err() != nil {
					return err
				}
			}
		})
	}
	require.NoError(t, g.Wait())
	said, base := map[string]bool{}, task.Seq(0)
	h := r.get(t, "t")
	for tasks := 0; ; tasks++ {
		require.LessOrEqual(t, tasks, many)
		if tasks == 0 {
			base = h.StreamBase
		}
		require.Equal(t, base, h.StreamBase)
		for _, m := range h.History {
			if m.Role == task.RoleUser {
				require.False(t, said[m.FirstText()], "twice: %s", m.FirstText())
				said[m.FirstText()] = true
			}
		}
		if h.ID == first.ID {
			break
		}
		h = r.get(t, h.History[0].References[0])
		base -= h.LastSeq
	}
	require.Zero(t, base)
	require.Len(t, said, many+1)
}

func (r *replica) retry(t *testing.T, h *task.Task, last bool) (*task.Task, error) {
	t.Helper()
	return engine.NewOperator(r.store, task.Caller{Subject: "root", Method: task.MethodOperator}).Retry(t.Context(), h, last, "")
}

func TestRetryOfEndedTaskCreatesTask(t *testing.T) {
	t.Parallel()
	r := start(t, setup{})
	q := send("ask which?")
	q.ContextID, q.Metadata = "ctx", []byte(`{"n":1.0}`)
	q.Message.References = []string{"before"}
	q.Message.Metadata = []byte(`{"m":2.0}`)
	old := r.must(t, q)
	old = r.must(t, to(send("fail now"), old))
	require.Equal(t, task.StateFailed, old.Status.State)
	ends := old.LastSeq

	var newest task.ID
	for last, text := range map[bool]string{false: "ask which?", true: "fail now"} {
		old, err := r.store.Header(t.Context(), old.ID)
		require.NoError(t, err)
		again, err := r.retry(t, old, last)
		require.NoError(t, err)
		require.NotEqual(t, old.ID, again.ID)
		twice, err := r.retry(t, old, last)
		require.NoError(t, err)
		require.Equal(t, again.ID, twice.ID, "another operator did the same at that moment")
		if newest.IsZero() {
			defer func() {
				late, err := r.retry(t, old, last)
				require.NoError(t, err)
				require.Equal(t, again.ID, late.ID, "a late repetition of the first")
				h, err := r.store.Header(t.Context(), old.ID)
				require.NoError(t, err)
				require.NotEqual(t, again.ID, h.RetriedAs)
			}()
		}
		newest = again.ID
		h, err := r.store.Header(t.Context(), again.ID)
		require.NoError(t, err)
		require.Equal(t, []string{"a", "t", "alice", "ctx", "0.3", `{"n":1.0}`},
			[]string{h.Agent, h.Tenant, h.Owner, h.ContextID, h.Dialect, string(h.Metadata)})
		first, was := r.log(t, h)[0].Message, r.log(t, old)[0].Message
		require.Equal(t, text, first.FirstText())
		require.NotEqual(t, was.ID, first.ID)
		require.Equal(t, again.PublicID, first.TaskID)
		if last {
			require.Equal(t, []string{old.PublicID}, first.References)
		} else {
			require.Equal(t, []string{"before", old.PublicID}, first.References)
			require.JSONEq(t, `{"m":2.0}`, string(first.Metadata))
		}
	}
	h, err := r.store.Header(t.Context(), old.ID)
	require.NoError(t, err)
	require.Equal(t, ends, h.LastSeq, "the ended task is unchanged")
	require.Equal(t, newest, h.RetriedAs)
	again, err := r.retry(t, h, false)
	require.NoError(t, err)
	require.NotEqual(t, newest, again.ID, "a further retry")
}

func TestRefusedRetries(t *testing.T) {
	t.Parallel()
	r := start(t, setup{})
	_, err := r.retry(t, r.must(t, send("x")), false)
	require.ErrorIs(t, err, task.Terminal)
	parked := r.must(t, send("ask"))
	_, err = r.retry(t, parked, false)
	require.ErrorIs(t, err, task.Busy)
	require.ErrorContains(t, err, "input-required")
	runs := r.begin(t, "hold")
	await(t, r.begun)
	_, err = r.retry(t, runs, false)
	require.ErrorIs(t, err, task.Busy)
	require.ErrorContains(t, err, "a worker runs it")
	close(r.gate)

	alone := start(t, setup{noWorkers: true})
	waits := alone.begin(t, "x")
	_, err = alone.retry(t, waits, false)
	require.ErrorIs(t, err, task.Busy)
	require.ErrorContains(t, err, "and due: its status line says what it waits for")
}

func TestRetrySkipsBackoff(t *testing.T) {
	t.Parallel()
	r := start(t, setup{noWorkers: true})
	h := r.begin(t, "x")
	claim := func() []*store.Claimed {
		won, err := r.store.Claim(t.Context(), store.NewID(), []store.Demand{{Agent: "a", Slots: 1}})
		require.NoError(t, err)
		return won
	}
	won := claim()
	require.Len(t, won, 1)
	require.NoError(t, r.store.GiveBack(t.Context(), store.Requeue{
		Task: h.ID, Agent: "a", Fence: won[0].Fence, Note: task.RunNote{Outcome: task.RunRetry}, Delay: time.Hour,
	}))
	require.Empty(t, claim())
	again, err := r.retry(t, h, false)
	require.NoError(t, err)
	require.Equal(t, h.ID, again.ID, "it is the same task")
	require.Len(t, claim(), 1)
}

// purging is a store in which an operator purges a task at a chosen moment of a request.
type purging struct {
	engine.Store
	beforeExisting, beforeAdd func()
}

func (p *purging) Existing(ctx context.Context, n *store.NewTask) (*task.Task, bool, error) {
	p.beforeExisting()
	return p.Store.Existing(ctx, n)
}

func (p *purging) AddMessage(ctx context.Context, n *store.NewMessage) (task.Seq, error) {
	p.beforeAdd()
	return p.Store.AddMessage(ctx, n)
}

// A task that is purged in the middle of a request frees its id and its key, so the request gets what it would have got a moment later.
func TestTaskPurgedDuringRequest(t *testing.T) {
	t.Parallel()
	r := start(t, setup{noWorkers: true})
	p := &purging{}
	e := engine.New(engine.Options{
		Store: func(c task.Caller, sees store.Visibility) engine.Store {
			p.Store = r.store.As(c, sees)
			return p
		},
		Hub: r.hub, Agents: []engine.Agent{{Name: "a"}},
	})
	deliver := func(q *sending) (*task.Task, error) {
		q.Wait = false
		return e.As(q.by.Caller, q.by.Agent).Send(t.Context(), &q.SendRequest)
	}
	quiet := func() {}
	purge := func(old *task.Task) func() {
		return func() {
			_, err := r.store.Erase(t.Context(), []task.ID{old.ID}, true, "")
			require.NoError(t, err)
			p.beforeExisting, p.beforeAdd = quiet, quiet
		}
	}
	keyed := func(text, key string) *sending {
		q := send(text)
		q.IdempotencyKey = key
		return q
	}
	chosen := func(text, id string) *sending {
		q := send(text)
		q.Dialect, q.TaskID, q.MayCreate = "0.1", id, true
		return q
	}
	made := func(q *sending) *task.Task {
		p.beforeExisting, p.beforeAdd = quiet, quiet
		got, err := deliver(q)
		require.NoError(t, err)
		return got
	}

	for name, again := range map[string]*sending{"same request": keyed("hi", "k1"), "other request": keyed("hello", "k2")} {
		old := made(keyed("hi", again.IdempotencyKey))
		p.beforeExisting = purge(old)
		got, err := deliver(again)
		require.NoError(t, err, name)
		require.NotEqual(t, old.ID, got.ID, name)
	}

	for name, at := range map[string]*func(){"before the look-up": &p.beforeExisting, "before the message": &p.beforeAdd} {
		id := "chosen " + name
		old := made(chosen("hi", id))
		*at = purge(old)
		got, err := deliver(chosen("hello", id))
		require.NoError(t, err, name)
		require.NotEqual(t, old.ID, got.ID, name)
		require.Equal(t, id, got.PublicID)
		require.Equal(t, got.ContextID, got.History[0].ContextID, "no trace of the old task")
	}

	old := made(send("hi"))
	p.beforeAdd = purge(old)
	_, err := deliver(to(send("hello"), old))
	require.ErrorIs(t, err, task.NotFound, "a server's id is not used again")
}
