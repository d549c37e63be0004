package operators

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

func TestCommandLine(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a := clustertest.Cluster(t, db.URL, "a")[0]
	env := []string{"HOLDFAST_URL=" + a.URL, "HOLDFAST_DATABASE_URL=" + db.URL, "HOLDFAST_ADMIN_LISTEN=" + a2atest.Host(a.Admin)}
	holdfast := func(args ...string) clustertest.Finished { return clustertest.Command(t, t.TempDir(), env, args...) }

	res := holdfast("send", "echo:hello there")
	require.Zero(t, res.Code, res.Err)
	require.Contains(t, res.Out, "completed")
	require.Contains(t, res.Out, "hello there")

	res = holdfast("send", "--protocol", "0.3", "ask:which city?", "-o", "json")
	require.Equal(t, 4, res.Code, res.Err)
	var asked a2atest.Result
	require.NoError(t, json.Unmarshal([]byte(res.Out), &asked))
	require.Equal(t, "input-required", asked.State())
	res = holdfast("send", "--task", asked.ID, "Oslo")
	require.Zero(t, res.Code, res.Err)
	require.Contains(t, res.Out, "You answered: Oslo")

	require.Equal(t, 3, holdfast("send", "fail:no luck").Code)
	require.Equal(t, 3, holdfast("stream", "reject:not that").Code)
	require.Equal(t, 1, holdfast("send", "--task", "nobody", "x").Code)
	require.Equal(t, 2, holdfast("send").Code)
	require.Equal(t, 2, holdfast("sent", "x").Code)
	res = holdfast("send", "--url", "http://127.0.0.1:1", "x")
	require.Equal(t, 1, res.Code)
	require.Contains(t, res.Err, "Is the server running?")

	res = holdfast("stream", "--protocol", "0.3", "chunks=5 size=12", "--json")
	require.Zero(t, res.Code, res.Err)
	require.Equal(t, 5, strings.Count(res.Out, `"artifact-update"`))
	require.Equal(t, 1, strings.Count(res.Out, `"final":true`))
	for line := range strings.Lines(res.Out) {
		require.True(t, json.Valid([]byte(line)))
	}

	res = holdfast("card")
	require.Zero(t, res.Code, res.Err)
	require.Contains(t, res.Out, a.URL)
	res = holdfast("tasks", "list", "--state", "completed", "-o", "json")
	require.Zero(t, res.Code, res.Err)
	var rows []struct{ ID, State string }
	require.NoError(t, json.Unmarshal([]byte(res.Out), &rows))
	require.Len(t, rows, 3)
	require.Equal(t, 6, strings.Count(holdfast("tasks", "list").Out, "\n"), "a heading and five tasks")
	res = holdfast("tasks", "get", asked.ID)
	require.Zero(t, res.Code, res.Err)
	require.Contains(t, res.Out, "which city?")
	require.Contains(t, res.Out, "You answered: Oslo")
	res = holdfast("tasks", "events", asked.ID, "-o", "json")
	require.Zero(t, res.Code, res.Err)
	require.Equal(t, clustertest.One[int](db, "SELECT last_seq FROM holdfast.tasks WHERE id = $1", asked.ID), strings.Count(res.Out, "\n"))
	require.Equal(t, 1, holdfast("tasks", "get", "nobody").Code)

	res = holdfast("migrate", "--status")
	require.Zero(t, res.Code, res.Err)
	require.Contains(t, res.Out, "00001")
	require.NotContains(t, res.Out, "pending")
	require.Zero(t, holdfast("migrate").Code)
	res = holdfast("ready")
	require.Zero(t, res.Code, res.Err)
	require.Contains(t, res.Out, "database")
	res = holdfast("version")
	require.Zero(t, res.Code)
	require.Contains(t, res.Out, "holdfast")
	a.Kill()
	require.Equal(t, 1, holdfast("ready").Code)
}

func TestMigrateVerb(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	db.Exec("DROP SCHEMA holdfast CASCADE")
	env := db.Env()
	res := clustertest.Command(t, t.TempDir(), env, "migrate", "--status")
	require.Zero(t, res.Code, res.Err)
	require.Contains(t, res.Out, "pending")
	require.Zero(t, clustertest.One[int](db, "SELECT count(*) FROM pg_namespace WHERE nspname = 'holdfast'"), "status changes nothing")
	res = clustertest.Command(t, t.TempDir(), env, "migrate")
	require.Zero(t, res.Code, res.Err)
	res = clustertest.Command(t, t.TempDir(), env, "migrate", "--status")
	require.NotContains(t, res.Out, "pending")
}

// end waits for the end of a verb.
func end(t *testing.T, cmd *exec.Cmd) error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return waittest.Within(t, "the verb ends", ended)
}

// A proxy leads to a server that is killed in the middle of a stream; then it leads to another server.
func TestStreamVerbResumes(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	replicas := clustertest.Cluster(t, db.URL, "a", "b")
	front := clustertest.NewProxy(t, a2atest.Host(replicas[0].URL))
	cmd, out, errs := clustertest.Verb(t, t.TempDir(), nil, "stream", "--url", "http://"+front.Addr, "chunks=150 size=24 delay=100ms", "--protocol", "0.3", "-o", "json")
	require.NoError(t, cmd.Start())
	waittest.Eventually(t, "chunks flow", func() error {
		return waittest.Unless(clustertest.One[int](db, "SELECT count(*) FROM holdfast.task_events") > 20, "not yet")
	})
	front.Lead(a2atest.Host(replicas[1].URL))
	replicas[0].Kill()
	require.NoError(t, end(t, cmd), errs)
	require.Contains(t, errs.String(), "resuming after event")
	var chunks []string
	for line := range strings.Lines(out.String()) {
		var r a2atest.Result
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		if r.Artifact != nil {
			chunks = append(chunks, a2atest.Text(r.Artifact.Parts))
		}
	}
	clustertest.Indexed(t, chunks, 150)
	db.Sound()

	// If no other server takes over, the exit code says that the stream is incomplete.
	cmd, out, errs = clustertest.Verb(t, t.TempDir(), nil, "stream", "--url", "http://"+front.Addr, "hold", "--attempts", "2")
	require.NoError(t, cmd.Start())
	waittest.Eventually(t, "it runs", func() error {
		return waittest.Unless(clustertest.One[int](db, "SELECT count(*) FROM holdfast.tasks WHERE state = 2") == 1, "not yet")
	})
	interrupted, _, said := clustertest.Verb(t, t.TempDir(), nil, "stream", "--url", "http://"+front.Addr, "hold")
	require.NoError(t, interrupted.Start())
	waittest.Eventually(t, "the task runs", func() error {
		return waittest.Unless(clustertest.One[int](db, "SELECT count(*) FROM holdfast.tasks WHERE state = 2") == 2, "not yet")
	})
	// The first event may not have arrived yet, and then the verb cannot name the task. The exit code is the same.
	require.NoError(t, interrupted.Process.Signal(os.Interrupt))
	var ended *exec.ExitError
	require.ErrorAs(t, end(t, interrupted), &ended, said)
	require.Equal(t, 130, ended.ExitCode(), said)

	replicas[1].Kill()
	require.ErrorAs(t, end(t, cmd), &ended)
	require.Equal(t, 1, ended.ExitCode())
	require.Contains(t, errs.String(), "could not be resumed")
	_ = out
}
