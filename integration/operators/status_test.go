package operators

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// The status line of a task is one text: in the view, in the list, its stream, the task, and on the command line.
// (TestStatusLineOfEverySituation has all situations.)
func TestStatusLineIsTheSameEverywhere(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	r := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: clustertest.Steady + `
  - {name: billing, executor: {kind: http, http: {url: "http://127.0.0.1:1/"}}}
  - {name: far, executor: {kind: worker}}
  - {name: second, executor: {kind: demo}}
`})
	op := as(t, r, "")
	told := map[string]string{} // the text of each task in the stream
	events := op.follow(waittest.Context(t), "/tasks/stream")
	begin := func(agent, script string) string {
		return r.Send(a2atest.V03, a2atest.Say(script).At(agent).Detached()).Task()
	}
	for _, c := range []struct{ id, begins string }{
		{begin("demo", "echo:x"), "Completed"},
		{begin("demo", "fail:no seat"), "Failed: no seat"},
		{begin("demo", "ask:which?"), "Waits for the client's answer"},
		{begin("demo", "hold"), "Running on "},
		{begin("demo", "wait=1h"), "Sleeps"},
		{begin("demo", "call=second hold"), "Waits for 1 of 1 called tasks"},
		{begin("far", "x"), "Waits for a worker of agent far: none of its workers is connected"},
		{begin("billing", "x"), "Agent billing is away: "},
	} {
		var text string
		waittest.Eventually(t, c.begins, func() error {
			text = clustertest.One[string](db, "SELECT text FROM holdfast.v_status WHERE task = $1", c.id)
			return waittest.Unless(strings.HasPrefix(text, c.begins), "%s", text)
		})
		line := func(row object) string { return row["status_line"].(object)["text"].(string) }
		require.Equal(t, text, line(op.get("/tasks/"+c.id).read()))
		require.Equal(t, text, line(op.get("/tasks?id=" + c.id).list("tasks")[0]))
		for _, row := range op.get("/tasks").list("tasks") {
			if row["id"] == c.id {
				require.Equal(t, text, line(row))
			}
		}
		for _, env := range [][]string{db.Env(), through(r.Admin)} {
			require.Contains(t, clustertest.Command(t, t.TempDir(), env, "tasks", "get", c.id).Out, "status       "+text+"\n")
			require.Regexp(t, c.id+`.*  \Q`+text+`\E\n`, clustertest.Command(t, t.TempDir(), env, "tasks", "list").Out)
		}
		// An outage begins without an event of the task. Lists read such lines again.
		for told[c.id] != text && !strings.Contains(text, "agent far") && !strings.Contains(text, "is away") {
			if e := waittest.Within(t, text, events); e.name == "task" {
				row := e.data["task"].(object)
				told[row["id"].(string)] = line(row)
			}
		}
	}
	for agent, health := range map[string]string{"demo": "healthy", "far": "no worker", "billing": "away"} {
		require.Equal(t, health, op.get("/agents/"+agent).text("health"))
		require.Equal(t, health, clustertest.One[string](db, "SELECT health FROM holdfast.v_agents WHERE agent = $1", agent))
		require.Contains(t, clustertest.Command(t, t.TempDir(), db.Env(), "agents", "get", agent).Out, "health       "+health)
	}
	// One cause is one finding, with its agent.
	for _, agent := range []string{"far", "billing"} {
		var about []string
		for _, f := range op.get("/doctor").list("checks") {
			if f["agent"] == agent {
				about = append(about, f["status"].(string))
			}
		}
		require.Equal(t, []string{"warn"}, about)
	}
}
