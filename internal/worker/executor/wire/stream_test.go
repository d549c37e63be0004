package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/executortest"
)

func play(t *testing.T, run *executor.Run, out executor.Emitter, lines ...string) (*Player, error) {
	t.Helper()
	p := NewPlayer(run, out)
	stream := web.Lines(strings.NewReader(strings.Join(lines, "\n")), DefaultMaxEvent)
	return p, p.PlayStream(t.Context(), stream, func() error { return nil })
}

func TestTextsOfOneNameFormOneArtifact(t *testing.T) {
	t.Parallel()
	run, out := executortest.NewRun(""), executortest.NewRecorder()
	run.Turn = 3
	_, err := play(t, run, out,
		`{"type":"text","text":"one "}`,
		`{"type":"text","text":"two","last":true}`,
		`{"type":"text","name":"poem","text":"three"}`,
		`{"type":"text","artifactId":"mine","append":true,"text":"four"}`,
	)
	require.NoError(t, err)
	var got []string
	for _, e := range out.Events() {
		got = append(got, fmt.Sprint(e.Artifact.ID, e.Append, e.Last, e.Artifact.Parts[0].Text))
	}
	require.Empty(t, cmp.Diff([]string{
		fmt.Sprint("text-3", false, false, "one "),
		fmt.Sprint("text-3", true, true, "two"),
		fmt.Sprint("poem-3", false, false, "three"),
		fmt.Sprint("mine", true, false, "four"),
	}, got))
}

func TestSettlingEventEndsPlay(t *testing.T) {
	t.Parallel()
	out := executortest.NewRecorder()
	p, err := play(t, executortest.NewRun(""), out,
		`{"type":"status","message":"thinking"}`, `{"type":"ask","message":"Which?"}`, `not even JSON`)
	require.NoError(t, err)
	require.True(t, p.Settled())
	require.Len(t, out.Events(), 2)
	require.Equal(t, task.StateInputRequired, out.Events()[1].State)
}

func TestRetryReturnsARetryableError(t *testing.T) {
	t.Parallel()
	p, err := play(t, executortest.NewRun(""), executortest.NewRecorder(),
		`{"type":"checkpoint","data":{"at":7}}`, `{"type":"retry","reason":"busy","after":2}`)
	require.EqualError(t, err, "the agent asked for another attempt: busy")
	after, ok := executor.IsRetryable(err)
	require.True(t, ok)
	require.Equal(t, 2*time.Second, after)
	require.False(t, p.Settled())
}

func TestReplyMustBeOnlyEvent(t *testing.T) {
	t.Parallel()
	out := executortest.NewRecorder()
	_, err := play(t, executortest.NewRun(""), out, `{"type":"reply","message":"hi"}`)
	require.NoError(t, err)
	require.True(t, out.Events()[0].Direct)

	_, err = play(t, executortest.NewRun(""), executortest.NewRecorder(),
		`{"type":"text","text":"a"}`, `{"type":"reply","message":"hi"}`)
	require.EqualError(t, err, "the agent's answer is not understood: line 2: a reply must be the only event")
}

func TestMalformedEventErrorNamesLineAndMember(t *testing.T) {
	t.Parallel()
	_, err := play(t, executortest.NewRun(""), executortest.NewRecorder(),
		`{"type":"text","text":"a"}`, ``, `{"type":"artifact","artifact":{"parts":[{"txt":"a"}]}}`)
	failure, ok := errors.AsType[*executor.Failure](err)
	require.True(t, ok)
	require.Equal(t,
		"the agent's answer is not understood: line 3: artifact.parts[0].txt: is not a known member", failure.Msg)
}

func TestEmitterErrorsAreUnchanged(t *testing.T) {
	t.Parallel()
	out := executortest.NewRecorder()
	out.Refuse(executor.ErrLeaseLost)
	_, err := play(t, executortest.NewRun(""), out, `{"type":"text","text":"a"}`)
	require.ErrorIs(t, err, executor.ErrLeaseLost)
}

