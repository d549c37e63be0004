package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// One replica serves clients and runs nothing, the other runs agents and has no public address.
func TestRolesApart(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	// Hints have to do: the polls would come too late.
	rarely := replace(replace(settings, "poll_interval: 200ms", "poll_interval: 30s"), "hub: {poll_interval: 500ms}", "hub: {poll_interval: 1m}")
	api := start(t, replicaOptions{Name: "api", DB: db.url, Config: rarely, Env: []string{"HOLDFAST_ROLES=api"}})
	// Nobody runs it yet.
	waiting := api.open(v03.stream, v03.params("", "chunks=20 size=16 delay=5ms"))
	first := waiting.take(1)
	require.Equal(t, "submitted", first[0].state())

	worker := start(t, replicaOptions{Name: "worker", DB: db.url, Config: rarely, Env: []string{"HOLDFAST_ROLES=worker"}, Async: true})
	indexed(t, chunksOf(waiting.rest()), 20)
	worker.waitServing()
	require.Empty(t, worker.url, "a worker serves no clients")
	worker.waitReady()
	t.Cleanup(db.sound)
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			for range 5 {
				res := api.call(d.send, d.params("", "ask:well?")) // blocking
				require.Equal(t, "input-required", res.state())
				require.Equal(t, "completed", api.call(d.send, d.params(res.task(), "well")).state())
			}
			s := api.open(d.stream, d.params("", "hold"))
			taskID := s.untilState("working").task()
			require.Equal(t, "canceled", api.call("tasks/cancel", object{"id": taskID}).state())
			require.Equal(t, "canceled", last(s.rest()).state())
			require.Less(t, time.Since(began), 15*time.Second)
		})
	}
}

// A caller that waits for its answer gets it, although the process that ran its task died; and one who repeats a request
// with its key, because the answer was lost, gets the task that is there.
func TestACallerOutlivesTheWorker(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	api := start(t, replicaOptions{Name: "api", DB: db.url, Config: settings, Env: []string{"HOLDFAST_ROLES=api"}})
	worker := func(name string) *replica {
		return start(t, replicaOptions{Name: name, DB: db.url, Config: settings, Env: []string{"HOLDFAST_ROLES=worker"}})
	}
	doomed := worker("doomed")
	body := request(v03.send, v03.params("", "chunks=60 size=16 delay=50ms"))
	answers := make(chan *answer, 2)
	send := func() {
		got, err := ask(short(t, patience), api.url, body, "Idempotency-Key", "the-same")
		if err != nil {
			t.Error(err)
		}
		answers <- got
	}
	go send()
	eventually(t, "chunks are stored", func() error {
		n := one[int](db, "SELECT count(*) FROM holdfast.task_events WHERE kind = 3")
		return unless(n > 5, "%d", n)
	})
	go send()
	doomed.kill()
	worker("heir")
	var tasks []string
	for range 2 {
		got := within(t, "an answer", answers)
		require.NotNil(t, got)
		res, err := got.result()
		require.NoError(t, err)
		require.Equal(t, "completed", res.state())
		var chunks []string
		for _, p := range res.Artifacts[0].Parts {
			chunks = append(chunks, p.Text)
		}
		indexed(t, chunks, 60)
		tasks = append(tasks, res.task())
	}
	require.Equal(t, tasks[0], tasks[1])
	require.Equal(t, 1, one[int](db, "SELECT count(*) FROM holdfast.tasks"))
	db.sound()
}
