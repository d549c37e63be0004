package operators

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// A purge while tasks run: streams end on every replica, runs stop, and clients get the answers for tasks that do not
// exist.
func TestPurgeOfRunningTasks(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL})
	holdfast := func(args ...string) clustertest.Finished {
		return clustertest.Command(t, t.TempDir(), db.Env(), args...)
	}
	begin := func(r *clustertest.Replica, script string) (string, *a2atest.Reply) {
		s := r.Stream(a2atest.V03, a2atest.Say(script))
		return s.Until("the task is there", func(e *a2atest.Event) bool { return e.Task() != "" }).Task(), s
	}
	ended := a.Send(a2atest.V03, a2atest.Say("echo:secret")).Task()
	running, stream := begin(a, "hold")
	elsewhere := b.Subscribe(a2atest.V03, a2atest.Say("").To(running))
	asked := a.Send(a2atest.V10, a2atest.Say("ask:secret?")).Task()
	held := a.Send(a2atest.V03, a2atest.Say("echo:evidence")).Task()
	require.Zero(t, holdfast("tasks", "hold", held).Code)

	res := holdfast("tasks", "purge", "--owner", "", "--yes", "-o", "json")
	require.Zero(t, res.Code, res.Err)
	require.Contains(t, res.Out, `"done": 3,`)
	require.Contains(t, res.Out, `"skipped": 1,`)
	for _, s := range []*a2atest.Reply{stream, elsewhere} {
		_, err := s.UntilEnd()
		require.ErrorContains(t, err, "not found", "the end of the stream says why")
	}
	waittest.Eventually(t, "the run stops", func() error {
		n := a.Metric(`holdfast_runs_active{agent="demo"}`) + b.Metric(`holdfast_runs_active{agent="demo"}`)
		return waittest.Unless(n == 0, "%v runs", n)
	})
	for _, r := range []*clustertest.Replica{a, b} {
		for _, id := range []string{ended, running, asked} {
			for _, w := range []*a2atest.Wire{a2atest.V01, a2atest.V03, a2atest.V10} {
				const never = "019a0000-0000-7000-8000-000000000000"
				want := r.Show(w, a2atest.Get, a2atest.Say("").To(never))
				want.Whole = strings.ReplaceAll(want.Whole, never, id)
				require.Equal(t, want, r.Show(w, a2atest.Get, a2atest.Say("").To(id)), "%s of %s", w, id)
			}
		}
		require.Equal(t, "completed", r.Get(held).State())
	}
	require.Equal(t, 1, clustertest.One[int](db, "SELECT count(*) FROM holdfast.tasks"))
	require.Equal(t, 1, clustertest.One[int](db, "SELECT count(DISTINCT task) FROM holdfast.task_events"))
	require.Zero(t, clustertest.One[int](db, "SELECT count(*) FROM holdfast.task_events WHERE payload::text LIKE '%secret%'"))
}
