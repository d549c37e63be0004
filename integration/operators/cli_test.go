package operators

import (
	"bytes"
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

	for verb, code := range map[string]int{"send fail:x": 3, "stream reject:x": 3, "send --task nobody x": 1, "tasks get nobody": 1, "send": 2, "sent x": 2} {
		require.Equal(t, code, holdfast(strings.Fields(verb)...).Code, verb)
	}
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

	for verb, says := range map[string]string{"migrate --status": "00001", "migrate": "", "ready": "database", "version": "holdfast"} {
		res = holdfast(strings.Fields(verb)...)
		require.Zero(t, res.Code, res.Err)
		require.Contains(t, res.Out, says)
		require.NotContains(t, res.Out, "pending")
	}
	a.Kill()
	require.Equal(t, 1, holdfast("ready").Code)
}

// end waits for the end of a verb.
func end(t *testing.T, cmd *exec.Cmd) error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return waittest.Within(t, "the verb ends", ended)
}

// A proxy leads to a server that is killed in the middle of a stream; then it leads to another server. If none takes over, the exit code
// says that the stream is incomplete.
func TestStreamVerbResumes(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	replicas := clustertest.Cluster(t, db.URL, "a", "b")
	front := clustertest.NewProxy(t, a2atest.Host(replicas[0].URL))
	running := 0
	stream := func(args ...string) (cmd *exec.Cmd, out, errs *bytes.Buffer) {
		cmd, out, errs = clustertest.Verb(t, t.TempDir(), nil, append([]string{"stream", "--url", "http://" + front.Addr}, args...)...)
		require.NoError(t, cmd.Start())
		running++
		waittest.Eventually(t, "the task runs", func() error {
			n := clustertest.One[int](db, "SELECT count(*) FROM holdfast.tasks WHERE state = 2")
			return waittest.Unless(n == running, "%d", n)
		})
		return cmd, out, errs
	}
	cmd, out, errs := stream("chunks=40 size=24 delay=500ms", "--protocol", "0.3", "-o", "json")
	waittest.Eventually(t, "chunks flow", func() error {
		return waittest.Unless(clustertest.One[int](db, "SELECT count(*) FROM holdfast.task_events") > 6, "not yet")
	})
	front.Lead(a2atest.Host(replicas[1].URL))
	replicas[0].Kill()
	require.NoError(t, end(t, cmd), errs)
	running--
	require.Contains(t, errs.String(), "resuming after event")
	var chunks []string
	for line := range strings.Lines(out.String()) {
		var r a2atest.Result
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		if r.Artifact != nil {
			chunks = append(chunks, a2atest.Text(r.Artifact.Parts))
		}
	}
	clustertest.Indexed(t, chunks, 40)

	cmd, _, errs = stream("hold", "--attempts", "2")
	interrupted, _, said := stream("hold")
	// The first event may not have arrived yet, and then the verb cannot name the task. The exit code is the same.
	require.NoError(t, interrupted.Process.Signal(os.Interrupt))
	var ended *exec.ExitError
	require.ErrorAs(t, end(t, interrupted), &ended, said)
	require.Equal(t, 130, ended.ExitCode(), said)
	replicas[1].Kill()
	require.ErrorAs(t, end(t, cmd), &ended)
	require.Equal(t, 1, ended.ExitCode())
	require.Contains(t, errs.String(), "could not be resumed")
}
