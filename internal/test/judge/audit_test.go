package judge_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/judge"
)

// repeated is the log of a server that does not number events. Two of its places look the same: before and after the second "working".
func repeated() map[string]*judge.Log {
	lg := &judge.Log{}
	for i, e := range []judge.Event{
		{State: "working"},
		{Artifact: "a", Text: "1"},
		{State: "working", Text: "still"},
		{Artifact: "a", Text: "2", Append: true},
		{State: "completed"},
	} {
		e.Seq = int64(i + 1)
		lg.Events = append(lg.Events, judge.Row{Event: e, Shown: true})
	}
	return map[string]*judge.Log{"t": lg}
}

// Without numbers, a stream may begin at each place that looks like its opening.
func TestStreamsWithoutNumbers(t *testing.T) {
	t.Parallel()
	half := &judge.View{State: "working", Artifacts: map[string]string{"a": "1"}}
	still := judge.Event{State: "working", Text: "still"}
	two := judge.Event{Artifact: "a", Text: "2", Append: true}
	end := judge.Event{State: "completed", Final: true}
	for _, c := range []struct {
		name   string
		opens  *judge.View
		events []judge.Event
		says   string
	}{
		{"before the repeated status", half, []judge.Event{still, two, end}, ""},
		{"after the repeated status", half, []judge.Event{two, end}, ""},
		{"without an opening", nil, []judge.Event{two, end}, ""},
		{"at the end", &judge.View{State: "completed", Artifacts: map[string]string{"a": "12"}}, nil, ""},
		{"an event is missing", half, []judge.Event{still, end}, "the log continues with"},
		{"an event is doubled", half, []judge.Event{still, still, two, end}, "the log continues with"},
		{"two events are swapped", half, []judge.Event{two, still, end}, "the log continues with"},
		{"no such place", &judge.View{State: "working", Artifacts: map[string]string{"a": "2"}}, []judge.Event{end}, "no position of the log"},
		{"no end", half, []judge.Event{two}, "had no end"},
		{"something after the end", half, []judge.Event{two, end, end}, "but the log ends with"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := judge.New()
			r := l.Follow("t")
			r.Opened(c.opens)
			for _, e := range c.events {
				r.Read(e)
			}
			found := judge.Audit(repeated(), l, true)
			if c.says == "" {
				require.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			require.ErrorContains(t, found[0], c.says)
			require.Equal(t, "t", found[0].Task)
		})
	}
}

// An answer is not older than one before it, also where events have no numbers.
func TestAnswersDoNotGoBack(t *testing.T) {
	t.Parallel()
	l := judge.New()
	views := []judge.View{
		{State: "working", Artifacts: map[string]string{}},
		{State: "working", Artifacts: map[string]string{"a": "1"}},
		{State: "completed", Artifacts: map[string]string{"a": "12"}},
	}
	for _, v := range views {
		l.Follow("t").Saw(v)
	}
	forward := l.Follow("t")
	for _, v := range views {
		forward.Saw(v)
	}
	require.Empty(t, judge.Audit(repeated(), l, true))
	back := l.Follow("t")
	slices.Reverse(views)
	for _, v := range views {
		back.Saw(v)
	}
	require.Len(t, judge.Audit(repeated(), l, true), 1)
}

// The last number of the log is its end: an older state with it is wrong.
func TestAnswersAtTheEnd(t *testing.T) {
	t.Parallel()
	logs := repeated()
	l := judge.New()
	l.Follow("t").Saw(judge.View{Seq: logs["t"].Last(), State: "completed", Artifacts: map[string]string{"a": "12"}})
	require.Empty(t, judge.Audit(logs, l, true))
	l.Follow("t").Saw(judge.View{Seq: logs["t"].Last(), State: "working", Artifacts: map[string]string{"a": "1"}})
	require.Len(t, judge.Audit(logs, l, true), 1)
}
