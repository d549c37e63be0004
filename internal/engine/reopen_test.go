package engine_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
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
		// An id before the present task: the client missed events that are not in this log. An id after its end:
		// there is no such event.
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
