package faults

import (
	"io"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

func TestStoppedReplicaReturnsRuns(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: clustertest.Replace(clustertest.LongLease, "stop_grace: 1s", "stop_grace: 6s")})
	held := a.Stream(a2atest.V01, a2atest.Say("hold"))
	brief := a.Stream(a2atest.V01, a2atest.Say("sleep=2s"))
	long := a.Stream(a2atest.V03, a2atest.Say("chunks=300 size=32 delay=50ms")) // longer than the grace, by far
	seen := long.Take(10)
	taskID := seen[0].Task()
	briefID := brief.UntilState("working").Task()
	heldID := held.UntilState("working").Task()

	a.Signal(syscall.SIGTERM)
	b := clustertest.Cluster(t, db.URL, "b")[0] // while a stops: its start may take longer than the runs
	// The short run finishes within the grace, and its stream shows that.
	require.Equal(t, "completed", a2atest.Last(brief.Rest()).State())
	// The other runs are returned. Their streams end without a final event.
	more, err := long.UntilEnd()
	require.ErrorIs(t, err, io.EOF, "the stream ends without an error")
	seen = append(seen, more...)
	require.False(t, a2atest.Last(seen).Final)
	rest, err := held.UntilEnd()
	require.ErrorIs(t, err, io.EOF)
	for _, e := range rest {
		require.Equal(t, "working", e.State(), "a returned task has not ended")
	}
	require.Zero(t, a.Wait(), "exit code")

	seen = append(seen, b.Resume(taskID, long.Last).Rest()...)
	require.Equal(t, "completed", a2atest.Last(seen).State())
	clustertest.Indexed(t, a2atest.Chunks(seen), 300)
	require.Equal(t, db.Seqs(taskID), a2atest.Seqs(seen))
	require.Equal(t, []string{"returned"}, db.Runs(taskID))
	require.Empty(t, db.Runs(briefID))

	waittest.Eventually(t, "b runs the tasks of a", func() error {
		_, err := b.Try("tasks/get", object{"id": heldID})
		return err
	})
	tries := func() int {
		return clustertest.One[int](db, "SELECT coalesce(max(tries), -1) FROM holdfast.task_queue WHERE id = $1 AND worker_id IS NOT NULL", db.ID(heldID))
	}
	waittest.Eventually(t, "b has claimed it", func() error { return waittest.Unless(tries() == 1, "%d tries", tries()) })
	require.Equal(t, "canceled", b.Cancel(heldID).State())
	require.Equal(t, 1, clustertest.One[int](db, "SELECT count(*) FROM holdfast.workers"), "the stopped process gave its lease up")
}

// With a grace long enough for its runs, a stopping replica returns none; a blocking caller gets its answer.
func TestStoppingReplicaFinishesRuns(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: clustertest.Replace(clustertest.LongLease, "stop_grace: 1s", "stop_grace: 30s")})
	s := r.Stream(a2atest.V03, a2atest.Say("chunks=40 size=16 delay=200ms"))
	answered := make(chan error, 1)
	go func() {
		res, err := r.TrySend(a2atest.V03, a2atest.Say("sleep=7s"))
		if err == nil && res.State() != "completed" {
			err = waittest.Unless(false, "it is %s", res.State())
		}
		answered <- err
	}()
	seen := s.Take(3)
	waittest.Eventually(t, "both run", func() error {
		n := clustertest.One[int](db, "SELECT count(*) FROM holdfast.tasks WHERE state = 2")
		return waittest.Unless(n == 2, "%d run", n)
	})
	r.Signal(syscall.SIGTERM)
	seen = append(seen, s.Rest()...)
	clustertest.Indexed(t, a2atest.Chunks(seen), 40)
	require.NoError(t, waittest.Within(t, "the blocking answer", answered))
	require.Zero(t, r.Wait())
	require.Zero(t, clustertest.One[int](db, "SELECT count(*) FROM holdfast.task_events WHERE kind = 4"))
}
