package agents

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
)

// The agents of the guide and of examples/ that use the run API, on two replicas.
func TestRunAPIExamples(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../docs/agents/run-api.md")
	require.NoError(t, err)
	program := regexp.MustCompile("(?s)```python run-api\n(.*?)```").FindSubmatch(guide)
	require.NotNil(t, program)
	file := filepath.Join(t.TempDir(), "agent.py")
	require.NoError(t, os.WriteFile(file, program[1], 0o600))
	queue := startAgent(t, example(t, "python/queue_agent.py"))
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: fmt.Sprintf(clustertest.Patient+`
  - {name: guide, executor: {kind: command, command: {argv: [python3, %q]}}}
  - {name: queue, executor: {kind: http, http: {url: %q}}}
`, file, queue)})
	for i, r := range []*clustertest.Replica{a, b} {
		said := a2atest.Say("hello")
		said.Context = "guide"
		res := r.Send(a2atest.V03, said.At("guide"))
		require.Equal(t, "completed", res.State(), res.Said())
		require.Equal(t, fmt.Sprintf("%d entries before this.", 2*i), a2atest.Text(res.Artifacts[0].Parts))
		stored := clustertest.One[string](db, "SELECT value::text FROM holdfast.v_states WHERE context_id = 'guide'")
		require.JSONEq(t, fmt.Sprintf(`{"said":%d}`, 2*i), stored)

		res = r.Send(a2atest.V03, a2atest.Say("one two three").At("queue"))
		require.Equal(t, "completed", res.State(), res.Said())
		require.Equal(t, "eno owt eerht ", a2atest.Text(res.Artifacts[0].Parts))
	}
	db.Sound()
}
