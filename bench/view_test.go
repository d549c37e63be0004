package bench

import (
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"testing"
)

// consoleView opens the list of tasks in Chromium, on a server without tasks and on one with many, and scrolls it.
func consoleView(b *testing.B) {
	b.Helper()
	const script = "../console/scripts/view.js"
	if _, err := os.Stat("../console/node_modules/playwright-core"); err != nil {
		b.Skip("playwright-core is not installed; run make console")
	}
	n := 100_000
	if v := os.Getenv(storedEnv); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			b.Fatalf("%s: %v", storedEnv, err)
		}
	}
	look := func(b *testing.B, c *cluster) {
		b.Helper()
		out, err := exec.CommandContext(b.Context(), "node", script, c.replicas[0].Admin).Output()
		if err != nil {
			b.Fatalf("%s: %v", script, err)
		}
		var seen map[string]float64
		if err := json.Unmarshal(out, &seen); err != nil {
			b.Fatal(err)
		}
		for unit, value := range seen {
			metric(b, value, unit)
		}
	}
	c := startCluster(b, config, nil, whole) // without the tasks of a warm-up
	b.Run("tasks=0", func(b *testing.B) { look(b, c) })
	b.Run("tasks="+strconv.Itoa(n), func(b *testing.B) {
		if one[int](b, c.db, "SELECT count(*) FROM (SELECT FROM holdfast.tasks LIMIT 1) t") == 0 { // go test repeats a quick benchmark
			fill(b, &side{c: c}, n)
			exec1(b, c.db, "VACUUM (ANALYZE) holdfast.tasks, holdfast.task_events, holdfast.task_queue")
			settle(b)
		}
		look(b, c)
	})
}
