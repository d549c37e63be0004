package agent

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/executortest"
)

func adapted(t *testing.T, run *executor.Run, f Func) (*executortest.Recorder, error) {
	t.Helper()
	out := executortest.NewRecorder()
	return out, adapt(f).Execute(t.Context(), run, out)
}

func TestAdapterPassesWholeRun(t *testing.T) {
	t.Parallel()
	run := executortest.NewRun("hello")
	run.Turn, run.Try, run.Attempt = 2, 3, 4
	run.Metadata, run.TurnMetadata = json.RawMessage(`{"k":1.0}`), json.RawMessage(`{"t":1}`)
	run.AcceptedOutputModes, run.Extensions, run.Scopes = []string{"m"}, []string{"e"}, []string{"s"}
	run.Traceparent, run.Deadline = "parent", time.Unix(1, 0)
	run.Message.References = []string{"task-0"}
	run.Memory = &executortest.Memory{
		Messages: []task.Message{{Role: task.RoleAgent, Parts: []task.Part{task.Text("sure?")}}},
		Stored:   json.RawMessage(`{"page":7}`),
		Refs: []executor.Reference{{TaskID: "task-0", ContextID: "c", State: task.StateFailed, Said: []executor.Said{
			{TaskID: "task-0", State: task.StateFailed, Message: &task.Message{ID: "m", Role: task.RoleAgent, Parts: []task.Part{task.Text("no")}}},
		}}},
		Said: []executor.Said{{TaskID: "task-1", Left: 5, Artifact: &task.Artifact{ID: "a", Name: "n"}}},
	}
	_, err := adapted(t, run, func(ctx context.Context, run *Run, _ Emitter) error {
		require.Equal(t, "hello", run.Text())
		require.Equal(t, User, run.Message.Role)
		require.Equal(t, []any{"task-1", "context-1", "agent", "tenant", "owner", 2, 3, 4},
			[]any{run.TaskID, run.ContextID, run.Agent, run.Tenant, run.Owner, run.Turn, run.Try, run.Attempt})
		require.Equal(t, "01020304-0506-0708-0900-000000000000:2", run.IdempotencyKey())
		require.JSONEq(t, `{"k":1.0}`, string(run.Metadata))
		require.JSONEq(t, `{"t":1}`, string(run.TurnMetadata))
		require.Equal(t, []any{[]string{"m"}, []string{"e"}, []string{"s"}, "parent", time.Unix(1, 0)},
			[]any{run.AcceptedOutputModes, run.Extensions, run.Scopes, run.Traceparent, run.Deadline})
		refs, err := run.References(ctx)
		require.NoError(t, err)
		require.Equal(t, []Reference{{TaskID: "task-0", ContextID: "c", State: "failed", Said: []Said{
			{TaskID: "task-0", Role: Agent, Parts: []Part{TextPart("no")}, MessageID: "m", State: "failed"},
		}}}, refs)
		said, err := run.Dialogue(ctx, DialogueOptions{})
		require.NoError(t, err)
		require.Equal(t, []Said{{TaskID: "task-1", Role: Agent, Parts: []Part{}, ArtifactID: "a", Name: "n", Omitted: 5}}, said)
		history, err := run.History(ctx)
		require.NoError(t, err)
		require.Equal(t, "sure?", history[0].Text())
		require.Equal(t, Agent, history[0].Role)
		var stored struct{ Page int }
		found, err := run.Checkpoint(ctx, &stored)
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, 7, stored.Page)
		return nil
	})
	require.NoError(t, err)
}

func TestRunLiteralWorksWithoutServer(t *testing.T) {
	t.Parallel()
	run := &Run{Message: Say("hi"), Try: 2, Attempt: 2}
	history, err := run.History(t.Context())
	require.NoError(t, err)
	require.Empty(t, history)
	found, err := run.Checkpoint(t.Context(), nil)
	require.NoError(t, err)
	require.False(t, found)
}

func TestEmitterPassesAllContent(t *testing.T) {
	t.Parallel()
	out, err := adapted(t, executortest.NewRun("hello"), func(ctx context.Context, _ *Run, out Emitter) error {
		return errors.Join(
			out.Working(ctx, Message{}),
			out.Working(ctx, Sayf("%d of %d", 1, 2)),
			out.Artifact(ctx, Text("t", "text")),
			out.Artifact(ctx, File("f.txt", "text/plain", []byte("bytes"))),
			out.Artifact(ctx, URL("u", "https://example.com/u", "text/html")),
			out.Artifact(ctx, Data("d", json.RawMessage(`{"z":1.0,"a":2}`))),
			out.Chunk(ctx, Chunk{Artifact: Artifact{ID: "c", Parts: []Part{TextPart("1")}}}),
			out.Chunk(ctx, Chunk{Artifact: Artifact{ID: "c", Parts: []Part{TextPart("2")}}, Append: true, Last: true}),
			out.Checkpoint(ctx, map[string]int{"page": 1}),
		)
	})
	require.NoError(t, err)
	events := out.Events()
	require.Nil(t, events[0].Message)
	require.Equal(t, "1 of 2", events[1].Message.FirstText())
	require.JSONEq(t, `{"page":1}`, string(events[8].Run.Checkpoint))
	require.Empty(t, cmp.Diff([]task.Artifact{
		{ID: "artifact-1", Name: "t", Parts: []task.Part{task.Text("text")}},
		{ID: "artifact-2", Name: "f.txt", Parts: []task.Part{
			{Kind: task.PartRaw, Raw: []byte("bytes"), Filename: "f.txt", MediaType: "text/plain"},
		}},
		{ID: "artifact-3", Name: "u", Parts: []task.Part{
			{Kind: task.PartURL, URL: "https://example.com/u", MediaType: "text/html"},
		}},
		{ID: "artifact-4", Name: "d", Parts: []task.Part{{Kind: task.PartData, Data: json.RawMessage(`{"z":1.0,"a":2}`)}}},
		{ID: "c", Parts: []task.Part{task.Text("12")}},
	}, out.Task(t).Artifacts))
}

func TestEmitterEndsRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end   func(context.Context, Emitter) error
		state task.State
	}{
		"ask input": {func(ctx context.Context, out Emitter) error { return out.AskInput(ctx, Say("x")) }, task.StateInputRequired},
		"ask auth":  {func(ctx context.Context, out Emitter) error { return out.AskAuth(ctx, Say("x")) }, task.StateAuthRequired},
		"complete":  {func(ctx context.Context, out Emitter) error { return out.Complete(ctx, Say("x")) }, task.StateCompleted},
		"fail":      {func(ctx context.Context, out Emitter) error { return out.Fail(ctx, Say("x")) }, task.StateFailed},
		"reject":    {func(ctx context.Context, out Emitter) error { return out.Reject(ctx, Say("x")) }, task.StateRejected},
		"reply":     {func(ctx context.Context, out Emitter) error { return out.Reply(ctx, Say("x")) }, task.StateCompleted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := adapted(t, executortest.NewRun("hello"), func(ctx context.Context, _ *Run, out Emitter) error {
				require.NoError(t, c.end(ctx, out))
				return out.Working(ctx, Message{})
			})
			require.ErrorIs(t, err, executortest.ErrSettled)
			require.Len(t, out.Events(), 1)
			require.Equal(t, c.state, out.Events()[0].State)
			require.Equal(t, name == "reply", out.Events()[0].Direct)
		})
	}
}

func TestExecutorErrorsKeepTheirKind(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	_, err := adapted(t, executortest.NewRun(""), func(context.Context, *Run, Emitter) error {
		return Retryable(Failure("try later", cause), time.Minute)
	})
	after, ok := executor.IsRetryable(err)
	require.True(t, ok)
	require.Equal(t, time.Minute, after)
	failure, ok := errors.AsType[*executor.Failure](err)
	require.True(t, ok)
	require.Equal(t, "try later", failure.Msg)
	require.ErrorIs(t, err, cause)
}

func TestChunkRequiresArtifactID(t *testing.T) {
	t.Parallel()
	_, err := adapted(t, executortest.NewRun(""), func(ctx context.Context, _ *Run, out Emitter) error {
		return out.Chunk(ctx, Chunk{Artifact: Text("a", "b")})
	})
	require.ErrorIs(t, err, errNoArtifactID)
}

func TestEmitterRefusesUnreadableParts(t *testing.T) {
	t.Parallel()
	untold := []Part{TextPart("a"), {Text: "b"}}
	out, err := adapted(t, executortest.NewRun(""), func(ctx context.Context, _ *Run, out Emitter) error {
		for _, err := range []error{
			out.Working(ctx, Message{Parts: untold}),
			out.Reply(ctx, Message{Parts: untold}),
			out.Artifact(ctx, Artifact{Parts: untold}),
			out.Chunk(ctx, Chunk{Artifact: Artifact{ID: "c", Parts: untold}}),
		} {
			require.ErrorContains(t, err, "parts[1] has no valid Kind")
		}
		require.ErrorIs(t, out.Reply(ctx, Message{}), errNoParts)
		return out.Artifact(ctx, Artifact{})
	})
	require.ErrorIs(t, err, errNoParts)
	require.Empty(t, out.Events())
}

func TestStateInGo(t *testing.T) {
	t.Parallel()
	run := fromRun(executortest.NewRun("hello"))
	type memory struct{ Visits int }
	for _, of := range []Scope{OfTask, OfContext} {
		m := memory{Visits: -1}
		version, err := run.State(t.Context(), of, &m)
		require.NoError(t, err)
		require.Zero(t, version)
		require.Equal(t, -1, m.Visits, "nothing is stored, so nothing is decoded")
		first, err := run.SetState(t.Context(), of, memory{1}, 0)
		require.NoError(t, err)
		_, err = run.SetState(t.Context(), of, memory{2}, 0)
		require.ErrorIs(t, err, ErrStateChanged)
		version, err = run.State(t.Context(), of, &m)
		require.NoError(t, err)
		require.Equal(t, first, version)
		require.Equal(t, 1, m.Visits)
		_, err = run.SetState(t.Context(), of, nil, AnyVersion)
		require.NoError(t, err)
		version, err = run.State(t.Context(), of, &m)
		require.NoError(t, err)
		require.Zero(t, version)
	}
	_, err := run.SetState(t.Context(), OfTask, func() {}, 0)
	require.ErrorContains(t, err, "encode the state")
	_, err = (&Run{}).SetState(t.Context(), OfTask, 1, 0)
	require.ErrorIs(t, err, errNoMemory)
}
