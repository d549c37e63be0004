package faults

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// callees are agents that the agent demo calls.
const callees = clustertest.Settings + `
  - {name: one, executor: {kind: demo}, limits: {backoff: 100ms, max_attempts: 50}}
  - {name: two, executor: {kind: demo}, limits: {backoff: 100ms, max_attempts: 50}}
`

// Replicas die at random points of many calls, of which some are calls of calls. Each call creates one task, and each result
// arrives once.
func TestCallsSurviveKills(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	config := clustertest.Replace(callees, "cancel_grace: 5s", "cancel_grace: 5s, max_attempts: 50")
	var options []clustertest.Options
	for _, name := range []string{"a", "b", "c"} {
		options = append(options, clustertest.Options{Name: name, DB: db.URL, Config: config})
	}
	all := clustertest.Together(t, options...)
	const callers, rounds = 40, 5
	scripts := map[string]string{ // and the results
		"call=one,two sleep=50ms":                "one completed: \ntwo completed: \n",
		"call=one,two,one echo:hi":               "one completed: hi\ntwo completed: hi\none completed: hi\n",
		"call=one call=two echo:hi":              "one completed: two completed: hi\n\n",
		"call=one,nobody,two fail:no":            "one failed: no\nnobody rejected: there is no agent \"nobody\"\ntwo failed: no\n",
		"call=one,two chunks=5 size=8 delay=9ms": "",
	}
	made := map[string]int{"call=one,two sleep=50ms": 3, "call=one,two,one echo:hi": 4, "call=one call=two echo:hi": 3, "call=one,nobody,two fail:no": 3, "call=one,two chunks=5 size=8 delay=9ms": 3}
	ids, tasks := map[string]string{}, 0
	var mu sync.Mutex
	var sending sync.WaitGroup
	steady := all[0] // is not killed while clients send
	for script := range scripts {
		for range callers / len(scripts) {
			tasks += made[script]
			sending.Go(func() {
				s := steady.Stream(a2atest.V03, a2atest.Say(script))
				e, err := s.Next()
				if err != nil {
					t.Errorf("no task: %v", err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				ids[e.Task()] = script
			})
		}
	}
	for i := range rounds {
		if i == rounds/2 {
			sending.Wait()
			steady = nil
		}
		r := all[1+rand.IntN(2)]
		if steady == nil {
			r = all[rand.IntN(3)]
		}
		time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond) // a random point
		r.Kill()
		r.Run()
	}
	for _, r := range all {
		r.WaitServing()
	}
	for id, script := range ids {
		res := all[0].Settled(id)
		require.Equal(t, "completed", res.State(), "%s: %s", script, res.Said())
		if want := scripts[script]; want != "" {
			require.Equal(t, want, a2atest.Text(res.Artifacts[0].Parts), script)
		}
	}
	require.Equal(t, tasks, clustertest.One[int](db, "SELECT count(*)::int FROM holdfast.tasks"))
	waittest.Eventually(t, "all ends are joined", func() error {
		n := clustertest.One[int](db, "SELECT count(*)::int FROM holdfast.task_settled")
		return waittest.Unless(n == 0, "%d are not", n)
	})
	db.Sound()
}

// Replicas die while callers show the progress of what they have called, over one level and over two. Clients of any replica
// read the statuses, in their order and once: the invariants compare them with those of the called tasks.
func TestRelaysSurviveKills(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	config := clustertest.Replace(callees, "cancel_grace: 5s", "cancel_grace: 5s, max_attempts: 50")
	var options []clustertest.Options
	for _, name := range []string{"a", "b", "c"} {
		options = append(options, clustertest.Options{Name: name, DB: db.URL, Config: config})
	}
	all := clustertest.Together(t, options...)
	steady := all[0] // is not killed
	var ended, shows []*a2atest.Reply
	for range 5 {
		ended = append(ended, steady.Stream(a2atest.V03, a2atest.Say("relay=one relay=two steps=8 delay=300ms")))
		for _, script := range []string{"relay=one,two steps=10000 delay=300ms", "relay=one relay=two steps=10000 delay=300ms"} {
			shows = append(shows, steady.Stream(a2atest.V03, a2atest.Say(script)))
		}
	}
	relayed := func(e *a2atest.Event) bool { return strings.HasPrefix(e.Said(), "step ") }
	for i := range 4 {
		r := all[1+i%2]
		r.Kill()
		time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond) // a random point
		r.Run()
		r.WaitServing()
		for _, s := range shows {
			s.Until("a relayed status", relayed)
		}
	}
	for _, s := range ended {
		s.UntilState("completed")
	}
	for i, s := range shows {
		id := s.Until("a relayed status", relayed).Task()
		require.Contains(t, all[1].Get(id).Said(), "step ")
		require.Equal(t, "canceled", all[1+i%2].Cancel(id).State())
		s.UntilState("canceled")
	}
	waittest.Eventually(t, "all tasks have ended", func() error {
		open := clustertest.Column[string](db, "SELECT agent || ' ' || state FROM holdfast.v_tasks WHERE open")
		return waittest.Unless(len(open) == 0, "%v", open)
	})
	db.Sound()
}

