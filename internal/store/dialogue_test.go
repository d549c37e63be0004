package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

// lines describes a dialogue, an entry per line.
func lines(said []task.Said) (out []string) {
	for i := range said {
		s := &said[i]
		var text []string
		for _, p := range s.Parts() {
			text = append(text, p.Text)
		}
		who := "user"
		switch {
		case s.Artifact != nil:
			who = "artifact " + s.Artifact.ID
		case s.Role() == task.RoleAgent:
			who = s.State.String()
		}
		out = append(out, who+": "+strings.Join(text, "|"))
	}
	return out
}

func (f *fixture) dialogue(of DialogueOf) []string {
	f.t.Helper()
	if of.Count == 0 {
		of.Count = 100
	}
	if of.Bytes == 0 {
		of.Bytes = 1 << 20
	}
	said := storetest.Must(f.Dialogue(f.t.Context(), of))(f.t)
	return lines(said)
}

func says(s task.State, text string) *task.Event {
	e := status(s)
	e.Message = &task.Message{ID: "a-" + text, Role: task.RoleAgent, Parts: []task.Part{task.Text(text)}}
	return e
}

func (f *fixture) answer(h *task.Task, text string) *pen {
	f.t.Helper()
	f.ok(f.AddMessage(f.t.Context(), &NewMessage{Task: h, Message: user(text), Enqueue: true, RequestID: NewID()}))
	return f.next(h.Agent)
}

func (f *fixture) next(agent string) *pen {
	f.t.Helper()
	return &pen{s: f.Store, c: f.claim(f.worker(time.Hour), agent, 1)[0]}
}

func TestDialogueOfTask(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	h := p.c.Task
	first := p.c.Message.FirstText()
	require.Empty(t, f.dialogue(DialogueOf{Task: h, Said: p.c.Said(), Begins: p.c.Begins()}))
	p.must(t, status(task.StateWorking), says(task.StateWorking, "looking"),
		piece("poem", "Roses ", false, false), says(task.StateWorking, "still looking"), piece("poem", "are red", true, true),
		piece("plan", "old plan", false, true), says(task.StateInputRequired, "Where to?"))
	p = f.answer(h, "Oslo")
	said := []string{"user: " + first, "artifact poem: Roses are red", "artifact plan: old plan", "input-required: Where to?"}
	require.Equal(t, said, f.dialogue(DialogueOf{Task: h, Said: p.c.Said(), Begins: p.c.Begins()}))

	// The output of earlier tries for this message is left out, and the place of an artifact is where its content begins.
	p.must(t, status(task.StateWorking), piece("plan", "new plan", false, true))
	require.Equal(t, said, f.dialogue(DialogueOf{Task: h, Said: p.c.Said(), Begins: p.c.Begins()}))
	p.must(t, says(task.StateInputRequired, "When?"))
	p = f.answer(h, "Monday")
	require.Equal(t, []string{
		"user: " + first, "artifact poem: Roses are red", "input-required: Where to?", "user: Oslo", "artifact plan: new plan", "input-required: When?",
	}, f.dialogue(DialogueOf{Task: h, Said: p.c.Said(), Begins: p.c.Begins()}))
	require.Equal(t, []string{
		"user: " + first, "working: looking", "artifact poem: Roses are red", "working: still looking",
	}, f.dialogue(DialogueOf{Task: h, Said: p.c.Said(), Begins: p.c.Begins(), Bounds: task.Bounds{Progress: true}})[:4])
}

func TestDialogueKeepsTheNewest(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	h := p.c.Task
	var all []string
	for i := range 30 {
		p.must(t, status(task.StateWorking), piece(fmt.Sprint("a", i), strings.Repeat("x", 1000), false, false), piece(fmt.Sprint("a", i), fmt.Sprint(i), true, true), status(task.StateInputRequired))
		p = f.answer(h, fmt.Sprint("m", i))
		all = append(all, fmt.Sprintf("artifact a%d: %s%d", i, strings.Repeat("x", 1000), i), fmt.Sprint("user: m", i))
	}
	all = all[:len(all)-1]
	require.Equal(t, all, f.dialogue(DialogueOf{Task: h, Said: p.c.Said(), Begins: p.c.Begins()})[1:])
	for _, n := range []int{1, 2, 7} {
		require.Equal(t, all[len(all)-n:], f.dialogue(DialogueOf{Task: h, Said: p.c.Said(), Begins: p.c.Begins(), Bounds: task.Bounds{Count: n}}))
	}
	// A thousand characters that are all the same are a few bytes on disk; their own size counts.
	got := f.dialogue(DialogueOf{Task: h, Said: p.c.Said(), Begins: p.c.Begins(), Bounds: task.Bounds{Bytes: 10_000}})
	require.Equal(t, all[len(all)-len(got):], got)
	require.Len(t, got, 10)
	said, err := f.Dialogue(t.Context(), DialogueOf{Task: h, Said: p.c.Said(), Begins: p.c.Begins(), Bounds: task.Bounds{Count: 4, Bytes: 2200}})
	require.NoError(t, err)
	require.Equal(t, []string{"user: m27", "artifact a28: ", "user: m28", "artifact a29: "}, lines(said), "an artifact that takes more than half has no content")
	require.Greater(t, said[1].Left, int64(1000))
}

