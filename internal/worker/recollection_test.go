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

// A read of the log ends early at a mebibyte, and the checkpoint may come later.
func TestCheckpointAfterLargeEventsReachesNextTry(t *testing.T) {
	t.Parallel()
	a := does(func(ctx context.Context, run *executor.Run, out executor.Emitter) error {
		if run.Try > 1 {
			stored, err := run.Memory.Checkpoint(ctx)
			require.NoError(t, err)
			require.JSONEq(t, `3`, string(stored))
			earlier, err := run.Memory.Earlier(ctx)
			require.NoError(t, err)
			require.Len(t, earlier, 1+3, "working, and the chunks")
			return nil
		}
		for range 3 {
			_, err := out.Artifact(ctx, text(strings.Repeat("x", 700<<10)))
			require.NoError(t, err)
		}
		require.NoError(t, out.Checkpoint(ctx, json.RawMessage(`3`)))
		return executor.Retryable(errors.New("again"), time.Millisecond)
	})
	a.MaxAttempts = 2
	p := start(t, setup{}, a)
	p.become(p.create("a", "hi"), task.StateCompleted)
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