// ledger is a Buffer that notes what it gave.
type ledger struct {
	now, most int
	drops     int
	refuse    error
}

func (l *ledger) Grow(_ context.Context, n int) error {
	l.now = max(l.now, n)
	l.most = max(l.most, n)
	return l.refuse
}

func (l *ledger) Release() { l.now, l.drops = 0, l.drops+1 }

// Streams wait for the memory of large events before they keep them, and return it with the next event.
func TestLargeEventsTakeMemory(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	large := `{"type":"text","text":"` + strings.Repeat("x", size) + `"}`
	small := `{"type":"text","text":"x"}`
	for name, c := range map[string]struct {
		stream func(io.Reader, int) *web.Stream
		in     string
		most   int
	}{
		"lines":                      {web.Lines, large + "\n" + small + "\n", size},
		"a last line without an end": {web.Lines, small + "\n" + large, size},
		"server-sent events":         {web.ServerSentEvents, "data: " + large + "\n\ndata: " + small + "\n\n", 2 * size},
		"an event of several lines":  {web.ServerSentEvents, "data: " + large[:size/2] + "\ndata: " + large[size/2:] + "\n\n", size},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run, out, l := executortest.NewRun("x"), executortest.NewRecorder(), &ledger{}
			run.Buffer = l
			err := NewPlayer(run, out).PlayStream(t.Context(), c.stream(strings.NewReader(c.in), 2*size), func() error { return nil })
			if name == "an event of several lines" {
				require.Error(t, err, "a line end within a string")
			} else {
				require.NoError(t, err)
			}
			require.GreaterOrEqual(t, l.most, c.most)
			require.Zero(t, l.now)
		})
	}
}

func TestAStreamEndsIfItGetsNoMemory(t *testing.T) {
	t.Parallel()
	gone := errors.New("the run has ended")
	in := strings.Repeat("x", 1<<20) + "\n"
	for _, stream := range []func(io.Reader, int) *web.Stream{web.Lines, web.ServerSentEvents} {
		run, l := executortest.NewRun("x"), &ledger{refuse: gone}
		run.Buffer = l
		player := NewPlayer(run, executortest.NewRecorder())
		require.ErrorIs(t, player.PlayStream(t.Context(), stream(strings.NewReader("data: "+in), 2<<20), nil), gone)
		_, err := player.ReadAnswer(t.Context(), strings.NewReader(in), 2<<20)
		require.ErrorIs(t, err, gone)
	}
}

func TestReadAnswerIsBounded(t *testing.T) {
	t.Parallel()
	run, l := executortest.NewRun("x"), &ledger{}
	run.Buffer = l
	player := NewPlayer(run, executortest.NewRecorder())
	in := strings.Repeat("x", 200_000)
	for limit, want := range map[int]int{300_000: 200_000, 200_000: 200_000, 100_000: 100_001} {
		raw, err := player.ReadAnswer(t.Context(), iotest.HalfReader(strings.NewReader(in)), limit)
		require.NoError(t, err)
		require.Len(t, raw, want)
		require.GreaterOrEqual(t, l.most, want)
	}
}