// Artifacts of any size and number of chunks cost bounded memory.
func TestDialogueOfLargeArtifacts(t *testing.T) {
	f := parallel(t)
	p := f.running("a")
	h := p.c.Task
	p.must(t, status(task.StateWorking), piece("big", strings.Repeat("0123456789abcdef", 1<<18), false, true), piece("zeros", strings.Repeat("0", 12<<20), false, true), piece("drops", "", false, false))
	for range 30 {
		var evs []*task.Event
		for range 100 {
			evs = append(evs, piece("drops", "x", true, false))
		}
		p.must(t, evs...)
	}
	p.must(t, piece("small", "s", false, true), status(task.StateInputRequired))
	p = f.answer(h, "more")
	got := f.dialogue(DialogueOf{Task: h, Said: p.c.Said(), Begins: p.c.Begins()})
	require.Equal(t, []string{"artifact big: ", "artifact zeros: ", "artifact drops: " + strings.Repeat("x", 3000), "artifact small: s"}, got[1:])
}

func TestDialogueOfContext(t *testing.T) {
	f := parallel(t)
	one := func(text string, change func(*NewTask), evs ...*task.Event) *pen {
		n := fresh("a")
		n.Message.Parts = []task.Part{task.Text(text)}
		if change != nil {
			change(n)
		}
		f.create(n)
		p := f.next(n.Task.Agent)
		p.must(t, append([]*task.Event{status(task.StateWorking)}, evs...)...)
		return p
	}
	for name, change := range map[string]func(*NewTask){
		"owner":   func(n *NewTask) { n.Task.Owner = "other" },
		"tenant":  func(n *NewTask) { n.Task.Tenant = "other" },
		"agent":   func(n *NewTask) { n.Task.Agent = "b" },
		"context": func(n *NewTask) { n.Task.ContextID = "other" },
	} {
		one("secret of another "+name, change, says(task.StateCompleted, "secret"))
	}
	one("first", nil, piece("x", "one", false, true), status(task.StateCompleted))
	mine := one("mine", nil, says(task.StateInputRequired, "sure?"))
	one("second", nil, says(task.StateFailed, "no"))
	one("running", nil)
	p := f.answer(mine.c.Task, "yes")
	want := []string{"user: first", "artifact x: one", "user: second", "failed: no", "user: mine", "input-required: sure?"}
	of := DialogueOf{Task: p.c.Task, Said: p.c.Said(), Begins: p.c.Begins(), Context: true}
	require.Equal(t, want, f.dialogue(of))
	of.Count = 3
	require.Equal(t, want[3:], f.dialogue(of))
	of.Count, of.Context = 0, false
	require.Equal(t, want[4:], f.dialogue(of))
}

func TestDialogueOfManyTasks(t *testing.T) {
	f := parallel(t)
	var want []string
	for i := range 120 {
		n := fresh("a")
		n.Message.Parts = []task.Part{task.Text(fmt.Sprint(i))}
		h := f.create(n)
		f.ok(f.Cancel(t.Context(), h, nil))
		want = append(want, fmt.Sprint("user: ", i))
	}
	p := f.running("a")
	require.Equal(t, want[20:], f.dialogue(DialogueOf{Task: p.c.Task, Said: p.c.Said(), Begins: p.c.Begins(), Context: true}))
	require.Equal(t, want, f.dialogue(DialogueOf{Task: p.c.Task, Said: p.c.Said(), Begins: p.c.Begins(), Context: true, Bounds: task.Bounds{Count: 1000}}))
}

// A reference leads only to tasks of the same owner and agent.
func TestReferences(t *testing.T) {
	f := parallel(t)
	other := func(change func(*NewTask)) string {
		n := fresh("a")
		change(n)
		f.create(n)
		p := f.next(n.Task.Agent)
		p.must(t, status(task.StateWorking), piece("x", "content", false, true), says(task.StateCompleted, "done"))
		return n.Task.PublicID
	}
	mine := other(func(n *NewTask) { n.Task.ContextID = "another" })
	ids := []string{
		"nobody's", other(func(n *NewTask) { n.Task.Owner = "other" }), mine, other(func(n *NewTask) { n.Task.Tenant = "other" }),
		other(func(n *NewTask) { n.Task.Agent = "b" }), "",
	}
	h := f.create(fresh("a"))
	refs := storetest.Must(f.References(t.Context(), h, ids, task.Bounds{Count: 2, Bytes: 1 << 20}))(t)
	require.Len(t, refs, 1)
	require.Equal(t, mine, refs[0].TaskID)
	require.Equal(t, "another", refs[0].ContextID)
	require.Equal(t, task.StateCompleted, refs[0].State)
	require.Equal(t, []string{"artifact x: content", "completed: done"}, lines(refs[0].Said))
	many := make([]string, 1000)
	for i := range many {
		many[i] = mine
	}
	require.Len(t, storetest.Must(f.References(t.Context(), h, many, task.Bounds{Count: 1, Bytes: 1 << 20}))(t), MostReferences)
}

func TestReferencesHaveTheStoredState(t *testing.T) {
	f := parallel(t)
	var ids []string
	for _, owner := range []string{"", "other"} {
		n := fresh("a")
		if owner != "" {
			n.Task.Owner = owner
		}
		f.create(n)
		p := f.next("a")
		f.ok(p.setState(t.Context(), false, `{"n":1}`, 0))
		p.must(t, says(task.StateCompleted, "done"))
		ids = append(ids, n.Task.PublicID)
	}
	h := f.create(fresh("a"))
	refs := storetest.Must(f.References(t.Context(), h, ids, task.Bounds{}))(t)
	require.Len(t, refs, 1)
	require.Equal(t, ids[0], refs[0].TaskID)
	require.JSONEq(t, `{"n":1}`, string(refs[0].Stored))
	require.Empty(t, refs[0].Said)
}
