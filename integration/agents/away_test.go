package agents

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// An agent is killed under load and stays away for 5 seconds. No task fails, and operators see the outage. A task fails with
// the cause if its agent is away for too long.
func TestAgentThatIsAway(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	addr := clustertest.Reserve(t)
	agent := startAgent(t, addr, "node", example(t, "node/http_agent.mjs"), "DELAY=10")
	config := fmt.Sprintf(clustertest.Settings+`
  - name: node
    executor: {kind: http, http: {url: %q}}
  - name: brief
    executor: {kind: http, http: {url: "http://127.0.0.1:1/"}}
    limits: {unreachable_for: 2s}
`, agent.URL)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: config})
	var tasks []string
	send := func(n int) {
		for i := range n {
			r := []*clustertest.Replica{a, b}[i%2]
			tasks = append(tasks, r.Send(a2atest.V03, a2atest.Say("abc def").At("node").Detached()).Task())
		}
	}
	send(20)
	agent.Kill()
	killed := time.Now()
	send(40)
	waittest.Eventually(t, "operators see the outage", func() error {
		n := clustertest.One[int](db, "SELECT count(*) FROM holdfast.v_outages WHERE agent = 'node' AND waiting >= 30 AND error LIKE '%refused%'")
		return waittest.Unless(n == 1, "not yet")
	})
	brief := a.Send(a2atest.V03, a2atest.Say("x").At("brief"))
	require.Equal(t, "failed", brief.State())
	require.Contains(t, brief.Said(), "could not be reached for 2s")
	require.Contains(t, clustertest.One[string](db, "SELECT error FROM holdfast.v_runs WHERE task = $1 AND outcome = 'failed'", brief.Task()), "refused")
	waittest.Eventually(t, "the agent was away for 5 seconds", func() error {
		return waittest.Unless(time.Since(killed) > 5*time.Second, "not yet")
	})
	startAgent(t, addr, "node", example(t, "node/http_agent.mjs"), "DELAY=10")
	waittest.Eventually(t, "all tasks complete", func() error {
		states := clustertest.Column[string](db, "SELECT DISTINCT state FROM holdfast.v_tasks WHERE agent = 'node'")
		return waittest.Unless(len(states) == 1 && states[0] == "completed", "%v", states)
	})
	require.Len(t, tasks, 60)
	waittest.Eventually(t, "the outage is over", func() error {
		return waittest.Unless(clustertest.One[int](db, "SELECT count(*) FROM holdfast.agent_outages WHERE agent = 'node'") == 0, "not yet")
	})
}