// The server reads the same event that a worker in Go has written.
func TestWrittenEventsAreReadTheSame(t *testing.T) {
	t.Parallel()
	lines := `{"type":"status","state":"input-required","metadata":{"n":1.0}}
		{"type":"auth","resume":{"for":0.5}}
		{"type":"ask","message":"sure?","resume":{"for":60,"show":true},"metadata":{"big":12345678901234567890}}
		{"type":"artifact","artifact":{"artifactId":"a","name":"n","description":"d","parts":[{"url":"http://x/","mediaType":"a/b"},{"data":null},{"text":""}],"metadata":{"k": [1,  2]},"extensions":["e"]},"append":true,"last":true,"metadata":{"m":1}}
		{"type":"reply","message":{"messageId":"m","parts":[{"text":"é\n"}],"metadata":{},"extensions":["e"],"referenceTaskIds":["t"]}}
		{"type":"call","calls":[{"task":"01945c3e-9a11-7d00-8c01-aa51b2c3d4e5","message":"x","metadata":{"k":1}},{"agent":"b","contextId":"c","message":"y","relay":true}]}
		{"type":"checkpoint","data":[1.0]}
		{"type":"wait","until":"2026-03-01T09:00:00.5+01:00"}`
	for _, page := range []string{"executors", "agents/questions", "agents/waits-and-calls"} {
		guide, err := os.ReadFile("../../../../docs/" + page + ".md")
		require.NoError(t, err)
		blocks := regexp.MustCompile("(?s)```ndjson\n(.*?)```").FindAllStringSubmatch(string(guide), -1)
		require.NotEmpty(t, blocks, page)
		for _, block := range blocks {
			lines += "\n" + block[1]
		}
	}
	n := 0
	for line := range strings.Lines(lines) {
		line = strings.TrimSpace(line)
		want, bad := Decode([]byte(line))
		if line == "" || bad == nil && (want.Action == Text || want.Action == Store) {
			continue
		}
		require.Nil(t, bad, line)
		written, err := Encode(want)
		require.NoError(t, err, line)
		require.NotContains(t, string(written), "\n")
		require.NoError(t, compile(t, "event").Validate(instance(t, string(written))), "%s", written)
		got, bad := Decode(written)
		require.Nil(t, bad, "%s", written)
		require.True(t, want.Wait.Until.Equal(got.Wait.Until))
		want.Wait.Until, got.Wait.Until = time.Time{}, time.Time{}
		require.Equal(t, want, got, "%s", written)
		n++
	}
	require.Greater(t, n, 15)
	broken, err := Encode(&Event{Action: Status, State: task.StateFailed, Message: &task.Message{Parts: []task.Part{task.Text("half\xff")}}})
	require.NoError(t, err)
	require.Contains(t, string(broken), "half\ufffd")
	_, err = Encode(&Event{Action: Checkpoint, Checkpoint: []byte(`{"a":`)})
	require.Error(t, err)
	_, err = Encode(&Event{Action: Status, State: task.StateInputRequired, Resume: &executor.Resume{}})
	require.ErrorContains(t, err, "message: is missing")
}

