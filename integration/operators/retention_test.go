package operators

import (
	"io"
	"net/http"
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
	require.JSONEq(t, `{"tasks":3,"held":1,"exported_lines":0}`, res.Out)
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

// Operators purge over HTTP: with credentials, or without them on loopback.
func TestPurgesOverHTTP(t *testing.T) {
	t.Parallel()
	a := clustertest.Start(t, clustertest.Options{Name: "a", DB: clustertest.NewDB(t).URL, Config: clustertest.Settings})
	id := a.Send(a2atest.V03, a2atest.Say("echo:x")).Task()
	for _, x := range []struct {
		body, media, host string
		status            int
		says              string
	}{
		{`{}`, "application/json", "", http.StatusBadRequest, "the purge selects no tasks"},
		{`{"owner":"x","subject":"x"}`, "application/json", "", http.StatusBadRequest, `unknown field "subject"`},
		{`{"older_than":"a week"}`, "application/json", "", http.StatusBadRequest, `older_than: "a week" is not a duration`},
		{`{"owner":7}`, "application/json", "", http.StatusBadRequest, "owner"},
		{`{"task":"` + id + `"}`, "text/plain", "", http.StatusBadRequest, ""},
		{`{"task":"` + id + `"}`, "application/json", "elsewhere.example.com", http.StatusForbidden, ""},
		{`{"task":"no such task"}`, "application/json", "", http.StatusNotFound, ""},
		{`{"task":"` + id + `"}`, "application/json", "", http.StatusOK, `"tasks":1`},
	} {
		req, err := http.NewRequestWithContext(waittest.Context(t), http.MethodPost, a.Admin+"/tasks/purge", strings.NewReader(x.body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", x.media)
		req.Host = x.host
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		raw, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		_ = resp.Body.Close()
		require.Equal(t, x.status, resp.StatusCode, "%s: %s", x.body, raw)
		require.Contains(t, string(raw), x.says)
	}
	_, err := a.Try("tasks/get", a2atest.Object{"id": id})
	require.Error(t, err)
}
