package task_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// diagram reads the table from the package comment.
func diagram(t *testing.T) map[task.State][]task.State {
	t.Helper()
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	out := map[task.State][]task.State{}
	for line := range strings.Lines(string(doc)) {
		from, to, ok := strings.Cut(line, "->")
		if !ok {
			continue
		}
		s, known := task.ParseState(strings.TrimSpace(strings.TrimPrefix(from, "//")))
		require.True(t, known, "state in %q", line)
		require.NotContains(t, out, s, "twice")
		out[s] = nil
		for _, name := range strings.Fields(to) {
			n, known := task.ParseState(name)
			require.True(t, known, "state in %q", line)
			out[s] = append(out[s], n)
		}
	}
	return out
}

func TestStateTableMatchesDiagram(t *testing.T) {
	t.Parallel()
	table := map[task.State][]task.State{}
	for _, from := range task.States {
		table[from] = nil
		for _, to := range task.States {
			if from.CanBecome(to) {
				table[from] = append(table[from], to)
			}
		}
	}
	require.Empty(t, cmp.Diff(diagram(t), table, cmpopts.SortSlices(func(a, b task.State) bool { return a < b }), cmpopts.EquateEmpty()))
}

func TestStates(t *testing.T) {
	t.Parallel()
	for _, s := range task.States {
		parsed, ok := task.ParseState(s.String())
		require.True(t, ok)
		require.Equal(t, s, parsed)
		require.Equal(t, s.Terminal() || s.Parked(), s.Settled())
		require.False(t, s.CanBecome(task.StateUnspecified))
		if s.Terminal() {
			for _, to := range task.States {
				require.False(t, s.CanBecome(to), "%s is terminal", s)
			}
		}
	}
	s, ok := task.ParseState("cancelled")
	require.True(t, ok)
	require.Equal(t, task.StateCanceled, s)
	for _, name := range []string{"", "unspecified", "Working"} {
		_, ok := task.ParseState(name)
		require.False(t, ok, name)
	}
	require.Equal(t, "unspecified", task.State(200).String())
}

func TestEveryErrorKindHasText(t *testing.T) {
	t.Parallel()
	seen := map[string]task.Kind{}
	for i := range task.KindCount {
		k := task.Kind(i)
		words := k.Error()
		require.NotEmpty(t, words, "kind %d", i)
		other, twice := seen[words]
		require.False(t, twice, "kinds %d and %d say the same", other, i)
		seen[words] = k
		require.Equal(t, k, task.KindOf(fmt.Errorf("doing: %w", task.Errorf(k, "x"))))
		require.Equal(t, k, task.KindOf(fmt.Errorf("doing: %w", k)))
	}
	require.Equal(t, task.Internal.Error(), task.Kind(250).Error())
	cause := fmt.Errorf("cause")
	err := error(&task.Error{Kind: task.NotFound, Cause: cause})
	require.ErrorIs(t, err, task.NotFound)
	require.ErrorIs(t, err, cause)
	require.Equal(t, task.Internal, task.KindOf(cause))
}

func TestID(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var id task.ID
		copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		for _, text := range []string{id.String(), strings.ToUpper(id.String())} {
			got, err := task.ParseID(text)
			require.NoError(t, err)
			require.Equal(t, id, got)
		}
	})
	require.Equal(t, "00010203-0405-0607-0809-0a0b0c0d0e0f", task.ID{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}.String())
	require.True(t, task.ID{}.IsZero())
	for _, s := range []string{
		"", "x", "000102030405060708090a0b0c0d0e0f", "00010203-0405-0607-0809-0a0b0c0d0e0",
		"{00010203-0405-0607-0809-0a0b0c0d0e0f}", "00010203-0405-0607-0809-0a0b0c0d0e0g", "00010203x0405-0607-0809-0a0b0c0d0e0f",
	} {
		_, err := task.ParseID(s)
		require.Error(t, err, s)
	}
}

func said(id string) *task.Message {
	return &task.Message{ID: id, Parts: []task.Part{task.Text(id)}}
}

func status(seq task.Seq, s task.State, say string) task.Event {
	e := task.Event{Seq: seq, Kind: task.EventStatus, State: s}
	if say != "" {
		e.Message = said(say)
	}
	return e
}

