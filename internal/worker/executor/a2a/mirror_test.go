package a2a

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/executortest"
)

// An agent's task grows. The front sees some of its events, a cut, snapshots at any points, and new runs that know only
// the log. In the end our task has what the agent's has, and no message twice.
func TestMirrorIsTheAgentsTask(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		theirs := task.Task{PublicID: "t"}
		ours := &executortest.Memory{}
		out, m := executortest.NewRecorder(), (*mirror)(nil)
		start := func() { // a new run
			ours.Log = append(ours.Log, out.Events()...)
			for i := range ours.Log {
				ours.Log[i].Seq = task.Seq(i + 1)
			}
			have, err := ours.Task(t.Context())
			require.NoError(t, err)
			out = executortest.NewRecorder()
			m = newMirror(out, have, false, 1<<20)
		}
		start()
		live := true
		for i := range rapid.IntRange(1, 30).Draw(t, "events") {
			e := draw(t, i)
			e.Seq = theirs.LastSeq + 1
			require.NoError(t, theirs.Apply(&e))
			u := &client.Update{Event: &e}
			switch rapid.IntRange(0, 5).Draw(t, "what happens") {
			case 0:
				live = false
			case 1:
				live = false
				start()
			case 2:
				live = false
				u = &client.Update{Task: snapshot(t, &theirs)}
			}
			if live || u.Task != nil {
				_, err := m.update(t.Context(), u)
				require.NoError(t, err)
			}
		}
		theirs.Status = task.Status{State: task.StateCompleted}
		done, err := m.update(t.Context(), &client.Update{Task: snapshot(t, &theirs)})
		require.NoError(t, err)
		require.True(t, done)
		start()
		got, err := ours.Task(t.Context())
		require.NoError(t, err)
		sameText := cmp.Options{cmpopts.EquateEmpty(), cmpopts.IgnoreFields(task.Artifact{}, "Index"), cmp.Transformer("joined", func(p []task.Part) string {
			return fmt.Sprint(joined(p))
		})}
		if d := cmp.Diff(theirs.Artifacts, got.Artifacts, sameText, cmpopts.SortSlices(func(a, b task.Artifact) bool { return a.ID < b.ID })); d != "" {
			t.Fatal(d)
		}
		seen := map[string]bool{}
		for _, msg := range got.History {
			require.False(t, seen[msg.ID], "message %s twice", msg.ID)
			seen[msg.ID] = true
		}
		for _, msg := range theirs.History {
			require.True(t, seen[msg.ID], "message %s is missing", msg.ID)
		}
	})
}

// draw makes an event of an agent.
func draw(t *rapid.T, i int) task.Event {
	if rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
		return task.Event{Kind: task.EventStatus, State: task.StateWorking, Message: &task.Message{
			ID: fmt.Sprint("m", i), Role: task.RoleAgent, Parts: []task.Part{task.Text("said")},
		}}
	}
	part := rapid.SampledFrom([]task.Part{
		task.Text("a"), task.Text("ab"), task.Text(fmt.Sprint(i)), {Kind: task.PartData, Data: []byte(`1`)}, {Kind: task.PartText, Text: "x", MediaType: "text/markdown"},
	})
	return task.Event{
		Kind: task.EventArtifact, Append: rapid.Bool().Draw(t, "append"),
		Artifact: &task.Artifact{ID: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "artifact"), Parts: rapid.SliceOfN(part, 1, 3).Draw(t, "parts")},
	}
}

// snapshot returns the agent's task as it answers a read: some servers keep the pieces of text apart.
func snapshot(t *rapid.T, theirs *task.Task) *task.Task {
	s, err := task.Fold(*theirs, nil)
	require.NoError(t, err)
	if rapid.Bool().Draw(t, "apart") {
		for i := range s.Artifacts {
			var parts []task.Part
			for _, p := range s.Artifacts[i].Parts {
				if plain(&p) && len(p.Text) > 1 {
					first := p
					first.Text, p.Text = p.Text[:1], p.Text[1:]
					parts = append(parts, first)
				}
				parts = append(parts, p)
			}
			s.Artifacts[i].Parts = parts
		}
	}
	return s
}

// Neither artifacts nor messages fill the memory, however small each is.
func TestMirrorIsBounded(t *testing.T) {
	t.Parallel()
	const most = 10 * overhead
	for name, event := range map[string]func(id string) *task.Event{
		"artifacts": func(id string) *task.Event {
			return &task.Event{Kind: task.EventArtifact, Artifact: &task.Artifact{ID: id, Parts: []task.Part{task.Text("x")}}}
		},
		"parts": func(string) *task.Event {
			return &task.Event{Kind: task.EventArtifact, Append: true, Artifact: &task.Artifact{ID: "a", Parts: []task.Part{{Kind: task.PartURL, URL: "u"}}}}
		},
		"messages": func(id string) *task.Event {
			return &task.Event{Kind: task.EventStatus, State: task.StateWorking, Message: &task.Message{ID: id, Parts: []task.Part{task.Text("x")}}}
		},
	} {
		out := executortest.NewRecorder()
		m := newMirror(out, &task.Task{}, false, most)
		for i := range 30 {
			_, err := m.update(t.Context(), &client.Update{Event: event(fmt.Sprint(i))})
			require.NoError(t, err)
		}
		require.True(t, m.blind, name)
		require.Empty(t, m.have.Artifacts, name)
		require.Empty(t, m.spoken, name)
		require.GreaterOrEqual(t, len(out.Events()), 30, "%s: all is passed on", name)
		_, err := m.update(t.Context(), &client.Update{Task: &task.Task{Status: task.Status{State: task.StateWorking}}})
		require.ErrorContains(t, err, "too large to compare", name)
	}
}
