package integration

import (
	"io"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAStoppedReplicaHandsItsWorkOver(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	a := start(t, replicaOptions{Name: "a", DB: db.url, Config: replace(settings, "stop_grace: 1s", "stop_grace: 2s")})
	long := a.open(v03.stream, v03.params("", "chunks=200 size=32 delay=30ms"))
	brief := a.open(v01.stream, v01.params("", "sleep=2s"))
	held := a.open(v01.stream, v01.params("", "hold"))
	seen := long.take(10)
	taskID := seen[0].task()
	briefID := brief.untilState("working").task()
	heldID := held.untilState("working").task()
	b := cluster(t, db.url, "b")[0] // now that all of it runs on a

	a.signal(syscall.SIGTERM)
	// The short run finishes within the grace, and its stream sees that.
	require.Equal(t, "completed", last(brief.rest()).state())
	// The others are handed over. Their streams end without a word that is not true.
	more, err := long.untilEnd()
	require.ErrorIs(t, err, io.EOF, "the stream ends as streams do")
	seen = append(seen, more...)
	require.False(t, last(seen).Final)
	rest, err := held.untilEnd()
	require.ErrorIs(t, err, io.EOF)
	for _, e := range rest {
		require.Equal(t, "working", e.state(), "a task that is handed over has not ended")
	}
	require.Zero(t, a.wait(), "exit code")

	seen = append(seen, b.resume(taskID, long.last).rest()...)
	require.Equal(t, "completed", last(seen).state())
	indexed(t, chunksOf(seen), 200)
	require.Equal(t, db.seqs(taskID), seqsOf(seen))
	require.Equal(t, []string{"returned"}, db.runs(taskID))
	require.Empty(t, db.runs(briefID))

	eventually(t, "b runs what a held", func() error {
		_, err := b.try("tasks/get", object{"id": heldID})
		return err
	})
	tries := func() int {
		return one[int](db, "SELECT coalesce(max(tries), -1) FROM holdfast.task_queue WHERE id = $1 AND worker_id IS NOT NULL", db.id(heldID))
	}
	eventually(t, "b has claimed it", func() error { return unless(tries() == 1, "%d tries", tries()) })
	require.Equal(t, "canceled", b.call("tasks/cancel", object{"id": heldID}).state())
	require.Equal(t, 1, one[int](db, "SELECT count(*) FROM holdfast.workers"), "the stopped process gave its lease up")
	db.sound()
}

// With the grace that runs need, nothing is handed over at all; a blocking caller gets its answer.
func TestAStoppingReplicaLetsRunsFinish(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	r := start(t, replicaOptions{Name: "a", DB: db.url, Config: replace(settings, "stop_grace: 1s", "stop_grace: 30s")})
	s := r.open(v03.stream, v03.params("", "chunks=40 size=16 delay=20ms"))
	answered := make(chan error, 1)
	go func() {
		res, err := r.try(v03.send, v03.params("", "sleep=700ms"))
		if err == nil && res.state() != "completed" {
			err = unless(false, "it is %s", res.state())
		}
		answered <- err
	}()
	seen := s.take(3)
	eventually(t, "both run", func() error {
		n := one[int](db, "SELECT count(*) FROM holdfast.tasks WHERE state = 2")
		return unless(n == 2, "%d run", n)
	})
	r.signal(syscall.SIGTERM)
	seen = append(seen, s.rest()...)
	indexed(t, chunksOf(seen), 40)
	require.NoError(t, within(t, "the blocking answer", answered))
	require.Zero(t, r.wait())
	require.Zero(t, one[int](db, "SELECT count(*) FROM holdfast.task_events WHERE kind = 4"))
	db.sound()
}
