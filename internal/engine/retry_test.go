package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/identity"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

func (r *replica) retry(t *testing.T, h *task.Task, last bool) (*task.Task, error) {
	t.Helper()
	h, err := r.store.Header(t.Context(), h.ID)
	require.NoError(t, err)
	return engine.NewOperator(r.store, identity.Caller{Subject: "root", Method: identity.MethodOperator}).Retry(t.Context(), h, last)
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

	for last, text := range map[bool]string{false: "ask which?", true: "fail now"} {
		again, err := r.retry(t, old, last)
		require.NoError(t, err)
		require.NotEqual(t, old.ID, again.ID)
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
	require.ErrorContains(t, err, "it waits for a free worker of agent a")
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
