package integration

import (
	"io"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAStreamIsResumedOnAnotherReplica(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	// Nothing of this waits for the poll.
	rarely := replace(settings, "hub: {poll_interval: 500ms}", "hub: {poll_interval: 1m}")
	a := start(t, replicaOptions{Name: "a", DB: db.url, Config: rarely})
	b := start(t, replicaOptions{Name: "b", DB: db.url, Config: rarely})
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			l := openLedger(t, db.url)
			s := a.open(d.stream, d.params("", "chunks=60 size=64 delay=15ms"))
			seen := s.take(12)
			taskID := seen[0].task()
			s.close() // in the middle
			// The second connection is cut as well, the third one stays.
			s = b.resume(taskID, s.last)
			seen = append(seen, s.take(15)...)
			s.close()
			seen = append(seen, a.resume(taskID, s.last).rest()...)

			require.Equal(t, "completed", seen[len(seen)-1].state())
			require.Equal(t, l.seqs(taskID), seqsOf(seen), "every event that is stored was seen, once and in order")
			require.Equal(t, ids(len(seen)), seqsOf(seen))
			require.Equal(t, l.chunks(taskID), chunksOf(seen))
			indexed(t, chunksOf(seen), 60)

			// Now that the task has ended, any position still gives all that follows.
			began := time.Now()
			for _, r := range []*replica{a, b} {
				for _, after := range []int64{0, 1, 2, 31, int64(len(seen)) - 1} {
					tail := r.resume(taskID, after).rest()
					require.Equal(t, seqsOf(seen)[max(after, 1):], seqsOf(tail), "after %d on %s", after, r.name)
					require.Equal(t, seen[len(seen)-1].state(), tail[len(tail)-1].state())
				}
				none, err := r.resume(taskID, int64(len(seen))).untilEnd()
				require.ErrorIs(t, err, io.EOF)
				require.Empty(t, none, "nothing follows the last event")
				// A position that never was is void: the client gets the task as it stands.
				again := r.resume(taskID, 1000).rest()
				require.Equal(t, "completed", again[len(again)-1].state())
			}
			require.Less(t, time.Since(began), 10*time.Second, "what is stored is sent at once")
			l.sound()
		})
	}
}

// Readers on every replica that come and go at random places all see one order.
func TestManyReadersSeeOneOrder(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	replicas := cluster(t, db.url, "a", "b")
	s := replicas[0].open(v03.stream, v03.params("", "chunks=200 size=32 delay=3ms"))
	first := s.take(1)
	taskID := first[0].task()
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
				s, err := openURL(t, replicas[(i+n)%2].url+"/", "tasks/resubscribe", object{"id": taskID}, "Last-Event-ID", strconv.FormatInt(last, 10))
				if err != nil {
					t.Errorf("reader %d: %v", i, err)
					break
				}
				var e *event
				for range n {
					if e, err = s.next(); err != nil {
						break
					}
					v.seqs, v.chunks = append(v.seqs, e.seq), append(v.chunks, chunksOf([]*event{e})...)
				}
				last = s.last
				s.close()
				if err != nil || e.Final {
					break
				}
			}
			views <- v
		}()
	}
	seen := append(first, s.rest()...)
	for range cap(views) {
		v := within(t, "a reader", views)
		require.Equal(t, seqsOf(seen)[1:], v.seqs)
		require.Equal(t, chunksOf(seen), v.chunks)
	}
	db.sound()
}
