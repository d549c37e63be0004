package faults

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

var (
	durableKills  = flag.Int("durable.kills", 8, "how many processes are killed under durable agents")
	durableWorker = flag.String("durable.worker", "", "the command of their worker, in another language than Go")
)

// durablePrograms are what to tell the programs of durableworker, and the words that their clients have at the end, in any order: steps
// beside each other have artifacts of their own.
var durablePrograms = map[string]string{
	"refund":    "Looking it up. yes. order receipt 6 10",
	"loop 300":  "45150",
	"nest 3":    "0123",
	"asks":      "ayes byes cyes yes",
	"streams 3": "first0 first1 first2 between left0 left1 left2 right0 right1 right2 last0 last1 last2 streamed",
	"undo":      "undone after no money",
	"sleep 3":   "awake",
	"large 40":  "10000000",
}

func sortedWords(text string) []string {
	words := strings.Fields(text)
	slices.Sort(words)
	return words
}

// Workers and replicas are killed at random below durable agents. Each task ends as without, and no step that was recorded runs again.
func TestDurableAgentsUnderKills(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	db := clustertest.NewDB(t)
	config := clustertest.Settings
	for _, name := range []string{"programs", "below-0", "below-1", "below-2"} {
		config += fmt.Sprintf("  - {name: %s, executor: {kind: worker, worker: {lease: 5s}}, limits: {max_attempts: 1000, backoff: 100ms}}\n", name)
	}
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL, Config: config})
	replicas := []*clustertest.Replica{a, b}
	effects := filepath.Join(t.TempDir(), "effects")
	var workers [2]*exec.Cmd
	begin := func(i int) {
		words := strings.Fields(*durableWorker)
		if len(words) == 0 {
			words = []string{clustertest.Program(t, "./integration/faults/durableworker")}
		}
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Env = append(os.Environ(), "EFFECTS="+effects, "HOLDFAST_URL="+replicas[i].URL)
		require.NoError(t, cmd.Start())
		workers[i] = cmd
	}
	end := func(i int) {
		_ = workers[i].Process.Kill()
		_ = workers[i].Wait()
	}
	for i := range workers {
		begin(i)
		t.Cleanup(func() { end(i) })
	}
	tasks := map[string]string{}
	start := func() {
		for say := range durablePrograms {
			tasks[a.Send(a2atest.V03, a2atest.Say(say).At("programs").Detached()).ID] = say
		}
	}
	written := func() int {
		raw, err := os.ReadFile(effects)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return strings.Count(string(raw), "\n")
	}
	// settled answers questions, and reports whether all tasks have ended.
	settled := func() bool {
		open := clustertest.Column[string](db, "SELECT task_id || ' ' || state FROM holdfast.v_tasks WHERE open AND NOT EXISTS (SELECT FROM holdfast.v_lineage l WHERE l.task = v_tasks.task)")
		for _, task := range open {
			if id, asks := strings.CutSuffix(task, " input-required"); asks {
				b.Send(a2atest.V03, a2atest.Say("yes").To(id).At("programs").Detached())
			}
		}
		return len(open) == 0
	}
	start()
	for range *durableKills {
		before, more := written(), 1+random.IntN(60)
		over := false
		waittest.Eventually(t, "effects happen", func() error {
			over = settled()
			n := written()
			return waittest.Unless(over || n >= before+more, "%d effects since the last kill, %d are wanted", n-before, more)
		})
		if over {
			start()
		}
		switch i := random.IntN(2); random.IntN(3) {
		case 0:
			replicas[i].Kill()
			replicas[i].Run()
		default:
			end(i)
			begin(i)
		}
	}
	waittest.Eventually(t, "all tasks have ended", func() error { return waittest.Unless(settled(), "they have not") })
	for id, say := range tasks {
		require.Equal(t, "completed", clustertest.One[string](db, "SELECT state || coalesce(': ' || status_text, '') FROM holdfast.v_tasks WHERE task = holdfast.task_uuid($1)", id), "%s: %s", say, id)
		got := clustertest.One[string](db, "SELECT string_agg(text, ' ') FROM holdfast.v_artifacts WHERE task = holdfast.task_uuid($1)", id)
		require.Equal(t, sortedWords(durablePrograms[say]), sortedWords(got), "%s: %s", say, id)
	}
	require.Empty(t, clustertest.Column[string](db, `SELECT task || name || nth FROM holdfast.v_steps GROUP BY task, kind, name, nth HAVING count(*) > 1`), "recorded once")
	recorded := map[string]int{}
	for _, line := range clustertest.Column[string](db, `SELECT format('%s %s %s#%s', attempt, task_id, name, nth) FROM holdfast.v_steps WHERE kind = 'step'`) {
		var attempt int
		_, err := fmt.Sscan(line, &attempt)
		require.NoError(t, err)
		_, step, _ := strings.Cut(line, " ")
		recorded[step] = attempt
	}
	raw, err := os.ReadFile(effects)
	require.NoError(t, err)
	again := 0
	done := map[string]bool{}
	for line := range strings.Lines(string(raw)) {
		var task string
		var attempt int
		_, err := fmt.Sscan(line, &task, &attempt)
		require.NoError(t, err)
		step := task + strings.TrimSuffix(strings.TrimPrefix(line, fmt.Sprint(task, " ", attempt)), "\n")
		require.Contains(t, recorded, step)
		require.LessOrEqual(t, attempt, recorded[step], "a recorded step has run again: %s", step)
		if done[step] {
			again++
		}
		done[step] = true
	}
	require.Len(t, done, len(recorded), "each record had its effect")
	t.Logf("%d kills, %d tasks, %d steps, %d effects again before their record", *durableKills, len(tasks), len(done), again)
	db.Sound()
}
