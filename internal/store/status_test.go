package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

// serve registers a process with agents.
func (f *fixture) serve(roles string, agents map[string]ServedAgent) {
	f.t.Helper()
	require.NoError(f.t, f.Register(f.t.Context(), Process{ID: NewID(), Name: "vm/1", Version: "1", Roles: roles, Agents: agents}, time.Hour))
}

// Every situation of a task has its line. These are all of them.
func TestStatusLineOfEverySituation(t *testing.T) {
	f := parallel(t)
	f.serve("api,worker", map[string]ServedAgent{"a": {3, 16}, "one": {3, 1}, "away": {3, 16}, "remote": {Tries: 3}, "drain": {Tries: 3}, "fleet": {Tries: 3}})
	f.serve("api", map[string]ServedAgent{"api": {3, 16}})
	f.exec("INSERT INTO holdfast.remote_workers (id, agents, retired_at) VALUES (gen_random_uuid(), '{drain}', now()), (gen_random_uuid(), '{fleet}', NULL)")
	f.exec("INSERT INTO holdfast.remote_workers (id, agents, left_at) VALUES (gen_random_uuid(), '{remote}', now())")
	f.exec("INSERT INTO holdfast.agent_outages (agent, error, worker_id) VALUES ('away', E'connection refused\nmore', gen_random_uuid())")

	ran := func(agent string, evs ...*task.Event) task.ID {
		p := f.running(agent)
		p.must(t, append([]*task.Event{status(task.StateWorking)}, evs...)...)
		return p.c.Task.ID
	}
	after := func(id task.ID, sql string) task.ID {
		f.exec(sql, id)
		return id
	}
	queued := func(agent, set string) task.ID {
		return after(f.create(fresh(agent)).ID, "UPDATE holdfast.task_queue SET "+set+" WHERE id = $1")
	}
	retried := func() task.ID {
		id := ran("a")
		f.exec("UPDATE holdfast.tasks SET worker_id = NULL WHERE id = $1", id)
		return after(id, "UPDATE holdfast.task_queue SET worker_id = NULL, tries = 2, available_at = now() + interval '1 hour' WHERE id = $1")
	}
	called := func() task.ID {
		p := f.calling("b", "c", "d")
		f.begin()[0].must(t, status(task.StateWorking), status(task.StateCompleted))
		f.join()
		return p.c.Task.ID
	}
	canceled := func() task.ID {
		h := f.create(fresh("a"))
		f.ok(f.Cancel(t.Context(), h, nil))
		return h.ID
	}
	const nobody, agent, client, operator = "nobody", "agent", "client", "operator"
	for _, c := range []struct {
		situation string
		id        task.ID
		text      string
		next      string
		timed     bool // next has a time
		turn      string
	}{
		{"completed", ran("a", status(task.StateCompleted)), "Completed", "", false, nobody},
		{"completed", after(ran("a", status(task.StateCompleted)), "UPDATE holdfast.tasks SET held_at = now() WHERE id = $1"), "Completed", "Kept: an operator holds it", false, nobody},
		{"failed", ran("a", failing("Sorry.", "no such host\nat line 7")), "Failed: no such host", "", false, nobody},
		{"failed", ran("a", status(task.StateFailed)), "Failed", "", false, nobody},
		{"rejected", ran("a", status(task.StateRejected)), "Rejected", "", false, nobody},
		{"canceled", canceled(), "Canceled", "", false, nobody},
		{"asks", ran("a", status(task.StateInputRequired)), "Waits for the client's answer", "", false, client},
		{
			"asks", after(ran("a", status(task.StateInputRequired)), "UPDATE holdfast.tasks SET resume_until = now() + interval '1 hour' WHERE id = $1"),
			"Waits for the client's answer or a request to its resume URL", "The resume URL expires", true, client,
		},
		{"authenticates", ran("a", status(task.StateAuthRequired)), "Waits until the client has authenticated", "", false, client},
		{"running", ran("a"), "Running on test, try 1 of 3", "", false, agent},
		{"running", after(ran("a"), "UPDATE holdfast.tasks SET pending = 1 WHERE id = $1"), "Running on test, try 1 of 3", "The client's next message begins a turn", false, agent},
		{"running", ran("unknown"), "Running on test, try 1", "", false, agent},
		{
			"ending", after(ran("a"), "UPDATE holdfast.tasks SET cancel_requested = true, cancel_requested_at = now() WHERE id = $1"),
			"Ends on test: its cancel was requested", "Canceled when the run has ended", false, agent,
		},
		{"lost", after(ran("a"), "DELETE FROM holdfast.workers WHERE id = (SELECT worker_id FROM holdfast.tasks WHERE id = $1)"), "test is gone with the run", "Another worker takes it over", false, nobody},
		{"lost", after(ran("fleet"), "UPDATE holdfast.task_queue SET lease_until = now() - interval '1 s' WHERE id = $1"), "test is gone with the run", "Another worker takes it over", false, nobody},
		{"calls", called(), "Waits for 2 of 3 called tasks", "Their results begin the next turn", false, agent},
		{"sleeping", ran("a", waitNote(time.Hour, false)), "Sleeps", "It wakes", true, nobody},
		{"sleeping", ran("a", waitNote(time.Hour, true)), "Sleeps", "A message wakes it, or the time", true, nobody},
		{"retrying", retried(), "Waits to try again: try 2 of 3 failed", "Try 3 of 3 begins", true, nobody},
		{"delayed", queued("a", "available_at = now() + interval '1 hour'"), "Waits until it is due", "A worker takes it", true, nobody},
		{"not queued", after(f.create(fresh("a")).ID, "DELETE FROM holdfast.task_queue WHERE id = $1"), "Is not in the queue: no worker will run it", "See holdfast doctor", false, operator},
		{"no server", f.create(fresh("unknown")).ID, "Waits for a server that has agent unknown", "Start one whose configuration has it", false, operator},
		{"away", after(ran("away"), "UPDATE holdfast.task_queue SET away_since = now() WHERE id = $1"), "Agent away is away: connection refused", "Holdfast tries it now", false, operator},
		{"away", f.create(fresh("away")).ID, "Agent away is away: connection refused", "Holdfast tries it again", false, operator},
		{"no worker", f.create(fresh("api")).ID, "Waits for a worker of agent api: no process with the role worker has it", "Start a worker", false, operator},
		{"no worker", f.create(fresh("remote")).ID, "Waits for a worker of agent remote: none of its workers is connected", "Start a worker", false, operator},
		{"draining", f.create(fresh("drain")).ID, "Waits for a worker of agent drain: all its workers are retired", "Start a worker", false, operator},
		{"busy", queued("a", "away_since = now()"), "Agent a is too busy to begin it", "Holdfast tries it again", false, agent},
		{"suspect", queued("a", "suspect = true"), "Waits to run alone: its last run ended with its process", "A process starts one such run at a time", false, nobody},
		{"full", func() task.ID { ran("one"); return f.create(fresh("one")).ID }(), "Waits for one of the 1 places of agent one", "A run of the agent ends", false, nobody},
		{"large", queued("a", "message_bytes = 12 << 20"), "Waits for a worker with memory for its message of 12.0 MiB", "A worker takes it", false, nobody},
		{"waiting", f.create(fresh("a")).ID, "Waits for a worker of agent a", "A worker takes it", false, nobody},
		{"waiting", f.create(fresh("fleet")).ID, "Waits for a worker of agent fleet", "A worker takes it", false, nobody},
	} {
		l := storetest.Must(f.StatusLines(t.Context(), []task.ID{c.id}))(t)[c.id]
		require.NotNil(t, l, c.text)
		require.Equal(t, []string{c.situation, c.text, c.next, c.turn}, []string{l.Situation, l.Text, l.Next, l.TurnOf})
		require.Equal(t, c.timed, !l.NextAt.IsZero(), c.text)
		require.Equal(t, c.situation != "delayed", !l.Since.IsZero(), c.text)
	}
	f.exec("UPDATE holdfast.workers SET lease_until = now() - interval '1 s'")
	id := f.create(fresh("a")).ID
	require.Equal(t, "Waits for a server: no process is alive", storetest.Must(f.StatusLines(t.Context(), []task.ID{id}))(t)[id].Text)
	require.Empty(t, storetest.Must(f.StatusLines(t.Context(), []task.ID{NewID()}))(t), "a deleted task has none")
	f.exec("TRUNCATE holdfast.tasks, holdfast.task_events, holdfast.task_queue, holdfast.task_calls, holdfast.task_settled") // no server makes such rows
}