func message(seq task.Seq, id string) task.Event {
	return task.Event{Seq: seq, Kind: task.EventMessage, Message: said(id)}
}

func chunk(seq task.Seq, id, text string, more bool) task.Event {
	return task.Event{Seq: seq, Kind: task.EventArtifact, Append: more, Artifact: &task.Artifact{ID: id, Parts: []task.Part{task.Text(text)}}}
}

func ids(ms []task.Message) []string {
	out := make([]string, len(ms))
	for i := range ms {
		out[i] = ms[i].ID
	}
	return out
}

func TestHistoryOrdersSupersededStatusMessages(t *testing.T) {
	t.Parallel()
	got, err := task.Fold(task.Task{}, []task.Event{
		message(1, "u1"),
		status(2, task.StateWorking, "a1"),
		message(3, "u2"), // while a1 is the current status
		status(4, task.StateWorking, ""),
		status(5, task.StateInputRequired, "a2"),
		message(6, "u3"),
		status(7, task.StateSubmitted, ""),
		status(8, task.StateWorking, "a3"),
		status(9, task.StateCompleted, "a4"),
	})
	require.NoError(t, err)
	require.Equal(t, []string{"u1", "a1", "u2", "a2", "u3", "a3"}, ids(got.History))
	require.Equal(t, "a4", got.Status.Message.ID)
	require.Equal(t, task.Seq(9), got.Status.Seq)
	require.Equal(t, []string{"u3", "a3"}, ids(got.Tail(2)))
	require.Len(t, got.Tail(99), 6)
	require.Empty(t, got.Tail(0))
}

func TestTrimHistoryKeepsTheNewestMessages(t *testing.T) {
	t.Parallel()
	m := message(1, "u1")
	one := m.Message.Size()
	got, err := task.Fold(task.Task{}, []task.Event{
		m,
		status(2, task.StateWorking, "a1"),
		message(3, "u2"),
		message(4, "u3"),
	})
	require.NoError(t, err)
	got.TrimHistory(3 * one)
	require.Equal(t, []string{"u1", "u2", "u3"}, ids(got.History), "they fit")
	got.TrimHistory(3*one - 1)
	require.Equal(t, []string{"u2", "u3"}, ids(got.History))
	late := status(5, task.StateWorking, "a2")
	require.NoError(t, got.Apply(&late))
	require.Equal(t, []string{"a1", "u2", "u3"}, ids(got.History), "at its place")

	got.TrimHistory(one)
	require.Equal(t, []string{"u3"}, ids(got.History))
	next := message(6, "u4")
	require.NoError(t, got.Apply(&next))
	got.TrimHistory(0)
	require.Empty(t, got.History)
	last := status(7, task.StateCompleted, "a3")
	require.NoError(t, got.Apply(&last))
	require.Empty(t, got.History, "a2 is older than u4, which was dropped")
	require.Equal(t, "a3", got.Status.Message.ID)
	after := message(8, "u5")
	require.NoError(t, got.Apply(&after))
	require.Equal(t, []string{"u5"}, ids(got.History))
}

func TestArtifacts(t *testing.T) {
	t.Parallel()
	named := chunk(6, "b", "3", true)
	named.Artifact.Name, named.Artifact.Description = "name", "what"
	named.Artifact.Metadata, named.Artifact.Extensions = []byte(`{"k":1}`), []string{"x"}
	replaced := chunk(8, "a", "new", false)
	replaced.Artifact.Index = 7
	got, err := task.Fold(task.Task{}, []task.Event{
		message(1, "u1"),
		chunk(2, "a", "1", false),
		chunk(3, "a", "2", true),
		chunk(4, "b", "1", true), // continues an artifact that does not exist: it starts one
		chunk(5, "b", "2", true),
		named,
		{Seq: 7, Kind: task.EventRun, Run: &task.RunNote{}},
		replaced,
	})
	require.NoError(t, err)
	text := func(a task.Artifact) (s string) {
		for _, p := range a.Parts {
			s += p.Text
		}
		return s
	}
	require.Len(t, got.Artifacts, 2)
	require.Equal(t, "new", text(got.Artifacts[0]))
	require.Equal(t, 0, got.Artifacts[0].Index, "a replaced artifact keeps its place")
	require.Equal(t, "123", text(got.Artifacts[1]))
	require.Equal(t, "name", got.Artifacts[1].Name)
	require.Equal(t, "what", got.Artifacts[1].Description)
	require.JSONEq(t, `{"k":1}`, string(got.Artifacts[1].Metadata))
	require.Equal(t, []string{"x"}, got.Artifacts[1].Extensions)
	require.Equal(t, task.Seq(8), got.LastSeq)
}

