package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Large events make the pages of a log short. A run reads on behind them.
func TestRunReadsALargeLog(t *testing.T) {
	t.Parallel()
	const pieces = 5
	text := strings.Repeat("x", 700<<10)
	type seen struct {
		earlier    int
		checkpoint string
		size       int
		said       string
	}
	got := make(chan seen, 1)
	a := does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		if run.Try == 1 {
			empty, err := run.Memory.Task(ctx)
			require.NoError(t, err)
			require.Empty(t, empty.Artifacts)
			require.NoError(t, out.Status(ctx, task.StateWorking, &task.Message{ID: "m-1", Parts: []task.Part{task.Text("at work")}}))
			for range pieces {
				_, err := out.Artifact(ctx, executor.Chunk{Artifact: task.Artifact{ID: "a", Parts: []task.Part{task.Text(text)}}, Append: true})
				require.NoError(t, err)
			}
			require.NoError(t, out.Checkpoint(ctx, json.RawMessage(`7`)))
			return executor.Retryable(errors.New("again"), 1)
		}
		earlier, err := run.Memory.Earlier(ctx)
		require.NoError(t, err)
		checkpoint, err := run.Memory.Checkpoint(ctx)
		require.NoError(t, err)
		whole, err := run.Memory.Task(ctx)
		require.NoError(t, err)
		artifacts := 0
		for _, e := range earlier {
			if e.Artifact != nil {
				artifacts++
			}
		}
		got <- seen{artifacts, string(checkpoint), len(whole.Artifacts[0].Parts[0].Text), whole.Status.Message.ID}
		return nil
	})
	a.MaxAttempts = 2
	p := start(t, setup{}, a)
	p.become(p.create("a", "x"), task.StateCompleted)
	require.Equal(t, seen{pieces, "7", pieces * len(text), "m-1"}, await(t, got))
}

// An executor sees the task as its message found it, whatever earlier tries have emitted, and all artifacts.
func TestSnapshotIsOfTheTimeBeforeTheMessage(t *testing.T) {
	t.Parallel()
	type seen struct {
		Before    int // artifacts
		State     task.State
		Message   string
		History   []string
		Artifacts []string
	}
	snapshots := make(chan seen, 10)
	a := does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		snapshot, before, err := run.Memory.Snapshot(ctx)
		require.NoError(t, err)
		s := seen{Before: before, State: snapshot.Status.State, Message: snapshot.Status.Message.FirstText()}
		for i := range snapshot.History {
			s.History = append(s.History, snapshot.History[i].FirstText())
		}
		for i := range snapshot.Artifacts {
			s.Artifacts = append(s.Artifacts, snapshot.Artifacts[i].Parts[0].Text)
		}
		snapshots <- s
		_, err = out.Artifact(ctx, text(run.Message.FirstText()))
		require.NoError(t, err)
		require.NoError(t, out.Status(ctx, task.StateWorking, &task.Message{Parts: []task.Part{task.Text("busy")}}))
		if run.Try == 1 {
			return executor.Retryable(errors.New("again"), time.Millisecond)
		}
		if run.Turn == 2 {
			return nil
		}
		return out.Status(ctx, task.StateInputRequired, &task.Message{Parts: []task.Part{task.Text("where?")}})
	})
	a.MaxAttempts = 2
	p := start(t, setup{}, a)
	h := p.create("a", "1")
	p.become(h, task.StateInputRequired)
	p.say(h, "2")
	p.become(h, task.StateCompleted)
	close(snapshots)
	var got []seen
	for s := range snapshots {
		got = append(got, s)
	}
	require.Equal(t, []seen{
		{},
		{Artifacts: []string{"1"}},
		{1, task.StateInputRequired, "where?", []string{"1", "busy", "busy"}, []string{"11"}},
		{1, task.StateInputRequired, "where?", []string{"1", "busy", "busy"}, []string{"112"}},
	}, got)
}

// A message that arrives while the run of an earlier one is active is answered after that run has asked its question.
func TestSnapshotBeforeMessageThatWaited(t *testing.T) {
	t.Parallel()
	said, done := make(chan struct{}), make(chan struct{})
	p := start(t, setup{}, does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		if run.Turn == 1 {
			require.NoError(t, out.Status(ctx, task.StateWorking, nil))
			await(t, said)
			require.NoError(t, out.Status(ctx, task.StateWorking, &task.Message{Parts: []task.Part{task.Text("busy")}}))
			_, err := out.Artifact(ctx, text("x"))
			require.NoError(t, err)
			return out.Status(ctx, task.StateInputRequired, &task.Message{Parts: []task.Part{task.Text("where?")}})
		}
		defer close(done)
		snapshot, before, err := run.Memory.Snapshot(ctx)
		require.NoError(t, err)
		require.Equal(t, 1, before)
		require.Equal(t, task.StateSubmitted, snapshot.Status.State)
		require.Equal(t, "where?", snapshot.Status.Message.FirstText())
		require.Len(t, snapshot.History, 2)
		require.Equal(t, "busy", snapshot.History[1].FirstText())
		return nil
	}))
	h := p.create("a", "1")
	p.become(h, task.StateWorking)
	p.say(h, "2")
	close(said)
	await(t, done)
	p.become(h, task.StateCompleted)
}
