package protocol

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
)

func TestConversationOverTwoReplicas(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL})
	for _, d := range a2atest.Old {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			res := a.Send(d, a2atest.Say("ask:which city?"))
			require.Equal(t, "input-required", res.State())
			require.Equal(t, "which city?", res.Said())
			res = b.Send(d, a2atest.Say("Oslo").To(res.Task()))
			require.Equal(t, "completed", res.State())
			require.Equal(t, "You answered: Oslo", a2atest.Text(res.Artifacts[0].Parts))
			history := a.Call("tasks/get", object{"id": res.Task(), "historyLength": 10}).History
			require.Len(t, history, 3)
			require.Equal(t, []string{"user", "agent", "user"}, []string{history[0].Role, history[1].Role, history[2].Role})

			// The same as streams: the first ends when the task is parked, the second when it has ended.
			s := a.Stream(d, a2atest.Say("auth"))
			opened := s.Rest()
			require.Contains(t, []string{"auth-required", "input-required"}, a2atest.Last(opened).State())
			s = b.Stream(d, a2atest.Say("here I am").To(opened[0].Task()))
			require.Equal(t, "completed", a2atest.Last(s.Rest()).State())

			// Resumed from before the question, the stream continues through it.
			all := a.Resume(opened[0].Task(), 1).Rest()
			require.Equal(t, "completed", a2atest.Last(all).State())
			var states []string
			for _, e := range all {
				states = append(states, e.State())
			}
			require.Contains(t, states, a2atest.Last(opened).State())

			_, err := a.TrySend(d, a2atest.Say("one more").To(res.Task()))
			require.ErrorContains(t, err, map[*a2atest.Wire]string{a2atest.V01: "-32009", a2atest.V03: "-32602"}[d], "an ended task refuses messages")
		})
	}
}

// A task created in one version is read in another.
func TestTaskIsReadInAnotherVersion(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL})
	res := a.Send(a2atest.V01, a2atest.Say("ask:where to?").To("trip-1"))
	require.Equal(t, "input-required", res.State())
	res = b.Send(a2atest.V03, a2atest.Say("Rome").To("trip-1"))
	require.Equal(t, "completed", res.State())
	require.Equal(t, "task", res.Kind)
	old := a.Get("trip-1")
	require.Empty(t, old.Kind, "the task belongs to 0.1, and so does the answer")
	require.NotEmpty(t, old.SessionID)
	require.Equal(t, res.ContextID, old.SessionID)
}

// Messages to a busy task wait for their turn.
func TestMessagesToBusyTaskWait(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	a, b := clustertest.Pair(t, clustertest.Options{DB: db.URL})
	s := a.Stream(a2atest.V03, a2atest.Say("chunks=20 size=16 delay=30ms"))
	taskID := s.Take(4)[0].Task()
	_, err := b.TrySend(a2atest.V03, a2atest.Say("echo:meanwhile").To(taskID))
	// The run ends the task, so the message is in the log but gets no run.
	if err != nil {
		require.ErrorContains(t, err, "-32602")
	}
	require.Equal(t, "completed", a2atest.Last(s.Rest()).State())
	require.Len(t, b.Call("tasks/get", object{"id": taskID, "historyLength": 10}).History, 2)
}
