package integration

import (
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTasksOfAKilledReplicaEndOnAnother(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	a := cluster(t, db.url, "a")[0]

	b := start(t, replicaOptions{Name: "b", DB: db.url, Config: settings})
	// All of these are acknowledged by a, and run there: who takes a task in has it first.
	type job struct {
		script string
		chunks int
		d      *dialect
	}
	var jobs []job
	for i := range 6 {
		d := dialects[i%2]
		jobs = append(jobs,
			job{"chunks=150 size=48 delay=40ms", 150, d},
			job{"chunks=400 size=8 delay=15ms", 400, d},
			job{"sleep=5s", 0, d},
			job{fmt.Sprintf("echo:%d", i), 0, d},
		)
	}
	tasks := make([]string, len(jobs))
	streams := make([]*stream, len(jobs))
	var wg sync.WaitGroup
	for i, j := range jobs {
		wg.Go(func() {
			streams[i] = a.open(j.d.stream, j.d.params("", j.script))
			if e, err := streams[i].next(); err == nil {
				tasks[i] = e.task()
			}
		})
	}
	wg.Wait()
	require.NotContains(t, tasks, "", "every task was acknowledged")
	streams[0].until("a chunk", func(e *event) bool { return e.seq >= 5 })
	running := one[int](db, "SELECT max(n) FROM (SELECT count(*) AS n FROM holdfast.task_queue GROUP BY worker_id) w")
	require.Equal(t, 18, running)
	a.kill()
	killed := time.Now()

	for i, j := range jobs {
		res := b.untilSettled(tasks[i])
		require.Equal(t, "completed", res.state(), "%s: %s", j.script, res.said())
		if j.chunks > 0 {
			indexed(t, db.chunks(tasks[i]), j.chunks)
			require.Contains(t, db.runs(tasks[i]), "lost", "the log tells that a worker was lost")
		}
		// Whoever was cut off resumes on b, and has it all.
		s := streams[i]
		rest, err := s.untilEnd() // what the kernel had still buffered
		if len(rest) == 0 || !rest[len(rest)-1].Final {
			require.Error(t, err)
			rest = append(rest, b.resume(tasks[i], s.last).rest()...)
		}
		seqs := seqsOf(rest)
		all := db.seqs(tasks[i])
		if len(seqs) > 0 {
			require.Equal(t, all[slices.Index(all, seqs[0]):], seqs)
		}
	}
	t.Logf("all tasks had ended %s after the kill", time.Since(killed).Round(time.Millisecond))
	require.Equal(t, running, one[int](db, "SELECT count(*) FROM holdfast.tasks WHERE runs = 2 AND attempt > 1"), "attempts are visible")
	require.Equal(t, len(jobs), one[int](db, "SELECT count(*) FROM holdfast.tasks"))
	require.Zero(t, one[int](db, "SELECT count(*) FROM holdfast.task_queue"))
	require.Equal(t, 1, one[int](db, "SELECT count(*) FROM holdfast.workers"), "the dead process is gone")
	db.sound()

	// The killed one comes back as if nothing had been.
	a.run()
	require.Equal(t, "completed", a.call(v03.send, v03.params("", "echo:again")).state())
}

// A process that was only frozen must find itself fenced: it writes nothing more to the tasks it lost.
func TestAFrozenReplicaIsFenced(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	a := cluster(t, db.url, "a")[0]
	var tasks []string
	for range 4 {
		s := a.open(v03.stream, v03.params("", "chunks=100 size=16 delay=30ms"))
		tasks = append(tasks, s.take(5)[0].task())
	}
	b := cluster(t, db.url, "b")[0]
	a.signal(syscall.SIGSTOP)
	s := b.resume(tasks[0], 1)
	s.until("a chunk of the second attempt", func(e *event) bool {
		return e.Artifact != nil && one[int](db, "SELECT attempt FROM holdfast.tasks WHERE id = $1", db.id(tasks[0])) > 1
	})
	a.signal(syscall.SIGCONT) // in the middle of b's work
	for _, id := range tasks {
		require.Equal(t, "completed", b.untilSettled(id).state())
		indexed(t, db.chunks(id), 100)
	}
	a.waitReady() // with a new lease
	require.Equal(t, "completed", a.call(v01.send, v01.params("", "echo:back")).state())
	db.sound()
}

// When every worker dies with a task, the task must not wander for ever.
func TestATaskThatIsLostTooOftenFails(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	replicas := cluster(t, db.url, "a", "b")
	b := replicas[1]
	s := replicas[0].open(v03.stream, v03.params("", "hold"))
	taskID := s.untilState("working").task()
	for try := 1; try <= 3; try++ {
		// Whoever runs it dies, and comes back as a replica that may claim it anew.
		eventually(t, "somebody runs it", func() error {
			n := one[int](db, "SELECT count(*) FROM holdfast.task_queue WHERE worker_id IS NOT NULL AND tries = $1", try)
			return unless(n == 1, "try %d has not begun", try)
		})
		owner := one[string](db, `SELECT w.name FROM holdfast.workers w JOIN holdfast.tasks t ON t.worker_id = w.id WHERE t.id = $1`, taskID)
		for _, r := range replicas {
			if pidOf(owner) == r.cmd.Process.Pid {
				r.kill()
				r.run()
			}
		}
	}
	res := b.untilSettled(taskID)
	require.Equal(t, "failed", res.state())
	require.Contains(t, res.said(), "3 attempts")
	require.Equal(t, []string{"lost", "lost", "lost"}, db.runs(taskID))
	db.sound()
}