func TestDecodeBase64(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "aGVsbG8h": "hello!", "aGVsbG8=": "hello", "aGVsbG8": "hello", "aGVs\nbG8=\r\n": "hello", "aGVsbG8=\n": "hello", "aGVsbA=\n=\n": "hell",
		"aGVsbG8h\n": "hello!", "_-8=": "\xff\xef", "/+8=": "\xff\xef", "_-8": "\xff\xef",
	} {
		got, ok := task.DecodeBase64([]byte(text))
		require.True(t, ok, "%q", text)
		require.Equal(t, want, string(got), "%q", text)
	}
	for _, text := range []string{"a", "aGVsbG8===", "aGVs bG8=", "aGVsbG8=x", "_+8=", "ü"} {
		_, ok := task.DecodeBase64([]byte(text))
		require.False(t, ok, "%q", text)
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]string{
		{`{"b":1.0,"a":{"x":1}}`, `{"a":{"y":12345678901234567890},"c":null}`, `{"b":1.0,"a":{"y":12345678901234567890},"c":null}`},
		{`{"a\"\u00e9":1}`, `{ "a\"é" : [ 2 ] , "<":3}`, `{"a\"\u00e9":[ 2 ],"<":3}`},
		{`{}`, `{"a":1}`, `{"a":1}`},
		{`{"a":1}`, `{}`, `{"a":1}`},
		{``, `{"a": 1}`, `{"a": 1}`},
		{`{"a": 1}`, ``, `{"a": 1}`},
		{`null`, `{"a":1}`, `{"a":1}`},
		{`{"a":1}`, `null`, `{"a":1}`},
		{`{"a":1}`, `{"a":`, `{"a":1}`},
	} {
		require.Equal(t, c[2], string(task.Merge([]byte(c[0]), []byte(c[1]))), c)
	}
}

func TestFoldRefusesGapsAndIgnoresOverlap(t *testing.T) {
	t.Parallel()
	var x task.Task
	m, late := message(1, "u1"), status(3, task.StateWorking, "")
	require.NoError(t, x.Apply(&m))
	require.ErrorIs(t, x.Apply(&late), task.Internal)
	require.Equal(t, task.Seq(1), x.LastSeq)
	before := x
	require.NoError(t, x.Apply(&m))
	require.Empty(t, cmp.Diff(before, x, cmp.AllowUnexported(task.Task{}), cmpopts.IgnoreFields(task.Task{}, "growing")))
}

// log draws a valid log.
func log(t *rapid.T) []task.Event {
	n := rapid.IntRange(0, 40).Draw(t, "events")
	evs := []task.Event{message(1, "m1")}
	for i := range n {
		seq := task.Seq(i + 2)
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			evs = append(evs, message(seq, fmt.Sprint("m", seq)))
		case 1:
			evs = append(evs, status(seq, task.StateWorking, rapid.SampledFrom([]string{"", fmt.Sprint("s", seq)}).Draw(t, "say")))
		case 2:
			evs = append(evs, task.Event{Seq: seq, Kind: task.EventRun})
		default:
			evs = append(evs, chunk(seq, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "artifact"), fmt.Sprint(seq), rapid.Bool().Draw(t, "append")))
		}
	}
	return evs
}

func deepCopy(evs []task.Event) []task.Event {
	out := make([]task.Event, len(evs))
	for i, e := range evs {
		if e.Message != nil {
			m := *e.Message
			m.Parts = append([]task.Part(nil), m.Parts...)
			e.Message = &m
		}
		if e.Artifact != nil {
			a := *e.Artifact
			// Spare capacity behind the parts, as a decoder leaves it: a fold must not write there either.
			a.Parts = append(make([]task.Part, 0, 8), a.Parts...)
			e.Artifact = &a
		}
		out[i] = e
	}
	return out
}

