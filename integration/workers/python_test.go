package workers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// fromGuide returns a block of the guide.
func fromGuide(t *testing.T, info string) string {
	t.Helper()
	guide, err := os.ReadFile("../../docs/agents/worker.md")
	require.NoError(t, err)
	found := regexp.MustCompile("(?s)```" + regexp.QuoteMeta(info) + "\n(.*?)```").FindSubmatch(guide)
	require.NotNil(t, found, info)
	return string(found[1])
}

// python starts the worker of the guide.
func python(t *testing.T, url string) *exec.Cmd {
	t.Helper()
	file := filepath.Join(t.TempDir(), "worker.py")
	require.NoError(t, os.WriteFile(file, []byte(fromGuide(t, "python worker.py")), 0o600))
	cmd := exec.CommandContext(t.Context(), "python3", file)
	cmd.Env = append(os.Environ(), "HOLDFAST_URL="+url)
	cmd.Stderr = t.Output()
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

const counter = `
  - name: gpu
    executor: {kind: worker, worker: {lease: 3s}}
    limits: {run_timeout: 5m}
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

// The program of the guide is killed in the middle of a run; another one ends it.
func TestKilledWorker(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	settings := clustertest.Settings + strings.ReplaceAll(counter, "gpu", "counter")
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: settings})
	first := python(t, a.URL)
	id := beginAt(a, "counter", "60")
	chunks(db, id, 5)
	require.NoError(t, first.Process.Kill())
	python(t, b.URL)
	db.AwaitState(id, "completed")
	require.GreaterOrEqual(t, clustertest.One[int](db, "SELECT count(*)::int FROM holdfast.v_runs WHERE task_id = $1", id), 2)
	all := strings.Join(db.Chunks(id), "")
	require.True(t, strings.HasSuffix(all, numbers(60)), "the second run is whole: %s", all)
}

// A worker that is frozen for longer than its lease is fenced: it writes nothing more, and takes the next run.
func TestFrozenWorker(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	settings := clustertest.Settings + strings.ReplaceAll(counter, "gpu", "counter")
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: settings})
	first := python(t, a.URL)
	id := beginAt(a, "counter", "60")
	chunks(db, id, 5)
	require.NoError(t, first.Process.Signal(syscall.SIGSTOP))
	python(t, b.URL)
	waittest.Eventually(t, "another worker has the run", func() error {
		n := clustertest.One[int](db, "SELECT count(*)::int FROM holdfast.v_runs WHERE task_id = $1", id)
		return waittest.Unless(n >= 2, "%d runs", n)
	})
	require.NoError(t, first.Process.Signal(syscall.SIGCONT))
	db.AwaitState(id, "completed")
	all := strings.Join(db.Chunks(id), "")
	require.True(t, strings.HasSuffix(all, numbers(60)), "nothing came between: %s", all)
}

// A replica is killed with a waiting claim and a run. The worker goes on with the other one, in the same attempt.
func TestKilledReplica(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	settings := clustertest.Settings + strings.ReplaceAll(strings.ReplaceAll(counter, "gpu", "counter"), "3s", "30s")
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: settings})
	proxy := clustertest.NewProxy(t, strings.TrimPrefix(a.URL, "http://"))
	python(t, "http://"+proxy.Addr)
	id := beginAt(b, "counter", "60")
	chunks(db, id, 5)
	a.Kill()
	proxy.Lead(strings.TrimPrefix(b.URL, "http://"))
	proxy.Cut()
	db.AwaitState(id, "completed")
	require.Equal(t, 1, clustertest.One[int](db, "SELECT count(*)::int FROM holdfast.v_runs WHERE task_id = $1", id), "the same run")
	require.Equal(t, numbers(60), strings.Join(db.Chunks(id), ""), "nothing doubled, nothing lost")
}
