package demo_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/demo"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/executortest"
)

// does is the record of a run that must succeed.
func does(t *testing.T, run *executor.Run) *executortest.Recorder {
	t.Helper()
	out := executortest.NewRecorder()
	require.NoError(t, demo.New().Execute(t.Context(), run, out))
	return out
}

func TestArtifactScripts(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]task.Part{
		"echo:hi there": task.Text("hi there"),
		"echo:":         task.Text(""),
		"echo: a:b ":    task.Text(" a:b "),
		"just talking":  task.Text("just talking"),
		"hold on":       task.Text("hold on"),
		"":              task.Text(""),
		"file": {
			Kind: task.PartRaw, Raw: []byte("Hello from Holdfast.\n"), Filename: "hello.txt", MediaType: "text/plain",
		},
	} {
		out, run := executortest.NewRecorder(), executortest.NewRun(script)
		require.NoError(t, demo.New().Execute(t.Context(), run, out), script)
		events := out.Events()
		require.Len(t, events, 1, script)
		require.Equal(t, []task.Part{want}, events[0].Artifact.Parts, script)
		require.True(t, events[0].Last, script)
		require.Zero(t, run.Memory.(*executortest.Memory).Reads, "a first turn does not read the history")
	}
}

func TestDataKeepsItsNumbers(t *testing.T) {
	t.Parallel()
	out := does(t, executortest.NewRun("data"))
	data := out.Events()[0].Artifact.Parts[0].Data
	require.True(t, json.Valid(data))
	require.Contains(t, string(data), "12345678901234567890")
}

func TestUnknownMessagesAreEchoedWhole(t *testing.T) {
	t.Parallel()
	run := executortest.NewRun("look")
	run.Message.Parts = append(run.Message.Parts,
		task.Part{Kind: task.PartData, Data: json.RawMessage(`{"n":1.0}`), Metadata: json.RawMessage(`{"k":[]}`)})
	require.Empty(t, cmp.Diff(run.Message.Parts, does(t, run).Events()[0].Artifact.Parts))
}

func TestSettlingScripts(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]struct {
		state  task.State
		direct bool
		text   string
	}{
		"ask:Which city?": {task.StateInputRequired, false, "Which city?"},
		"auth":            {task.StateAuthRequired, false, "Authenticate, then send any message to go on."},
		"fail:no luck":    {task.StateFailed, false, "no luck"},
		"reject:not me":   {task.StateRejected, false, "not me"},
		"message:hello":   {task.StateCompleted, true, "hello"},
	} {
		out := does(t, executortest.NewRun(script))
		events := out.Events()
		require.Len(t, events, 1, script)
		require.Equal(t, want.state, events[0].State, script)
		require.Equal(t, want.direct, events[0].Direct, script)
		require.Equal(t, want.text, events[0].Message.FirstText(), script)
	}
}

func TestMessageAfterQuestionAnswersIt(t *testing.T) {
	t.Parallel()
	secondTurn := func(first, question, second string) *executor.Run {
		run := executortest.NewRun(second)
		run.Turn = 2
		run.Memory = &executortest.Memory{Messages: []task.Message{
			{Role: task.RoleUser, Parts: []task.Part{task.Text(first)}},
			{Role: task.RoleAgent, Parts: []task.Part{task.Text(question)}},
		}}
		return run
	}
	out := does(t, secondTurn("ask:Which city?", "Which city?", "fail:Zürich"))
	require.Contains(t, out.Text(t), "fail:Zürich")

	again := secondTurn("ask:Which city?", "Which city?", "ask:Which street?")
	again.Turn = 3
	out = does(t, again)
	require.Equal(t, "answer-2", out.Events()[0].Artifact.ID)
	require.Equal(t, "You answered: ask:Which street?", out.Events()[0].Artifact.Parts[0].Text)
	require.Equal(t, task.StateInputRequired, out.Events()[1].State)
	require.Equal(t, "Which street?", out.Events()[1].Message.FirstText())

	require.Empty(t, does(t, secondTurn("auth", "Authenticate", "done")).Events())

	require.Equal(t, "next", does(t, secondTurn("sleep=1ms", "", "echo:next")).Text(t))
}

func TestHoldWorksUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	out := executortest.NewRecorder()
	done := executortest.Go(ctx, demo.New(), executortest.NewRun("hold"), out)
	require.Equal(t, task.StateWorking, out.Await(t, 1)[0].State)
	cancel(executor.ErrCanceled)
	require.ErrorIs(t, executortest.Wait(t, done), executor.ErrCanceled)
}

func TestSleepAndStepsWait(t *testing.T) {
	t.Parallel()
	for script, c := range map[string]struct {
		waits    time.Duration
		progress []string
	}{"sleep=1h": {time.Hour, nil}, "steps=2 delay=1h": {2 * time.Hour, []string{"step 1 of 2", "step 2 of 2"}}} {
		synctest.Test(t, func(t *testing.T) {
			start, out := time.Now(), executortest.NewRecorder()
			require.NoError(t, demo.New().Execute(t.Context(), executortest.NewRun(script), out))
			require.Equal(t, c.waits, waittest.Elapsed(start))
			for i, text := range c.progress {
				require.Equal(t, task.StateWorking, out.Events()[i].State)
				require.Equal(t, text, out.Events()[i].Message.FirstText())
			}
		})
	}
}

func TestCallEndsTheRun(t *testing.T) {
	t.Parallel()
	out := does(t, executortest.NewRun("call=b,c echo:hi"))
	calls := out.Events()[0].Run.Calls
	require.False(t, calls[0].Relay)
	require.Equal(t, []string{"b", "echo:hi", "c", "echo:hi"}, []string{calls[0].Agent, calls[0].Message.FirstText(), calls[1].Agent, calls[1].Message.FirstText()})
	run := executortest.NewRun("")
	run.Turn, run.Input = 2, &executor.Input{Source: executor.SourceCalls, Results: []executor.Result{
		{Agent: "b", State: task.StateCompleted, Artifacts: []task.Artifact{{Parts: []task.Part{task.Text("hi")}}}},
		{Agent: "c", State: task.StateRejected, Error: "no"},
	}}
	require.Equal(t, "b completed: hi\nc rejected: no\n", does(t, run).Text(t))

	require.True(t, does(t, executortest.NewRun("relay=b steps=2")).Events()[0].Run.Calls[0].Relay)
}

func TestWaitEndsTheRun(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]task.RunNote{
		"wait=1h":               {Outcome: task.RunWaits, For: time.Hour},
		"wait=1h interruptible": {Outcome: task.RunWaits, For: time.Hour, Interruptible: true},
		"wait=0s":               {Outcome: task.RunWaits, For: 1},
	} {
		out := does(t, executortest.NewRun(script))
		require.Len(t, out.Events(), 1)
		require.Equal(t, &want, out.Events()[0].Run, script)
	}
	for interrupted, want := range map[bool]string{false: "Waited.", true: "You ended the wait: now"} {
		run := executortest.NewRun("now")
		run.Turn, run.Input = 2, &executor.Input{Source: executor.SourceTimer, Interrupted: interrupted}
		require.Equal(t, want, does(t, run).Text(t))
	}
}

func TestCrashPanics(t *testing.T) {
	t.Parallel()
	require.Panics(t, func() {
		_ = demo.New().Execute(t.Context(), executortest.NewRun("crash"), executortest.NewRecorder())
	})
}

func TestChunksAreOneArtifact(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		out := does(t, executortest.NewRun("chunks=5 size=100000 delay=20ms"))
		require.Equal(t, 80*time.Millisecond, waittest.Elapsed(start))
		events := out.Events()
		require.Len(t, events, 5)
		for i, e := range events {
			text := e.Artifact.Parts[0].Text
			require.Len(t, text, 100000)
			fields := strings.Fields(text)
			require.Len(t, fields, 3)
			require.Equal(t, fmt.Sprintf("%08d", i), fields[0])
			at, err := strconv.ParseInt(fields[1], 10, 64)
			require.NoError(t, err)
			require.Equal(t, start.Add(time.Duration(i)*20*time.Millisecond).UnixNano(), at)
			require.Equal(t, i > 0, e.Append)
			require.Equal(t, i == 4, e.Last)
			require.Equal(t, events[0].Artifact.ID, e.Artifact.ID)
		}
		require.NotEqual(t, events[0].Artifact.Parts[0].Text[30:], events[1].Artifact.Parts[0].Text[30:])
	})
}

