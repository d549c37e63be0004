package workers

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// python starts the example that speaks the protocol without a package.
func python(t *testing.T, url string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "python3", "../../examples/python/raw_worker.py")
	cmd.Env = append(os.Environ(), "HOLDFAST_URL="+url)
	cmd.Stderr = t.Output()
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

const counting = clustertest.Settings + `
  - name: counter
    executor: {kind: worker, worker: {lease: 10m}}
`

func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprint(&b, i, " ")
	}
	return b.String()
}

// chunks waits until a task has so many.
func chunks(db *clustertest.DB, id string, n int) {
	db.T.Helper()
	waittest.Eventually(db.T, "events arrive", func() error {
		have := len(db.Chunks(id))
		return waittest.Unless(have >= n, "%d", have)
	})
}

// The example is killed, or frozen for longer than its lease, in the middle of a run. Another one ends the run, and
// the frozen one is fenced: it writes nothing more.
func TestLostWorker(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	// Servers free no run before they were well for as long as its lease. A worker that loses its own on a busy machine begins again.
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: clustertest.Replace(counting, "lease: 10m", "lease: 5s")})
	for _, by := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		first := python(t, a.URL)
		id := beginAt(a, "counter", "60")
		chunks(db, id, 5)
		require.NoError(t, first.Process.Signal(by))
		second := python(t, b.URL)
		waittest.Eventually(t, "another worker has the run", func() error {
			n := clustertest.One[int](db, "SELECT count(*)::int FROM holdfast.v_runs WHERE task_id = $1", id)
			return waittest.Unless(n >= 2, "%d runs", n)
		})
		if by == syscall.SIGSTOP {
			require.NoError(t, first.Process.Signal(syscall.SIGCONT))
		}
		db.AwaitState(id, "completed")
		all := strings.Join(db.Chunks(id), "")
		require.True(t, strings.HasSuffix(all, numbers(60)), "the last run is whole, and nothing came between: %s", all)
		for _, p := range []*exec.Cmd{first, second} {
			_ = p.Process.Kill()
		}
	}
}
