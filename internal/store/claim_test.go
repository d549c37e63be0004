package store

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

// TestClaimsAreLimitedInBytes queues messages of 10 MiB by every statement that queues.
func TestClaimsAreLimitedInBytes(t *testing.T) {
	f := parallel(t)
	const size = 10 << 20
	large := func() *NewTask {
		n := fresh("a")
		n.Message.Parts[0].Text = strings.Repeat("x", size)
		return n
	}
	for range 5 {
		f.create(large())
	}
	// A message that arrived during a run is queued when the run parks.
	p := f.running("b")
	f.ok(f.AddMessage(t.Context(), &NewMessage{Task: p.c.Task, Message: large().Message, Enqueue: true, RequestID: NewID()}))
	p.must(t, status(task.StateWorking), status(task.StateInputRequired))
	// A message to a parked task.
	parked := f.running("c")
	parked.must(t, status(task.StateWorking), status(task.StateInputRequired))
	f.ok(f.AddMessage(t.Context(), &NewMessage{Task: parked.c.Task, Message: large().Message, Enqueue: true, RequestID: NewID()}))
	var least int
	require.NoError(t, f.conn().QueryRow(t.Context(), "SELECT min(message_bytes) FROM holdfast.task_queue").Scan(&least))
	require.GreaterOrEqual(t, least, size)

	w := f.worker(time.Hour)
	claim := func(d Demand) int {
		won := storetest.Must(f.Claim(t.Context(), w, []Demand{d}))(t)
		return len(won)
	}
	require.Equal(t, 3, claim(Demand{Agent: "a", Slots: 100}), "the default")
	require.Zero(t, claim(Demand{Agent: "a", Slots: 100, Bytes: size, Further: true}), "larger than what is free")
	require.Equal(t, 1, claim(Demand{Agent: "a", Slots: 100, Bytes: size}), "one goes on alone")
	require.Equal(t, 1, claim(Demand{Agent: "a", Slots: 100, Bytes: size + 1000, Further: true}))
}

// TestSmallMessagesPassLargeOnes queues small messages behind large ones of the same agent and of another.
func TestSmallMessagesPassLargeOnes(t *testing.T) {
	f := parallel(t)
	w := f.worker(time.Hour)
	for name, one := range map[string]Demand{
		"in the process":    {Slots: 2},
		"of remote workers": {Workers: []task.ID{w, w}, Lease: time.Hour, Look: time.Hour},
	} {
		claim := func(alone bool) []*Claimed {
			one.Agent, one.Bytes, one.Further = "a", limit.SmallBytes, !alone
			other := one
			other.Agent = "b"
			return storetest.Must(f.Claim(t.Context(), w, []Demand{one, other}))(t)
		}
		var large, small []task.ID
		queue := func(agent string, size int) task.ID {
			n := fresh(agent)
			n.Message.Parts[0].Text = strings.Repeat("x", size)
			return f.create(n).ID
		}
		for range 3 {
			large = append(large, queue("a", 1<<20))
		}
		small = append(small, queue("a", 1000), queue("b", 1000), queue("a", limit.SmallBytes-1000), queue("b", limit.SmallBytes-1000))
		ids := func(got []*Claimed) (ids []task.ID) {
			for _, c := range got {
				ids = append(ids, c.Task.ID)
			}
			return ids
		}
		// The next claims must find what a claim has passed over.
		passed := func(got []*Claimed) {
			for _, c := range got {
				require.Zero(t, c.Since, name)
			}
		}
		got := claim(false)
		require.ElementsMatch(t, small, ids(got), name)
		passed(got)
		require.Empty(t, claim(false), name)
		for i := range large {
			got := claim(true)
			require.Equal(t, large[i:i+1], ids(got), "%s: the oldest goes on alone", name)
			passed(got)
		}
		last := queue("a", 1000)
		got = claim(true)
		require.Equal(t, []task.ID{last}, ids(got), name)
		require.False(t, got[0].Since.IsZero(), name)
	}
}

// TestLockedTasksDoNotStarveClaims locks the oldest queued task. A claim for one run takes the next.
func TestLockedTasksDoNotStarveClaims(t *testing.T) {
	f := parallel(t)
	oldest, next := f.create(fresh("a")), f.create(fresh("a"))
	defer f.lock(oldest.ID)()
	won := storetest.Must(f.Claim(t.Context(), f.worker(time.Hour), []Demand{{Agent: "a", Slots: 1}}))(t)
	require.Len(t, won, 1)
	require.Equal(t, uuid.UUID(next.ID), uuid.UUID(won[0].Task.ID))
}