// An agent that streams a text appends a chunk for each token. Readers of the task get the text in one part.
func TestAppendedTextJoins(t *testing.T) {
	t.Parallel()
	text := task.Text
	data := task.Part{Kind: task.PartData, Data: json.RawMessage(`1`)}
	markdown := func(s string) task.Part { return task.Part{Kind: task.PartText, Text: s, MediaType: "text/markdown"} }
	noted := task.Part{Kind: task.PartText, Text: "n", Metadata: json.RawMessage(`{"k":1}`)}
	named := task.Part{Kind: task.PartText, Text: "f", Filename: "f.txt"}
	type parts = []task.Part
	for name, c := range map[string]struct {
		chunks []parts
		want   parts
	}{
		"one text in many chunks":                    {[]parts{{text("a")}, {text("b")}, {text("")}, {text("c")}}, parts{text("abc")}},
		"parts of the first chunk stay apart":        {[]parts{{text("a"), text("b")}, {text("c")}}, parts{text("a"), text("bc")}},
		"parts of an appended chunk stay apart":      {[]parts{{text("a")}, {text("b"), text("c")}, {text("d")}}, parts{text("a"), text("b"), text("cd")}},
		"other content between texts":                {[]parts{{text("a")}, {data}, {text("b")}, {text("c")}}, parts{text("a"), data, text("bc")}},
		"one media type":                             {[]parts{{markdown("a")}, {markdown("b")}}, parts{markdown("ab")}},
		"another media type":                         {[]parts{{text("a")}, {markdown("b")}, {text("c")}}, parts{text("a"), markdown("b"), text("c")}},
		"metadata and file names belong to one part": {[]parts{{noted}, {noted}, {named}, {named}, {text("a")}}, parts{noted, noted, named, named, text("a")}},
		"data":              {[]parts{{data}, {data}}, parts{data, data}},
		"an empty artifact": {[]parts{{}, {text("a")}, {text("b")}}, parts{text("ab")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			evs := []task.Event{message(1, "u1")}
			for i, p := range c.chunks {
				evs = append(evs, task.Event{
					Seq: task.Seq(i + 2), Kind: task.EventArtifact, Append: i > 0, Artifact: &task.Artifact{ID: "a", Parts: p},
				})
			}
			got, err := task.Fold(task.Task{}, evs)
			require.NoError(t, err)
			require.Equal(t, c.want, got.Artifacts[0].Parts)
		})
	}
}

// Replacing an artifact ends its text; texts of artifacts that grow in turns do not mix.
func TestAppendedTextJoinsWithinItsArtifact(t *testing.T) {
	t.Parallel()
	got, err := task.Fold(task.Task{}, []task.Event{
		message(1, "u1"), chunk(2, "a", "1", false), chunk(3, "b", "x", false), chunk(4, "a", "2", true), chunk(5, "b", "y", true),
		chunk(6, "a", "new ", false), chunk(7, "b", "z", true), chunk(8, "a", "text", true),
	})
	require.NoError(t, err)
	require.Equal(t, []task.Part{task.Text("new text")}, got.Artifacts[0].Parts)
	require.Equal(t, []task.Part{task.Text("xyz")}, got.Artifacts[1].Parts)
}

// The work grows with the text, and not with its square: that would be 20 GB to copy.
func TestAppendedTextOfManyChunks(t *testing.T) {
	t.Parallel()
	const chunks = 20_000
	piece := strings.Repeat("x", 100)
	evs := []task.Event{message(1, "u1")}
	for i := range chunks {
		evs = append(evs, chunk(task.Seq(i+2), "a", piece, i > 0))
	}
	got, err := task.Fold(task.Task{}, evs)
	require.NoError(t, err)
	require.Len(t, got.Artifacts[0].Parts, 1)
	require.Len(t, got.Artifacts[0].Parts[0].Text, chunks*len(piece))
}

