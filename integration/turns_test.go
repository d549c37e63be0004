package integration

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAConversationOverTwoReplicas(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	replicas := cluster(t, db.url, "a", "b")
	a, b := replicas[0], replicas[1]
	t.Cleanup(db.sound)
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			res := a.call(d.send, d.params("", "ask:which city?"))
			require.Equal(t, "input-required", res.state())
			require.Equal(t, "which city?", res.said())
			res = b.call(d.send, d.params(res.task(), "Oslo"))
			require.Equal(t, "completed", res.state())
			require.Equal(t, "You answered: Oslo", text(res.Artifacts[0].Parts))
			history := a.call("tasks/get", object{"id": res.task(), "historyLength": 10}).History
			require.Len(t, history, 3)
			require.Equal(t, []string{"user", "agent", "user"}, []string{history[0].Role, history[1].Role, history[2].Role})

			// The same as streams: the first ends when the task waits, the second when it has ended.
			s := a.open(d.stream, d.params("", "auth"))
			opened := s.rest()
			require.Contains(t, []string{"auth-required", "input-required"}, last(opened).state())
			s = b.open(d.stream, d.params(opened[0].task(), "here I am"))
			require.Equal(t, "completed", last(s.rest()).state())

			// Resumed from before the question, the stream leads on through it.
			all := a.resume(opened[0].task(), 1).rest()
			require.Equal(t, "completed", last(all).state())
			var states []string
			for _, e := range all {
				states = append(states, e.state())
			}
			require.Contains(t, states, last(opened).state())

			_, err := a.try(d.send, d.params(res.task(), "one more"))
			require.ErrorContains(t, err, map[*dialect]string{v01: "-32009", v03: "-32602"}[d], "a task that has ended takes no message")
		})
	}
}

// A task made in one version is read in another.
func TestOneTaskInBothDialects(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	replicas := cluster(t, db.url, "a", "b")
	a, b := replicas[0], replicas[1]
	res := a.call(v01.send, v01.params("trip-1", "ask:where to?"))
	require.Equal(t, "input-required", res.state())
	res = b.call(v03.send, v03.params("trip-1", "Rome"))
	require.Equal(t, "completed", res.state())
	require.Equal(t, "task", res.Kind)
	old := a.call("tasks/get", object{"id": "trip-1"})
	require.Empty(t, old.Kind, "the task is of 0.1, and so is the answer")
	require.NotEmpty(t, old.SessionID)
	require.Equal(t, res.ContextID, old.SessionID)
	db.sound()
}

// Messages to a task that is busy wait for their turn.
func TestMessagesToABusyTask(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	replicas := cluster(t, db.url, "a", "b")
	a, b := replicas[0], replicas[1]
	s := a.open(v03.stream, v03.params("", "chunks=20 size=16 delay=30ms"))
	taskID := s.take(4)[0].task()
	_, err := b.try(v03.send, v03.params(taskID, "echo:meanwhile"))
	// The run ends the task, so the message is in the log and finds no run of its own.
	if err != nil {
		require.ErrorContains(t, err, "-32602")
	}
	require.Equal(t, "completed", last(s.rest()).state())
	require.Len(t, b.call("tasks/get", object{"id": taskID, "historyLength": 10}).History, 2)
	db.sound()
}