// An agent's health needs evidence. An operator of one tenant gets that of its own tasks.
func TestHealthOfAgents(t *testing.T) {
	f := parallel(t)
	f.serve("worker", map[string]ServedAgent{"a": {3, 16}, "away": {3, 16}, "remote": {Tries: 3}})
	f.exec("INSERT INTO holdfast.agent_outages (agent, error, worker_id) VALUES ('away', 'connection refused', gen_random_uuid())")
	health := func(agent, tenant string) []string {
		h := storetest.Must(f.Operator(task.Caller{Tenant: tenant}, tenant != "").AgentHealths(t.Context(), []string{agent}))(t)[0]
		if tenant == "" {
			view := scan[string](f, "SELECT coalesce((SELECT health FROM holdfast.v_agents WHERE agent = $1), 'no worker')", agent)
			require.Equal(t, view, h.Health)
		}
		return []string{h.Health, h.Reason}
	}
	end := func(n int, s task.State) {
		for range n {
			f.running("a").must(t, status(task.StateWorking), status(s))
		}
	}
	none := "no task of it has completed yet"
	require.Equal(t, []string{"unknown", none}, health("a", ""))
	end(1, task.StateCanceled)
	require.Equal(t, []string{"unknown", none}, health("a", ""))
	end(1, task.StateFailed)
	require.Equal(t, []string{"failing", "1 of its newest 1 tasks failed"}, health("a", ""))
	end(1, task.StateCompleted)
	require.Equal(t, []string{"healthy", ""}, health("a", ""))
	end(2, task.StateFailed)
	require.Equal(t, []string{"failing", "3 of its newest 4 tasks failed"}, health("a", ""))
	require.Equal(t, []string{"unknown", none}, health("a", "another tenant"))
	end(20, task.StateCompleted)
	require.Equal(t, []string{"healthy", ""}, health("a", ""))

	require.Equal(t, []string{"away", "connection refused"}, health("away", "another tenant"))
	require.Equal(t, []string{"no worker", "none of its workers is connected"}, health("remote", ""))
	worker := NewID()
	storetest.Must(f.SeenRemote(t.Context(), "r", []RemoteWorker{{ID: worker, Agents: []string{"remote"}}}))(t)
	require.Equal(t, []string{"unknown", none}, health("remote", ""))
	require.NoError(t, f.RetireRemote(t.Context(), worker))
	require.Equal(t, []string{"draining", "all its workers are retired"}, health("remote", ""))
	storetest.Must(f.PartRemote(t.Context(), "r", []task.ID{worker}, nil))(t)
	require.Equal(t, []string{"no worker", "none of its workers is connected"}, health("remote", ""), "a clean stop counts at once")
	require.Equal(t, []string{"no worker", "no process that is alive has it"}, health("gone", ""))
}