// Several readers may fold the same events in pieces, with overlaps: all get the same task, and the events stay unchanged.
func TestFoldInPiecesEqualsFold(t *testing.T) {
	t.Parallel()
	same := cmp.Options{cmp.AllowUnexported(task.Task{}), cmpopts.IgnoreFields(task.Task{}, "growing"), cmpopts.EquateEmpty()}
	rapid.Check(t, func(t *rapid.T) {
		evs := log(t)
		shared := deepCopy(evs)
		want, err := task.Fold(task.Task{}, evs)
		require.NoError(t, err)
		cut := rapid.IntRange(0, len(shared)).Draw(t, "cut")
		back := rapid.IntRange(0, cut).Draw(t, "overlap")
		half, err := task.Fold(task.Task{}, shared[:cut])
		require.NoError(t, err)
		snapshot, err := task.Fold(*half, nil)
		require.NoError(t, err)
		one, err := task.Fold(*half, shared[cut-back:])
		require.NoError(t, err)
		two, err := task.Fold(*half, shared[cut:])
		require.NoError(t, err)
		for _, got := range []*task.Task{one, two} {
			require.Empty(t, cmp.Diff(want, got, same))
		}
		require.Empty(t, cmp.Diff(snapshot, half, same), "a fold changed its first header")
		require.Empty(t, cmp.Diff(evs, shared), "a fold changed an event")
		for _, a := range shared {
			if a.Artifact != nil && cap(a.Artifact.Parts) > len(a.Artifact.Parts) {
				hidden := a.Artifact.Parts[:len(a.Artifact.Parts)+1]
				require.Zero(t, hidden[len(hidden)-1].Kind, "a fold wrote behind the parts of an event")
			}
		}
	})
}

func TestShown(t *testing.T) {
	t.Parallel()
	for _, short := range []string{"", "x", strings.Repeat("x", 1024), strings.Repeat("é", 512)} {
		require.Equal(t, short, task.Shown(short))
	}
	long := "message." + strings.Repeat("é", 1<<20) + ": must be a string"
	shown := task.Shown(long)
	require.LessOrEqual(t, len(shown), 1024)
	require.Greater(t, len(shown), 1000)
	require.True(t, utf8.ValidString(shown))
	require.True(t, strings.HasPrefix(shown, "message.é"))
	require.True(t, strings.HasSuffix(shown, "é: must be a string"), "the end says why")
	require.Equal(t, 1, strings.Count(shown, "…"))
}

func TestPositionsAreIds(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 23, 3, 0, 0, 123456000, time.UTC)
	e := task.Event{Seq: 17, At: at}
	require.NotEqual(t, task.MarkAt(at), task.MarkAt(at.Add(time.Microsecond)))
	require.Equal(t, task.MarkAt(at), task.MarkAt(at.In(time.FixedZone("", 3600))))
	for _, p := range []task.Position{{}, {Seq: 17}, e.Position()} {
		read, err := task.ParsePosition(string(p.Append(nil)))
		require.NoError(t, err)
		require.Equal(t, p, read)
	}
	for _, id := range []string{"", "-", "17-", "-1", "+1", "17-123456789", "17-x", "17-1-1", " 17"} {
		_, err := task.ParsePosition(id)
		require.Error(t, err, id)
	}
}

func TestUnknownMarksFit(t *testing.T) {
	t.Parallel()
	require.True(t, task.Mark(0).Fits(7))
	require.True(t, task.Mark(7).Fits(0))
	require.True(t, task.Mark(7).Fits(7))
	require.False(t, task.Mark(7).Fits(9))
}

func TestRecordsAsOperatorsReadThem(t *testing.T) {
	t.Parallel()
	for record, want := range map[string]string{
		`{"kind":"step","name":"pay","nth":1,"data":{"t":-3.0}}`:                                `step pay: {"t":-3.0}`,
		`{"kind":"step","name":"pay","nth":2,"data":null}`:                                      `step pay 2: null`,
		`{"kind":"step","name":"pay","nth":1,"error":{"type":"Declined","message":"no money"}}`: `step pay raised no money`,
		`{"kind":"wait","name":"wait","nth":2,"data":{}}`:                                       `wait 2: {}`,
		`{"kind":"step","name":"pay","nth":1,"error":{}}`:                                       `step pay raised an error`,
	} {
		note := &task.RunNote{Outcome: task.RunRecord, Checkpoint: json.RawMessage(record)}
		require.Equal(t, want, note.Recorded().String())
	}
	require.Nil(t, (&task.RunNote{Outcome: task.RunCheckpoint, Checkpoint: json.RawMessage(`{"kind":"step"}`)}).Recorded())
}