// Cancels of callers race with kills: nothing that they have called goes on.
func TestCanceledCallersLeaveNoTasks(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	var options []clustertest.Options
	for _, name := range []string{"a", "b"} {
		options = append(options, clustertest.Options{Name: name, DB: db.URL, Config: callees})
	}
	all := clustertest.Together(t, options...)
	var ids []string
	for i := range 12 {
		script := []string{"call=one,two hold", "call=one call=two hold"}[i%2]
		ids = append(ids, all[0].Stream(a2atest.V03, a2atest.Say(script)).UntilState("working").Task())
	}
	// This one ends by itself, and leaves a question.
	asked := all[0].Stream(a2atest.V03, a2atest.Say("call=one,two ask:what?")).UntilState("completed")
	var canceling sync.WaitGroup
	for _, id := range ids {
		canceling.Go(func() { all[0].Cancel(id) })
	}
	all[1].Kill()
	canceling.Wait()
	all[1].Run()
	waittest.Eventually(t, "all tasks have ended", func() error {
		open := clustertest.Column[string](db, "SELECT agent || ' ' || state FROM holdfast.v_tasks WHERE open")
		return waittest.Unless(len(open) == 0, "%v", open)
	})
	for _, id := range ids {
		state := clustertest.One[string](db, "SELECT state FROM holdfast.v_tasks WHERE task = $1", db.ID(id))
		require.Equal(t, "canceled", state)
	}
	require.Equal(t, "completed", asked.State())
	db.Sound()
}

func TestCallsAreShown(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a := clustertest.Start(t, clustertest.Options{Name: "a", DB: db.URL, Config: callees})
	id := a.Stream(a2atest.V03, a2atest.Say("call=one,two hold")).UntilState("working").Task()
	waittest.Eventually(t, "the agents run", func() error {
		n := clustertest.One[int](db, "SELECT count(*)::int FROM holdfast.v_lineage WHERE state = 'working'")
		return waittest.Unless(n == 2, "%d run", n)
	})
	require.Equal(t, "calls", clustertest.One[string](db, "SELECT phase FROM holdfast.v_queue WHERE task = $1", db.ID(id)))
	child := clustertest.One[string](db, "SELECT task_id FROM holdfast.v_lineage WHERE agent = 'one'")
	shown := db.Operate("tasks", "get", id)
	require.Contains(t, shown, "waits for")
	require.Contains(t, shown, fmt.Sprintf("one, task %s", child))
	require.Contains(t, db.Operate("tasks", "get", child), "called by    "+id)
	require.Contains(t, db.Operate("tasks", "events", id), "call 1: one")
	require.Contains(t, db.Operate("tasks", "list", "--agent", "one"), child)
	waittest.Eventually(t, "the metric shows the call", func() error {
		samples, err := a.Samples()
		if err != nil {
			return err
		}
		return waittest.Unless(samples[`holdfast_queue_calls{agent="demo"}`] == 1, "%v", samples[`holdfast_queue_calls{agent="demo"}`])
	})
	require.Equal(t, "canceled", a.Cancel(id).State())
	db.Sound()
}
