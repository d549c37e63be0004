package operators

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
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
	db := clustertest.NewDB(t)
	a := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: clustertest.Settings})
	post := func(body string, header ...string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.Admin+"/tasks/purge", strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		for i := 0; i+1 < len(header); i += 2 {
			if header[i] == "Host" {
				req.Host = header[i+1]
			}
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		var b bytes.Buffer
		_, err = b.ReadFrom(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, b.String()
	}
	for body, says := range map[string]string{
		`{}`:                          "the purge selects no tasks",
		`{"owner":"x","subject":"x"}`: `unknown field "subject"`,
		`{"older_than":"a week"}`:     `older_than: "a week" is not a duration`,
		`{"owner":7}`:                 "owner",
	} {
		status, answer := post(body)
		require.Equal(t, http.StatusBadRequest, status, body)
		require.Contains(t, answer, says)
	}
	id := a.Send(a2atest.V03, a2atest.Say("echo:x")).Task()
	status, answer := post(`{"task":"`+id+`"}`, "Content-Type", "text/plain")
	require.Equal(t, http.StatusBadRequest, status, answer)
	status, answer = post(`{"task":"`+id+`"}`, "Host", "elsewhere.example.com")
	require.Equal(t, http.StatusForbidden, status, answer)
	status, answer = post(`{"task":"no such task"}`)
	require.Equal(t, http.StatusNotFound, status, answer)
	status, answer = post(`{"task":"` + id + `"}`)
	require.Equal(t, http.StatusOK, status, answer)
	var done struct{ Tasks int }
	require.NoError(t, json.Unmarshal([]byte(answer), &done))
	require.Equal(t, 1, done.Tasks)
	_, err := a.Try("tasks/get", a2atest.Object{"id": id})
	require.Error(t, err)
}

// A client that answers too late finds its task canceled, with the reason.
func TestClientsSeeExpiredTasks(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a := clustertest.Start(t, clustertest.Options{
		Name: "a", DB: db.URL, Config: clustertest.Settings + "retention: {expire_parked_after: 1m, tasks: 24h}\n",
	})
	id := a.Send(a2atest.V03, a2atest.Say("ask:where?")).Task()
	db.Exec("UPDATE holdfast.tasks SET status_at = status_at - interval '2 minutes'")
	waittest.Eventually(t, "the task expires", func() error {
		state := a.Get(id).State()
		return waittest.Unless(state == "canceled", "%s", state)
	})
	require.Contains(t, clustertest.One[string](db, "SELECT status_text FROM holdfast.v_tasks WHERE task = $1", db.ID(id)),
		"waited for its client for more than a minute")
}