// A worker in Go reads what the server has written.
func TestWrittenRunsAreReadTheSame(t *testing.T) {
	t.Parallel()
	run := executortest.NewRun("hello")
	run.Turn, run.Try, run.Attempt = 2, 3, 4
	run.Metadata, run.TurnMetadata = []byte(`{"k":1.0}`), []byte(`{"t":12345678901234567890}`)
	run.AcceptedOutputModes, run.Extensions, run.Scopes = []string{"m"}, []string{"e"}, []string{"s"}
	run.ExtensionParams = map[string]json.RawMessage{"e": []byte(`{"p":1}`)}
	run.Traceparent, run.Deadline, run.ResumeURL = "parent", time.Unix(1, 0).UTC(), "https://x/resume/y"
	run.API = &executor.API{URL: "http://x/run/v1", Token: "token"}
	run.Message.References = []string{"task-0"}
	run.Input = &executor.Input{Source: executor.SourceCalls, Interrupted: true, Results: []executor.Result{{
		ID: "c", Agent: "b", TaskID: "t", State: task.StateCompleted, Omitted: 3,
		Message:   &task.Message{Role: task.RoleAgent, Parts: []task.Part{task.Text("done")}},
		Artifacts: []task.Artifact{{ID: "a", Parts: []task.Part{{Kind: task.PartRaw, Raw: []byte("x"), Filename: "f"}}}},
	}}}
	run.Memory = &executortest.Memory{
		Stored: []byte(`{"page":7}`),
		Refs: []executor.Reference{{TaskID: "task-0", ContextID: "c", State: task.StateFailed, Said: []executor.Said{
			{TaskID: "task-0", State: task.StateFailed, Message: &task.Message{ID: "m", Role: task.RoleAgent, Parts: []task.Part{task.Text("no")}}},
		}}},
		Said: []executor.Said{{TaskID: "task-1", Artifact: &task.Artifact{ID: "a", Name: "n", Parts: []task.Part{{Kind: task.PartURL}}}}, {TaskID: run.TaskID, Left: 5, Message: &task.Message{Role: task.RoleUser, Parts: []task.Part{}}}},
	}
	doc, err := EncodeRun(t.Context(), run, History{})
	require.NoError(t, err)
	got, err := DecodeRun(doc)
	require.NoError(t, err)
	require.Equal(t, run.IdempotencyKey(), got.Run.IdempotencyKey())
	require.JSONEq(t, `{"page":7}`, string(got.Checkpoint))
	require.Equal(t, run.Memory.(*executortest.Memory).Refs, got.References)
	want := *run
	want.Memory, want.ID, want.Key = nil, got.Run.ID, got.Run.Key
	require.Equal(t, &want, got.Run)

	raw, err := Marshal(NewHistory(run.TaskID, run.Memory.(*executortest.Memory).Said, "older"))
	require.NoError(t, err)
	said, next, err := DecodeHistory(raw, run.TaskID)
	require.NoError(t, err)
	require.Equal(t, "older", next)
	require.Equal(t, run.Memory.(*executortest.Memory).Said, said)

	for text, in := range map[string]*executor.Resumed{
		"json":  {Method: "POST", Query: "a=1", ContentType: "application/json", Body: []byte(`{"ok":true}`)},
		"text":  {Method: "POST", ContentType: "text/plain", Body: []byte("yes")},
		"bytes": {Method: "POST", Body: []byte{0xff, 0}},
		"none":  {Method: "GET"},
	} {
		run.Input = &executor.Input{Source: executor.SourceResume, Resumed: in}
		doc, err := EncodeRun(t.Context(), run, History{})
		require.NoError(t, err, text)
		got, err := DecodeRun(doc)
		require.NoError(t, err, text)
		require.Equal(t, run.Input, got.Run.Input, text)
	}
	for want, doc := range map[string]string{
		"the version 2": `{"version":2}`, "not understood": `{"version":`, "parts[0]": `{"version":1,"message":{"role":"user","parts":[{"future":1}]}}`,
	} {
		_, err := DecodeRun([]byte(doc))
		require.ErrorContains(t, err, want)
	}
}

func TestErrorsAreForOperators(t *testing.T) {
	t.Parallel()
	for event, want := range map[string]string{
		`{"type":"fail","message":"no"}`:                                                                                 "",
		`{"type":"fail","message":"no","error":{"message":"gone"}}`:                                                      "gone",
		`{"type":"fail","message":"no","error":{"type":"KeyError","message":"gone"}}`:                                    "KeyError: gone",
		`{"type":"fail","message":"no","error":{"type":"KeyError","place":"a.py:7","message":"x","trace":"one\ntwo\n"}}`: "KeyError at a.py:7: x\none\ntwo",
	} {
		out := executortest.NewRecorder()
		_, err := play(t, executortest.NewRun(""), out, event)
		require.NoError(t, err)
		require.Equal(t, want, out.Events()[0].Cause)
		require.Equal(t, "no", out.Events()[0].Message.FirstText())
	}
}

func TestErrorsAreWrittenAsTheyAreRead(t *testing.T) {
	t.Parallel()
	e := Event{Action: Status, State: task.StateFailed, Message: &task.Message{Parts: []task.Part{task.Text("no")}}, Error: &Error{Type: "*fs.PathError", Message: "gone"}}
	raw, err := Encode(&e)
	require.NoError(t, err)
	require.JSONEq(t, `{"type":"fail","message":{"parts":[{"text":"no"}]},"error":{"type":"*fs.PathError","message":"gone"}}`, string(raw))
}