func TestSmallestChunkIsItsHeader(t *testing.T) {
	t.Parallel()
	require.Regexp(t, `^00000000 \d{19} $`, does(t, executortest.NewRun("chunks=1 size=3")).Text(t))
}

func TestChunksContinueAfterACrash(t *testing.T) {
	t.Parallel()
	first, second := executortest.NewRecorder(), executortest.NewRecorder()
	run := executortest.NewRun("chunks=7 size=64")
	lost := errors.New("the worker died")
	require.ErrorIs(t, demo.New().Execute(t.Context(), run, dyingEmitter{Emitter: first, after: 3, err: lost, emitted: new(int)}), lost)

	run.Try, run.Attempt, run.Memory = 2, 2, &executortest.Memory{Events: first.Events()}
	require.NoError(t, demo.New().Execute(t.Context(), run, second))
	events := append(first.Events(), second.Events()...)
	require.Len(t, events, 7)
	for i, e := range events {
		require.Equal(t, fmt.Sprintf("%08d", i), e.Artifact.Parts[0].Text[:8])
		require.Equal(t, i > 0, e.Append)
	}

	third := executortest.NewRecorder()
	run.Try, run.Attempt, run.Memory = 3, 3, &executortest.Memory{Events: events}
	require.NoError(t, demo.New().Execute(t.Context(), run, third))
	require.Empty(t, third.Events(), "all chunks were stored already")
}

// dyingEmitter accepts some artifacts and then refuses.
type dyingEmitter struct {
	executor.Emitter
	after   int
	err     error
	emitted *int
}

func (d dyingEmitter) Artifact(ctx context.Context, c executor.Chunk) error {
	if *d.emitted++; *d.emitted > d.after {
		return d.err
	}
	return d.Emitter.Artifact(ctx, c)
}

func TestInvalidScriptsFailWithReason(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"chunks=abc":               "chunks=abc: not a number from 1 to 1000000",
		"chunks=0":                 "chunks=0: not a number from 1 to 1000000",
		"chunks=1000001":           "chunks=1000001: not a number from 1 to 1000000",
		"chunks=1 size=-1":         "size=-1: not a number from 0 to 1048576",
		"chunks=1 delay=5":         "delay=5: not a duration; write 20ms or 1.5s",
		"chunks=1 sise=5":          "sise=5: unknown; write a stream as chunks=N size=B delay=Dms",
		"sleep=soon":               "sleep=soon: not a duration; write 20ms or 1.5s",
		"sleep=25h":                "sleep=25h: longer than the maximum of 24h0m0s",
		"sleep=-1s":                "sleep=-1s: not a duration; write 20ms or 1.5s",
		"wait=soon":                "wait=soon: not a duration; write 20ms or 1.5s",
		"wait=1s interrupted":      "wait=1s interrupted: not a duration; write 20ms or 1.5s",
		"call= echo:x":             "call= echo:x: calls[0]: needs one of agent, task",
		"call=b":                   "call=b: calls[0].message: needs at least one part",
		"relay=b":                  "relay=b: calls[0].message: needs at least one part",
		"steps=0":                  "steps=0: not a number from 1 to 1000000",
		"steps=1 delay=5":          "delay=5: not a duration; write 20ms or 1.5s",
		"chunks=99999999999999999": "chunks=99999999999999999: not a number from 1 to 1000000",
	} {
		out := executortest.NewRecorder()
		err := demo.New().Execute(t.Context(), executortest.NewRun(script), out)
		failure, ok := errors.AsType[*executor.Failure](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, want, failure.Msg, script)
		require.Empty(t, out.Events(), script)
	}
}
