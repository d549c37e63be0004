package faults

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

func TestTasksOfKilledReplicaEndOnAnother(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a := clustertest.Cluster(t, db.URL, "a")[0]

	b := clustertest.Start(t, clustertest.Options{Name: "b", DB: db.URL, Config: clustertest.Settings})
	// Replica a acknowledged all of these tasks and runs them: a replica with free slots claims the tasks that it
	// creates.
	type job struct {
		script string
		chunks int
		d      *a2atest.Wire
	}
	var jobs []job
	for i := range 6 {
		d := a2atest.Old[i%2]
		jobs = append(jobs,
			job{"chunks=150 size=48 delay=100ms", 150, d},
			job{"chunks=400 size=8 delay=40ms", 400, d},
			job{"sleep=15s", 0, d},
			job{fmt.Sprintf("echo:%d", i), 0, d},
		)
	}
	tasks := make([]string, len(jobs))
	streams := make([]*a2atest.Reply, len(jobs))
	var wg sync.WaitGroup
	for i, j := range jobs {
		wg.Go(func() {
			streams[i] = a.Stream(j.d, a2atest.Say(j.script))
			if e, err := streams[i].Next(); err == nil {
				tasks[i] = e.Task()
			}
		})
	}
	wg.Wait()
	require.NotContains(t, tasks, "", "every task was acknowledged")
	streams[0].Until("a chunk", func(e *a2atest.Event) bool { return e.Seq >= 5 })
	const running = 18
	waittest.Eventually(t, "only the long runs are left", func() error {
		n := clustertest.One[int](db, "SELECT max(n) FROM (SELECT count(*) AS n FROM holdfast.task_queue GROUP BY worker_id) w")
		return waittest.Unless(n == running, "%d", n)
	})
	a.Kill()
	killed := time.Now()

	for i, j := range jobs {
		res := b.Settled(tasks[i])
		require.Equal(t, "completed", res.State(), "%s: %s", j.script, res.Said())
		if j.chunks > 0 {
			clustertest.Indexed(t, db.Chunks(tasks[i]), j.chunks)
			require.Contains(t, db.Runs(tasks[i]), "lost", "the log has the lost attempt")
		}
		// A client whose stream was cut resumes on b and gets all events.
		s := streams[i]
		rest, err := s.UntilEnd() // from the kernel's buffer
		if len(rest) == 0 || !rest[len(rest)-1].Final {
			require.Error(t, err)
			rest = append(rest, b.Resume(tasks[i], s.Last).Rest()...)
		}
		seqs := a2atest.Seqs(rest)
		all := db.Seqs(tasks[i])
		if len(seqs) > 0 {
			require.Equal(t, all[slices.Index(all, seqs[0]):], seqs)
		}
	}
	t.Logf("all tasks had ended %s after the kill", time.Since(killed).Round(time.Millisecond))
	require.Equal(t, running, clustertest.One[int](db, "SELECT count(*) FROM holdfast.tasks WHERE runs = 2 AND attempt > 1"), "attempts are visible")
	require.Equal(t, len(jobs), clustertest.One[int](db, "SELECT count(*) FROM holdfast.tasks"))
	require.Zero(t, clustertest.One[int](db, "SELECT count(*) FROM holdfast.task_queue"))
	require.Equal(t, 1, clustertest.One[int](db, "SELECT count(*) FROM holdfast.workers"), "the dead process is gone")

	// The killed replica starts again.
	a.Run()
	require.Equal(t, "completed", a.Send(a2atest.V03, a2atest.Say("echo:again")).State())
}

// A frozen process must find itself fenced: it writes nothing more to the tasks that it lost.
func TestFrozenReplicaIsFenced(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a := clustertest.Cluster(t, db.URL, "a")[0]
	var tasks []string
	for range 4 {
		s := a.Stream(a2atest.V03, a2atest.Say("chunks=100 size=16 delay=200ms"))
		tasks = append(tasks, s.Take(5)[0].Task())
	}
	a.Freeze() // before b starts, which on a busy machine takes longer than the runs
	b := clustertest.Cluster(t, db.URL, "b")[0]
	s := b.Resume(tasks[0], 1)
	s.Until("a chunk of the second attempt", func(e *a2atest.Event) bool {
		return e.Artifact != nil && clustertest.One[int](db, "SELECT attempt FROM holdfast.tasks WHERE id = $1", db.ID(tasks[0])) > 1
	})
	a.Thaw() // in the middle of b's run
	for _, id := range tasks {
		require.Equal(t, "completed", b.Settled(id).State())
		clustertest.Indexed(t, db.Chunks(id), 100)
	}
	a.WaitReady() // with a new lease
	require.Equal(t, "completed", a.Send(a2atest.V01, a2atest.Say("echo:back")).State())
}

// A task whose worker dies every time fails after max_attempts.
func TestTaskFailsAfterMaxAttempts(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	replicas := clustertest.Cluster(t, db.URL, "a", "b")
	b := replicas[1]
	s := replicas[0].Stream(a2atest.V03, a2atest.Say("hold"))
	taskID := s.UntilState("working").Task()
	for try := 1; try <= 3; try++ {
		// The worker that runs it dies, and restarts as a replica that may claim it again.
		waittest.Eventually(t, "a worker runs it", func() error {
			n := clustertest.One[int](db, "SELECT count(*) FROM holdfast.task_queue WHERE worker_id IS NOT NULL AND tries = $1", try)
			return waittest.Unless(n == 1, "try %d has not begun", try)
		})
		runs, _ := clustertest.Running(db, taskID, replicas)
		runs.Kill()
		runs.Run()
	}
	res := b.Settled(taskID)
	require.Equal(t, "failed", res.State())
	require.Contains(t, res.Said(), "3 attempts")
	require.Equal(t, []string{"lost", "lost", "lost"}, db.Runs(taskID))
}
