package operators

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/clustertest"
)

// The numbers that the verb reports agree with the database.
func TestBenchReportsStoredTasks(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a := clustertest.Cluster(t, db.URL, "a")[0]
	const stored = "SELECT count(*) FROM holdfast.task_events WHERE kind = 3"
	tasks := 0
	for _, mode := range []string{"blocking", "stream", "poll"} {
		before, chunks := clustertest.One[int](db, stored), 0
		res := clustertest.Command(t, t.TempDir(), nil, "bench", "--url", a.URL, "--agent", "demo", "--mode", mode,
			"--inflight", "2,3", "--duration", "200ms", "--poll-interval", "5ms", "-o", "json")
		require.Zero(t, res.Code, res.Err)
		require.Contains(t, res.Err, "This creates real tasks at "+a.URL+"/agents/demo")
		var told struct {
			Mode    string
			Results []struct {
				InFlight, Tasks, Chunks int
				Rate                    float64 `json:"tasks_per_second"`
				P50                     float64 `json:"p50_ms"`
				Errors                  map[string]int
			}
		}
		require.NoError(t, json.Unmarshal([]byte(res.Out), &told))
		require.Equal(t, mode, told.Mode)
		require.Len(t, told.Results, 2)
		for i, r := range told.Results {
			require.Equal(t, 2+i, r.InFlight)
			require.True(t, r.Rate > 0 && r.P50 > 0 && len(r.Errors) == 0, "%+v", r)
			tasks, chunks = tasks+r.Tasks, chunks+r.Chunks
		}
		require.Equal(t, tasks, clustertest.One[int](db, "SELECT count(*) FROM holdfast.tasks WHERE state = 5"), mode)
		if mode == "stream" {
			require.Equal(t, before+chunks, clustertest.One[int](db, stored))
		}
	}
}
