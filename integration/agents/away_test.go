package agents

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// An agent in the process and a server behind a front are away. Their tasks wait, operators see that in a view and in doctor, and no
// wait is an attempt. When they return, all tasks run. (TestChaos has agents behind HTTP, commands and models that are away.)
func TestAgentsThatAreAway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rebuilding, file := filepath.Join(dir, "rebuilding"), filepath.Join(dir, "holdfast.yaml")
	require.NoError(t, os.WriteFile(rebuilding, nil, 0o600))
	upstream := clustertest.Start(t, clustertest.Options{Name: "upstream", DB: clustertest.NewDB(t).URL, Config: clustertest.Steady})
	config := clustertest.Steady + fmt.Sprintf(`
  - {name: go, executor: {kind: go}, limits: {max_attempts: 2, concurrency: 1}}
  - {name: front, executor: {kind: a2a, a2a: {url: %q}}, limits: {max_attempts: 2, concurrency: 1}}
`, upstream.URL)
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	db, env := clustertest.NewDB(t), []string{"AWAY=" + rebuilding}
	program := clustertest.Program(t, "./integration/agents/rebuilding")
	a := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: config, Binary: program, Env: env})
	upstream.Kill()
	const each = 4
	errs := map[string]string{"go": "the index is being rebuilt", "front": "refused"}
	for name, says := range errs {
		for range each {
			require.Equal(t, "submitted", a.Send(a2atest.V03, a2atest.Say("echo:done").At(name).Detached()).State(), name)
		}
		waittest.Eventually(t, name+" is away, and its tasks wait", func() error {
			if n := a.Counted(fmt.Sprintf(`holdfast_runs_total{agent=%q,outcome="away"}`, name)); n < 4 { // more than max_attempts
				return fmt.Errorf("%d runs found it away", n)
			}
			n := clustertest.One[int](db, "SELECT count(*) FROM holdfast.v_outages WHERE agent = $1 AND waiting >= $2 AND error LIKE $3", name, each-1, "%"+says+"%")
			return waittest.Unless(n == 1, "no outage")
		})
	}
	seen := clustertest.CommandOf(t, program, dir, append(db.Env(), env...), "doctor", "--config", file).Out
	for name, says := range errs {
		require.Regexp(t, name+`: .*; away for \S+: .*`+says, seen)
	}
	require.NoError(t, os.Remove(rebuilding))
	upstream.Run()
	waittest.Eventually(t, "all tasks have ended", func() error {
		n := clustertest.One[int](db, "SELECT count(*) FROM holdfast.v_tasks WHERE state = 'completed'")
		return waittest.Unless(n == 2*each, "%d have completed", n)
	})
	require.Empty(t, clustertest.Column[string](db, "SELECT outcome || ': ' || coalesce(error, '') FROM holdfast.v_runs WHERE outcome NOT IN ('away', 'completed')"))
	waittest.Eventually(t, "no agent is away", func() error {
		if away := clustertest.Column[string](db, "SELECT agent FROM holdfast.v_outages"); len(away) > 0 {
			return errors.New(away[0])
		}
		return nil
	})
	db.Sound()
}
