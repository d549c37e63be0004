package protocol

import (
	"io"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

func TestStreamResumesOnAnotherReplica(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, b := rarelyPolling(t, db)
	for _, d := range a2atest.Old {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			l := clustertest.OpenDB(t, db.URL)
			s := a.Stream(d, a2atest.Say("chunks=60 size=64 delay=15ms"))
			seen := s.Take(12)
			taskID := seen[0].Task()
			s.Close() // in the middle
			// The second connection is cut, too; the third one stays open.
			s = b.Resume(taskID, s.Last)
			seen = append(seen, s.Take(15)...)
			s.Close()
			seen = append(seen, a.Resume(taskID, s.Last).Rest()...)

			require.Equal(t, "completed", seen[len(seen)-1].State())
			require.Equal(t, l.Seqs(taskID), a2atest.Seqs(seen), "the client saw every stored event, once and in order")
			require.Equal(t, clustertest.Seq(len(seen)), a2atest.Seqs(seen))
			require.Equal(t, l.Chunks(taskID), a2atest.Chunks(seen))
			clustertest.Indexed(t, a2atest.Chunks(seen), 60)

			// After the end of the task, a resume from any event gives the rest, on every replica.
			for _, r := range []*clustertest.Replica{a, b} {
				for _, after := range []int64{0, 1, 2, 31, int64(len(seen)) - 1} {
					tail := r.Resume(taskID, after).Rest()
					require.Equal(t, a2atest.Seqs(seen)[max(after, 1):], a2atest.Seqs(tail), "after %d on %s", after, r.Name)
					require.Equal(t, seen[len(seen)-1].State(), tail[len(tail)-1].State())
				}
				none, err := r.Resume(taskID, int64(len(seen))).UntilEnd()
				require.ErrorIs(t, err, io.EOF)
				require.Empty(t, none, "no event follows the last one")
				// A resume from an event that does not exist is ignored: the client gets the present task.
				again := r.Resume(taskID, 1000).Rest()
				require.Equal(t, "completed", again[len(again)-1].State())
			}
			polledNothing(t, a, b)
		})
	}
}

// rarelyPolling starts two replicas whose polls come too late to find events.
func rarelyPolling(t *testing.T, db *clustertest.DB) (a, b *clustertest.Replica) {
	t.Helper()
	config := clustertest.Replace(clustertest.Settings, "hub: {poll_interval: 500ms}", "hub: {poll_interval: 1m}")
	return clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: config})
}

// polledNothing checks that hints found all events.
func polledNothing(t *testing.T, replicas ...*clustertest.Replica) {
	t.Helper()
	for _, r := range replicas {
		require.Zero(t, r.Metric("holdfast_hub_poll_found_total"), "%s: no event waited for the poll", r.Name)
	}
}

// Clients that connect and disconnect at random places, on every replica, all see one order.
func TestAllStreamsHaveOneOrder(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	replicas := clustertest.Cluster(t, db.URL, "a", "b")
	s := replicas[0].Stream(a2atest.V03, a2atest.Say("chunks=200 size=32 delay=3ms"))
	first := s.Take(1)
	taskID := first[0].Task()
	type view struct {
		seqs   []int64
		chunks []string
	}
	views := make(chan view, 8)
	for i := range cap(views) {
		go func() {
			var v view
			var last int64 = 1
			for n := i + 3; ; n += 5 {
				s, err := replicas[(i+n)%2].TryBegin(a2atest.Unversioned, a2atest.Subscribe, &a2atest.Args{Task: taskID, After: strconv.FormatInt(last, 10)})
				if err != nil {
					t.Errorf("reader %d: %v", i, err)
					break
				}
				var e *a2atest.Event
				for range n {
					if e, err = s.Next(); err != nil {
						break
					}
					v.seqs, v.chunks = append(v.seqs, e.Seq), append(v.chunks, a2atest.Chunks([]*a2atest.Event{e})...)
				}
				last = s.Last
				s.Close()
				if err != nil || e.Final {
					break
				}
			}
			views <- v
		}()
	}
	seen := append(first, s.Rest()...)
	for range cap(views) {
		v := waittest.Within(t, "a reader", views)
		require.Equal(t, a2atest.Seqs(seen)[1:], v.seqs)
		require.Equal(t, a2atest.Chunks(seen), v.chunks)
	}
}
